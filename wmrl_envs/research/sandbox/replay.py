"""Answers from a table of recorded real executions, so that comparisons repeat exactly and take no time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import RecordingError
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.grading import Grader, Submission, gate
from wmrl_envs.research.outcome import STATUSES, Outcome
from wmrl_envs.research.recording import RECORDING, code_key, data_digest, outcome_of, read_recording, versions
from wmrl_envs.research.task import TASKS_DIR, ResearchTask

__all__ = ["RecordedTable", "ReplaySandbox"]

_logger = logging.getLogger(__name__)
_warned: set[tuple[Path, str]] = set()

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RecordedTable:
    """The recorded executions of one task, by member of its design space.

    Arrays have one row per member of the space, in the order of its indices; rows of members that were not recorded
    hold NaN, or 0 in ``draws``.
    """

    task: ResearchTask
    path: Path
    header: dict[str, Any]
    """First line of the recording: library versions, limits, digest of the data."""
    outcomes: dict[str, tuple[Outcome, ...]]
    """By `code_key` of a solution, what its executions returned, one for each seed that was run."""
    keys: dict[int, str]
    """By index in the design space, the `code_key` of a recorded member."""

    @cached_property
    def space(self) -> DesignSpace:
        """The design space whose members were recorded."""
        return DesignSpace.of(self.task)

    @cached_property
    def _rows(self) -> list[tuple[Outcome, ...]]:
        numbers = list(self.keys)
        for number in numbers[:: max(1, len(numbers) // 50)]:
            if number >= self.space.size or code_key(self.space.solution(number)) != self.keys[number]:
                raise RecordingError(
                    f"the solutions of task {self.task.id!r} have changed since {self.path} was recorded; record them "
                    f"again with: wmrl tasks record {_argument(self.task)}"
                )
        nothing: tuple[Outcome, ...] = ()
        return [self.outcomes[self.keys[i]] if i in self.keys else nothing for i in range(self.space.size)]

    @cached_property
    def draws(self) -> NDArray[np.int64]:
        """Number of recorded executions, int64 ``[size]``."""
        return np.array([len(row) for row in self._rows], dtype=np.int64)

    @property
    def complete(self) -> bool:
        """Whether every member of the space was executed."""
        return bool((self.draws > 0).all())

    @cached_property
    def rewards(self) -> FloatArray:
        """Expected ladder reward on the training half: the mean over executions, float64 ``[size]``."""
        return self._mean([[outcome.reward for outcome in row] for row in self._rows])

    @cached_property
    def report_rewards(self) -> FloatArray:
        """Expected ladder reward on the report half, float64 ``[size]``."""
        return self._mean([[_reported(outcome) for outcome in row] for row in self._rows])

    @cached_property
    def spreads(self) -> FloatArray:
        """Standard deviation of the training reward over executions, float64 ``[size]``."""
        return np.array([np.std([outcome.reward for outcome in row]) if row else np.nan for row in self._rows])

    @cached_property
    def seconds(self) -> FloatArray:
        """Mean cost of one execution in CPU seconds, float64 ``[size]``."""
        return self._mean([[outcome.seconds for outcome in row] for row in self._rows])

    @cached_property
    def probabilities(self) -> FloatArray:
        """Share of each status, in the order of ``STATUSES``, float64 ``[size, len(STATUSES)]``."""
        shares = np.full((len(self._rows), len(STATUSES)), np.nan)
        for index, row in enumerate(self._rows):
            if row:
                shares[index] = [sum(outcome.status is status for outcome in row) / len(row) for status in STATUSES]
        return shares

    @staticmethod
    def _mean(rows: list[list[float]]) -> FloatArray:
        return np.array([sum(row) / len(row) if row else np.nan for row in rows], dtype=np.float64)


class ReplaySandbox:
    """A grader that looks solutions up instead of running them.

    A solution that was run under several seeds has as many outcomes; `Submission.seed` chooses among them, so a replay
    is as noisy, and as repeatable, as execution. The seconds of an outcome are those that its execution took.

    Args:
        tables: Folder of recordings named ``<task id>.jsonl.gz``; None means the ``recording.jsonl.gz`` in each task's
            folder.
        fallback: Grades what is not recorded: a sandbox or its name, such as ``"process"``; None makes that an error.

    Example:
        >>> from wmrl_envs.research.design_space import DesignSpace
        >>> from wmrl_envs.research.task import load_task
        >>> task = load_task("titanic")
        >>> [outcome] = ReplaySandbox().grade([Submission(task, DesignSpace.of(task).solution(0))])
        >>> outcome.error_type
        'ValueError'
    """

    def __init__(self, tables: Path | str | None = None, *, fallback: Grader | str | None = None) -> None:
        self.tables = None if tables is None else Path(tables)
        self.fallback = fallback
        self._fallback: Grader | None = None if isinstance(fallback, str) else fallback
        self._tables: dict[ResearchTask, tuple[RecordedTable, dict[str, tuple[Outcome, ...]]]] = {}

    def grade(self, submissions: Sequence[Submission]) -> list[Outcome | None]:
        """Return the recorded outcome of each submission, in order.

        Raises:
            RecordingError: If a task has no recording or a solution is not in it, and there is no fallback.
        """
        answers: list[Outcome | None] = []
        missing: list[int] = []
        for position, submission in enumerate(submissions):
            held = self._tables.get(submission.task)
            # Codes of a design space are the same objects each time, so this lookup costs one cached hash.
            found = held[1].get(submission.code) if held is not None and submission.code is not None else None
            if found is None:
                found = self._look_up(submission)
            if found is None:
                missing.append(position)
                answers.append(None)
            else:
                answers.append(found[submission.seed % len(found)])
        if missing:
            graded = self._grader(submissions[missing[0]]).grade([submissions[position] for position in missing])
            for position, outcome in zip(missing, graded, strict=True):
                answers[position] = outcome
        return answers

    def preload(self, task: ResearchTask) -> None:
        """Read a task's recording now rather than at the first submission.

        Raises:
            RecordingError: If there is none, or it cannot be used.
        """
        self.table(task)

    def table(self, task: ResearchTask) -> RecordedTable:
        """Return a task's recorded executions.

        Raises:
            RecordingError: If there are none, or they cannot be used; the message says how to record them.
        """
        if task not in self._tables:
            self._tables[task] = (_load(task, self._path(task)), {})
        return self._tables[task][0]

    def recorded(self, task: ResearchTask) -> frozenset[str]:
        """Return the solutions of a task's design space that are on record; empty where there is no recording.

        Raises:
            RecordingError: If there is a recording that cannot be used.
        """
        if not self._path(task).is_file():
            return frozenset()
        table = self.table(task)
        return frozenset(table.space.solution(int(index)) for index in np.flatnonzero(table.draws))

    def expected_report(self, task: ResearchTask) -> FloatArray:
        """Return each member's expected ladder reward on the report half, float64 ``[size]``.

        With it, a policy's reported score is a sum over the members, without sampling.

        Raises:
            RecordingError: If the design space is not recorded whole.
        """
        table = self.table(task)
        if not table.complete:
            raise RecordingError(
                f"{int((table.draws > 0).sum())} of the {table.space.size} members of the design space of task "
                f"{task.id!r} are recorded in {table.path}; record the others with: "
                f"wmrl tasks record {_argument(task)} --members all"
            )
        return table.report_rewards

    def close(self) -> None:
        """Forget the tables, and close a fallback that was given by name."""
        self._tables.clear()
        if isinstance(self.fallback, str) and self._fallback is not None:
            close = getattr(self._fallback, "close", None)
            if close is not None:
                close()
            self._fallback = None

    def __enter__(self) -> ReplaySandbox:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _path(self, task: ResearchTask) -> Path:
        return task.folder / RECORDING if self.tables is None else self.tables / f"{task.id}.jsonl.gz"

    def _look_up(self, submission: Submission) -> tuple[Outcome, ...] | None:
        """Find a solution the slow way, and remember it; None if the fallback has to grade it."""
        task, code = submission.task, submission.code
        if code is None:
            outcome = gate(submission)
            return None if outcome is None else (outcome,)
        if self.fallback is not None and task not in self._tables and not self._path(task).is_file():
            return None
        outcomes = self.table(task).outcomes
        found = outcomes.get(code_key(code))
        if found is None:  # code out of a reply's fence lacks the line end after its last line
            found = outcomes.get(code_key(code.rstrip("\n") + "\n"))
        if found is None:
            outcome = gate(submission)
            found = None if outcome is None else (outcome,)
        if found is not None:
            self._tables[task][1][code] = found
        elif self.fallback is None:
            raise RecordingError(
                f"this solution of task {task.id!r} is not among the {len(self.table(task).outcomes)} in "
                f"{self._path(task)}; record the whole design space with: wmrl tasks record "
                f"{_argument(task)} --members all, "
                'or execute it: sandbox="process", or ReplaySandbox(fallback="process")'
            )
        return found

    def _grader(self, submission: Submission) -> Grader:
        if self._fallback is None:
            from wmrl_envs.research.sandbox import resolve_sandbox

            assert self.fallback is not None, submission
            self._fallback = resolve_sandbox(self.fallback)
        return self._fallback


def _argument(task: ResearchTask) -> str:
    """Return what the command line calls a task: its id if it is bundled, its folder otherwise."""
    return task.id if task.folder.parent == TASKS_DIR else str(task.folder)


def _load(task: ResearchTask, path: Path) -> RecordedTable:
    if not path.is_file():
        raise RecordingError(
            f"task {task.id!r} has no recorded executions at {path}; record them with: "
            f"wmrl tasks record {_argument(task)}"
        )
    header, members = read_recording(path)
    if header.get("data") != data_digest(task):
        raise RecordingError(
            f"the recording {path} was made on other data than task {task.id!r} holds now; record it again with: "
            f"wmrl tasks record {_argument(task)}"
        )
    _compare_versions(path, dict(header.get("versions", {})))
    outcomes = {member.key: tuple(outcome_of(task, draw) for draw in member.draws) for member in members}
    return RecordedTable(task, path, header, outcomes, {member.number: member.key for member in members})


def _compare_versions(path: Path, recorded: dict[str, str]) -> None:
    installed = versions()
    differ = [
        f"{name} {recorded.get(name, 'unknown')} (here {found})"
        for name, found in installed.items()
        if recorded.get(name) != found
    ]
    warning = ", ".join(differ)
    if differ and (path, warning) not in _warned:
        _warned.add((path, warning))
        _logger.warning("the recording %s was made with %s; execution here may end differently", path, warning)


def _reported(outcome: Outcome) -> float:
    return outcome.reward if outcome.report_reward is None else outcome.report_reward
