"""The metrics, against values worked out by hand and against scikit-learn and scipy."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from wmrl_envs.research.outcome import STATUSES, Outcome, Prediction, Status
from wmrl_envs.world_models.scoring import (
    METRICS,
    Pairs,
    area_under_curve,
    confusion_matrix,
    pairs_of,
    rank_correlation,
    reliability,
    top_choice,
)

VALID, ERROR, TIMEOUT = (STATUSES.index(status) for status in (Status.VALID, Status.RUNTIME_ERROR, Status.TIMEOUT))


def prediction(reward: float, valid: float) -> Prediction:
    probabilities = [0.0] * len(STATUSES)
    probabilities[VALID], probabilities[ERROR] = valid, 1.0 - valid
    status = Status.VALID if valid > 0.5 else Status.RUNTIME_ERROR
    return Prediction(
        status=status, reward=reward, probabilities=tuple(probabilities), confidence=max(valid, 1.0 - valid)
    )


def four() -> Pairs:
    """Four solutions: two right, one valid one taken for a failure, one timeout taken for an error."""
    predictions = [prediction(0.8, 0.9), prediction(0.2, 0.2), prediction(0.3, 0.4), prediction(0.1, 0.0)]
    real = np.array([0.9, 0.1, 0.6, 0.1])
    return pairs_of(predictions, real, np.array([VALID, ERROR, VALID, TIMEOUT]))


def test_four_solutions_by_hand() -> None:
    scores = {name: metric(four()) for name, metric in METRICS.items()}
    assert scores["status_accuracy"] == 0.5
    assert scores["validity_auc"] == 1.0
    assert scores["validity_brier"] == pytest.approx((0.1**2 + 0.2**2 + 0.6**2 + 0.0) / 4)
    assert scores["reward_error"] == pytest.approx((0.1 + 0.1 + 0.3 + 0.0) / 4)
    assert scores["reward_rmse"] == pytest.approx(np.sqrt((0.01 + 0.01 + 0.09) / 4))
    assert scores["reward_bias"] == pytest.approx((-0.1 + 0.1 - 0.3) / 4)
    # Predicted places 4, 2, 3, 1 against real places 4, 1.5, 3, 1.5.
    assert scores["rank"] == pytest.approx(4.5 / np.sqrt(5.0 * 4.5))
    assert scores["rank_valid"] is None  # two valid ones are too few
    # Bins [0, .1), [.2, .3), [.4, .5), [.9, 1]: distances 0, .2, .6, .1.
    assert scores["validity_calibration"] == pytest.approx((0.0 + 0.2 + 0.6 + 0.1) / 4)
    # Confidence .9 right, .8 right, .6 wrong, 1 wrong; .9 and 1 share the last bin.
    assert scores["confidence_calibration"] == pytest.approx((2 * abs(0.95 - 0.5) + 0.2 + 0.6) / 4)
    assert scores["optimism"] == pytest.approx(0.8 - 0.9)
    assert scores["top_reward"] == pytest.approx(0.9)


def test_what_is_undefined_is_none() -> None:
    nothing = pairs_of([], np.empty(0), np.empty(0, dtype=np.int64))
    assert {metric(nothing) for metric in METRICS.values()} == {None}
    constant = pairs_of([prediction(0.4, 0.6)] * 4, np.array([0.9, 0.1, 0.6, 0.1]), np.array([VALID, ERROR] * 2))
    assert METRICS["validity_auc"](constant) == 0.5
    assert METRICS["rank"](constant) is None and METRICS["rank_valid"](constant) is None
    one_class = constant.take(constant.valid)
    assert METRICS["validity_auc"](one_class) is None
    assert METRICS["status_accuracy"](one_class) == 1.0


def test_an_outcome_without_probabilities_is_certain() -> None:
    pairs = pairs_of(
        [Outcome(status=Status.VALID, reward=0.7), Prediction(status=Status.TIMEOUT, reward=0.1)],
        np.array([0.7, 0.1]),
        np.array([VALID, TIMEOUT]),
    )
    assert pairs.valid_probability.tolist() == [1.0, 0.0]
    assert pairs.confidence.tolist() == [1.0, 1.0]


def test_area_and_rank_agree_with_the_libraries() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        score, positive = rng.integers(0, 8, 50) / 8, rng.random(50) < 0.4
        assert area_under_curve(positive, score) == pytest.approx(roc_auc_score(positive, score))
        other = rng.integers(0, 8, 50) / 8
        assert rank_correlation(score, other) == pytest.approx(spearmanr(score, other).statistic)


def test_confusion_counts_real_by_row() -> None:
    counts = confusion_matrix(np.array([VALID, VALID, ERROR]), np.array([ERROR, VALID, ERROR]))
    assert counts.shape == (9, 9) and counts.sum() == 3
    assert counts[VALID, ERROR] == counts[VALID, VALID] == counts[ERROR, ERROR] == 1


def test_reliability_bins() -> None:
    bins = reliability(np.array([0.0, 0.05, 0.3, 0.35, 1.0]), np.array([False, True, True, True, True]))
    assert bins.count.tolist() == [2, 2, 1]
    assert bins.predicted == pytest.approx([0.025, 0.325, 1.0])
    assert bins.happened == pytest.approx([0.5, 1.0, 1.0])
    assert bins.error == pytest.approx((2 * 0.475 + 2 * 0.675) / 5)


@pytest.mark.parametrize("size", [1, 2, 3, 6, 64])
def test_top_choice_is_the_mean_over_all_subsets(size: int) -> None:
    """Ties are picked equally often, as if broken at random."""
    predicted = np.array([0.5, 0.9, 0.5, 0.1, 0.5, 0.2])
    real = np.array([0.1, 0.6, 0.9, 0.8, 0.2, 0.7])
    chosen = []
    for subset in combinations(range(6), min(size, 6)):
        best = [i for i in subset if predicted[i] == predicted[list(subset)].max()]
        chosen.append((predicted[best].mean(), real[best].mean()))
    assert top_choice(predicted, real, size) == pytest.approx(tuple(np.mean(chosen, axis=0)))


def test_noise_makes_the_top_choice_optimistic() -> None:
    rng = np.random.default_rng(1)
    real = rng.random(2000)
    top = top_choice(real + rng.normal(0.0, 0.5, 2000), real)
    assert top is not None and top[0] - top[1] > 0.3
