"""One episode over the batched core: what ``ResearchEnv`` and ``ResearchDesignEnv`` share."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded

from wmrl_envs.research.base import CoreSeam, Interface
from wmrl_envs.research.core import ResearchCore
from wmrl_envs.research.infos import single_info
from wmrl_envs.research.state import load_core_state, save_core_state

__all__ = ["SingleEnv"]

_SLOT = np.zeros(1, dtype=np.int64)


class SingleEnv(CoreSeam, gym.Env[Any, Any]):
    """One episode over the batched core."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}  # type: ignore[misc]  # per class, as Gymnasium's own

    def __init__(
        self, core: ResearchCore, interface: Interface, *, owns_grader: bool, report: bool, render_mode: str | None
    ) -> None:
        self._core, self._interface, self._owns_grader = core, interface, owns_grader
        self._report = bool(report)
        self.render_mode = render_mode
        core.keep_code = render_mode is not None
        self.observation_space, self.action_space = interface.observation_space, interface.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Seeds the choice of tasks and the solutions' own seeds.
            options: ``{"task": id}`` sets the task.

        Raises:
            UnknownTaskError: If the id is none of this environment's tasks.
        """
        super().reset(seed=seed)
        self._core.generators[0] = self.np_random
        self._core.reset(_SLOT, options)
        return self._observation(), single_info(self._core, None, report=self._report)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a turn: grade the action's solution.

        Raises:
            ConfigurationError: If the action is outside the action space.
            GradingError: If the grader breaks its contract.
            gymnasium.error.ResetNeeded: If no episode is under way.
        """
        if not 0 <= self._core.turn[0] < self._core.max_turns:
            raise ResetNeeded(
                f"no episode is under way (episodes have {self._core.max_turns} turns): call reset() first"
            )
        codes = self._interface.decode([action], _SLOT)
        rewards, outcomes = self._core.step(_SLOT, codes)
        info = single_info(self._core, outcomes[0], report=self._report)
        return self._observation(), float(rewards[0]), bool(self._core.finished[0]), False, info

    def render(self) -> str | None:
        """Return the last code and what the terminal showed (``render_mode="ansi"``)."""
        return self._screen(0) if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Close the sandbox, if this environment made it."""
        self._close_grader()

    def state_dict(self) -> dict[str, Any]:
        """Return the episode under way as JSON-able data, random numbers included."""
        return {"core": save_core_state(self._core), "seed": self._np_random_seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state.

        Raises:
            CheckpointError: If it was saved with other arguments.
        """
        load_core_state(self._core, state["core"])
        self._np_random, self._np_random_seed = self._core.generators[0], state["seed"]

    def _observation(self) -> Any:
        return self._interface.pick(self._interface.observe(), 0)
