"""The learned world model: what it predicts, how it learns, and that its state is exact."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from titanic_solutions import TASK, outcome, outcomes, submissions

from wmrl_envs.errors import CheckpointError, GradingError, WorldModelError
from wmrl_envs.research.grading import MAX_CODE_CHARS, Submission
from wmrl_envs.research.outcome import STATUSES, Outcome, Prediction, Status
from wmrl_envs.world_models import LearnedWorldModel, check_predictions, task_model


def fitted(count=90, **settings):
    model = LearnedWorldModel(trees=40, **settings)
    model.fit(submissions(count), outcomes(submissions(count)))
    return model


def bare(predictions):
    """Predictions without the time they took."""
    return [replace(prediction, seconds=0.0) for prediction in predictions]


def test_predictions_are_well_formed():
    model = fitted()
    batch = submissions(start=90)
    predictions = model.grade(batch)
    check_predictions(model, batch, predictions)
    for prediction in predictions:
        assert isinstance(prediction, Prediction)
        assert 0.0 <= prediction.reward <= 1.0 and prediction.spread >= 0.0
        assert len(prediction.probabilities) == len(STATUSES) and min(prediction.probabilities) >= 0.0
        assert math.isclose(sum(prediction.probabilities), 1.0)
        assert prediction.status is STATUSES[int(np.argmax(prediction.probabilities))]
        assert prediction.confidence == max(prediction.probabilities)
        assert (prediction.position is not None) == (prediction.status is Status.VALID)
        assert prediction.score is None and prediction.report_reward is None


def test_it_ranks_unseen_solutions_and_knows_which_are_valid():
    model, batch = fitted(), submissions(start=90)
    predicted = np.array([prediction.reward for prediction in model.grade(batch)])
    real = np.array([result.reward for result in outcomes(batch)])
    valid = [result.status is Status.VALID for result in outcomes(batch)]
    certainty = [prediction.probabilities[STATUSES.index(Status.VALID)] for prediction in model.grade(batch)]
    assert spearmanr(predicted, real).statistic > 0.55
    assert roc_auc_score(valid, certainty) > 0.95


def test_feedback_is_that_of_an_executed_solution_that_ended_so():
    model, batch = fitted(), submissions(start=90)
    told = {status: set() for status in STATUSES}
    for result in outcomes(submissions(90)):
        told[result.status].add((result.feedback, result.error_type, result.error_line))
    alike = []
    for submission, prediction in zip(batch, model.grade(batch), strict=True):
        assert (prediction.feedback, prediction.error_type, prediction.error_line) in told[prediction.status]
        alike.append(prediction.feedback == outcome(submission.code).feedback)
    assert np.mean(alike) > 0.85


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (None, Status.MALFORMED),
        ("  \n", Status.MALFORMED),
        ("x = 1\0", Status.MALFORMED),
        ("x" * (MAX_CODE_CHARS + 1), Status.MALFORMED),
        ("def f(:\n", Status.SYNTAX_ERROR),
        ("x = = 1", Status.SYNTAX_ERROR),
    ],
)
def test_what_cannot_run_is_certain(code, status):
    prediction = fitted().grade([Submission(TASK, code)])[0]
    assert (prediction.status, prediction.reward, prediction.confidence, prediction.spread) == (status, 0.0, 1.0, 0.0)
    assert prediction.probabilities[STATUSES.index(status)] == 1.0
    assert prediction.feedback


def test_a_batch_keeps_its_order_and_a_prediction_does_not_depend_on_the_batch():
    batch = [*submissions(256), Submission(TASK, None), Submission(TASK, "x = (")]
    together = bare(fitted().grade(batch))
    backwards = bare(fitted().grade(batch[::-1]))[::-1]
    alone = fitted()
    assert together == backwards == [bare(alone.grade([submission]))[0] for submission in batch]


def test_repeats_cost_nothing_and_the_time_is_shared_by_the_new():
    model, batch = fitted(), submissions(20, start=100)
    first, again = model.grade(batch), model.grade(batch)
    assert bare(first) == again
    assert all(prediction.seconds > 0.0 for prediction in first)
    assert all(prediction.seconds == 0.0 for prediction in again)


def test_an_empty_batch_has_no_predictions():
    assert fitted().grade([]) == []


def test_it_learns_from_executions_every_refit():
    model, batch = fitted(refit_every=3), submissions(60, start=90)
    results = [replace(result, reward=0.9, status=Status.VALID, position=0.8) for result in outcomes(batch)]

    def error():
        return np.mean([abs(p.reward - r.reward) for p, r in zip(model.grade(batch), results, strict=True)])

    before = error()
    for _ in range(2):
        model.observe(batch, results)
        assert error() == before
    model.observe(batch, results)
    assert error() < 0.5 * before
    for _ in range(30):
        model.observe(batch, results)
    assert error() < 0.1 * before


def test_many_executions_of_one_solution_are_believed_in_the_mean():
    model = fitted(refit_every=1)
    submission = submissions(1, start=200)[0]
    good, bad = (Outcome(status=Status.VALID, reward=value, position=2 * value - 1) for value in (0.9, 0.6))
    for _ in range(4):
        model.observe([submission] * 400, [good, bad, bad, bad] * 100)
    assert model.grade([submission])[0].reward == pytest.approx(0.675, abs=0.01)
    assert model.grade([submission])[0].status is Status.VALID


def test_a_frozen_model_never_changes():
    model, batch = fitted(refit_every=0), submissions(50, start=90)
    before = bare(model.grade(batch))
    for _ in range(6):
        model.observe(batch, [Outcome(status=Status.VALID, reward=1.0, position=1.0)] * 50)
    assert bare(model.grade(batch)) == before


def test_unknown_outcomes_and_code_that_cannot_run_teach_nothing():
    model, batch = fitted(refit_every=1), submissions(50, start=90)
    before = bare(model.grade(batch))
    zero = Outcome(status=Status.MALFORMED, reward=0.0)
    model.observe([*batch, Submission(TASK, None), Submission(TASK, "x = (")], [None] * 50 + [zero, zero])
    assert bare(model.grade(batch)) == before


def test_the_residual_keeps_the_latest_points():
    model, batch = fitted(refit_every=1, max_points=30), submissions(120, start=90)
    model.observe(batch[:60], outcomes(batch[:60]))
    model.observe(batch[60:], outcomes(batch[60:]))
    assert len(model.state_dict()["tasks"]["titanic"]["points"]) == 30


def test_memory_is_bounded_and_forgetting_changes_no_prediction(monkeypatch):
    monkeypatch.setattr(task_model, "_CELLS", 4000)
    model, free = fitted(refit_every=2), fitted(refit_every=2)
    free._models["titanic"]._room = 10**9
    batch = submissions(start=90)
    for step in range(6):
        for either in (model, free):
            either.observe(batch[20 * step :][:8], outcomes(batch[20 * step :][:8]))
        programs = [Submission(TASK, f"name_{step}_{i} = {i}") for i in range(100)]
        assert bare(model.grade(programs)) == bare(free.grade(programs))
        assert bare(model.grade(batch)) == bare(free.grade(batch))
    assert len(model._models["titanic"]._table) < 0.8 * len(free._models["titanic"]._table)
    assert bare(model.grade(submissions())) == bare(free.grade(submissions()))
    assert model.state_dict() == free.state_dict()


def test_state_is_exact_at_any_moment():
    model, batch = fitted(refit_every=2, max_points=80), submissions(256)
    for step in range(5):
        chosen = batch[40 * step : 40 * step + 32]
        model.observe(chosen, [None if i % 7 == 0 else result for i, result in enumerate(outcomes(chosen))])
        model.grade(batch[::3])
        state = json.loads(json.dumps(model.state_dict()))
        other = LearnedWorldModel(trees=40, refit_every=2, max_points=80)
        other.load_state_dict(state)
        assert bare(other.grade(batch)) == bare(model.grade(batch))
        assert other.state_dict() == state
        # And both go on alike.
        for either in (model, other):
            either.observe(batch[:5], outcomes(batch[:5]))
        assert bare(other.grade(batch)) == bare(model.grade(batch))


def test_equal_seeds_give_equal_models_and_others_do_not():
    batch = submissions(100, start=90)
    assert bare(fitted(seed=3).grade(batch)) == bare(fitted(seed=3).grade(batch))
    assert bare(fitted(seed=3).grade(batch)) != bare(fitted(seed=4).grade(batch))


@pytest.mark.parametrize(
    "state", [{}, {"format": 2}, {"format": 1, "settings": None}, None, {"format": 1, "settings": {}}]
)
def test_what_is_no_state_is_refused(state):
    model = fitted()
    before = bare(model.grade(submissions(5)))
    with pytest.raises(CheckpointError):
        model.load_state_dict(state)
    assert bare(model.grade(submissions(5))) == before


def test_a_damaged_state_is_refused():
    state = fitted().state_dict()
    del state["tasks"]["titanic"]["warmup"][0]["outcome"]["status"]
    with pytest.raises(CheckpointError):
        LearnedWorldModel(trees=40).load_state_dict(state)


def test_a_state_of_other_settings_is_refused():
    with pytest.raises(CheckpointError, match="'trees': 40"):
        LearnedWorldModel(trees=41).load_state_dict(fitted().state_dict())


def test_too_few_executions_are_refused():
    batch = submissions(20)
    with pytest.raises(WorldModelError, match="7 executed solutions of task 'titanic'"):
        LearnedWorldModel().fit(batch, outcomes(batch[:7]) + [None] * 13)
    with pytest.raises(GradingError, match="19 outcomes for 20 submissions"):
        LearnedWorldModel().fit(batch, outcomes(batch)[:19])


def test_warm_ups_of_one_kind_are_enough():
    batch = [submission for submission in submissions() if "Fare" in submission.code][:20]
    model = LearnedWorldModel(trees=10)
    model.fit(batch, outcomes(batch))
    prediction = model.grade(batch[:1])[0]
    assert prediction.status is Status.RUNTIME_ERROR and prediction.reward == pytest.approx(0.1)


def test_a_task_without_a_model_is_named():
    model = LearnedWorldModel()
    for call in (lambda: model.grade(submissions(1)), lambda: model.observe(submissions(1), outcomes(submissions(1)))):
        with pytest.raises(WorldModelError, match=r"'titanic' \(it has none\).*prepare.*fit"):
            call()
