"""What running a solution returned, and the outcome that it amounts to: shared by every sandbox."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wmrl_envs.research.outcome import Outcome, Status, ladder_reward
from wmrl_envs.research.scoring import Grade, InvalidSubmission, Left, Runner, grade_left

if TYPE_CHECKING:
    from wmrl_envs.research.task import Limits, ResearchTask

__all__ = ["CAUSES", "MAX_FEEDBACK_CHARS", "RunResult", "graded_run", "outcome_from_run"]

CAUSES = ("ok", "error", "timeout", "memory", "disk")
"""How a run can end: by itself with exit code 0, with another one, or by a limit."""

MAX_FEEDBACK_CHARS = 4000
"""Longest feedback; what a terminal would have scrolled away goes first."""

_CAUSE_STATUS = {
    "error": Status.RUNTIME_ERROR,
    "timeout": Status.TIMEOUT,
    "memory": Status.MEMORY,
    "disk": Status.DISK,
}
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,16}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One execution of a solution, before it is graded.

    Paths of this machine are taken out of both outputs: the code is ``solution.py``, the data ``input/``.
    """

    cause: str
    """One of ``CAUSES``; names what ended the program, not its exit code."""
    exit_code: int
    """Exit code of the main process, or minus the signal that ended it."""
    stdout: str = ""
    """At most ``Limits.output_kb`` of it; bytes that are not UTF-8 are U+FFFD."""
    stderr: str = ""
    error_type: str | None = None
    """Name of the uncaught exception."""
    error_line: int | None = None
    """Line of the code, from 1, in which it was raised."""
    seconds: float = 0.0
    """CPU seconds of the process tree, or the wall seconds where a wall limit ended it."""
    message: str = ""
    """One sentence about the limit that ended it; empty otherwise."""
    left: Left = field(default_factory=dict)
    """By path in its working folder, each file that was asked for and is there."""

    @property
    def submission(self) -> bytes | InvalidSubmission | None:
        """Content of ``submission.csv``, why it could not be read, or None if there is none."""
        return self.left.get("submission.csv")


def outcome_from_run(task: ResearchTask, result: RunResult, runner: Runner | None = None) -> Outcome:
    """Grade an execution. Needs the private answers, so it is called where solutions do not run.

    Args:
        task: The task.
        result: The execution.
        runner: Runs the programs of a scorer that needs some.

    Raises:
        TaskError: If the task's own files cannot be used.
        SandboxError: If scoring failed for a reason that is not the solution's.
    """
    return graded_run(task, result, runner)[0]


def graded_run(task: ResearchTask, result: RunResult, runner: Runner | None = None) -> tuple[Outcome, Grade | None]:
    """Return `outcome_from_run` and the grade behind it, None where a solution ended too early to have one."""
    shown = [result.stdout, result.stderr]
    status = _CAUSE_STATUS.get(result.cause)
    grade = None
    if status is not None:
        shown.append(result.message)
    else:
        grade = grade_left(task, result.left, runner)
        status = grade.status
        shown.append(grade.feedback)
    outcome = Outcome(
        status=status,
        reward=ladder_reward(status, grade.train_position if grade else None),
        position=grade.train_position if grade else None,
        score=grade.train_score if grade else None,
        feedback=_terminal(shown),
        error_type=result.error_type,
        error_line=result.error_line,
        seconds=result.seconds + (grade.seconds if grade else 0.0),
        report_reward=ladder_reward(status, grade.report_position if grade else None),
    )
    return outcome, grade


def describe_limit(limit: str, limits: Limits) -> str:
    """Return one sentence about the limit that ended a program: cpu, wall, memory, disk or processes."""
    return {
        "cpu": f"Killed: the program used more than {limits.seconds:g} CPU seconds.",
        "wall": f"Killed: the program ran longer than {limits.wall_limit:g} seconds.",
        "memory": f"Killed: the program used more than {limits.memory_mb} MB of memory.",
        "disk": f"Killed: the program wrote more than {limits.disk_mb} MB to its folder.",
        "processes": f"Killed: the program started more than {limits.processes} other processes.",
        "threads": "Killed: the program started too many threads, or ended its main thread before them.",
    }[limit]


def _terminal(parts: list[str]) -> str:
    """Join outputs as a terminal would show them, without memory addresses, which differ from run to run."""
    text = "\n".join(part.strip("\n") for part in parts if part.strip())
    text = _ADDRESS.sub("0x...", text)
    return text if len(text) <= MAX_FEEDBACK_CHARS else "[...]\n" + text[-MAX_FEEDBACK_CHARS:]
