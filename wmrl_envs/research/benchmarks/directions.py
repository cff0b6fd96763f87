"""Whether greater is better in a competition of mle-bench, whose format does not say so.

mle-bench itself compares the first score of the leaderboard with the last one, which is a coin toss once a board was
shuffled and says nothing of a board with one row. Here the direction is that of the metric that ``config.yaml`` names
(``grader.name``); the option ``?direction=higher`` or ``?direction=lower`` of a task's name goes before it. A metric
that is not in this table needs the option. So does a board that is in order the other way round: one of the two is
wrong then. Two competitions whose ``config.yaml`` names another metric than ``grade.py`` computes are put right.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wmrl_envs.errors import TaskError
from wmrl_envs.research.benchmarks.boards import order_of

__all__ = ["METRIC_DIRECTIONS", "computed_metric", "direction_of"]

_HIGHER = """
    accuracy, auc, auc-roc, auroc-multi-label, average-precision, balanced-accuracy, column-wise roc auc,
    column-wise-spearman, dice-coefficient, dice-hausdorff-combo, f0.5-score, f1-score, global-dice, jaccard-similarity,
    jigsaw-unintended-bias-in-toxicity-classification-score, kendall-tau, label-ranking-average-precision,
    macro-f1-score, map-at-5, map-at-iou>0.4, map@12, map@5, matthews-correlation-coefficient, mean-average-precision,
    mean-column-wise-roc-auc, mean-precision-intersection-over-union-at-different-thresholds, micro-f1-score,
    modified-laplace-log-likelihood, multi-class-classification-accuracy, pearson-correlation-coefficient,
    probabilistic-f1-score, quadratic-weighted-kappa, r2, roc-auc, weighted-auroc, word-level-jaccard-score
"""
_LOWER = """
    average-haversine-distance, kl-divergence, levenhstein-distance, levenshtein-distance, log-loss,
    log-mean-absolute-error, mae, mean-absolute-error, mean-angular-error, mean-column-wise-rmse,
    mean-column-wise-rmsle, mean-squared-error, multi-class-log-loss, rmse, rmsle, root-mean-squared-error,
    top-1-classification-error, weighted-multi-label-log-loss
"""

METRIC_DIRECTIONS = {
    name: greater
    for names, greater in ((_HIGHER, True), (_LOWER, False))
    for name in (part.strip() for part in names.split(","))
}
"""By name of a metric, in lower case and with hyphens: whether greater is better."""

_MISNAMED = {
    ("stanford-covid-vaccine", "multi-class-log-loss"): "mean-column-wise-rmse",
    ("ventilator-pressure-prediction", "dice-hausdorff-combo"): "mean-absolute-error",
}
"""By competition and the metric that its configuration names: the metric that its grader computes."""

_WORDS = {True: "higher", False: "lower"}


def computed_metric(competition: str, named: str) -> str:
    """Return the name of the metric that a competition's grader computes."""
    return _MISNAMED.get((competition, named), named)


def direction_of(metric: str, scores: Sequence[float], board: Path, stated: bool | None) -> bool:
    """Return whether greater is better.

    Args:
        metric: ``grader.name``, put right by `computed_metric`.
        scores: The leaderboard, in the order of its file.
        board: The file, for messages.
        stated: The option of the task's name, which decides where it is given.

    Raises:
        TaskError: If it cannot be known; the message says what to write.
    """
    if stated is not None:
        return stated
    named = METRIC_DIRECTIONS.get(metric.lower().replace("_", "-"))
    say = "say which by the end of the task's name: ?direction=higher or ?direction=lower"
    if named is None:
        raise TaskError(f"whether higher or lower is better is not known of the metric {metric!r}; {say}")
    order = order_of(scores)
    if order not in (None, named):
        raise TaskError(
            f"{board} is in order as if {_WORDS[not named]} were better, but of the metric {metric!r}, "
            f"{_WORDS[named]} is better; {say}"
        )
    return named
