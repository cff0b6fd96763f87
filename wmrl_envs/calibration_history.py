"""How the map from predicted to real reward moved while a run went on: ``calibration_history.json``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wmrl_envs.files import write_text

__all__ = ["FILE", "CalibrationHistory"]

FILE = "calibration_history.json"
MOST = 60
"""Maps that are kept, beside the newest; when there are more, every other one goes."""
DIGITS = 6
"""Decimals of a knot: the history is for drawing, calibration.json holds the map that training ended with exactly."""


class CalibrationHistory:
    """The calibration's knots at evenly spaced steps, and at the newest.

    Which steps are kept follows from the number of steps taken alone, so that a resumed run's are the same.

    Attributes:
        maps: ``{"step": int, "predicted": [...], "real": [...]}`` each, oldest first.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.maps: list[dict[str, Any]] = []
        self._stride = 1

    def note(self, step: int, predicted: Sequence[float], real: Sequence[float]) -> None:
        """Take in the knots after a step; empty ones, before the first fit, leave nothing."""
        if not predicted:
            return
        while self.maps and self.maps[-1]["step"] % self._stride:
            self.maps.pop()  # it was only the newest
        kept = _bends(real)
        axes = {"predicted": predicted, "real": real}
        self.maps.append(
            {"step": step} | {name: [round(axis[index], DIGITS) for index in kept] for name, axis in axes.items()}
        )
        while sum(known["step"] % self._stride == 0 for known in self.maps) > MOST:
            self._stride *= 2
            newest = self.maps[-1]
            self.maps = [known for known in self.maps if known["step"] % self._stride == 0 or known is newest]

    def write(self, folder: Path) -> None:
        """Write the history to a run folder; an empty one has no file."""
        if self.maps:
            # On one line: this is written after every step, and an indented file takes ten times as long.
            write_text(folder / FILE, json.dumps(self.maps, allow_nan=False) + "\n")
        else:
            (folder / FILE).unlink(missing_ok=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the state, JSON-able."""
        return {"maps": self.maps, "stride": self._stride}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what ``state_dict`` returned."""
        self.maps, self._stride = list(state["maps"]), int(state["stride"])


def _bends(values: Sequence[float]) -> list[int]:
    """Return the indices of both ends of each flat piece, which say all of a map that is linear in between."""
    last = len(values) - 1
    return [i for i in range(last + 1) if i in (0, last) or not values[i - 1] == values[i] == values[i + 1]]
