"""What a language model answered, read whatever it wrapped the answer in.

Models think aloud, put prose and fences around the object, draft it first, leave it unfinished, and write it as Python
instead of JSON. What can be understood is understood; the rest is ``None``, never a guess and never an exception.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.research.outcome import BUCKET_POSITIONS, Status
from wmrl_envs.world_models.backends.protocol import Schema
from wmrl_envs.world_models.loose_json import FoundObject, loose_objects, objects
from wmrl_envs.world_models.verdicts import VERDICTS, verdict_for

__all__ = ["ANSWER_SCHEMA", "Answer", "parse_answer"]

_NAMES: Mapping[str, Status] = {
    **{str(status): status for status in Status if status not in (Status.MALFORMED, Status.SYNTAX_ERROR)},
    **dict.fromkeys(
        ("error", "runtime", "exception", "crash", "crashes", "crashed", "fail", "fails", "failed", "failure")
        # The code compiles, or nobody would have asked: what else the model can mean is that running it fails.
        + ("runtimeerror", "nonzero_exit", "non_zero_exit_code", "syntax_error", "syntaxerror"),
        Status.RUNTIME_ERROR,
    ),
    **dict.fromkeys(("timed_out", "time_out", "time_limit", "time_limit_exceeded", "tle"), Status.TIMEOUT),
    **dict.fromkeys(
        ("memory_error", "memoryerror", "memory_limit", "memory_limit_exceeded", "out_of_memory", "oom", "mle"),
        Status.MEMORY,
    ),
    **dict.fromkeys(("disk_error", "disk_full", "disk_limit", "disk_limit_exceeded"), Status.DISK),
    **dict.fromkeys(("nothing", "missing", "missing_submission", "no_output", "no_file"), Status.NO_SUBMISSION),
    **dict.fromkeys(("invalid", "bad_submission", "wrong_format"), Status.INVALID_SUBMISSION),
    **dict.fromkeys(
        ("ok", "success", "successful", "succeeds", "succeeded", "pass", "passes", "passed", "valid_submission")
        + tuple(BUCKET_POSITIONS),
        Status.VALID,
    ),
}
"""What a model may call a status."""
_BUCKETS: Mapping[str, str] = {**{name: name for name in BUCKET_POSITIONS}, "medium": "mid", "middle": "mid"}

_KEYS: Mapping[str, tuple[str, ...]] = {
    "status": ("status", "outcome", "verdict", "result"),
    "bucket": ("bucket", "quality_bucket", "quality"),
    "position": ("position", "leaderboard_position", "percentile"),
    "error_type": ("error_type", "exception", "exception_type", "error_class"),
    "error_line": ("error_line", "line", "line_number", "lineno"),
    "feedback": ("feedback", "output", "terminal", "stderr", "message"),
    "confidence": ("confidence", "certainty", "probability"),
    "reason": ("reason", "reasoning", "rationale", "explanation"),
}
"""What a model may call a field; the first that is there counts."""

ANSWER_SCHEMA: Schema = {
    "type": "object",
    "properties": {
        "reason": {"type": "string"},
        "status": {
            "type": "string",
            "enum": [status for status in map(str, Status) if status in _NAMES],
        },
        "error_type": {"type": ["string", "null"]},
        "error_line": {"type": ["integer", "null"]},
        "bucket": {"enum": [*BUCKET_POSITIONS, None]},
        "feedback": {"type": "string"},
        # A few numbers rather than any: a small model would go on writing digits.
        "confidence": {"enum": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]},
    },
    "required": ["reason", "status", "error_type", "error_line", "bucket", "feedback", "confidence"],
    "additionalProperties": False,
}
"""JSON schema of an answer, the reason first: a model that says why before it says what judges better. No string has a
longest length, which grammars pay for with a state a character."""

_MAX_READ = 50_000
"""Characters that are read of a reply, its last ones: the answer comes at the end."""
_MAX_TEXT = 4_000
_LONGEST_WORD = 100
_THOUGHT = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_ENDS = re.compile(r"[\s`]*\Z")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_APART = re.compile(r"[\s_-]+")
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w{0,80}\.){0,8}([A-Za-z_]\w{0,80})\Z")
_RAISED = re.compile(r"\w{0,80}(?:Error|Exception|Interrupt|Warning)\Z")
_NUMBER = re.compile(r"[-+]?(?:\d{1,12}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,3})?\Z")
_LINE = re.compile(r"\d{1,7}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NOTHING = frozenset({"", "none", "null", "nil", "n/a", "na", "nan", "-", "unknown"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a language model said that a solution ends; what it left out is None, or empty for texts."""

    status: Status
    bucket: str | None = None
    """Quality bucket of a valid submission, a key of ``BUCKET_POSITIONS``."""
    error_type: str | None = None
    error_line: int | None = None
    feedback: str = ""
    confidence: float | None = None
    """As stated, in [0, 1]."""
    reason: str = ""

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The answer as a distribution over ``VERDICTS``, float64 [10]; valid without a bucket may be any of them."""
        named = [self.bucket] if self.bucket else list(BUCKET_POSITIONS)
        verdicts = named if self.status is Status.VALID else [verdict_for(self.status)]
        return np.array([float(verdict in verdicts) / len(verdicts) for verdict in VERDICTS])


def parse_answer(text: str) -> Answer | None:
    """Return the answer that a reply holds, or None where it holds none.

    The last complete object that states a known status counts, drafts within thoughts aside; after it an object that
    was cut off behind its status; after that a reply that is a status and nothing else. Thoughts that never end hold an
    answer only where the reply ends with it.

    Takes time in proportion to the length of the reply, and never raises.
    """
    spoken, thought = _spoken(text[-_MAX_READ:])
    for read in (objects, loose_objects):
        answer = _last(read(spoken), spoken, thought)
        if answer is not None:
            return answer
    return _answer({"status": spoken}) if thought < 0 and len(spoken) < _LONGEST_WORD else None


def _last(found: list[FoundObject], text: str, thought: int) -> Answer | None:
    for complete in (True, False):
        for item in reversed(found):
            if item.closed is complete and _said(item, text, thought):
                answer = _answer(item.fields)
                if answer is not None:
                    return answer
    return None


def _said(item: FoundObject, text: str, thought: int) -> bool:
    """Return whether an object is part of what the model says, and not of what it thinks."""
    return thought < 0 or item.start < thought or (item.closed and _ENDS.match(text, item.end) is not None)


def _spoken(text: str) -> tuple[str, int]:
    """Return a reply without finished thoughts, and where in it an unfinished one begins (-1 if none)."""
    tags = list(_THOUGHT.finditer(text))
    closing = [tag.end() for tag in tags if tag[1]]
    if closing:
        text = text[closing[-1] :]
    opening = [tag.start() - (closing[-1] if closing else 0) for tag in tags if not tag[1]]
    return text, next((place for place in opening if place >= 0), -1)


def _answer(fields: Mapping[str, Any]) -> Answer | None:
    by_name = {_APART.sub("_", _CAMEL.sub("_", key)).strip("_ ").lower(): value for key, value in fields.items()}

    def read(name: str) -> Any:
        return next((by_name[key] for key in _KEYS[name] if by_name.get(key) is not None), None)

    stated = read("status")
    if not isinstance(stated, str):
        return None
    status, word = _status(stated)
    if status is None:
        return None
    failed, valid = status is Status.RUNTIME_ERROR, status is Status.VALID
    error_type = _error_type(read("error_type")) or _error_type(word if _RAISED.match(word) else None)
    return Answer(
        status=status,
        bucket=(_bucket(read("bucket")) or _bucket(word) or _nearest(read("position"))) if valid else None,
        error_type=error_type if failed else None,
        error_line=_line(read("error_line")) if failed else None,
        feedback=_text(read("feedback")),
        confidence=_share(read("confidence")),
        reason=_text(read("reason")),
    )


def _status(stated: str) -> tuple[Status | None, str]:
    """Return the status that a model names, and the word that names it."""
    word = re.split(r"[(,;:\n]", stated[:200].strip(" \t\r\n\"'`*."), maxsplit=1)[0].strip(" \"'`*.")
    word = word.rsplit(".", 1)[-1]
    status = _NAMES.get(_APART.sub("_", word.lower()))
    if status is None and _RAISED.match(word):
        status = Status.RUNTIME_ERROR
    return status, word


def _bucket(value: object) -> str | None:
    return _BUCKETS.get(value.strip(" \"'`*.").lower()[:20]) if isinstance(value, str) else None


def _nearest(position: object) -> str | None:
    share = _share(position)
    if share is None:
        return None
    return min(BUCKET_POSITIONS, key=lambda bucket: abs(BUCKET_POSITIONS[bucket] - share))


def _share(value: object) -> float | None:
    """Return a number in [0, 1]: 0.8, "0.8", 80 and "80 %" are the same; None for what is no such number."""
    percent = False
    if isinstance(value, str):
        text = value.strip()[:60]
        percent = text.endswith("%")
        text = text.rstrip("% ")
        if not _NUMBER.match(text):
            return None
        value = float(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not (0 <= value <= 100) or not math.isfinite(value):
        return None
    return float(value) / 100.0 if percent or value > 1 else float(value)


def _line(value: object) -> int | None:
    """Return a line number, from 1: 12, 12.0, "12" and "line 12" are the same."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        found = _LINE.search(value[:60])
        value = int(found[0]) if found else None
    if not isinstance(value, int | float) or not 1 <= value < 10**7:
        return None
    return int(value)


def _error_type(value: object) -> str | None:
    if not isinstance(value, str) or value.strip().lower() in _NOTHING:
        return None
    found = _EXCEPTION.match(value.strip().split(":", 1)[0][:400].strip())
    return found[1] if found else None


def _text(value: object) -> str:
    """Return a text that can be shown and saved: without lone surrogates and control characters, its end if long."""
    if not isinstance(value, str):
        return ""
    text = value[-_MAX_TEXT:].encode("utf-8", "replace").decode("utf-8")
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text).strip()
