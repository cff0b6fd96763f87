"""How good predictions are, against what was really executed: the metrics alone, as functions of arrays.

A metric that is undefined (one class only, nothing varies, nothing was predicted) is None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from scipy.stats import rankdata

from wmrl_envs.research.outcome import STATUSES, Outcome, Prediction, Status

__all__ = [
    "METRICS",
    "TOP_OF",
    "Pairs",
    "Reliability",
    "area_under_curve",
    "confusion_matrix",
    "pairs_of",
    "rank_correlation",
    "reliability",
    "top_choice",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

TOP_OF = 64
"""Solutions among which a top choice is made: about as many as a training step predicts."""
_BINS = 10
_VALID = STATUSES.index(Status.VALID)


@dataclass(frozen=True, eq=False)
class Pairs:
    """What was predicted and what was executed, for n solutions; arrays have length n."""

    predicted_reward: FloatArray
    """Expected ladder reward in [0, 1]."""
    real_reward: FloatArray
    """Ladder reward in [0, 1], the mean over the recorded executions."""
    predicted_status: IntArray
    """Index into ``STATUSES``, the most probable one."""
    real_status: IntArray
    """Index into ``STATUSES``, the most frequent one over the recorded executions."""
    valid_probability: FloatArray
    """Predicted probability of a valid submission."""
    confidence: FloatArray
    """Predicted probability that the predicted status is right."""

    def __len__(self) -> int:
        return len(self.real_reward)

    @property
    def valid(self) -> BoolArray:
        """Whether the submission was really valid, bool [n]."""
        return np.asarray(self.real_status == _VALID)

    def take(self, which: IntArray | BoolArray) -> Pairs:
        """Return some of the solutions, by index or by mask."""
        return Pairs(**{field.name: getattr(self, field.name)[which] for field in fields(self)})

    @staticmethod
    def joined(parts: Sequence[Pairs]) -> Pairs:
        """Return the solutions of all parts, in order."""
        return Pairs(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Pairs)})


def pairs_of(predictions: Sequence[Outcome], real_reward: FloatArray, real_status: IntArray) -> Pairs:
    """Set predictions beside what was executed.

    Args:
        predictions: n predictions. A plain outcome counts as certain of its status.
        real_reward: float64 [n], mean ladder reward over executions.
        real_status: int64 [n], index into ``STATUSES``.
    """
    return Pairs(
        predicted_reward=np.array([prediction.reward for prediction in predictions], dtype=np.float64),
        real_reward=real_reward,
        predicted_status=np.array([STATUSES.index(prediction.status) for prediction in predictions], dtype=np.int64),
        real_status=real_status,
        valid_probability=np.array([_valid_probability(prediction) for prediction in predictions], dtype=np.float64),
        confidence=np.array([getattr(prediction, "confidence", 1.0) for prediction in predictions], dtype=np.float64),
    )


def _valid_probability(prediction: Outcome) -> float:
    if isinstance(prediction, Prediction) and prediction.probabilities:
        return prediction.probabilities[_VALID]
    return float(prediction.status is Status.VALID)


def area_under_curve(positive: BoolArray, score: FloatArray) -> float | None:
    """Return the probability that a positive scores above a negative, ties counting half; None with one class only.

    Args:
        positive: bool [n].
        score: float64 [n], higher for what is taken for positive.
    """
    count = int(positive.sum())
    others = len(positive) - count
    if not count or not others:
        return None
    return float((rankdata(score)[positive].sum() - count * (count + 1) / 2) / (count * others))


def rank_correlation(predicted: FloatArray, real: FloatArray) -> float | None:
    """Return Spearman's rank correlation; None for fewer than 3 solutions or where one side does not vary."""
    if len(real) < 3 or np.ptp(predicted) == 0.0 or np.ptp(real) == 0.0:
        return None
    return float(np.corrcoef(rankdata(predicted), rankdata(real))[0, 1])


def confusion_matrix(real: IntArray, predicted: IntArray) -> IntArray:
    """Count solutions by real status (rows) and predicted status (columns), int64 [9, 9] in the order of STATUSES."""
    counts = np.zeros((len(STATUSES), len(STATUSES)), dtype=np.int64)
    np.add.at(counts, (real, predicted), 1)
    return counts


@dataclass(frozen=True, eq=False)
class Reliability:
    """Predicted probabilities against how often it happened, in bins of equal width; empty bins are left out."""

    predicted: FloatArray
    """Mean predicted probability in each bin."""
    happened: FloatArray
    """Share of each bin in which it happened."""
    count: IntArray
    """Predictions in each bin."""

    @property
    def error(self) -> float | None:
        """Expected calibration error: the mean distance of the two, weighed by count; None without predictions."""
        if not self.count.sum():
            return None
        return float(np.abs(self.predicted - self.happened) @ self.count / self.count.sum())

    def as_dict(self) -> dict[str, Any]:
        """Return the bins, JSON-able."""
        return {field.name: getattr(self, field.name).tolist() for field in fields(self)}


def reliability(probability: FloatArray, happened: BoolArray, bins: int = _BINS) -> Reliability:
    """Hold predicted probabilities against what happened.

    Args:
        probability: float64 [n], in [0, 1].
        happened: bool [n].
        bins: Bins of equal width; a probability of 1 belongs to the last one.
    """
    place = np.minimum((probability * bins).astype(np.int64), bins - 1)
    count = np.bincount(place, minlength=bins)
    filled = count > 0
    sums = [np.bincount(place, weights, minlength=bins)[filled] for weights in (probability, happened)]
    return Reliability(sums[0] / count[filled], sums[1] / count[filled], count[filled].astype(np.int64))


def top_choice(predicted: FloatArray, real: FloatArray, size: int = TOP_OF) -> tuple[float, float] | None:
    """Return the predicted and the real reward of the solution that is picked as best among a few.

    The expectation over all subsets of ``size`` solutions, exactly: the solution on place i of n by prediction is the
    best of its subset with probability C(n-1-i, size-1) / C(n, size). Solutions that tie are picked equally often.

    Args:
        predicted: float64 [n].
        real: float64 [n].
        size: Solutions that are compared; all n where there are fewer.

    Returns:
        (predicted, real): their difference is the optimism of the choice. None without solutions.
    """
    n = len(predicted)
    if not n:
        return None
    size = min(size, n)
    place = np.arange(n - size + 1)
    chance = np.exp(_log_choose(n - 1 - place, size - 1) - _log_choose(np.array([n]), size))
    weights = np.zeros(n)
    weights[: len(chance)] = chance
    order = np.argsort(-predicted, kind="stable")
    _, tie = np.unique(-predicted[order], return_inverse=True)
    shared = (np.bincount(tie, weights) / np.bincount(tie))[tie]
    return float(shared @ predicted[order]), float(shared @ real[order])


def _log_choose(n: IntArray, k: int) -> FloatArray:
    return np.asarray(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0), dtype=np.float64)


def _optimism(pairs: Pairs) -> float | None:
    top = top_choice(pairs.predicted_reward, pairs.real_reward)
    return None if top is None else top[0] - top[1]


def _top_reward(pairs: Pairs) -> float | None:
    top = top_choice(pairs.predicted_reward, pairs.real_reward)
    return None if top is None else top[1]


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def _root_mean_square(errors: FloatArray) -> float | None:
    return float(np.sqrt((errors**2).mean())) if len(errors) else None


METRICS: dict[str, Callable[[Pairs], float | None]] = {
    "status_accuracy": lambda p: _mean(p.predicted_status == p.real_status),
    "validity_auc": lambda p: area_under_curve(p.valid, p.valid_probability),
    "validity_brier": lambda p: _mean((p.valid_probability - p.valid) ** 2),
    "reward_error": lambda p: _mean(np.abs(p.predicted_reward - p.real_reward)),
    "reward_rmse": lambda p: _root_mean_square(p.predicted_reward - p.real_reward),
    "reward_bias": lambda p: _mean(p.predicted_reward - p.real_reward),
    "rank": lambda p: rank_correlation(p.predicted_reward, p.real_reward),
    "rank_valid": lambda p: rank_correlation(p.predicted_reward[p.valid], p.real_reward[p.valid]),
    "validity_calibration": lambda p: reliability(p.valid_probability, p.valid).error,
    "confidence_calibration": lambda p: reliability(p.confidence, p.predicted_status == p.real_status).error,
    "optimism": _optimism,
    "top_reward": _top_reward,
}
"""The metrics by name, each a function of the pairs.

- ``status_accuracy``: share of solutions whose status is predicted.
- ``validity_auc``: area under the curve of the probability of validity; 0.5 where it is the same for all.
- ``validity_brier``: mean squared error of that probability.
- ``reward_error``, ``reward_rmse``: mean absolute and root mean squared error of the expected reward.
- ``reward_bias``: mean predicted minus mean real reward.
- ``rank``, ``rank_valid``: Spearman's correlation of predicted and real reward, over all and over valid solutions.
- ``validity_calibration``, ``confidence_calibration``: expected calibration error of the probability of validity, and
  of the confidence in the predicted status.
- ``optimism``, ``top_reward``: predicted minus real, and real reward of the best of ``TOP_OF`` by prediction.
"""
