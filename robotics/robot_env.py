"""One robot episode at a time, whatever the family of tasks."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from wmrl_envs.robotics.episodes import Episodes

__all__ = ["RobotEnv"]

E = TypeVar("E", bound=Episodes[Any])


class RobotEnv(gym.Env[dict[str, Any], NDArray[np.float32]], Generic[E]):
    """What the environments of robots share; a family adds its arguments."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}  # type: ignore[misc]  # per class, as Gymnasium's own

    def __init__(self, scene: E) -> None:
        self._scene = scene
        self.render_mode = scene.render_mode
        self.metadata = {**self.metadata, "render_fps": scene.frames_per_second}  # type: ignore[misc]
        self.observation_space, self.action_space = scene.observation_space, scene.action_space

    @property
    def scene(self) -> E:
        """The episode itself, for experts and tests."""
        return self._scene

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Of the draws of task and initial state; ``None`` goes on drawing.
            options: ``{"task": name}`` and ``{"initial_state": number}`` set what is drawn otherwise.

        Raises:
            ConfigurationError: If the task is none of this environment's, or the number is out of range.
        """
        super().reset(seed=seed)
        options = options or {}
        asked = self._scene.task_index(options["task"]) if "task" in options else None
        task, state = self._scene.draw(self.np_random, asked)
        if "initial_state" in options:
            state = self._scene.checked_state(task, options["initial_state"])
        self._scene.begin(0, task, state)
        return dict(self._scene.observations[0]), self._scene.info(0)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a decision.

        Raises:
            ConfigurationError: If the action has another shape, or is not finite.
            gymnasium.error.ResetNeeded: If no episode is under way.
        """
        scene = self._scene
        if scene.decision[0] < 0 or scene.over[0]:
            raise ResetNeeded("no episode is under way: call reset() first")
        reward = scene.step(0, action)
        terminated = scene.terminated(0)
        return dict(scene.observations[0]), reward, terminated, bool(scene.over[0]) and not terminated, scene.info(0)

    def render(self) -> NDArray[np.uint8] | None:
        """Return the present frame, uint8 [render_size, render_size, 3], in render mode ``"rgb_array"``."""
        if self.render_mode is None:
            return None
        if self._scene.decision[0] < 0:
            raise ResetNeeded("there is nothing to render yet: call reset() first")
        return self._scene.render(0)

    def close(self) -> None:
        """Free the renderers."""
        if hasattr(self, "_scene"):
            self._scene.close()
