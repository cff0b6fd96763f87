import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, cohen_kappa_score, log_loss, roc_auc_score

from wmrl_envs.errors import TaskError
from wmrl_envs.research.answers import Answers
from wmrl_envs.research.metrics import METRICS, metric_named


def answers(metric, *columns, halves=None):
    """Answers with ids 0, 1, ...; every column once in each half unless said otherwise."""
    ids = [str(place) for place in range(len(columns[0]) * (1 if halves else 2))]
    if halves is None:
        halves = ["train"] * len(columns[0]) + ["report"] * len(columns[0])
        columns = [[*column, *column] for column in columns]
    texts = {f"t{place}": [str(value) for value in column] for place, column in enumerate(columns)}
    return Answers(ids, texts, halves, metric_named(metric))


def score(known, *columns):
    texts = {f"t{place}": [str(value) for value in column] * 2 for place, column in enumerate(columns)}
    submitted = known.read_submitted(texts)
    train, report = known.score(submitted, "train"), known.score(submitted, "report")
    assert train == report
    return train


@pytest.mark.parametrize(
    ("metric", "truth", "submitted", "expected"),
    [
        ("auc", [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], 0.75),
        ("auc", [0, 0, 1, 1], [-1e300, 3, 7, 1e300], 1.0),
        ("average_precision", [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], 5 / 6),
        ("log_loss", [0, 1], [0.5, 0.5], np.log(2)),
        ("accuracy", ["a", "b", "a", "c"], ["a", "b", "c", "elsewhere"], 0.5),
        ("balanced_accuracy", ["a", "a", "a", "b"], ["a", "a", "a", "a"], 0.5),
        ("f1_macro", ["a", "b"], ["a", "nothing"], 0.5),
        ("rmse", [10, 20, 30], [10, 20, 30], 0.0),
        ("rmse", [0, 0], [3, 4], np.sqrt(12.5)),
        ("mae", [0, 0], [3, -4], 3.5),
        ("rmsle", [0, np.expm1(1)], [-5, np.expm1(1)], 0.0),
        ("r2", [1, 2, 3], [2, 2, 2], 0.0),
        ("quadratic_weighted_kappa", [1, 2, 3], [1, 2, 3], 1.0),
        ("quadratic_weighted_kappa", [1, 2, 3], [3, 2, 1], -1.0),
    ],
)
def test_known_values(metric, truth, submitted, expected):
    assert score(answers(metric, truth), submitted) == pytest.approx(expected, abs=1e-12)


def test_directions_are_stated():
    lower = {name for name, metric in METRICS.items() if not metric.greater_is_better}
    assert lower == {"log_loss", "rmse", "mae", "rmsle"}


def test_log_loss_over_classes_rescales_rows_as_kaggle_does():
    known = answers("log_loss", [1, 0, 0], [0, 1, 0], [0, 0, 1])
    plain = score(known, [0.8, 0.1, 0.2], [0.1, 0.8, 0.2], [0.1, 0.1, 0.6])
    assert plain == pytest.approx(-np.mean(np.log([0.8, 0.8, 0.6])))
    assert score(known, [8, 0.2, 1], [1, 1.6, 1], [1, 0.2, 3]) == pytest.approx(plain)


def test_log_loss_stays_finite_for_certain_mistakes():
    assert 30 < score(answers("log_loss", [0, 1]), [1, 0]) < 40
    assert 30 < score(answers("log_loss", [1, 0], [0, 1]), [0, 1], [1, 0]) < 40


def test_log_loss_with_a_class_that_one_half_lacks():
    known = answers("log_loss", [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1], halves=["train", "train", "report", "report"])
    submitted = known.read_submitted({"t0": ["1"] * 4, "t1": ["1"] * 4, "t2": ["2"] * 4})
    assert known.score(submitted, "train") == pytest.approx(np.log(4))


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ([[-0.1, 0.5]], "below 0"),
        ([[1.1, 0.5]], "above 1"),
        ([[0, 0.5], [0, 0.5]], "positive, finite sum"),
        ([[1e308, 0.5], [1e308, 0.5]], "positive, finite sum"),
        ([[-1, 0.5], [2, 0.5]], "below 0"),
        ([["nan", 0.5]], "'nan' is not a finite number"),
    ],
)
def test_what_is_no_probability(columns, reason):
    known = answers("log_loss", *[[1, 0], [0, 1]][: len(columns)])
    with pytest.raises(ValueError, match=reason):
        score(known, *columns)


def test_ordinal_numbers_are_rounded_and_clipped():
    known = answers("quadratic_weighted_kappa", [1, 2, 3, 4])
    assert score(known, [0.6, 2.4, 2.6, 99]) == 1.0
    assert score(known, [-5, 2, 3, 4.4]) == 1.0


def test_kappa_counts_the_distance_over_classes_that_nobody_names():
    known = answers("quadratic_weighted_kappa", [1, 1, 5, 5])
    expected = cohen_kappa_score([1, 1, 5, 5], [1, 2, 5, 5], weights="quadratic", labels=[1, 2, 3, 4, 5])
    assert score(known, [1, 2, 5, 5]) == pytest.approx(expected)
    assert score(known, [1, 2, 5, 5]) > score(known, [1, 4, 5, 5])


def test_classes_that_are_numbers_compare_as_numbers():
    assert score(answers("accuracy", [3, 7, 3]), ["3.0", "7", "03"]) == 1.0
    assert score(answers("accuracy", ["3", "x", "3"]), ["3.0", "x", "3"]) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="'three' is not a number, and the classes are numbers"):
        score(answers("accuracy", [3, 7, 3]), ["three", "7", "3"])
    with pytest.raises(ValueError, match="a value is missing"):
        score(answers("accuracy", ["a", "b"]), ["a", ""])


def test_a_name_that_is_no_class_is_wrong_without_a_warning():
    for metric in ("accuracy", "balanced_accuracy", "f1_macro"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert score(answers(metric, ["a", "b"]), ["c", "d"]) == 0.0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=3, max_size=30))
@settings(deadline=None)
def test_balanced_accuracy_is_scikit_learns(pairs):
    truth, submitted = (list(column) for column in zip(*pairs, strict=True))
    if len(set(truth)) < 2:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = balanced_accuracy_score(truth, submitted)
    assert score(answers("balanced_accuracy", truth), submitted) == pytest.approx(expected)


def test_random_scores_are_scikit_learns():
    rng = np.random.default_rng(0)
    truth, guess = rng.integers(0, 2, 200), rng.random(200).round(2)
    assert score(answers("auc", truth), guess) == roc_auc_score(truth, guess)
    assert score(answers("log_loss", truth), guess) == log_loss(truth, guess)


def test_numbers_that_overflow_give_no_finite_score_and_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert score(answers("rmse", [1, 2]), [1e200, 0]) == np.inf
        assert not np.isfinite(score(answers("r2", [1, 2]), [1e200, 0]))


@pytest.mark.parametrize(
    ("metric", "columns", "halves", "reason"),
    [
        ("auc", [[0, 1, 1, 1]], "ttrr", "auc cannot be computed on the report half.*both 0 and 1"),
        ("auc", [[0, 2, 0, 2]], "ttrr", "both 0 and 1"),
        ("accuracy", [["a", "a", "a", "b"]], "ttrr", "train half.*one class only"),
        ("quadratic_weighted_kappa", [[1, 1, 1, 2]], "ttrr", "one class only"),
        ("quadratic_weighted_kappa", [[1.5, 1, 1, 2]], "ttrr", "no whole number"),
        ("quadratic_weighted_kappa", [[1, 2000, 1, 2]], "ttrr", "at most 1000"),
        ("log_loss", [[0.5, 1, 0, 1]], "ttrr", "neither 0 nor 1"),
        ("log_loss", [[1, 1, 0, 1], [0, 1, 1, 0]], "ttrr", "exactly one class"),
        ("log_loss", [[1, 1, 0, 1], [0, 0, 1, 0]], "ttrr", "one class only"),
        ("rmsle", [[1, -1, 0, 1]], "ttrr", "below 0"),
        ("r2", [[1, 1, 0, 1]], "ttrr", "all its numbers are equal"),
        ("rmse", [[1, 2, 3, 4]], "tttt", "report half of the answers: it is empty"),
        ("rmse", [[1, 2, "nan", 4]], "ttrr", "not a finite number"),
        ("accuracy", [["a", "b", "", "b"]], "ttrr", "a class is missing"),
        ("auc", [[0, 1, 0, 1], [0, 1, 0, 1]], "ttrr", "scores one target column, the task has 2"),
    ],
)
def test_a_metric_that_does_not_exist_is_the_tasks_error(metric, columns, halves, reason):
    with pytest.raises(TaskError, match=reason):
        answers(metric, *columns, halves=[{"t": "train", "r": "report"}[half] for half in halves])


def test_halves_and_ids_of_answers_are_checked():
    with pytest.raises(TaskError, match="'Train'.*'train' or 'report'"):
        answers("rmse", [1, 2], halves=["Train", "report"])
    with pytest.raises(TaskError, match="the id '7' appears twice"):
        Answers(["7", "07", "7"], {"t": ["1", "2", "3"]}, ["train", "train", "report"], metric_named("rmse"))


def test_unknown_metric_names_the_nearest():
    with pytest.raises(TaskError, match="unknown metric 'acuracy'.*Did you mean 'accuracy'"):
        metric_named("acuracy")


@pytest.mark.parametrize("name", METRICS)
def test_metrics_travel(name):
    assert pickle.loads(pickle.dumps(metric_named(name))) == metric_named(name)
