"""From the settings of a run to its environment and its agent."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym

import wmrl_envs  # noqa: F401  (registers the environments)
from wmrl_envs.agents import PriorPolicy, design_prior
from wmrl_envs.config import LEARNING_RATES, TrainConfig
from wmrl_envs.errors import ConfigurationError, WMRLError

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

__all__ = ["agent_class", "build_agent", "build_env"]


def build_env(config: TrainConfig, *, run: str) -> gym.vector.VectorEnv[Any, Any, Any]:
    """Make the wrapped vector environment of a run; nothing is executed before its first reset.

    Args:
        config: The run's settings.
        run: Name under which wrapped environments of this process share one correction.
    """
    world_model_kwargs: dict[str, Any] = {}
    if config.world_model == "learned":
        world_model_kwargs = {
            "warmup": config.warmup,
            "warmup_source": config.warmup_source,
            "refit_every": config.refit_every,
            "seed": config.seed,
        }
    return gym.make_vec(
        "wmrl/ResearchDesignWMRL-v0",
        num_envs=config.num_envs,
        group_size=config.group_size,
        autoreset_mode=gym.vector.AutoresetMode.SAME_STEP,
        tasks=list(config.tasks),
        blocks=config.actions,
        max_turns=config.turns,
        sandbox=config.sandbox,
        isolation=config.isolation,
        world_model=config.world_model,
        world_model_kwargs=world_model_kwargs,
        anchor_fraction=config.anchor_fraction,
        anchor_feedback=config.anchor_feedback,
        scheme=config.reward,
        ramp=config.ramp,
        seed=config.seed,
        run=run,
    )


def agent_class(name: str) -> type[BaseAlgorithm]:
    """Return an agent's class by its name or as ``module:Class``.

    Raises:
        ConfigurationError: If it cannot be imported, or is no class with stable-baselines3's methods.
    """
    module, _, attribute = name.partition(":")
    if not attribute:
        module = "wmrl_envs.agents" if name == "grpo" else "stable_baselines3"
        attribute = name.upper()
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"agent {name!r} cannot be imported ({error}); write your own as 'module:Class', with the module on the "
            "Python path"
        ) from error
    missing = [method for method in ("learn", "predict", "save", "load") if not hasattr(found, method)]
    if not isinstance(found, type) or missing:
        raise ConfigurationError(
            f"agent {name!r} is no class with stable-baselines3's learn, predict, save and load"
            + (f" (it lacks {', '.join(missing)})" if missing else "")
        )
    return found


def build_agent(config: TrainConfig, env: Any, tensorboard: Path | None = None) -> BaseAlgorithm:
    """Make the agent of a run.

    An on-policy agent starts from the documented prior over solutions, as its policy's initial probabilities.

    Args:
        config: The run's settings; ``options`` go to the agent's constructor as they are.
        env: A stable-baselines3 ``VecEnv`` over ``build_env``'s.
        tensorboard: Folder of TensorBoard events, ``None`` for none.

    Raises:
        ConfigurationError: If the agent does not take the settings.
    """
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

    kind = agent_class(config.agent)
    settings: dict[str, Any] = {
        "policy": "MlpPolicy",
        "seed": config.seed,
        "device": "cpu",
        "tensorboard_log": None if tensorboard is None else str(tensorboard),
    }
    rate = config.learning_rate or LEARNING_RATES.get(config.agent)
    if rate is not None:
        settings["learning_rate"] = rate
    if issubclass(kind, OnPolicyAlgorithm):
        prior = design_prior(env)
        settings |= {"policy": PriorPolicy, "policy_kwargs": {"prior_logits": prior}}
        taken = inspect.signature(kind).parameters
        # A step is one episode of each sub-environment, and a pass over it one minibatch.
        sizes = {"n_steps": config.turns, "batch_size": config.steps_per_update}
        settings |= {name: value for name, value in sizes.items() if name in taken}
    settings |= config.options
    try:
        return kind(settings.pop("policy"), env, **settings)
    except WMRLError:
        raise
    except (TypeError, ValueError, AssertionError) as error:
        raise ConfigurationError(
            f"agent {config.agent!r} cannot be made with {', '.join(settings)}: {error}; its further arguments are "
            "given by options"
        ) from error
