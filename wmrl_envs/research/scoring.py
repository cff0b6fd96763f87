"""The seam between running a solution and scoring what it left: each kind of task has a scorer.

A solution runs where no answer is. What it leaves in its working folder is scored afterwards, where the answers are:
against a table of ours (`wmrl_envs.research.submission.AnswersScorer`), by a command of the task's author
(`wmrl_envs.research.command.CommandScorer`), or by a benchmark's own code (`wmrl_envs.research.benchmarks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from wmrl_envs.research.outcome import Status

if TYPE_CHECKING:
    from wmrl_envs.research.execution import RunResult
    from wmrl_envs.research.limits import Limits
    from wmrl_envs.research.task import ResearchTask

__all__ = [
    "Grade",
    "InvalidSubmission",
    "Left",
    "Runner",
    "Scored",
    "Scorer",
    "grade_left",
    "valid_feedback",
]


@dataclass(frozen=True, slots=True)
class Scored:
    """Raw values of the task's metric, finite, on the two halves of the answers."""

    train: float
    report: float
    """The same number where a task's answers have no halves."""
    feedback: str = ""
    """What the scorer has to say besides the score; the agent reads it."""
    seconds: float = 0.0
    """CPU seconds that scoring took in a sandbox; they are part of what the execution cost."""


@dataclass(frozen=True, slots=True)
class InvalidSubmission:
    """A submission that does not answer the task."""

    reason: str
    """One sentence that the agent reads; it names what was submitted, never an answer."""
    seconds: float = 0.0
    """As `Scored.seconds`."""


Left = Mapping[str, bytes | InvalidSubmission]
"""What a solution left: the content of each file that was asked for and is there, or why it cannot be read."""


class Runner(Protocol):
    """What runs programs in confinement: a `ProcessSandbox`, or another sandbox with a ``run`` of this form."""

    workers: int

    def run(
        self,
        code: str,
        public: Path | str,
        limits: Limits | None = None,
        seed: int = 0,
        *,
        collect: Sequence[str] = ("submission.csv",),
        most_bytes: int | None = None,
        bring: Mapping[str, bytes | Path] | None = None,
    ) -> RunResult:
        """Run one program, in the calling thread.

        Args:
            code: Python source.
            public: Folder that it finds as ``./input``.
            limits: What it may use; None means the default ones.
            seed: Seeds its random generators.
            collect: Paths of the files to read from its working folder when it has ended.
            most_bytes: Largest file that is read; None means as much as the disk limit.
            bring: By path in its working folder, the content of a file or a folder to copy there before it starts.
        """
        ...


class Scorer(Protocol):
    """How a task scores what a solution left behind."""

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the files that a solution may leave, in its working folder; it must leave the first one."""
        ...

    def most_bytes(self, task: ResearchTask) -> int:
        """Return the largest such file that is read, in bytes."""
        ...

    def instructions(self, task: ResearchTask) -> str:
        """Return what an agent reads on what to leave and how it is scored, in one or two sentences."""
        ...

    def score(self, task: ResearchTask, left: Mapping[str, bytes], runner: Runner | None) -> Scored | InvalidSubmission:
        """Score the files that a solution left; the first of ``files`` is among them.

        Args:
            task: The task.
            left: Content by path.
            runner: Runs programs in a sandbox of their own; None where there is none.

        Raises:
            TaskError: If the task's own files cannot be used.
            SandboxError: If scoring failed for a reason that is not the solution's.
        """
        ...


class Grade(NamedTuple):
    """How a submission ends; the numbers are None unless it is valid."""

    status: Status
    """``VALID``, ``INVALID_SUBMISSION`` or ``NO_SUBMISSION``."""
    train_score: float | None
    train_position: float | None
    report_score: float | None
    report_position: float | None
    feedback: str
    seconds: float = 0.0
    """CPU seconds that scoring took in a sandbox."""


def grade_left(task: ResearchTask, left: Left, runner: Runner | None = None) -> Grade:
    """Grade what a solution left: score it, and place the scores on the task's leaderboard.

    Raises:
        TaskError: If the task's own files cannot be used.
        SandboxError: If scoring failed for a reason that is not the solution's.
    """
    first = task.scorer.files[0]
    content = {}
    for name, file in left.items():
        if isinstance(file, InvalidSubmission):
            return _ungraded(Status.INVALID_SUBMISSION, file)
        content[name] = file
    if first not in content:
        return _ungraded(Status.NO_SUBMISSION, InvalidSubmission(f"no {first} was written to the working folder"))
    scored = task.scorer.score(task, content, runner)
    if isinstance(scored, InvalidSubmission):
        return _ungraded(Status.INVALID_SUBMISSION, scored)
    position = task.leaderboard.position(scored.train, "train")
    said = f"{scored.feedback.rstrip()}\n" if scored.feedback.strip() else ""
    return Grade(
        Status.VALID,
        scored.train,
        position,
        scored.report,
        task.leaderboard.position(scored.report, "report"),
        said + valid_feedback(task, scored.train, position),
        scored.seconds,
    )


def valid_feedback(task: ResearchTask, score: float, position: float) -> str:
    """Return the sentence that an agent reads about a valid submission: score and position on the training half."""
    return f"{task.scorer.files[0]} is valid: {task.metric.name} {score:.5g}, leaderboard position {position:.2f}"


def _ungraded(status: Status, why: InvalidSubmission) -> Grade:
    return Grade(status, None, None, None, None, why.reason, why.seconds)
