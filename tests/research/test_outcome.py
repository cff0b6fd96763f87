import copy
import math
import pickle

import pytest

from wmrl_envs.research.outcome import BUCKET_POSITIONS, STATUSES, Outcome, Prediction, Status, ladder_reward


def test_ladder_is_the_published_one():
    assert {status: ladder_reward(status) for status in STATUSES if status is not Status.VALID} == {
        Status.MALFORMED: 0.0,
        Status.SYNTAX_ERROR: 0.0,
        Status.RUNTIME_ERROR: 0.1,
        Status.TIMEOUT: 0.1,
        Status.MEMORY: 0.1,
        Status.DISK: 0.1,
        Status.NO_SUBMISSION: 0.2,
        Status.INVALID_SUBMISSION: 0.2,
    }
    assert [ladder_reward(Status.VALID, position) for position in (0.0, 0.5, 1.0)] == [0.5, 0.75, 1.0]
    assert list(BUCKET_POSITIONS.values()) == [0.05, 0.20, 0.45, 0.75]


@pytest.mark.parametrize("position", [None, -0.1, 1.1, math.nan])
def test_a_valid_attempt_needs_a_position(position):
    with pytest.raises(ValueError, match=r"position in \[0, 1\]"):
        ladder_reward(Status.VALID, position)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", [Outcome, Prediction])
def test_a_reward_is_a_finite_number(kind, reward):
    with pytest.raises(ValueError, match="must be finite"):
        kind(status=Status.VALID, reward=reward)


def test_outcomes_compare_by_what_happened_and_travel():
    outcome = Outcome(status=Status.VALID, reward=0.75, position=0.5, score=0.8, seconds=0.1)
    for twin in (copy.deepcopy(outcome), pickle.loads(pickle.dumps(outcome))):
        assert twin == outcome
    assert outcome != Outcome(status=Status.VALID, reward=0.8, position=0.6, score=0.8, seconds=0.1)
    with pytest.raises(AttributeError):
        outcome.reward = 1.0


def test_a_prediction_is_an_outcome():
    prediction = Prediction(status=Status.VALID, reward=0.6, probabilities=(0.0,) * 8 + (1.0,), spread=0.1)
    assert isinstance(prediction, Outcome)
    assert prediction.report_reward is None
