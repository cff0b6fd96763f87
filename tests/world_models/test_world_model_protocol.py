"""What a world model may answer, and world models by name."""

import pytest

from wmrl_envs.errors import ConfigurationError, GradingError, WorldModelError
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import Outcome, Prediction, Status
from wmrl_envs.world_models import LearnedWorldModel, check_predictions, resolve_world_model


class Fixed:
    """A world model of one's own."""

    def __init__(self, reward=0.5):
        self.reward = reward

    def grade(self, submissions):
        return [Outcome(status=Status.VALID, reward=self.reward) for _ in submissions]


instance = Fixed()
number = 3
BATCH = [Submission(None, "x = 1")] * 3
GOOD = Prediction(status=Status.VALID, reward=0.7)


@pytest.mark.parametrize("answer", [[GOOD, None, GOOD], (GOOD, GOOD, GOOD), Fixed().grade(BATCH)])
def test_usable_answers_pass(answer):
    check_predictions(Fixed(), BATCH, answer)


@pytest.mark.parametrize("count", [0, 2, 4])
def test_the_wrong_number_of_predictions_names_class_and_numbers(count):
    with pytest.raises(GradingError, match=rf"Fixed.grade returned {count} predictions for 3 submissions"):
        check_predictions(Fixed(), BATCH, [GOOD] * count)


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -0.1, 1.5])
def test_a_reward_that_is_none_names_the_submission(reward):
    broken = Prediction(status=Status.VALID, reward=0.5)
    object.__setattr__(broken, "reward", reward)
    with pytest.raises(WorldModelError, match=r"predicted the reward .* for submission 1"):
        check_predictions(Fixed(), BATCH, [GOOD, broken, GOOD])


@pytest.mark.parametrize("answer", [[0.5, 0.5, 0.5], None, iter([])])
def test_what_is_no_list_of_outcomes_is_refused(answer):
    with pytest.raises(WorldModelError, match="Fixed.grade returned"):
        check_predictions(Fixed(), BATCH, answer)


def test_names_resolve():
    model = resolve_world_model("learned", warmup=20, seed=3)
    assert isinstance(model, LearnedWorldModel) and (model.warmup, model.seed) == (20, 3)
    assert resolve_world_model(instance) is instance
    assert resolve_world_model(f"{__name__}:Fixed", reward=0.25).reward == 0.25
    assert resolve_world_model(f"{__name__}:instance") is instance


@pytest.mark.parametrize(
    ("name", "kwargs", "error", "message"),
    [
        ("learnt", {}, ConfigurationError, "Did you mean 'learned'"),
        ("learned", {"warm_up": 3}, ConfigurationError, "warm_up"),
        ("learned", {"warmup": 3}, ConfigurationError, "at least 8, got 3"),
        ("no_such_module:Model", {}, WorldModelError, "no_such_module"),
        (f"{__name__}:Missing", {}, WorldModelError, "Missing"),
        (f"{__name__}:number", {}, WorldModelError, "neither a world model"),
        (f"{__name__}:instance", {"reward": 1.0}, ConfigurationError, "reward"),
        ("math:sqrt", {}, ConfigurationError, "math:sqrt"),
        (object(), {}, WorldModelError, "no grade"),
    ],
)
def test_what_is_no_world_model_is_refused(name, kwargs, error, message):
    with pytest.raises(error, match=message):
        resolve_world_model(name, **kwargs)


@pytest.mark.parametrize(
    "argument",
    [
        {"warmup": 7},
        {"warmup": 20.0},
        {"refit_every": -1},
        {"seed": -1},
        {"trees": 0},
        {"width": 0.0},
        {"noise": -1.0},
        {"noise": float("nan")},
        {"max_points": 0},
        {"warmup_source": "recording"},
    ],
)
def test_arguments_that_cannot_work_are_named(argument):
    with pytest.raises(ConfigurationError, match=next(iter(argument))):
        LearnedWorldModel(**argument)
