"""A Gymnasium vector environment as a stable-baselines3 ``VecEnv``.

stable-baselines3 vectorises environments by itself and knows nothing of ``gymnasium.vector``: a batched environment,
such as one that grades all its sub-environments in a single call, could not be trained on. ``SB3VecEnv`` closes the
gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, MissingExtraError

try:
    from stable_baselines3.common.vec_env.base_vec_env import VecEnv
except ImportError as error:
    raise MissingExtraError(
        "the agents need stable-baselines3 and torch, which are not installed: pip install 'wmrl-envs[agents]'"
    ) from error

__all__ = ["SB3VecEnv", "info_list"]


class SB3VecEnv(VecEnv):
    """Adapts a Gymnasium ``VectorEnv`` of any autoreset mode to stable-baselines3.

    A stable-baselines3 environment resets a finished sub-environment within the step that ends it, and hands the last
    observation over as ``info["terminal_observation"]``. What that takes depends on the mode of the environment:

    * ``SAME_STEP`` does just this already; ``final_obs`` and ``final_info`` are moved to their places.
    * ``DISABLED``: the finished sub-environments are reset through ``reset_mask``.
    * ``NEXT_STEP``: the resetting step is taken at once, so that its dummy transition reaches no agent. That needs all
      sub-environments to end together (a fixed horizon), since a step cannot be taken by a part of them.

    Infos become one dict per sub-environment, nested ones included; an entry whose mask says absent is left out.

    Example:
        >>> import gymnasium as gym
        >>> from stable_baselines3 import PPO
        >>> from wmrl_envs.agents import SB3VecEnv
        >>> env = SB3VecEnv(gym.make_vec("CartPole-v1", num_envs=4))
        >>> PPO("MlpPolicy", env, n_steps=8, batch_size=32, device="cpu").learn(32).num_timesteps
        32
        >>> env.close()
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        """Adapt an environment.

        Args:
            env: The vector environment, wrappers included. Statistics (stable-baselines3's ``VecMonitor``) go around
                the adapter.

        Raises:
            ConfigurationError: If ``env`` is no ``VectorEnv``, or its metadata name no autoreset mode.
        """
        if not isinstance(env, VectorEnv):
            raise ConfigurationError(
                f"SB3VecEnv adapts a gymnasium.vector.VectorEnv, got {type(env).__name__}; make one with "
                "gym.make_vec(...), or give a single environment to stable-baselines3's make_vec_env"
            )
        mode = env.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise ConfigurationError(
                f"the environment's metadata['autoreset_mode'] is {mode!r}; it must be one of "
                f"{[str(m) for m in AutoresetMode]} (gymnasium.vector.AutoresetMode)"
            )
        self.env = env
        self.autoreset_mode = mode
        self._actions: Any = None
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> Any:
        """Reset every sub-environment, with the seeds and options given before, and return the observations."""
        seeds: Any = self._seeds if any(seed is not None for seed in self._seeds) else None
        options: dict[str, Any] = dict(self._options[0])
        if any(other != options for other in self._options[1:]):
            raise ConfigurationError(
                "a vector environment resets with one dict of options, the same for all sub-environments"
            )
        observations, infos = self.env.reset(seed=seeds, options=options or None)
        self.reset_infos = info_list(infos, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep the actions for ``step_wait``."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Take the step; finished sub-environments are reset within it."""
        observations, rewards, terminated, truncated, raw_infos = self.env.step(self._actions)
        dones = np.logical_or(terminated, truncated)
        infos = info_list(raw_infos, self.num_envs)
        if dones.any():
            observations = self._autoreset(observations, dones, infos)
            for index in np.flatnonzero(dones):
                infos[index]["TimeLimit.truncated"] = bool(truncated[index] and not terminated[index])
        return observations, np.asarray(rewards, dtype=np.float32), dones, infos

    def _autoreset(self, observations: Any, dones: NDArray[np.bool_], infos: list[dict[str, Any]]) -> Any:
        """Return the observations after the reset of finished sub-environments, and complete the infos in place."""
        finished = np.flatnonzero(dones)
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            for index in finished:
                reset_info = infos[index]
                terminal_observation = reset_info.pop("final_obs")
                infos[index] = reset_info.pop("final_info", {})
                infos[index]["terminal_observation"] = terminal_observation
                self.reset_infos[index] = reset_info
            return observations
        for index in finished:
            infos[index]["terminal_observation"] = _member(observations, int(index))
        if self.autoreset_mode is AutoresetMode.DISABLED:
            fresh, reset_infos = self.env.reset(options={"reset_mask": dones.copy()})
        elif dones.all():
            fresh, _, _, _, reset_infos = self.env.step(self._actions)
        else:
            raise ConfigurationError(
                f"{len(finished)} of {self.num_envs} sub-environments ended without the others; in NEXT_STEP mode a "
                "step cannot reset some of them: make the environment with autoreset_mode=AutoresetMode.SAME_STEP "
                "(gym.make_vec(..., vector_kwargs={'autoreset_mode': ...}) where Gymnasium vectorises it)"
            )
        for slot, info in enumerate(info_list(reset_infos, self.num_envs)):
            if dones[slot]:
                self.reset_infos[slot] = info
        return fresh

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the environment or of the wrapper nearest to the outside, once per index."""
        return [getattr(self._holder(attr_name), attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute where it is, or on the environment itself; a batched environment holds it once for all."""
        if len(list(self._get_indices(indices))) != self.num_envs:
            raise ConfigurationError(
                f"a batched environment holds {attr_name!r} once; it cannot be set on some indices only"
            )
        holder = next((layer for layer in self._layers() if hasattr(layer, attr_name)), self.env.unwrapped)
        setattr(holder, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of the environment or of its outermost wrapper that has it, once, and repeat its result."""
        result = getattr(self._holder(method_name), method_name)(*method_args, **method_kwargs)
        return [result] * len(list(self._get_indices(indices)))

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        """Say whether one of the vector environment's wrappers is of a class."""
        wrapped = any(isinstance(layer, wrapper_class) for layer in self._layers())
        return [wrapped] * len(list(self._get_indices(indices)))

    def get_images(self) -> Sequence[NDArray[Any] | None]:
        """Return what the environment renders, one image per sub-environment."""
        images: Any = self.env.render()
        return list(images) if images is not None else [None] * self.num_envs

    def _layers(self) -> Iterator[Any]:
        layer: Any = self.env
        while True:
            yield layer
            if not isinstance(layer, gym.vector.VectorWrapper):
                return
            layer = layer.env

    def _holder(self, name: str) -> Any:
        for layer in self._layers():
            if hasattr(layer, name):
                return layer
        raise AttributeError(f"neither {type(self.env.unwrapped).__name__} nor its wrappers have an attribute {name!r}")


def info_list(infos: dict[str, Any], num_envs: int) -> list[dict[str, Any]]:
    """Return a vector environment's infos as one dict per sub-environment.

    Args:
        infos: Arrays of length ``num_envs``, or such dicts again, with a mask under ``_key`` beside each ``key``.
        num_envs: Number of sub-environments.

    Returns:
        One dict per sub-environment that holds the keys whose mask is set there (all, where a key has no mask). Numbers
        come as Python scalars.
    """
    result: list[dict[str, Any]] = [{} for _ in range(num_envs)]
    for key, values in infos.items():
        if key.startswith("_"):
            continue
        mask = infos.get(f"_{key}")
        if isinstance(values, dict):
            members: Sequence[Any] = info_list(values, num_envs)
        elif isinstance(values, np.ndarray) and values.ndim == 1:
            members = values.tolist()
        else:
            members = values
        if mask is None or mask.all():
            for info, member in zip(result, members, strict=True):
                info[key] = member
        else:
            for index in np.flatnonzero(mask).tolist():
                result[index][key] = members[index]
    return result


def _member(observations: Any, index: int) -> Any:
    """Return one sub-environment's part of batched observations."""
    if isinstance(observations, dict):
        return {key: _member(value, index) for key, value in observations.items()}
    member = observations[index]
    return member.copy() if isinstance(member, np.ndarray) else member
