"""Fewer points that look the same: of long curves the extremes are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["evenly", "extremes", "rounded", "smooth"]

Floats = NDArray[np.float64]
T = TypeVar("T")


def extremes(y: Floats, most: int) -> NDArray[np.intp]:
    """Return the indices of at most ``most`` points: the lowest and highest of each stretch, the first and the last.

    Args:
        y: Values in order, [n]; NaN is never kept.
        most: Points to keep, at least 4.
    """
    known = np.flatnonzero(np.isfinite(y))
    if len(known) <= most:
        return known
    stretches = np.array_split(known, (most - 2) // 2)
    kept = {int(known[0]), int(known[-1])}
    for stretch in stretches:
        values = y[stretch]
        kept |= {int(stretch[values.argmin()]), int(stretch[values.argmax()])}
    return np.array(sorted(kept), dtype=np.intp)


def evenly(items: Sequence[T], most: int) -> list[T]:
    """Return at most ``most`` of the items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    if most <= 1:
        return list(items[-1:]) if most == 1 else []
    places = np.unique(np.linspace(0, len(items) - 1, most).round().astype(int))
    return [items[place] for place in places]


def smooth(y: Floats) -> Floats:
    """Return a centred moving mean over 5 points, or over a fiftieth of them where that is more."""
    window = max(5, len(y) // 50)
    return pd.Series(y).rolling(window, min_periods=1, center=True).mean().to_numpy(float)


def rounded(values: Sequence[float] | Floats, digits: int = 4) -> list[float | int | None]:
    """Return numbers as JSON should hold them: few significant digits, whole ones as such, ``None`` for NaN."""
    return [_round(float(value), digits) for value in values]


def _round(value: float, digits: int) -> float | int | None:
    if not np.isfinite(value):
        return None
    if value == int(value) and abs(value) < 1e15:
        return int(value)
    return float(f"{value:.{digits}g}")
