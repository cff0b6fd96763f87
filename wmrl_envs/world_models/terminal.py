"""What a predicted execution shows in the terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from wmrl_envs.research.execution import describe_limit
from wmrl_envs.research.outcome import Status
from wmrl_envs.research.scoring import valid_feedback

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = ["Terminal", "plain_feedback", "read_terminal"]

_LIMITS = {Status.TIMEOUT: "cpu", Status.MEMORY: "memory", Status.DISK: "disk"}
_MAX_SHOWN = 2_000
_THOUGHT = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_FENCE = re.compile(r"`{3,}\w{0,20}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_RAISED = re.compile(
    r"^(?:\w{1,80}\.){0,8}(?P<name>[A-Za-z_]\w{0,80}(?:Error|Exception|Interrupt|Exit|Warning|Iteration))(?=:|\s*$)",
    re.MULTILINE,
)
_LINE = re.compile(r'File "(?:\./)?solution\.py", line (\d{1,7})')


class Terminal(NamedTuple):
    """What a terminal shows at the end, and the exception that it names."""

    text: str
    error_type: str | None = None
    error_line: int | None = None


def plain_feedback(
    task: ResearchTask, status: Status, position: float | None, error_type: str | None = None, line: int | None = None
) -> str:
    """Return what a sandbox shows of an outcome, the program's own output aside.

    Args:
        task: The task.
        status: How the solution ends.
        position: Leaderboard position in [0, 1] of a valid submission; its score is the one that stands there.
        error_type: Name of the exception, where it is known.
        line: Line of the code in which it is raised, likewise.
    """
    if status is Status.VALID:
        place = position or 0.0
        return valid_feedback(task, task.leaderboard.score_at(place), place)
    if status in _LIMITS:
        return describe_limit(_LIMITS[status], task.limits)
    if status is Status.NO_SUBMISSION:
        return f"no {task.scorer.files[0]} was written to the working folder"
    if status is Status.INVALID_SUBMISSION:
        return f"{task.scorer.files[0]} is invalid"
    where = f'  File "solution.py", line {line}, in <module>\n' if line else ""
    return f"Traceback (most recent call last):\n{where}{error_type or 'Exception'}"


def read_terminal(reply: str, code: str) -> Terminal:
    """Return what a model wrote as the end of a terminal, thoughts and fences aside.

    Args:
        reply: The model's reply.
        code: The solution; a line that it does not have is no line.
    """
    text = reply
    for tag in reversed(list(_THOUGHT.finditer(reply))):
        text = reply[tag.end() :] if tag[1] else reply[: tag.start()]
        break
    lines = text.encode("utf-8", "replace").decode("utf-8").split("\n")
    text = "\n".join(line for line in lines if not _FENCE.fullmatch(line.strip()))
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text).strip("\n\r")[-_MAX_SHOWN:].rstrip()
    raised = [match["name"] for match in _RAISED.finditer(text)]
    numbers = [int(match[1]) for match in _LINE.finditer(text)]
    known = [line for line in numbers if 1 <= line <= code.count("\n") + 1]
    return Terminal(text, raised[-1] if raised else None, known[-1] if known else None)
