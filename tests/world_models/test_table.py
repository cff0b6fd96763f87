"""The table world model answers with recorded outcomes."""

import statistics

import pytest
from titanic_solutions import TASK

from wmrl_envs.errors import GradingError
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import STATUSES, Outcome, Status, ladder_reward
from wmrl_envs.world_models import TableWorldModel, check_predictions


class Recordings:
    """Outcomes by code, one for each of three draws."""

    def __init__(self, draws):
        self.draws = draws
        self.calls = 0

    def grade(self, submissions):
        self.calls += 1
        found = [self.draws[submission.code] for submission in submissions]
        return [draws[submission.seed % len(draws)] for draws, submission in zip(found, submissions, strict=True)]


def _valid(position):
    reward = ladder_reward(Status.VALID, position)
    return Outcome(status=Status.VALID, reward=reward, position=position, feedback=f"position {position}", seconds=2.0)


TIMEOUT = Outcome(status=Status.TIMEOUT, reward=0.1, feedback="limit reached", seconds=3.0)
DRAWS = {"a": [_valid(0.5)], "b": [_valid(0.2), TIMEOUT, _valid(0.4)], "c": [TIMEOUT], "d": [None]}


def test_a_prediction_is_the_mean_of_the_recorded_executions():
    model = TableWorldModel(Recordings(DRAWS))
    batch = [Submission(TASK, code, seed) for seed, code in enumerate("abca")]
    a, b, c, again = predictions = model.grade(batch)
    check_predictions(model, batch, predictions)
    assert a is again and (a.reward, a.status, a.spread, a.confidence, a.seconds) == (0.75, Status.VALID, 0.0, 1.0, 0.0)
    assert b.reward == statistics.fmean([0.6, 0.1, 0.7]) and b.spread == statistics.pstdev([0.6, 0.1, 0.7])
    assert b.status is Status.VALID and b.position == pytest.approx(0.3) and b.confidence == 2 / 3
    assert b.probabilities[STATUSES.index(Status.TIMEOUT)] == 1 / 3
    assert c.status is Status.TIMEOUT and c.position is None and c.feedback == "limit reached"


def test_recordings_are_asked_once():
    recordings = Recordings(DRAWS)
    model = TableWorldModel(recordings)
    first = model.grade([Submission(TASK, "a"), Submission(TASK, "d", 5)])
    assert first[1] is None
    assert model.grade([Submission(TASK, "d"), Submission(TASK, "a", 9)]) == first[::-1]
    assert recordings.calls == 1
    model.grade([Submission(TASK, "a"), Submission(TASK, "b")])
    assert recordings.calls == 2


def test_what_is_not_on_record_raises_what_the_recordings_raise():
    model = TableWorldModel(Recordings(DRAWS))
    with pytest.raises(KeyError, match="missing"):
        model.grade([Submission(TASK, "a"), Submission(TASK, "missing")])


def test_recordings_that_answer_too_little_are_refused():
    class Short(Recordings):
        def grade(self, submissions):
            return super().grade(submissions)[1:]

    with pytest.raises(GradingError, match="Short.grade returned 2 outcomes for 3"):
        TableWorldModel(Short(DRAWS)).grade([Submission(TASK, "a")])
