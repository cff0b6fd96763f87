import numpy as np
import pytest

from wmrl_envs.research.outcome import BUCKET_POSITIONS, STATUSES, Outcome, Status, ladder_reward
from wmrl_envs.world_models.verdicts import VERDICTS, prediction_from, verdict_of


def certain(verdict):
    return np.array([float(word == verdict) for word in VERDICTS])


def outcome(status, position=None):
    return Outcome(status=status, reward=ladder_reward(status, position), position=position)


@pytest.mark.parametrize("status", [status for status in STATUSES if status not in ("malformed", "syntax_error")])
def test_a_certain_verdict_predicts_the_outcome_it_stands_for(status):
    executed = outcome(status, 0.45 if status is Status.VALID else None)
    predicted = prediction_from(certain(verdict_of(executed)))
    assert (predicted.status, predicted.reward) == (executed.status, pytest.approx(executed.reward))
    assert predicted.position == pytest.approx(executed.position) if executed.position else predicted.position is None
    assert predicted.spread == pytest.approx(0.0, abs=1e-9) and predicted.confidence == 1.0


def test_the_exact_gates_have_no_verdict():
    assert verdict_of(outcome(Status.MALFORMED)) is None and verdict_of(outcome(Status.SYNTAX_ERROR)) is None


def test_a_position_falls_into_the_nearest_bucket():
    buckets = [
        verdict_of(outcome(Status.VALID, position)) for position in (0.0, 0.12, 0.13, 0.32, 0.33, 0.6, 0.61, 1.0)
    ]
    assert buckets == ["low", "low", "fair", "fair", "mid", "mid", "high", "high"]


def test_the_reward_is_an_expectation_and_the_spread_its_standard_deviation():
    half = 0.5 * certain("error") + 0.5 * certain("high")
    predicted = prediction_from(half, error_type="KeyError", error_line=3)
    high = 0.5 + 0.5 * BUCKET_POSITIONS["high"]
    assert predicted.reward == pytest.approx((0.1 + high) / 2)
    assert predicted.spread == pytest.approx((high - 0.1) / 2)
    assert sum(predicted.probabilities) == pytest.approx(1.0)


def test_many_buckets_outweigh_one_likelier_failure():
    # "error" is the likeliest word, but a valid submission is the likeliest ending.
    mixed = 0.4 * certain("error") + 0.3 * certain("low") + 0.3 * certain("mid")
    predicted = prediction_from(mixed, error_type="KeyError", error_line=3, confidence=0.2)
    assert predicted.status is Status.VALID and predicted.position == pytest.approx(0.25)
    assert predicted.error_type is None and predicted.error_line is None
    assert predicted.confidence == 0.2
