"""Success of a policy on fresh initial states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.robotics.envs import MetaWorldVectorEnv

__all__ = ["success_rates"]


class Acts(Protocol):
    """Anything that acts."""

    def act(self, observations: Mapping[str, Any], *, deterministic: bool = False) -> NDArray[np.float32]:
        """Return one action per observation."""
        ...


def success_rates(policy: Acts, env: MetaWorldVectorEnv, initial_states: Sequence[int]) -> dict[str, NDArray[np.bool_]]:
    """Return whether a policy solves each task from each initial state, acting without noise.

    Args:
        policy: The policy.
        env: A batched environment of the tasks, without groups.
        initial_states: s numbers, the same for all tasks.

    Returns:
        Task -> bool [s].

    Raises:
        ConfigurationError: If there is no initial state, or episodes end at success, so that a batch does not end
            together.
    """
    if not len(initial_states) or env.scene.terminate_on_success:
        raise ConfigurationError(
            f"{len(initial_states)} initial states and terminate_on_success={env.scene.terminate_on_success}; give at "
            "least one, and an environment of fixed horizon"
        )
    solved: dict[str, NDArray[np.bool_]] = {}
    for task in env.scene.task_names:
        found: list[bool] = []
        for start in range(0, len(initial_states), env.num_envs):
            numbers = list(initial_states[start : start + env.num_envs])
            padded = numbers + [numbers[0]] * (env.num_envs - len(numbers))
            forget = getattr(policy, "reset", None)  # plans that were made for the episodes before
            if forget is not None:
                forget()
            observations, infos = env.reset(options={"task": task, "initial_state": padded})
            for _ in range(env.scene.max_decisions):
                observations, _, _, _, infos = env.step(policy.act(observations, deterministic=True))
            ended = infos.get("final_info", infos)  # under same-step autoreset the next episode has begun
            found += ended["success"][: len(numbers)].tolist()
        solved[task] = np.array(found)
    return solved
