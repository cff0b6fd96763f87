"""The batched core under the single and the vector environments: episodes side by side, graded in one call a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, GradingError, UnknownTaskError, did_you_mean
from wmrl_envs.research.grading import Grader, Submission, check_graded
from wmrl_envs.research.outcome import STATUSES, Outcome
from wmrl_envs.research.seeding import DRAWS_PER_EPISODE, draw_episode, submission_seeds
from wmrl_envs.research.task import ResearchTask

__all__ = ["NO_OUTCOME", "UNGRADED_FEEDBACK", "GradedBatch", "ResearchCore", "Route", "check_sizes"]

IntArray = NDArray[np.int64]
Route = Callable[[IntArray, list[Submission]], Sequence[Outcome | None]]
"""Grades the submissions of some slots in place of the sandbox: (int64 [m] slots, m submissions) -> m outcomes."""


class GradedBatch(list[Outcome]):
    """Outcomes that a route has checked already, none unknown, and their rewards: reading them once is enough."""

    __slots__ = ("rewards",)

    def __init__(self, outcomes: Sequence[Outcome], rewards: NDArray[np.float64]) -> None:
        """Hold m outcomes and their rewards, float64 [m]."""
        super().__init__(outcomes)
        self.rewards = rewards


NO_OUTCOME = len(STATUSES)
"""Value of ``ResearchCore.status`` before the first turn and after a turn that could not be graded."""

UNGRADED_FEEDBACK = "The solution could not be run: the harness failed, which says nothing about the solution."

_STATUS_INDEX = {status: index for index, status in enumerate(STATUSES)}


def check_sizes(max_turns: int, num_envs: int, group_size: int) -> None:
    """Refuse numbers that no environment can have.

    Raises:
        ConfigurationError: If a number is out of range or ``group_size`` does not divide ``num_envs``.
    """
    for name, value in (("max_turns", max_turns), ("num_envs", num_envs), ("group_size", group_size)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ConfigurationError(f"{name} must be a whole number of at least 1, got {value!r}")
    if num_envs % group_size:
        raise ConfigurationError(
            f"group_size={group_size} does not divide num_envs={num_envs}: every group needs {group_size} "
            f"sub-environments. Use num_envs={num_envs - num_envs % group_size or group_size} or another group_size"
        )


class ResearchCore:
    """Episodes on AutoResearch tasks, ``num_slots`` side by side, in groups of ``group_size`` on one task each.

    A turn submits code, one ``grade`` call answers all slots, and a slot's reward is the improvement of its episode's
    best ladder reward, so that the undiscounted return is the best turn's. What cannot be graded (``None``) improves
    nothing and flags the episode as ungraded.

    Every attribute below is per slot, in slot order, and belongs to the episode that is under way.

    Attributes:
        turn: int64, turns taken; -1 before the first reset. The episode is over at ``max_turns``.
        groups: int64, id of the episode's group, unique among episodes that were not reset with the same seed.
        task_index: int64, position in ``tasks``.
        best: float64, best ladder reward so far in [0, 1], 0 before the first.
        last: float64, ladder reward of the last graded turn in [0, 1], 0 before the first.
        status: int64, index in ``STATUSES`` of the last outcome, or ``NO_OUTCOME``.
        ungraded: bool, whether any turn of the episode could not be graded.
        report: float64, report-half ladder reward of the best turn, NaN where unknown.
        feedback: What the last turn showed, empty before the first.
        code: The last turn's code, where ``keep_code`` is set (for rendering).
        generators: One random generator a slot.
        route: Replaces the sandbox while it is not ``None``.
    """

    def __init__(
        self, tasks: Sequence[ResearchTask], grader: Grader, *, max_turns: int, num_slots: int = 1, group_size: int = 1
    ) -> None:
        """Build the core.

        Args:
            tasks: The tasks that episodes are drawn from, uniformly.
            grader: Grades the submissions.
            max_turns: Turns of every episode, at least 1.
            num_slots: Episodes side by side, at least 1.
            group_size: Neighbouring slots that always share one task; divides ``num_slots``.

        Raises:
            ConfigurationError: If a number is out of range or ``group_size`` does not divide ``num_slots``.
        """
        check_sizes(max_turns, num_slots, group_size)
        self.tasks = tuple(tasks)
        self.grader = grader
        self.route: Route | None = None
        self.keep_code = False
        self.max_turns, self.num_slots, self.group_size = int(max_turns), int(num_slots), int(group_size)
        self._index = {task.id: index for index, task in enumerate(self.tasks)}
        n = self.num_slots
        self.generators: list[np.random.Generator | None] = [None] * n
        self.turn = np.full(n, -1, dtype=np.int64)
        self.groups = np.zeros(n, dtype=np.int64)
        self.keys = np.zeros(n, dtype=np.uint64)
        self.task_index = np.zeros(n, dtype=np.int64)
        self.best, self.last = np.zeros(n), np.zeros(n)
        self.status = np.full(n, NO_OUTCOME, dtype=np.int64)
        self.ungraded = np.zeros(n, dtype=np.bool_)
        self.report = np.full(n, np.nan)
        self.feedback: list[str] = [""] * n
        self.code: list[str | None] = [None] * n

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Bool [num_slots]: whether the slot's episode is over."""
        return self.turn >= self.max_turns

    def reset(self, slots: IntArray, options: Mapping[str, Any] | None = None) -> None:
        """Begin new episodes in whole groups.

        Args:
            slots: int64 [m], ascending; whole groups.
            options: ``{"task": id}`` sets the task; other keys are left alone.

        Raises:
            UnknownTaskError: If the id is none of this environment's tasks.
        """
        chosen = None if options is None or options.get("task") is None else self._find(options["task"])
        draws = np.empty((len(slots), DRAWS_PER_EPISODE), dtype=np.int64)
        for row, slot in enumerate(slots):
            generator = self.generators[slot]
            if generator is None:
                generator = self.generators[slot] = np.random.default_rng()
            draws[row] = draw_episode(generator)
        leaders = np.arange(len(slots)) // self.group_size * self.group_size
        self.groups[slots] = draws[leaders, 0]
        self.keys[slots] = draws[:, 1]
        self.task_index[slots] = draws[leaders, 2] % len(self.tasks) if chosen is None else chosen
        self.turn[slots] = 0
        self.best[slots] = self.last[slots] = 0.0
        self.status[slots] = NO_OUTCOME
        self.ungraded[slots] = False
        self.report[slots] = np.nan
        for slot in slots.tolist():
            self.feedback[slot] = ""
            self.code[slot] = None

    def step(
        self, slots: IntArray, codes: Sequence[str | None]
    ) -> tuple[NDArray[np.float64], Sequence[Outcome | None]]:
        """Take one turn in some slots; nothing changes if grading raises.

        Args:
            slots: int64 [m], whose episodes are under way.
            codes: The m solutions, ``None`` where a reply held none.

        Returns:
            float64 [m] improvements of the best ladder reward, and the m outcomes.

        Raises:
            GradingError: If the grader breaks its contract.
        """
        outcomes = self._grade(slots, codes)
        if isinstance(outcomes, GradedBatch):
            rewards = self._improve(slots, outcomes, outcomes.rewards)
        else:
            rewards = np.zeros(len(slots))
            rows = [row for row, outcome in enumerate(outcomes) if outcome is not None]
            graded = [outcome for outcome in outcomes if outcome is not None]
            if rows:
                rewards[rows] = self._improve(slots[rows], graded, np.array([outcome.reward for outcome in graded]))
        self.turn[slots] += 1
        for slot, code, outcome in zip(slots.tolist(), codes, outcomes, strict=True):
            if self.keep_code:
                self.code[slot] = code
            self.feedback[slot] = UNGRADED_FEEDBACK if outcome is None else outcome.feedback
            self.status[slot] = NO_OUTCOME if outcome is None else _STATUS_INDEX[outcome.status]
            if outcome is None:
                self.ungraded[slot] = True
        return rewards, outcomes

    def _improve(self, at: IntArray, graded: Sequence[Outcome], known: NDArray[np.float64]) -> NDArray[np.float64]:
        """Take graded turns into the episodes of slots ``at`` ([m]); return what each improves the best by, [m]."""
        best = self.best[at]
        better = known > best
        # The first graded turn is the best so far even at reward 0.
        first = np.flatnonzero(better | (np.isnan(self.report[at]) & (known == best)))
        reported = [graded[row].report_reward for row in first.tolist()]
        self.report[at[first]] = np.array(reported, dtype=np.float64)
        self.best[at] = np.maximum(best, known)
        self.last[at] = known
        return np.where(better, known - best, 0.0)

    def _grade(self, slots: IntArray, codes: Sequence[str | None]) -> Sequence[Outcome | None]:
        seeds = submission_seeds(self.keys[slots], self.turn[slots])
        submissions = [
            Submission(self.tasks[task], code, seed, final=turn + 1 >= self.max_turns)
            for task, code, seed, turn in zip(
                self.task_index[slots].tolist(), codes, seeds, self.turn[slots].tolist(), strict=True
            )
        ]
        if not submissions:
            return []
        grader = self.grader if self.route is None else self.route
        outcomes = self.grader.grade(submissions) if self.route is None else self.route(slots, submissions)
        if isinstance(outcomes, GradedBatch) and len(outcomes) == len(submissions):
            return outcomes
        if not isinstance(outcomes, Sequence):
            raise GradingError(f"{type(grader).__name__} returned {outcomes!r}; it must return a list of outcomes")
        check_graded(grader, submissions, outcomes)
        for outcome in outcomes:
            if outcome is not None and not isinstance(outcome, Outcome):
                raise GradingError(
                    f"{type(grader).__name__} returned {outcome!r} for a submission; it must return an Outcome, or "
                    "None where nothing is known"
                )
        return list(outcomes)

    def _find(self, task: object) -> int:
        if not isinstance(task, str) or task not in self._index:
            raise UnknownTaskError(
                f"options['task'] is {task!r}, none of this environment's tasks: {', '.join(self._index)}."
                f"{did_you_mean(str(task), self._index)} Pass others as tasks= when making the environment"
            )
        return self._index[task]
