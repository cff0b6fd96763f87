"""Entry points of the environments that come wrapped: environment -> ``WorldModelWrapper`` -> ``CorrectionWrapper``.

A wrapped id has entry points of its own: Gymnasium's ``additional_wrappers`` cannot wrap the batched environment.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import gymnasium as gym

from wmrl_envs.errors import ConfigurationError, did_you_mean
from wmrl_envs.research.base import check_render_mode
from wmrl_envs.research.env import ResearchDesignEnv, ResearchEnv
from wmrl_envs.research.vector_env import ResearchDesignVectorEnv, ResearchVectorEnv
from wmrl_envs.wrappers import CorrectionWrapper, WorldModelWrapper, vector

__all__ = ["research_design_wmrl", "research_design_wmrl_vector", "research_wmrl", "research_wmrl_vector"]

_DESIGN, _TEXT = "wmrl/ResearchDesign-v0", "wmrl/Research-v0"
WrappedT = TypeVar("WrappedT")


def research_design_wmrl(**kwargs: Any) -> gym.Env[Any, Any]:
    """Return ``wmrl/ResearchDesign-v0`` with predicted rewards that a thin stream of real executions corrects.

    Args:
        **kwargs: Arguments of ``ResearchDesignEnv`` (``tasks``, ``sandbox``, ``max_turns``, ...), of
            ``WorldModelWrapper`` (``world_model``, ``world_model_kwargs``, ``anchor_feedback``, ``run``, ...) and of
            ``CorrectionWrapper`` (``anchor_fraction``, ``scheme``, ``run``, ``training``, ...), under their own names.

    Raises:
        ConfigurationError: If a name is none of theirs, or an argument cannot work.

    Example:
        >>> import gymnasium as gym, wmrl_envs
        >>> env = gym.make("wmrl/ResearchDesignWMRL-v0", tasks="titanic", anchor_fraction=0.2, run="example")
        >>> env.close()
    """
    return _single(_DESIGN, ResearchDesignEnv, kwargs)


def research_design_wmrl_vector(num_envs: int = 1, **kwargs: Any) -> gym.vector.VectorEnv[Any, Any, Any]:
    """Return the batched twin of ``research_design_wmrl``.

    Args:
        num_envs: Sub-environments.
        **kwargs: As for ``research_design_wmrl``, with ``ResearchDesignVectorEnv`` (``group_size``,
            ``autoreset_mode``) in place of ``ResearchDesignEnv``.

    Raises:
        ConfigurationError: If a name is none of theirs, or an argument cannot work.
    """
    return _vector(_DESIGN, ResearchDesignVectorEnv, num_envs, kwargs)


def research_wmrl(**kwargs: Any) -> gym.Env[Any, Any]:
    """Return ``wmrl/Research-v0``, wrapped as ``research_design_wmrl`` is; the same arguments, of ``ResearchEnv``."""
    return _single(_TEXT, ResearchEnv, kwargs)


def research_wmrl_vector(num_envs: int = 1, **kwargs: Any) -> gym.vector.VectorEnv[Any, Any, Any]:
    """Return the batched twin of ``research_wmrl``; the same arguments, of ``ResearchVectorEnv``."""
    return _vector(_TEXT, ResearchVectorEnv, num_envs, kwargs)


def _single(env_id: str, base: type, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
    own, world_model, correction = _split(kwargs, base, WorldModelWrapper, CorrectionWrapper)
    check_render_mode(own.get("render_mode"))  # before Gymnasium warns of it
    # Made by id, so that the wrappers know the environment by its arguments; the wrapped id replaces its spec.
    env = gym.make(env_id, disable_env_checker=True, **own).unwrapped
    return _closing(env, lambda: CorrectionWrapper(WorldModelWrapper(env, **world_model), **correction))


def _vector(env_id: str, base: type, num_envs: int, kwargs: Mapping[str, Any]) -> gym.vector.VectorEnv[Any, Any, Any]:
    own, world_model, correction = _split(kwargs, base, vector.WorldModelWrapper, vector.CorrectionWrapper)
    env = gym.make_vec(env_id, num_envs=num_envs, vectorization_mode="vector_entry_point", **own)
    return _closing(env, lambda: vector.CorrectionWrapper(vector.WorldModelWrapper(env, **world_model), **correction))


def _split(kwargs: Mapping[str, Any], *owners: type) -> list[dict[str, Any]]:
    """Share keyword arguments out among constructors by name; one that several take goes to all of them."""
    names = [set(inspect.signature(owner).parameters) - {"env", "num_envs"} for owner in owners]
    for name in kwargs:
        if not any(name in own for own in names):
            valid = sorted(set().union(*names))
            raise ConfigurationError(
                f"unknown argument {name!r}; the wrapped environment takes {', '.join(valid)}."
                f"{did_you_mean(name, valid)}"
            )
    return [{name: value for name, value in kwargs.items() if name in own} for own in names]


def _closing(env: Any, wrap: Callable[[], WrappedT]) -> WrappedT:
    """Wrap an environment, and close it if that fails: its sandbox may already have processes."""
    try:
        return wrap()
    except BaseException:
        env.close()
        raise
