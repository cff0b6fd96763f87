"""The seam of the package: a sandbox and a world model both grade submissions."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from wmrl_envs.errors import GradingError
from wmrl_envs.research.outcome import Outcome, Status, ladder_reward

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = ["MAX_CODE_CHARS", "Grader", "Submission", "check_graded", "gate"]

MAX_CODE_CHARS = 200_000
"""Longest code that is run; anything longer is malformed (a person's solution has some thousands)."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One attempt at a task: code to execute, or ``None`` where the reply held none."""

    task: ResearchTask
    code: str | None
    seed: int = 0
    """Seeds Python's and numpy's global generators before the code runs, so that an attempt is repeatable."""
    final: bool = field(default=False, compare=False)
    """Whether the episode ends with this attempt, so that nobody will read feedback to it."""


@runtime_checkable
class Grader(Protocol):
    """Anything that says how submissions end: a sandbox by running them, a world model by predicting."""

    def grade(self, submissions: Sequence[Submission]) -> list[Outcome | None]:
        """Return one outcome per submission, in order; ``None`` where the harness failed and nothing is known."""
        ...


def gate(submission: Submission) -> Outcome | None:
    """Return the outcome that is known without running anything, or ``None`` if the code has to run.

    The gates are exact, so sandboxes and world models share them: no code, code too long or holding NUL bytes is
    malformed, and code that does not compile is a syntax error.
    """
    code = submission.code
    if code is None or not code.strip():
        return _failed(Status.MALFORMED, "no code found: put the whole solution in one ```python fence")
    if len(code) > MAX_CODE_CHARS:
        return _failed(
            Status.MALFORMED, f"the code is too long: {len(code)} characters, at most {MAX_CODE_CHARS} are run"
        )
    if "\0" in code:
        return _failed(Status.MALFORMED, "the code holds NUL bytes")
    try:
        # The compiler's warnings (an invalid escape, say) are the solution's own: they neither fail it nor belong here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(code, "solution.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        return _failed(
            Status.SYNTAX_ERROR,
            "".join(traceback.format_exception_only(error)).strip(),
            error_type=type(error).__name__,
            error_line=getattr(error, "lineno", None),
        )
    return None


def _failed(status: Status, feedback: str, error_type: str | None = None, error_line: int | None = None) -> Outcome:
    reward = ladder_reward(status)
    return Outcome(
        status=status,
        reward=reward,
        feedback=feedback,
        error_type=error_type,
        error_line=error_line,
        report_reward=reward,
    )


def check_graded(grader: object, submissions: Sequence[Submission], outcomes: Sequence[Outcome | None]) -> None:
    """Raise ``GradingError`` unless a grader answered every submission of a batch."""
    if len(outcomes) != len(submissions):
        raise GradingError(
            f"{type(grader).__name__}.grade returned {len(outcomes)} outcomes for {len(submissions)} submissions; "
            "it must return one per submission, in order, with None where nothing is known"
        )
