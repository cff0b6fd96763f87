"""World models measured against recorded executions."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from wmrl_envs.errors import ConfigurationError, RecordingError, WorldModelError
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import Outcome, Prediction, Status
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import load_task
from wmrl_envs.world_models.evaluation import evaluate_world_model
from wmrl_envs.world_models.recorded import split_recording
from wmrl_envs.world_models.table import TableWorldModel

REPLAY = ReplaySandbox()
TITANIC, ABALONE = load_task("titanic"), load_task("abalone")


class Watched:
    """Predicts the recorded outcome, and remembers what it was given and asked."""

    def __init__(self, silent_every: int = 0) -> None:
        self.silent_every = silent_every
        self.given: list[list[Submission]] = []
        self.asked: list[Submission] = []
        self._truth = TableWorldModel(REPLAY)

    def observe(self, submissions: Sequence[Submission], outcomes: Sequence[Outcome | None]) -> None:
        assert len(submissions) == len(outcomes)
        self.given.append(list(submissions))

    def grade(self, submissions: Sequence[Submission]) -> list[Prediction | None]:
        self.asked += submissions
        truth = self._truth.grade(submissions)
        return [None if self.silent_every and i % self.silent_every == 0 else p for i, p in enumerate(truth)]


class Fitted(Watched):
    def fit(self, submissions: Sequence[Submission], outcomes: Sequence[Outcome | None]) -> None:
        self.observe(submissions, outcomes)


def test_the_learned_world_model_learns_and_beats_the_base_rate() -> None:
    arguments = {"solutions": 120, "executions": (20, 150), "recordings": REPLAY}
    learned = evaluate_world_model("learned", ["titanic", "abalone"], model_kwargs={"trees": 15}, **arguments)
    base = evaluate_world_model("base-rate", [TITANIC, ABALONE], **arguments)
    few, many = (row.means for row in learned.rows)
    constant = base.rows[1].means
    for better, worse in ((many, few), (many, constant)):
        assert better["validity_auc"].value > worse["validity_auc"].value
        assert better["reward_error"].value < worse["reward_error"].value
    assert many["rank"].value > 0.4 and constant["rank"].value is None
    assert constant["validity_auc"].value == 0.5
    assert learned.rows[1].seconds > 0.0 and learned.rows[1].learn_seconds > 0.0


def test_recorded_outcomes_themselves_are_perfect() -> None:
    evaluation = evaluate_world_model("replay", ["titanic", "abalone"], solutions=80, executions=(0, 30))
    [row] = evaluation.rows  # it learns nothing, so it is measured once
    assert evaluation.settings["learns"] is False
    assert row.solutions == 160 and row.unreadable == 0
    values = {name: mean.value for name, mean in row.means.items()}
    assert values["status_accuracy"] == values["validity_auc"] == 1.0
    assert values["rank"] > 0.999 and values["rank_valid"] > 0.999
    assert values["reward_error"] == pytest.approx(0.0, abs=1e-12)
    assert values["optimism"] == pytest.approx(0.0, abs=1e-12)


def test_executions_are_nested_and_never_tested() -> None:
    model = Fitted()
    evaluate_world_model(model, [TITANIC, ABALONE], solutions=50, executions=(30, 0, 8))
    few, many = ({(item.task.id, item.code) for item in given} for given in model.given)
    tested = {(item.task.id, item.code) for item in model.asked}
    assert len(few) == 16 and len(many) == 60 and len(tested) == 100
    assert few < many and not tested & many
    assert len(model.asked) == 300  # the same solutions three times


def test_observe_gets_only_what_is_new() -> None:
    model = Watched()
    evaluate_world_model(model, [TITANIC], solutions=20, executions=(0, 8, 30))
    assert [len(given) for given in model.given] == [8, 22]


def test_unreadable_predictions_are_counted_and_left_out() -> None:
    [row] = evaluate_world_model(Watched(silent_every=4), [TITANIC], solutions=64).rows
    assert row.unreadable == 16 and len(row.pairs) == 48
    assert row.means["reward_error"].value == pytest.approx(0.0, abs=1e-12)
    assert [bool(values) for _, values in row.results[0].predictions()] == [i % 4 > 0 for i in range(64)]


def test_nothing_readable_is_no_error_and_no_number() -> None:
    evaluation = evaluate_world_model(Watched(silent_every=1), [TITANIC, ABALONE], solutions=10)
    [row] = evaluation.rows
    assert row.unreadable == 20 and row.seconds is None
    assert {mean.value for mean in row.means.values()} == {None}
    json.dumps(evaluation.as_dict(), allow_nan=False)


def test_too_few_executions_are_said_in_their_row() -> None:
    evaluation = evaluate_world_model(
        "learned", ["titanic"], solutions=20, executions=(0, 4, 30), model_kwargs={"trees": 2}
    )
    assert [row.failure is None for row in evaluation.rows] == [False, False, True]
    assert "8 or more" in str(evaluation.rows[1].failure)
    with pytest.raises(WorldModelError, match="has no model of task"):
        evaluate_world_model("learned", ["titanic"], solutions=20, executions=(0,))


def test_the_base_rate_of_other_tasks() -> None:
    [row] = evaluate_world_model("base-rate", [TITANIC], solutions=60, train_tasks=["weather", "names"]).rows
    elsewhere = [
        reward
        for name in ("weather", "names")
        for reward in REPLAY.grade(
            split_recording(load_task(name), REPLAY, solutions=60, executions=0, draw="prior", seed=0).tested
        )
    ]
    expected = np.mean([outcome.reward for outcome in elsewhere if outcome is not None])
    assert row.pairs.predicted_reward == pytest.approx(np.full(60, expected))


def test_everything_is_json_and_repeats() -> None:
    arguments = {"solutions": 30, "executions": (0, 20), "train_tasks": ["weather"], "seed": 3}
    first, second = (evaluate_world_model("base-rate", [TITANIC, ABALONE], **arguments).as_dict() for _ in range(2))
    assert json.loads(json.dumps(first, allow_nan=False)) == first
    for result in (first, second):
        for row in result["rows"]:
            for name in ("learn_seconds", "wall_seconds_per_prediction"):
                assert row.pop(name) >= 0.0
    assert first == second
    assert first["settings"]["seed"] == 3 and "python" in first["settings"]["versions"]
    row = first["rows"][1]
    assert sum(map(sum, row["confusion"])) == row["solutions"] == 60
    assert sum(row["reliability"]["validity"]["count"]) == 60
    other = evaluate_world_model("base-rate", [TITANIC, ABALONE], **{**arguments, "seed": 4}).as_dict()
    assert other["rows"][1]["mean_over_tasks"] != row["mean_over_tasks"]


def test_standard_errors() -> None:
    def row(*tasks: str) -> dict[str, float | None]:
        [only] = evaluate_world_model("base-rate", tasks, solutions=100, executions=(40,)).rows
        error = only.means["reward_error"]
        return {"solutions": error.solution_error, "tasks": error.task_error, "shown": error.error}

    one, two = row("titanic"), row("titanic", "weather")
    assert one["tasks"] is None and one["shown"] == one["solutions"]
    assert two["shown"] == two["tasks"]
    # A mean of 100 absolute errors in about [.1, .6].
    assert one["solutions"] is not None and 0.005 < one["solutions"] < 0.03


def test_progress_counts_every_prediction() -> None:
    told: list[tuple[int, int]] = []
    evaluate_world_model(
        "base-rate",
        ["titanic"],
        solutions=100,
        executions=(5, 10),
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(64, 200), (100, 200), (164, 200), (200, 200)]


@pytest.mark.parametrize("draw", ["prior", "uniform"])
def test_split_of_a_recording(draw: str) -> None:
    split = split_recording(TITANIC, REPLAY, solutions=300, executions=100, draw=draw, seed=1)
    more = split_recording(TITANIC, REPLAY, solutions=300, executions=200, draw=draw, seed=1)
    assert split.tested == more.tested and split.executed == more.executed[:100]
    codes = {item.code for item in split.tested} | {item.code for item, _ in more.executed}
    assert len(codes) == 500
    space, table = DesignSpace.of(TITANIC), REPLAY.table(TITANIC)
    assert [space.solution(int(member)) for member in split.members] == [item.code for item in split.tested]
    assert split.rewards == pytest.approx(table.rewards[split.members])
    # The two sides have one distribution: valid about as often, and more often under the prior than uniformly.
    valid = np.mean(split.statuses == list(Status).index(Status.VALID))
    executed = np.mean([outcome.status is Status.VALID for _, outcome in more.executed])
    assert abs(valid - executed) < 0.12
    assert (valid > 0.45) == (draw == "prior")


def test_a_partly_recorded_task_has_half_to_test() -> None:
    split = split_recording(ABALONE, REPLAY, solutions=1000, executions=200, draw="prior", seed=0)
    assert len(split.tested) == 200 and len(split.executed) == 200
    with pytest.raises(ConfigurationError, match="Ask for at most 200"):
        split_recording(ABALONE, REPLAY, solutions=10, executions=201, draw="prior", seed=0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"solutions": 0}, "solutions must be"),
        ({"executions": ()}, "executions must be"),
        ({"executions": (3, 3)}, "executions must be"),
        ({"executions": (-1,)}, "executions must be"),
        ({"draw": "priro"}, "Did you mean 'prior'"),
        ({"train_tasks": ["titanic"]}, "titanic cannot be both"),
        ({"tasks": []}, "name some tasks"),
        ({"tasks": ["titanic", "titanic"]}, "each task"),
        ({"model_kwargs": {"tree": 3}}, "tree"),
    ],
)
def test_arguments_that_cannot_be(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        evaluate_world_model("base-rate", **{"tasks": ["titanic"], **arguments})  # type: ignore[arg-type]


def test_a_task_without_a_recording(tmp_path: object) -> None:
    with pytest.raises(RecordingError, match="no recorded executions"):
        evaluate_world_model("replay", [TITANIC], recordings=ReplaySandbox(str(tmp_path)))
