"""Corrected beliefs made consistent: whatever was added to them, they are probabilities and rewards again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.research.outcome import STATUSES, Status, ladder_reward

__all__ = ["Posterior", "consistent"]

FloatArray = NDArray[np.float64]
_VALID = STATUSES.index(Status.VALID)
_RUNGS = np.array([ladder_reward(status) if status is not Status.VALID else 0.0 for status in STATUSES])


class Posterior(NamedTuple):
    """Beliefs about m solutions."""

    reward: FloatArray
    """Expected reward, float64 [m] in [0, 1]."""
    probabilities: FloatArray
    """Of each status in the order of ``STATUSES``, float64 [m, 9]; rows sum to 1."""
    status: NDArray[np.intp]
    """Index of the most probable status, [m]."""
    position: FloatArray
    """Expected leaderboard position of a valid submission, float64 [m] in [0, 1]."""


def consistent(outcomes: FloatArray) -> Posterior:
    """Return beliefs that may be used.

    Args:
        outcomes: float64 [m, 10]: the expected reward, then something for each status of which the part above 0 counts.
    """
    reward = np.clip(outcomes[:, 0], 0.0, 1.0)
    probabilities = np.maximum(outcomes[:, 1:], 0.0)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    valid = np.maximum(probabilities[:, _VALID], 1e-9)
    position = np.clip(2.0 * ((reward - probabilities @ _RUNGS) / valid - 0.5), 0.0, 1.0)
    return Posterior(reward, probabilities, probabilities.argmax(axis=1), position)
