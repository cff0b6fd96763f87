"""Episodes of a run as trajectories.jsonl holds them, read without trust."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from wmrl_envs.report.text import clean_text, short_text
from wmrl_envs.report.thinning import evenly

__all__ = ["Episode", "Episodes", "Turn", "aligned", "number", "numbers", "read_episodes"]

MOST_BYTES = 8_000_000
"""Of one episode; a longer line is skipped, which the page says."""
MOST_TURNS, MOST_FRAMES = 40, 400
_REWARDS = ("predicted_reward", "calibrated_reward", "real_reward", "corrected_return")
_OUTCOME_NUMBERS = ("reward", "score", "position", "seconds", "spread")


@dataclass(frozen=True)
class Turn:
    """One attempt: what was written, and what was predicted and found of it."""

    code: str | None
    reply: str | None
    predicted: dict[str, Any] | None
    """``status``, ``feedback``, ``error_type`` as text and ``reward``, ``score`` and others as numbers, where known."""
    real: dict[str, Any] | None


@dataclass(frozen=True)
class Episode:
    """One episode of a run."""

    step: int
    episode: int | None
    task: str
    anchor: bool
    rewards: dict[str, float]
    """``predicted_reward``, ``calibrated_reward``, ``real_reward``, ``corrected_return`` where known."""
    turns: list[Turn] = field(default_factory=list)
    instruction: str | None = None
    progress: list[float] = field(default_factory=list)
    success: list[float] = field(default_factory=list)
    video: str | None = None
    """Path inside the run folder, as it was written: not checked."""


@dataclass(frozen=True)
class Episodes:
    """Episodes chosen from a file."""

    chosen: list[Episode]
    total: int
    """Lines of the file."""
    damaged: int
    """Lines that could not be read, a torn last one not among them."""


def read_episodes(path: Path, most: int) -> Episodes:
    """Return at most ``most`` episodes of a file: anchors first, evenly over the run, in its order.

    A file that is missing holds none. Only the chosen lines are taken apart.

    Args:
        path: trajectories.jsonl of a run.
        most: Episodes to return.
    """
    chosen: list[Episode] = []
    damaged = 0
    if not path.is_file():  # a pipe would never end
        return Episodes([], 0, 0)
    try:
        with path.open("rb") as file:
            lines = list(_lines(file))
            for place, length, _, ended in _choose([line for line in lines if line[1] <= MOST_BYTES], most):
                file.seek(place)
                episode = _episode(file.read(length))
                if episode is not None:
                    chosen.append(episode)
                elif ended:
                    damaged += 1
    except OSError:
        return Episodes([], 0, 0)
    return Episodes(chosen, len(lines), damaged + sum(line[1] > MOST_BYTES for line in lines))


_Line = tuple[int, int, bool, bool]


def _lines(file: BinaryIO) -> Iterator[_Line]:
    """Yield place, length, whether it says that it is an anchor, and whether it is ended, of each line."""
    place = 0
    while head := file.readline(MOST_BYTES):
        length, ended = len(head), head.endswith(b"\n")
        while not ended and (more := file.readline(MOST_BYTES)):
            length, ended = length + len(more), more.endswith(b"\n")
        if head.strip():
            yield place, length, b'"anchor": true' in head[:600], ended
        place += length


def _choose(lines: list[_Line], most: int) -> list[_Line]:
    anchors, others = ([line for line in lines if line[2] is kind] for kind in (True, False))
    kept = evenly(anchors, max(most // 2, most - len(others)))
    return sorted([*kept, *evenly(others, most - len(kept))])


def _episode(line: bytes) -> Episode | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = number(found.get("step")) if isinstance(found, dict) else None
    if step is None or not 0 <= step < 1e12:
        return None
    turns = found.get("turns")
    instruction, video, episode = found.get("instruction"), found.get("video"), number(found.get("episode"))
    return Episode(
        step=int(step),
        episode=None if episode is None else int(episode),
        task=short_text(found.get("task", "unknown")),
        anchor=found.get("anchor") is True,
        rewards={name: value for name in _REWARDS if (value := number(found.get(name))) is not None},
        turns=[_turn(turn) for turn in turns[:MOST_TURNS] if isinstance(turn, dict)] if isinstance(turns, list) else [],
        instruction=short_text(instruction, 400) if isinstance(instruction, str) else None,
        progress=_frames(found.get("progress")),
        success=_frames(found.get("success_probability")),
        video=video if isinstance(video, str) else None,
    )


def _frames(value: Any) -> list[float]:
    """Return a number a frame; none where any is unknown, without which the others would belong to wrong frames."""
    found = numbers(value)
    return evenly(found, MOST_FRAMES) if found and len(found) == len(value) else []


def _turn(turn: Mapping[str, Any]) -> Turn:
    code, reply = (turn.get(name) for name in ("code", "reply"))
    return Turn(
        code=clean_text(code, 20_000) if isinstance(code, str) else None,
        reply=clean_text(reply) if isinstance(reply, str) else None,
        predicted=_outcome(turn.get("predicted")),
        real=_outcome(turn.get("real")),
    )


def _outcome(found: Any) -> dict[str, Any] | None:
    if not isinstance(found, dict):
        return None
    outcome: dict[str, Any] = {name: number(found.get(name)) for name in _OUTCOME_NUMBERS}
    line = number(found.get("error_line"))
    outcome["error_line"] = None if line is None else int(line)
    outcome |= {
        name: short_text(found[name], 80) for name in ("status", "error_type") if isinstance(found.get(name), str)
    }
    if isinstance(found.get("feedback"), str):
        outcome["feedback"] = clean_text(found["feedback"], 6_000)
    return {name: value for name, value in outcome.items() if value is not None}


def number(value: Any) -> float | None:
    """Return a finite number, or ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def aligned(found: Mapping[str, Any], *names: str) -> list[list[float]]:
    """Return lists of equal lengths, the places left out where any of them holds no number; empty ones otherwise."""
    columns = [found.get(name) for name in names]
    if not all(isinstance(column, list) and len(column) == len(columns[0] or []) for column in columns):
        return [[] for _ in names]
    rows = [row for items in zip(*columns, strict=True) if None not in (row := [number(item) for item in items])]
    return [[row[place] for row in rows] for place in range(len(names))]  # type: ignore[misc]


def numbers(value: Any) -> list[float]:
    """Return the finite numbers of a list; none for anything else."""
    found = [number(item) for item in value] if isinstance(value, list) else []
    return [item for item in found if item is not None]
