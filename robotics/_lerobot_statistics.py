"""Statistics of a dataset's columns, by which LeRobot's policies normalise what they see and do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Statistics", "column_statistics", "image_statistics", "level_counts"]

Statistics = dict[str, Any]
"""min, max, mean, std, count and quantiles as lists of numbers."""
QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


def column_statistics(values: NDArray[Any]) -> Statistics:
    """Return the statistics of numbers [n, d], each of them [d]."""
    numbers = values.astype(np.float64)
    found = {
        "min": numbers.min(axis=0),
        "max": numbers.max(axis=0),
        "mean": numbers.mean(axis=0),
        "std": numbers.std(axis=0),
    }
    found |= {name: np.quantile(numbers, level, axis=0) for name, level in QUANTILES.items()}
    return {name: value.tolist() for name, value in found.items()} | {"count": [len(numbers)]}


def level_counts(frames: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return how often each level of each colour occurs in frames [n, H, W, 3]; [3, 256]. Counts of frames add up."""
    return np.stack([np.bincount(frames[..., colour].ravel(), minlength=256) for colour in range(3)])


def image_statistics(counts: NDArray[np.int64], frames: int) -> Statistics:
    """Return the statistics of all pixels, scaled to [0, 1], each of them [3, 1, 1] (LeRobot puts colours first).

    Args:
        counts: [3, 256] from ``level_counts``.
        frames: How many they were.
    """
    levels, share = np.arange(256) / 255, counts / counts.sum(axis=1, keepdims=True)
    mean = share @ levels
    below = share.cumsum(axis=1)
    found = {
        "min": levels[(counts > 0).argmax(axis=1)],
        "max": levels[255 - (counts[:, ::-1] > 0).argmax(axis=1)],
        "mean": mean,
        "std": np.sqrt(np.maximum(share @ levels**2 - mean**2, 0.0)),
    }
    # a share's last digits may fall short of the quantile that it stands for
    found |= {name: levels[(below >= level - 1e-12).argmax(axis=1)] for name, level in QUANTILES.items()}
    return {name: value.reshape(3, 1, 1).tolist() for name, value in found.items()} | {"count": [frames]}
