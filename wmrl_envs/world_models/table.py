"""A world model without a model: it answers with what was recorded when the solution was executed."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from wmrl_envs.research.grading import Grader, Submission, check_graded
from wmrl_envs.research.outcome import STATUSES, Outcome, Prediction
from wmrl_envs.research.sandbox.replay import ReplaySandbox

__all__ = ["TableWorldModel"]

_DRAWS = 3
"""Recordings hold one execution of a solution, or three under different seeds where a seed matters."""


class TableWorldModel:
    """Predicts a solution's recorded outcome, averaged over its recorded executions.

    Right by construction, and so fast that what is left is the cost of everything around a world model: a lookup of 128
    solutions takes some microseconds once they were asked for.

    Args:
        recordings: Answers for recorded solutions, and raises for others; None is the recordings that come with the
            tasks.
    """

    def __init__(self, recordings: Grader | None = None) -> None:
        self._recordings = ReplaySandbox() if recordings is None else recordings
        self._tables: dict[str, dict[str | None, Prediction | None]] = {}

    def grade(self, submissions: Sequence[Submission]) -> list[Prediction | None]:
        """Look a batch up.

        Returns:
            One prediction per submission, in order, None where the recordings know nothing; equal solutions share one
            object, whatever their seeds.

        Raises:
            RecordingError: If a solution is not on record.
        """
        try:
            return [self._tables[submission.task.id][submission.code] for submission in submissions]
        except KeyError:
            self._look_up(submissions)
            return [self._tables[submission.task.id][submission.code] for submission in submissions]

    def _look_up(self, submissions: Sequence[Submission]) -> None:
        new = dict.fromkeys(
            replace(submission, seed=0)
            for submission in submissions
            if submission.code not in self._tables.get(submission.task.id, {})
        )
        draws = [replace(submission, seed=seed) for submission in new for seed in range(_DRAWS)]
        outcomes = self._recordings.grade(draws)
        check_graded(self._recordings, draws, outcomes)
        for place, submission in enumerate(new):
            recorded = [outcome for outcome in outcomes[place * _DRAWS : (place + 1) * _DRAWS] if outcome is not None]
            table = self._tables.setdefault(submission.task.id, {})
            table[submission.code] = _mean(recorded) if recorded else None


def _mean(outcomes: Sequence[Outcome]) -> Prediction:
    counts = Counter(outcome.status for outcome in outcomes)
    status, count = counts.most_common(1)[0]
    example = next(outcome for outcome in outcomes if outcome.status is status)
    positions = [outcome.position for outcome in outcomes if outcome.status is status and outcome.position is not None]
    rewards = [outcome.reward for outcome in outcomes]
    return Prediction(
        status=status,
        reward=statistics.fmean(rewards),
        position=statistics.fmean(positions) if positions else None,
        score=example.score,
        feedback=example.feedback,
        error_type=example.error_type,
        error_line=example.error_line,
        probabilities=tuple(counts[status] / len(outcomes) for status in STATUSES),
        spread=statistics.pstdev(rewards),
        confidence=count / len(outcomes),
    )
