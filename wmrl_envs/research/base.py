"""What the single and the vector environments have in common: the seam that wrappers use, state, closing."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from wmrl_envs.errors import RenderModeError
from wmrl_envs.research.configuration import close_grader
from wmrl_envs.research.core import ResearchCore, Route
from wmrl_envs.research.grading import Grader
from wmrl_envs.research.task import ResearchTask

__all__ = ["CoreSeam", "Interface", "check_render_mode"]


class Interface(Protocol):
    """Turns actions into code and episodes into observations; see ``TextInterface`` and ``DesignInterface``."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]

    def decode(self, actions: Any, slots: NDArray[np.int64]) -> list[str | None]:
        """Return the code of the slots that take a turn."""
        ...

    def observe(self) -> Any:
        """Return the observations of all slots."""
        ...

    def pick(self, observations: Any, slot: int) -> Any:
        """Return one slot's observation."""
        ...


class CoreSeam:
    """Attributes of ``env.unwrapped`` that wrappers and trainers rely on, single and vector alike."""

    _core: ResearchCore
    _owns_grader = False  # also for one whose construction failed: older Gymnasium closes it when it is collected

    @property
    def grader(self) -> Grader:
        """The sandbox that executes solutions for real, whatever ``route`` is."""
        return self._core.grader

    @property
    def route(self) -> Route | None:
        """Grades in place of the sandbox: ``(int64 [m] slots, submissions) -> outcomes``; ``None`` executes.

        Only whoever grades knows what was executed and what predicted, so ``info["wmrl"]`` is left to them.
        """
        return self._core.route

    @route.setter
    def route(self, route: Route | None) -> None:
        self._core.route = route

    @property
    def num_slots(self) -> int:
        """Episodes side by side; 1 for a single environment."""
        return self._core.num_slots

    @property
    def group_size(self) -> int:
        """Neighbouring slots that share a task."""
        return self._core.group_size

    @property
    def groups(self) -> NDArray[np.int64]:
        """int64 [num_slots]: id of the group of the episode that is under way; a copy."""
        return self._core.groups.copy()

    @property
    def tasks(self) -> tuple[ResearchTask, ...]:
        """The tasks that episodes are drawn from."""
        return self._core.tasks

    @property
    def max_turns(self) -> int:
        """Turns of every episode."""
        return self._core.max_turns

    def _close_grader(self) -> None:
        if self._owns_grader:
            close_grader(self._core.grader)

    def _screen(self, slot: int) -> str:
        """Return the last code and what the terminal showed, for ``render``."""
        core = self._core
        title = f"{core.tasks[core.task_index[slot]].id}, turn {max(int(core.turn[slot]), 0)} of {core.max_turns}"
        return f"{title}, best {core.best[slot]:.3f}\n{core.code[slot] or ''}\n{core.feedback[slot]}"


def check_render_mode(render_mode: str | None) -> str | None:
    """Return the render mode.

    Raises:
        RenderModeError: If it is neither ``None`` nor ``"ansi"``.
    """
    if render_mode not in (None, "ansi"):
        raise RenderModeError(f"render_mode must be None or 'ansi' (the code and its outcome), got {render_mode!r}")
    return render_mode
