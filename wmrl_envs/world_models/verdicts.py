"""The one-word verdicts that a language model gives on a solution, and what they say together.

Statuses and quality buckets are one vocabulary, so that a single categorical distribution, read in one forward pass,
gives the status probabilities, the expected reward and its spread.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.research.outcome import BUCKET_POSITIONS, STATUSES, Outcome, Prediction, Status, ladder_reward

__all__ = ["VERDICTS", "prediction_from", "verdict_for", "verdict_of"]

_FAILURES = {
    "error": Status.RUNTIME_ERROR,
    "timeout": Status.TIMEOUT,
    "memory": Status.MEMORY,
    "disk": Status.DISK,
    "nothing": Status.NO_SUBMISSION,
    "invalid": Status.INVALID_SUBMISSION,
}

VERDICTS = (*_FAILURES, *BUCKET_POSITIONS)
"""The ten verdicts: six ways to fail, and four quality buckets of a valid submission. Code that holds nothing to run or
does not compile is told exactly and never gets here."""

_STATUS = [_FAILURES.get(verdict, Status.VALID) for verdict in VERDICTS]
_REWARDS = np.array(
    [
        ladder_reward(_FAILURES[v]) if v in _FAILURES else ladder_reward(Status.VALID, BUCKET_POSITIONS[v])
        for v in VERDICTS
    ]
)
_TO_STATUS = np.array([[float(status is own) for status in STATUSES] for own in _STATUS])


def verdict_of(outcome: Outcome) -> str | None:
    """Return the verdict that an executed outcome amounts to, None for one that the exact gates tell.

    A valid submission falls into the bucket whose position is nearest.
    """
    if outcome.status is Status.VALID:
        position = outcome.position or 0.0
        return min(BUCKET_POSITIONS, key=lambda bucket: abs(BUCKET_POSITIONS[bucket] - position))
    return verdict_for(outcome.status)


def verdict_for(status: Status) -> str | None:
    """Return the verdict on a way to fail, None for one that the exact gates tell and for a valid submission."""
    return next((verdict for verdict, own in _FAILURES.items() if own is status), None)


def prediction_from(
    probabilities: NDArray[np.float64],
    *,
    feedback: str = "",
    error_type: str | None = None,
    error_line: int | None = None,
    confidence: float | None = None,
) -> Prediction:
    """Return the prediction that a distribution over the verdicts amounts to.

    Args:
        probabilities: float64 [10], one for each of ``VERDICTS``, sums to 1.
        feedback: What a terminal would show.
        error_type: Name of the exception, kept where the most probable status is an error while running.
        error_line: Line of the code in which it is raised, likewise.
        confidence: The model's own, in [0, 1]; the most probable status's probability if None.
    """
    statuses = probabilities @ _TO_STATUS
    status = STATUSES[int(statuses.argmax())]
    reward = float(probabilities @ _REWARDS)
    position = None
    if status is Status.VALID:
        valid = probabilities[len(_FAILURES) :]
        position = float(valid @ np.array(list(BUCKET_POSITIONS.values())) / valid.sum())
    failed = status is Status.RUNTIME_ERROR
    return Prediction(
        status=status,
        reward=reward,
        position=position,
        feedback=feedback,
        error_type=error_type if failed else None,
        error_line=error_line if failed else None,
        probabilities=tuple(statuses.tolist()),
        spread=math.sqrt(max(0.0, float(probabilities @ (_REWARDS - reward) ** 2))),
        confidence=float(statuses.max()) if confidence is None else confidence,
    )
