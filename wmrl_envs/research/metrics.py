"""The metrics of the tasks: scikit-learn's, each with its direction and what it needs of a submission."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import TaskError, did_you_mean

__all__ = ["METRICS", "Metric", "Needs", "external_metric", "metric_named"]

Needs = Literal["number", "probability", "ordinal", "label"]
"""What the target columns of a submission hold.

- ``"number"``: finite numbers. AUC and average precision ask for no more, since they only rank.
- ``"probability"``: one column in [0, 1], or one non-negative column per class. As on Kaggle, rows of several columns
  are divided by their sum, which must be positive.
- ``"ordinal"``: finite numbers, rounded to the nearest whole class and clipped to the range of the classes.
- ``"label"``: any class name. Compared as numbers where all classes are numbers (``3.0`` is ``3``), as text otherwise;
  a name that is no class is a wrong answer, not an invalid one.
"""

_Array = NDArray[Any]


@dataclass(frozen=True)
class Metric:
    """How a submission is scored.

    The function takes the answers and the submission, in the same order: float64 ``[n]`` or, for several target
    columns, ``[n, k]``; for labels int64 ``[n]``, the index of the class, with -1 for a name that is no class.
    """

    name: str
    greater_is_better: bool
    needs: Needs
    function: Callable[[_Array, _Array], float]
    several_columns: bool = False
    """Whether a task may have more than one target column."""
    answers: Literal["any", "binary", "classes", "non-negative", "varying"] = "any"
    """What each half of the answers must be for the metric to exist: 0 and 1 both present, two classes or more, no
    number below 0, or not all equal."""

    @property
    def direction(self) -> str:
        """Which scores are better, in a word: ``"higher"`` or ``"lower"``."""
        return "higher" if self.greater_is_better else "lower"

    def score(self, answers: _Array, submitted: _Array) -> float:
        """Return the metric's value; it can be infinite or NaN where the submitted numbers overflow."""
        with np.errstate(all="ignore"):
            return float(self.function(answers, submitted))


def _auc(answers: _Array, submitted: _Array) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(answers, submitted))


def _average_precision(answers: _Array, submitted: _Array) -> float:
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(answers, submitted))


def _log_loss(answers: _Array, submitted: _Array) -> float:
    from sklearn.metrics import log_loss

    # The classes as indices, so that scikit-learn has no labels to infer: a half may lack a rare class.
    if answers.ndim == 1:
        return float(log_loss(answers, np.column_stack([1.0 - submitted, submitted]), labels=[0, 1]))
    return float(log_loss(answers.argmax(axis=1), submitted, labels=np.arange(answers.shape[1])))


def _accuracy(answers: _Array, submitted: _Array) -> float:
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(answers, submitted))


def _balanced_accuracy(answers: _Array, submitted: _Array) -> float:
    from sklearn.metrics import recall_score

    # scikit-learn's balanced_accuracy_score warns of every submitted name that is no class; it is this mean of recalls.
    return float(recall_score(answers, submitted, labels=np.unique(answers), average="macro", zero_division=0))


def _f1_macro(answers: _Array, submitted: _Array) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(answers, submitted, labels=np.unique(answers), average="macro", zero_division=0))


def _quadratic_weighted_kappa(answers: _Array, submitted: _Array) -> float:
    from sklearn.metrics import cohen_kappa_score

    answers, submitted = answers.astype(np.int64), submitted.astype(np.int64)
    # All classes between, named: scikit-learn weighs by index, so a class that nobody names would shorten distances.
    classes = np.arange(min(answers.min(), submitted.min()), max(answers.max(), submitted.max()) + 1)
    return float(cohen_kappa_score(answers, submitted, labels=classes, weights="quadratic"))


def _rmse(answers: _Array, submitted: _Array) -> float:
    from sklearn.metrics import root_mean_squared_error

    return float(root_mean_squared_error(answers, submitted))


def _mae(answers: _Array, submitted: _Array) -> float:
    from sklearn.metrics import mean_absolute_error

    return float(mean_absolute_error(answers, submitted))


def _rmsle(answers: _Array, submitted: _Array) -> float:
    from sklearn.metrics import root_mean_squared_error

    # A negative prediction has no logarithm; it counts as 0, the nearest number that has.
    return float(root_mean_squared_error(np.log1p(answers), np.log1p(np.maximum(submitted, 0.0))))


def _r2(answers: _Array, submitted: _Array) -> float:
    from sklearn.metrics import r2_score

    return float(r2_score(answers, submitted))


def _computed_elsewhere(answers: _Array, submitted: _Array) -> float:
    raise TaskError("this metric is computed by the task's own grader, not here")


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("auc", True, "number", _auc, answers="binary"),
        Metric("average_precision", True, "number", _average_precision, answers="binary"),
        Metric("log_loss", False, "probability", _log_loss, several_columns=True, answers="classes"),
        Metric("accuracy", True, "label", _accuracy, answers="classes"),
        Metric("balanced_accuracy", True, "label", _balanced_accuracy, answers="classes"),
        Metric("f1_macro", True, "label", _f1_macro, answers="classes"),
        Metric("quadratic_weighted_kappa", True, "ordinal", _quadratic_weighted_kappa, answers="classes"),
        Metric("rmse", False, "number", _rmse, several_columns=True),
        Metric("mae", False, "number", _mae, several_columns=True),
        Metric("rmsle", False, "number", _rmsle, several_columns=True, answers="non-negative"),
        Metric("r2", True, "number", _r2, several_columns=True, answers="varying"),
    )
}
"""Every metric that a ``task.json`` can name. With several target columns, RMSE, MAE, RMSLE and R2 are their means."""


def external_metric(name: str, greater_is_better: bool) -> Metric:
    """Return the name and the direction of a metric that somebody else's code computes."""
    return Metric(name, greater_is_better, "number", _computed_elsewhere)


def metric_named(name: str) -> Metric:
    """Return the registered metric of that name.

    Raises:
        TaskError: If there is none; the message lists those there are.
    """
    if name not in METRICS:
        raise TaskError(f"unknown metric {name!r}; the metrics are {', '.join(METRICS)}.{did_you_mean(name, METRICS)}")
    return METRICS[name]
