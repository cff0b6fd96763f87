"""What executing a solution returns, and what a world model predicts in its place."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["BUCKET_POSITIONS", "STATUSES", "Outcome", "Prediction", "Status", "ladder_reward"]


class Status(StrEnum):
    """How the execution of a submitted solution ended."""

    MALFORMED = "malformed"
    """The reply holds no code, or something that can be no Python source."""
    SYNTAX_ERROR = "syntax_error"
    """The code does not compile."""
    RUNTIME_ERROR = "runtime_error"
    """The program ended with an exception or a non-zero exit code."""
    TIMEOUT = "timeout"
    """The program reached its limit of wall or CPU seconds."""
    MEMORY = "memory"
    """The program's process tree reached its memory limit."""
    DISK = "disk"
    """The program wrote more than its scratch folder may hold."""
    NO_SUBMISSION = "no_submission"
    """The program ended well but wrote no submission."""
    INVALID_SUBMISSION = "invalid_submission"
    """The submission does not answer the task, such as by wrong ids, columns or values."""
    VALID = "valid"
    """The submission was scored."""


STATUSES: tuple[Status, ...] = tuple(Status)
"""Every status in a fixed order: index i of a probability vector belongs to ``STATUSES[i]``."""

_LADDER = {
    Status.MALFORMED: 0.0,
    Status.SYNTAX_ERROR: 0.0,
    Status.RUNTIME_ERROR: 0.1,
    Status.TIMEOUT: 0.1,
    Status.MEMORY: 0.1,
    Status.DISK: 0.1,
    Status.NO_SUBMISSION: 0.2,
    Status.INVALID_SUBMISSION: 0.2,
}

BUCKET_POSITIONS = {"low": 0.05, "fair": 0.20, "mid": 0.45, "high": 0.75}
"""Leaderboard position that each of the paper's quality buckets stands for."""


def ladder_reward(status: Status, position: float | None = None) -> float:
    """Return the reward of one attempt on the paper's ladder (arXiv 2608.12564).

    Args:
        status: How the attempt ended.
        position: Leaderboard position in [0, 1]; needed for ``VALID`` and ignored otherwise.

    Returns:
        0 for malformed code or a syntax error, 0.1 for an error or a limit while running, 0.2 for a run without a valid
        submission, and ``0.5 + 0.5 * position`` for a valid one.

    Raises:
        ValueError: If a valid attempt has no position, or one outside [0, 1].
    """
    if status is not Status.VALID:
        return _LADDER[status]
    if position is None or not 0.0 <= position <= 1.0:
        raise ValueError(f"a valid submission needs a position in [0, 1], got {position}")
    return 0.5 + 0.5 * position


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What execution said about one submitted solution.

    A failure of the harness is no outcome: graders put ``None`` in that place.
    """

    status: Status
    reward: float
    """Ladder reward in [0, 1], from the half of the private answers that trains."""
    position: float | None = None
    """Leaderboard position in [0, 1] on the training half; ``None`` unless valid."""
    score: float | None = None
    """Raw value of the task's metric on the training half; ``None`` unless valid."""
    feedback: str = ""
    """What a terminal would show; names neither times nor paths, so that a run is repeatable."""
    error_type: str | None = None
    """Name of the exception that ended the program, such as ``"ValueError"``."""
    error_line: int | None = None
    """Line of the submitted code (from 1) in which it was raised."""
    seconds: float = field(default=0.0, compare=False)
    """Execution cost: CPU seconds of the process tree, or the wall seconds where a wall limit ended it. A measurement,
    so that two runs of one solution compare equal."""
    report_reward: float | None = None
    """Ladder reward in [0, 1] on the other half of the answers; shown to evaluations, never to training."""

    def __post_init__(self) -> None:
        """Refuse a reward that is no number: NaN would win or lose comparisons silently."""
        if not math.isfinite(self.reward):
            raise ValueError(f"an outcome's reward must be finite, got {self.reward}; use None for an unknown outcome")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Outcome):
    """A world model's guess of an outcome.

    ``reward`` is the expectation over the model's beliefs, so it need not be a rung of the ladder; ``status`` is the
    most probable one. ``seconds`` is what the prediction itself took.
    """

    probabilities: tuple[float, ...] = field(default=())
    """Probability of each status, in the order of ``STATUSES``; sums to 1 (empty where the model gives none)."""
    spread: float = 0.0
    """Standard deviation of the reward under the model's beliefs."""
    confidence: float = 1.0
    """The model's own confidence in [0, 1] (the most probable status's probability, where it states none)."""
