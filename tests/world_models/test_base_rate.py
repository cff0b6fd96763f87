"""The base rate: shares of what was executed, whatever the code says."""

from __future__ import annotations

import numpy as np
import pytest

from wmrl_envs.errors import GradingError, WorldModelError
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import STATUSES, Outcome, Status
from wmrl_envs.research.task import load_task
from wmrl_envs.world_models import check_predictions, resolve_world_model
from wmrl_envs.world_models.base_rate import BaseRateWorldModel

TITANIC, WEATHER, NAMES = (load_task(name) for name in ("titanic", "weather", "names"))
VALID = Outcome(status=Status.VALID, reward=0.8, position=0.6)
FAILED = Outcome(status=Status.RUNTIME_ERROR, reward=0.1)
SUBMISSIONS = [Submission(task, f"x = {i}") for i, task in enumerate([TITANIC] * 4 + [WEATHER] * 2)]
OUTCOMES = [VALID, VALID, VALID, FAILED, FAILED, None]


def test_shares_of_the_task_or_of_all_tasks() -> None:
    model = BaseRateWorldModel()
    model.fit(SUBMISSIONS, OUTCOMES)
    batch = [Submission(task, "anything") for task in (TITANIC, WEATHER, NAMES)]
    predictions = model.grade(batch)
    check_predictions(model, batch, predictions)
    own, failing, pooled = predictions
    assert own is not None and failing is not None and pooled is not None
    assert own.status is Status.VALID and own.position == pytest.approx(0.6)
    assert own.reward == pytest.approx(0.625) and own.confidence == 0.75
    assert own.spread == pytest.approx(np.std([0.8, 0.8, 0.8, 0.1]))
    assert dict(zip(STATUSES, own.probabilities, strict=True))[Status.VALID] == 0.75
    assert failing.status is Status.RUNTIME_ERROR and failing.position is None and failing.reward == 0.1
    assert pooled.probabilities[STATUSES.index(Status.VALID)] == 0.6
    assert pooled.reward == pytest.approx((3 * 0.8 + 2 * 0.1) / 5)


def test_one_prediction_for_all_tasks() -> None:
    model = resolve_world_model("base-rate", by_task=False)
    assert isinstance(model, BaseRateWorldModel)
    model.fit(SUBMISSIONS, OUTCOMES)
    titanic, weather = model.grade([Submission(TITANIC, "a"), Submission(WEATHER, "b")])
    assert titanic is weather


def test_a_fit_replaces_the_one_before() -> None:
    model = BaseRateWorldModel()
    model.fit(SUBMISSIONS, OUTCOMES)
    model.fit(SUBMISSIONS[4:], OUTCOMES[4:])
    [prediction] = model.grade(SUBMISSIONS[:1])
    assert prediction is not None and prediction.reward == 0.1


def test_nothing_known_is_an_error() -> None:
    model = BaseRateWorldModel()
    with pytest.raises(WorldModelError, match="call fit"):
        model.grade(SUBMISSIONS)
    with pytest.raises(WorldModelError, match="at least 1"):
        model.fit(SUBMISSIONS[5:], OUTCOMES[5:])
    with pytest.raises(GradingError, match="6 submissions"):
        model.fit(SUBMISSIONS, OUTCOMES[:2])
