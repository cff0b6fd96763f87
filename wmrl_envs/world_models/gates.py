"""What every world model knows for certain, before it predicts anything."""

from __future__ import annotations

from wmrl_envs.research.grading import Submission, gate
from wmrl_envs.research.outcome import STATUSES, Prediction

__all__ = ["certain"]


def certain(submission: Submission) -> Prediction | None:
    """Return the prediction of a solution that holds no code or does not compile, None if it would have to run."""
    outcome = gate(submission)
    if outcome is None:
        return None
    return Prediction(
        status=outcome.status,
        reward=outcome.reward,
        feedback=outcome.feedback,
        error_type=outcome.error_type,
        error_line=outcome.error_line,
        probabilities=tuple(float(status is outcome.status) for status in STATUSES),
    )
