"""The episodes that a run leaves for its readers: ``trajectories.jsonl``, one episode a line.

- ``TrajectoryLog`` - appends the episodes of a step, and drops those of steps that a resumed run takes again.
- ``read_trajectories`` - whatever can be read of a run's.
- ``episodes_kept``, ``choose_episodes`` - which ones are written, so that the file of a long run stays small.

A line holds ``step``, ``episode`` and ``group`` (both counted from the run's beginning), ``task``, ``anchor``, the
episode's ``predicted_reward``, ``calibrated_reward``, ``real_reward`` and ``corrected_return``, and its ``turns``: the
``code`` (of a language model also the whole ``reply``), and what was ``predicted`` and what was ``real``. A robot's
rollout has ``instruction``, ``progress`` by frame, and perhaps ``success_probability`` and ``video`` in place of turns.
What is unknown is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from wmrl_envs.files import replacing, write_text
from wmrl_envs.research.outcome import Outcome, Prediction

__all__ = [
    "FILE",
    "REWARDS",
    "TrajectoryLog",
    "choose_episodes",
    "describe_outcome",
    "describe_rewards",
    "describe_turn",
    "episodes_kept",
    "number",
    "read_trajectories",
    "stream_value",
]

FILE = "trajectories.jsonl"
FULL_STEPS = 50
"""Every step up to this one is kept, with `MOST_EPISODES`; later ones ever more rarely, with `LATER_EPISODES`."""
MOST_EPISODES, LATER_EPISODES = 16, 4
MOST_ANCHORS = 0.75
"""Share of a step's kept episodes that anchors may take while there are others."""
MOST_FEEDBACK = 4_000
"""Characters of an outcome's feedback that are kept."""
MOST_TEXT = 20_000
"""Characters of a solution or a reply that are kept."""
REWARDS = ("predicted_reward", "calibrated_reward", "real_reward", "corrected_return")
"""An episode's, as ``info["wmrl"]`` names them."""


def episodes_kept(step: int) -> int:
    """Return how many episodes of a step (from 1) are written at most; 0 for a step that is left out.

    Up to step 100 every second one is kept, up to 200 every fourth and so on, so that the file grows with the logarithm
    of a run's length: 100,000 steps leave some 2,000 episodes. The step alone decides, so that a resumed run decides
    alike.
    """
    if step % (1 << ((step - 1) // FULL_STEPS).bit_length()):
        return 0
    return MOST_EPISODES if step <= FULL_STEPS else LATER_EPISODES


def choose_episodes(anchors: Sequence[bool], groups: Sequence[int], most: int) -> list[int]:
    """Choose which of a step's episodes are written.

    Anchors come first, since both of their streams are known, but leave room for some that were only predicted; of
    either kind every group's first comes before any group's second.

    Args:
        anchors: n, whether each episode is an anchor.
        groups: n, their groups.
        most: How many to choose at most.

    Returns:
        Indices of the chosen ones, anchors first.
    """
    executed, predicted = (_by_turns(groups, [a == kind for a in anchors]) for kind in (True, False))
    room = max(most - len(predicted), min(most, 1), int(MOST_ANCHORS * most))
    chosen = executed[:room]
    return chosen + predicted[: most - len(chosen)]


def _by_turns(groups: Sequence[int], wanted: Sequence[bool]) -> list[int]:
    """Return the wanted indices, one of each group by turns."""
    members: dict[int, list[int]] = {}
    for index, group in enumerate(groups):
        if wanted[index]:
            members.setdefault(group, []).append(index)
    return [index for index in chain.from_iterable(zip_longest(*members.values())) if index is not None]


def describe_turn(
    code: str | None, predicted: Outcome | None, real: Outcome | None, *, reply: str | None = None
) -> dict[str, Any]:
    """Return one attempt as it is written."""
    turn: dict[str, Any] = {} if code is None else {"code": _shortened(code, MOST_TEXT)}
    if reply is not None:
        turn["reply"] = _shortened(reply, MOST_TEXT)
    outcomes = (("predicted", predicted), ("real", real))
    return turn | {name: describe_outcome(outcome) for name, outcome in outcomes if outcome is not None}


def describe_outcome(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as it is written; the report half's reward stays unwritten, since training never sees it."""
    values: dict[str, Any] = {"status": str(outcome.status)}
    values |= {name: number(getattr(outcome, name)) for name in ("reward", "score", "position", "seconds")}
    if isinstance(outcome, Prediction):
        values["spread"] = number(outcome.spread)
    values["error_type"] = outcome.error_type
    values["error_line"] = None if outcome.error_line is None else int(outcome.error_line)
    values["feedback"] = _shortened(outcome.feedback, MOST_FEEDBACK)
    return {name: value for name, value in values.items() if value is not None}


def stream_value(streams: Mapping[str, Any], name: str, index: int) -> float | None:
    """Return an episode's value of a stream in ``info["wmrl"]``, arrays with their masks; ``None`` where unknown."""
    if name not in streams or not streams["_" + name][index]:
        return None
    return number(streams[name][index])


def describe_rewards(streams: Mapping[str, Any], index: int) -> dict[str, float]:
    """Return what is known of an episode's rewards, as it is written."""
    rewards = {name: stream_value(streams, name, index) for name in REWARDS}
    return {name: value for name, value in rewards.items() if value is not None}


def number(value: Any) -> float | None:
    """Return a number that JSON has: ``None`` for what is unknown or not finite."""
    return float(value) if value is not None and math.isfinite(value) else None


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n[{len(text) - most} more characters]"


class TrajectoryLog:
    """Writes a run's trajectories; a killed run leaves at most its last line torn."""

    def __init__(self, folder: Path) -> None:
        """Write to ``trajectories.jsonl`` in a run folder."""
        self.path = folder / FILE

    def append(self, episodes: Iterable[dict[str, Any]]) -> None:
        """Add episodes of a step.

        Raises:
            ValueError: If a number is not finite, which JSON cannot say.
        """
        lines = "".join(json.dumps(episode, allow_nan=False) + "\n" for episode in episodes)
        if lines:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(lines)

    def drop_after(self, step: int) -> None:
        """Drop torn lines and the episodes of later steps, which a run that goes on from ``step`` takes again."""
        if not self.path.exists():
            return
        if step == 0:
            write_text(self.path, "")
            return
        with replacing(self.path) as temporary, temporary.open("w", encoding="utf-8") as file:
            for line, episode in _read(self.path):
                if isinstance(episode.get("step"), int) and episode["step"] <= step:
                    file.write(line)


def read_trajectories(folder: Path | str) -> list[dict[str, Any]]:
    """Return the episodes that a run left, oldest first; lines that are torn or damaged are left out.

    Args:
        folder: The run folder. One without trajectories has none.
    """
    path = Path(folder) / FILE
    return [episode for _, episode in _read(path)] if path.is_file() else []


def _read(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for line in file:
            try:
                episode = json.loads(line)
            except (ValueError, RecursionError):
                continue
            # A last line without its end may be a number cut short, such as 12 of 128; as an object it is whole.
            if isinstance(episode, dict):
                yield line if line.endswith("\n") else line + "\n", episode
