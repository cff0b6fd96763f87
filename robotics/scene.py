"""Meta-World's episodes side by side: which simulators they run on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wmrl_envs.robotics import metaworld
from wmrl_envs.robotics.episodes import Episodes, check_flag
from wmrl_envs.robotics.metaworld import Simulator

__all__ = ["Scene"]

INITIAL_STATES = 2**31


class Scene(Episodes[Simulator]):
    """Episodes of Meta-World's tasks."""

    CAMERAS = metaworld.CAMERAS
    CONTROL_RATE = 80
    STATE_SIZE = 4
    ACTION_SIZE = 4

    def __init__(self, n: int, tasks: str | Sequence[str], *, draw_arm: bool, **settings: Any) -> None:
        """Check the arguments; see ``MetaWorldEnv`` for them."""
        super().__init__(n, **settings)
        self.task_names = metaworld.resolve_tasks(tasks if isinstance(tasks, str) else list(tasks))
        check_flag("draw_arm", draw_arm)
        self._draw_arm = draw_arm

    def initial_states(self, task: int) -> int:
        """Return how many initial states a task has: any seed is one."""
        return INITIAL_STATES

    def task_index(self, name: Any) -> int:
        """Return the index of a task by name, with or without its version."""
        return super().task_index(name.removesuffix("-v3") if isinstance(name, str) else name)

    def make_simulator(self, task: int) -> Simulator:
        """Return a simulator of a task."""
        return Simulator(self.task_names[task], draw_arm=self._draw_arm)
