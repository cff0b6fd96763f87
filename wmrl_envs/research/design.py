"""The design interface of the AutoResearch environments: choices in, a vector of numbers out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.research.core import ResearchCore
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.outcome import STATUSES
from wmrl_envs.research.task import KINDS, ResearchTask

__all__ = ["DesignInterface", "shared_design_space", "task_features"]


class DesignInterface:
    """Actions as choices in a space of solutions, observations as numbers in [0, 1].

    Attributes:
        design_space: The space that all tasks share; each task renders it with its own names.
        observation_space: ``Box(0, 1)`` float32 of one episode.
        action_space: ``MultiDiscrete`` over the choices.
    """

    def __init__(self, core: ResearchCore, blocks: Sequence[Sequence[int]] | str | None = None) -> None:
        """Prepare features and renderers.

        Args:
            core: The episodes.
            blocks: Choices that are grouped into one larger choice each, or one of ``PARTITIONS``; ``None`` leaves each
                by itself.

        Raises:
            ConfigurationError: If two tasks have different design spaces, or the blocks do not fit.
            TaskError: If a task has no design space.
        """
        self._core = core
        self._spaces = shared_design_space(core.tasks, blocks)
        self.design_space = self._spaces[0]
        self._features = np.stack([task_features(task) for task in core.tasks])
        self._nvec = np.asarray(self.design_space.nvec, dtype=np.int64)
        # A member's place in a table of its task's code: rendering checks and converts, this is one product.
        self._strides = np.append(np.cumprod(self._nvec[:0:-1])[::-1], 1)
        self._codes: list[dict[int, str]] = [{} for _ in self._spaces]
        self._status_at = self._features.shape[1] + 1
        self._size = self._status_at + len(STATUSES) + 1 + 2
        self.action_space: spaces.Space[Any] = spaces.MultiDiscrete(self._nvec)
        self.observation_space: spaces.Space[Any] = spaces.Box(0.0, 1.0, (self._size,), np.float32)

    def decode(self, actions: Sequence[object] | NDArray[Any], slots: NDArray[np.int64]) -> list[str | None]:
        """Return each slot's rendered solution.

        Args:
            actions: int [num_slots, d], also for slots that are not asked for.
            slots: int64 [m], the slots that take a turn.

        Raises:
            ConfigurationError: If the actions have another shape or dtype, or a choice is out of range.
        """
        choices = np.asarray(actions)
        expected = (self._core.num_slots, len(self._nvec))
        if choices.shape != expected or choices.dtype.kind not in "iu":
            raise ConfigurationError(
                f"expected whole numbers of shape {expected}, one choice per design decision, got "
                f"{choices.dtype} of shape {choices.shape}"
            )
        choices = choices[slots].astype(np.int64, copy=False)
        wrong = (choices < 0) | (choices >= self._nvec)
        if wrong.any():
            row, column = np.argwhere(wrong)[0].tolist()
            raise ConfigurationError(
                f"choice {choices[row, column]} for {self.design_space.names[column]!r} is outside the action space: "
                f"it has {self._nvec[column]} options, 0 to {self._nvec[column] - 1}"
            )
        tasks, members = self._core.task_index[slots].tolist(), (choices @ self._strides).tolist()
        return [self._code(*place) for place in zip(tasks, members, choices, strict=True)]

    def _code(self, task: int, member: int, choices: NDArray[np.int64]) -> str:
        code = self._codes[task].get(member)
        if code is None:
            code = self._codes[task][member] = self._spaces[task].render(choices)
        return code

    def observe(self) -> NDArray[np.float32]:
        """Return the observations of all slots, float32 [num_slots, size] in [0, 1]; a fresh array."""
        core, n = self._core, self._features.shape[1]
        observations = np.zeros((core.num_slots, self._size), dtype=np.float32)
        observations[:, :n] = self._features[core.task_index]
        observations[:, n] = core.turn.clip(0) / core.max_turns
        observations[np.arange(core.num_slots), self._status_at + core.status] = 1.0
        observations[:, -2] = core.last.clip(0.0, 1.0)
        observations[:, -1] = core.best.clip(0.0, 1.0)
        return observations

    def pick(self, observations: NDArray[np.float32], slot: int) -> NDArray[np.float32]:
        """Return one slot's observation out of those of all slots."""
        observation: NDArray[np.float32] = observations[slot].copy()
        return observation


def shared_design_space(
    tasks: Sequence[ResearchTask], blocks: Sequence[Sequence[int]] | str | None = None
) -> list[DesignSpace]:
    """Return the tasks' design spaces, which have to offer the same choices.

    Raises:
        ConfigurationError: If two of them differ, naming the two tasks.
    """
    found = [DesignSpace.of(task, blocks) for task in tasks]
    for task, space in zip(tasks, found, strict=True):
        if (space.names, space.options) != (found[0].names, found[0].options):
            differ = sorted(set(space.names) ^ set(found[0].names)) or [
                name
                for name, ours, theirs in zip(space.names, space.options, found[0].options, strict=True)
                if ours != theirs
            ]
            raise ConfigurationError(
                f"tasks {tasks[0].id!r} and {task.id!r} have different design spaces (they differ in "
                f"{', '.join(differ)}), so one environment cannot hold both; make one environment for each"
            )
    return found


def task_features(task: ResearchTask) -> NDArray[np.float32]:
    """Return what the observation says of a task, float32 [10] in [0, 1]; see ``ResearchDesignEnv`` for the table."""
    columns = task.inventory.features
    rows = task.inventory.train_rows
    numeric = sum(column.dtype != "string" for column in columns)
    missing = sum(column.n_missing for column in columns)
    shares = [numeric, len(columns) - numeric]
    numbers = [
        np.log10(max(rows, 1)) / 7.0,
        np.log10(max(len(columns), 1)) / 4.0,
        *(share / max(len(columns), 1) for share in shares),
        missing / max(rows * len(columns), 1),
    ]
    kind = [float(task.kind == name) for name in KINDS]
    return np.clip(np.array([*numbers, *kind], dtype=np.float32), 0.0, 1.0)
