"""The verdict of a command that grades: the last line that it prints, read as other people's words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from wmrl_envs.research.scoring import InvalidSubmission, Scored

if TYPE_CHECKING:
    from wmrl_envs.research.execution import RunResult

__all__ = ["EXPECTED", "MOST_WORDS", "read_verdict"]

EXPECTED = 'the last line that the command prints must be {"score": NUMBER} or {"invalid": "why"}'
"""What a command has to say, for messages."""

MOST_WORDS = 1000
"""Longest ``feedback`` or ``invalid``, in characters; the rest is cut."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def read_verdict(result: RunResult, clean: Callable[[str], str] = str) -> Scored | InvalidSubmission | str:
    """Return what a command said, or why that is no verdict.

    Args:
        result: The command's run; it counts only if it ended with exit code 0.
        clean: Takes out of the command's words what nobody should read.
    """
    if result.cause != "ok":
        return result.message or f"it ended with exit code {result.exit_code}"
    last = result.stdout.strip().rpartition("\n")[2]
    try:
        said = json.loads(last)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        return f"no verdict: {EXPECTED}"
    words = said.get("invalid", said.get("feedback", ""))
    if not isinstance(words, str):
        return f"no verdict: {'invalid' if 'invalid' in said else 'feedback'} is {words!r:.100}, no text"
    words = clean(_shown(words))[:MOST_WORDS]
    if "invalid" in said:
        return InvalidSubmission(words or "the submission is invalid", result.seconds)
    score, report = _number(said.get("score")), _number(said.get("report_score", said.get("score")))
    if score is None or report is None:
        name = "score" if score is None else "report_score"
        return f"no verdict: {name} is {said.get(name)!r:.100}, no finite number"
    return Scored(score, report, words, result.seconds)


def _shown(words: str) -> str:
    """Return a text without what no terminal or file can hold: control characters and lone surrogates."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", words.encode("utf-8", "replace").decode("utf-8"))


def _number(value: object) -> float | None:
    """Return a finite number as a float, and None for anything else, an integer beyond all floats among it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
