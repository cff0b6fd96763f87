"""The predictor that every world model has to beat: how solutions ended so far, whatever the code says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wmrl_envs.errors import WorldModelError
from wmrl_envs.research.grading import Submission, check_graded
from wmrl_envs.research.outcome import STATUSES, Outcome, Prediction, Status

__all__ = ["BaseRateWorldModel"]


class BaseRateWorldModel:
    """Predicts the shares of statuses and the mean reward of executed solutions, the same for every solution.

    A task that has executed solutions of its own gets their shares; any other gets those of all tasks together, so that
    it can be held out.

    Args:
        by_task: Whether tasks have shares of their own; if not, all tasks share one prediction.

    Example:
        >>> from wmrl_envs.research.grading import Submission
        >>> from wmrl_envs.research.outcome import Outcome, Status
        >>> from wmrl_envs.research.task import load_task
        >>> submissions = [Submission(load_task("titanic"), code) for code in ("a = 1", "b = 2")]
        >>> model = BaseRateWorldModel()
        >>> model.fit(
        ...     submissions, [Outcome(status=Status.VALID, reward=0.8), Outcome(status=Status.TIMEOUT, reward=0.1)]
        ... )
        >>> model.grade(submissions[:1])[0].reward
        0.45
    """

    learns_across_tasks = True
    """Executions of other tasks say something here; an evaluation gives it those of its ``train_tasks``."""

    def __init__(self, by_task: bool = True) -> None:
        self.by_task = by_task
        self._own: dict[str, Prediction] = {}
        self._pooled: Prediction | None = None

    def fit(self, submissions: Sequence[Submission], outcomes: Sequence[Outcome | None]) -> None:
        """Take the shares of executed solutions, in place of those of an earlier call.

        Args:
            submissions: Executed solutions, of one or several tasks.
            outcomes: Their outcomes; None is left out.

        Raises:
            WorldModelError: If no outcome is known.
            GradingError: If the two differ in length.
        """
        check_graded(self, submissions, outcomes)
        known = [
            (submission.task.id, outcome)
            for submission, outcome in zip(submissions, outcomes, strict=True)
            if outcome is not None
        ]
        if not known:
            raise WorldModelError(f"{type(self).__name__}.fit needs at least 1 executed solution with an outcome")
        by_task: dict[str, list[Outcome]] = {}
        for task, outcome in known:
            by_task.setdefault(task, []).append(outcome)
        self._pooled = _base_rate([outcome for _, outcome in known])
        self._own = {task: _base_rate(own) for task, own in by_task.items()} if self.by_task else {}

    def grade(self, submissions: Sequence[Submission]) -> list[Prediction | None]:
        """Return each task's prediction, once per submission; the code is not looked at.

        Raises:
            WorldModelError: Before the first `fit`.
        """
        pooled = self._pooled
        if pooled is None:
            raise WorldModelError(
                f"{type(self).__name__} knows no executed solutions; call fit(submissions, outcomes) first"
            )
        return [self._own.get(submission.task.id, pooled) for submission in submissions]


def _base_rate(outcomes: Sequence[Outcome]) -> Prediction:
    rewards = np.array([outcome.reward for outcome in outcomes])
    shares = [sum(outcome.status is status for outcome in outcomes) / len(outcomes) for status in STATUSES]
    top = int(np.argmax(shares))
    positions = [outcome.position for outcome in outcomes if outcome.position is not None]
    return Prediction(
        status=STATUSES[top],
        reward=float(rewards.mean()),
        position=float(np.mean(positions)) if STATUSES[top] is Status.VALID and positions else None,
        probabilities=tuple(shares),
        spread=float(rewards.std()),
        confidence=shares[top],
    )
