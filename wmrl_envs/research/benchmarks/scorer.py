"""The scorer of a benchmark's competition: its own code grades, in a process apart."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from wmrl_envs.research.benchmarks.medals import medal
from wmrl_envs.research.benchmarks.place import refuse_pointer
from wmrl_envs.research.benchmarks.process import GradingOrder, grade
from wmrl_envs.research.leaderboard import Leaderboard
from wmrl_envs.research.scoring import InvalidSubmission, Runner, Scored

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = ["BenchmarkScorer"]

MOST_COLUMNS = 20
"""Columns of a submission that are named one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkScorer:
    """Scores a submission as the benchmark does; both scores are the one on all answers."""

    order: GradingOrder
    columns: tuple[str, ...] = ()
    """Columns of a submission, as the sample submission has them; empty where it has none."""
    sample_in_public: str | None = None
    """Path of the sample submission in the public folder; None where solutions cannot see it."""
    sample_bytes: int = 0
    """Its size."""
    medals: bool = False
    """Whether the feedback names the medal."""

    files: ClassVar[tuple[str, ...]] = ("submission.csv",)

    @classmethod
    def of(cls, order: GradingOrder, public: Path, medals: bool = False) -> BenchmarkScorer:
        """Return the scorer of a competition, with what its sample submission says.

        Args:
            order: What is graded, with the path of the sample submission.
            public: The folder that a solution finds as ``./input``.
            medals: As the field.

        Raises:
            TaskError: If the sample submission is a Git-LFS pointer.
        """
        sample = Path(order.sample)
        if not sample.is_file():
            return cls(order=order, medals=medals)
        refuse_pointer(sample, "the sample submission")
        whole, inside = sample.resolve(), public.resolve()
        return cls(
            order=order,
            columns=_columns(sample),
            sample_in_public=whole.relative_to(inside).as_posix() if whole.is_relative_to(inside) else None,
            sample_bytes=sample.stat().st_size,
            medals=medals,
        )

    def most_bytes(self, task: ResearchTask) -> int:
        """Return 16 MiB, or twenty times the sample submission where that is more."""
        return max(16 * 2**20, 20 * self.sample_bytes)

    def instructions(self, task: ResearchTask) -> str:
        """Return where to write the submission, what it looks like, and what scores it."""
        like = f", in the form of input/{self.sample_in_public}" if self.sample_in_public else ""
        named = self.columns if len(self.columns) <= MOST_COLUMNS else (*self.columns[:MOST_COLUMNS], "...")
        columns = f" (columns: {', '.join(named)})" if named else ""
        return (
            f"it must write its submission to ./{self.files[0]}{like}{columns}. "
            f"Score: {task.metric.name} on hidden answers by the benchmark's own code, "
            f"{task.metric.direction} is better."
        )

    def score(self, task: ResearchTask, left: Mapping[str, bytes], runner: Runner | None) -> Scored | InvalidSubmission:
        """Score a submission in the competition's grading process.

        Raises:
            TaskError: If the benchmark's files cannot be used; it names the file.
            SandboxError: If the grading process died twice, or took too long.
        """
        name = self.files[0]
        score = grade(self.order, name, left[name])
        if isinstance(score, InvalidSubmission):
            return score
        feedback = ""
        if self.medals and isinstance(task.leaderboard, Leaderboard):
            feedback = f"Medal: {medal(score, task.leaderboard) or 'none'}"
        return Scored(score, score, feedback)


def _columns(path: Path) -> tuple[str, ...]:
    """Return the columns of a sample submission; none where it is no CSV file that can be read."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return tuple(next(csv.reader(file), ()))
    except (OSError, UnicodeDecodeError, csv.Error):
        return ()
