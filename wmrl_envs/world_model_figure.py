"""The figure of an evaluation of world models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from wmrl_envs.figures import NEUTRAL, STATUS_COLOURS
from wmrl_envs.files import replacing
from wmrl_envs.research.outcome import STATUSES, Status
from wmrl_envs.world_models.evaluation_result import EvaluationRow, WorldModelEvaluation
from wmrl_envs.world_models.scoring import reliability

__all__ = ["draw_evaluation"]

_CURVES = {"validity_auc": "validity AUC", "reward_error": "reward error", "rank": "rank correlation within a task"}
_COLUMNS = 4


def draw_evaluation(evaluations: Sequence[WorldModelEvaluation], path: Path) -> None:
    """Draw how reliable world models are, predicted against real reward, and what executions teach them.

    Args:
        evaluations: One for each world model; reliability and rewards with the most executions that each was given.
            Metrics against executions are drawn where there are several numbers of them.
        path: The PNG file.
    """
    curves = _CURVES if any(len(_measured(evaluation)) > 1 for evaluation in evaluations) else {}
    panels = 1 + len(curves) + len(evaluations)
    columns = min(panels, _COLUMNS)
    rows = -(-panels // columns)
    colours = {evaluation.world_model: f"C{place}" for place, evaluation in enumerate(evaluations)}
    with matplotlib.rc_context({"axes.spines.top": False, "axes.spines.right": False, "font.size": 9}):
        figure = Figure(figsize=(4.2 * columns, 3.8 * rows + 0.3), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        _reliability(axes[0], evaluations, colours)
        for panel, (metric, label) in zip(axes[1:], curves.items(), strict=False):
            _learning(panel, evaluations, colours, metric, label)
        for panel, evaluation in zip(axes[1 + len(curves) :], evaluations, strict=False):
            _scatter(panel, evaluation)
        for panel in axes[panels:]:
            panel.set_axis_off()
        _status_legend(figure, evaluations)
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=130)


def _measured(evaluation: WorldModelEvaluation) -> list[EvaluationRow]:
    return [row for row in evaluation.rows if row.failure is None]


def _reliability(axes: Axes, evaluations: Sequence[WorldModelEvaluation], colours: dict[str, str]) -> None:
    """Draw how often submissions are valid that are said to be so with some probability; areas show how many."""
    axes.plot([0, 1], [0, 1], ":", color=NEUTRAL)
    for evaluation in evaluations:
        pairs, colour = evaluation.rows[-1].pairs, colours[evaluation.world_model]
        bins = reliability(pairs.valid_probability, pairs.valid)
        axes.plot(bins.predicted, bins.happened, color=colour, label=evaluation.world_model)
        axes.scatter(bins.predicted, bins.happened, 200 * bins.count / max(len(pairs), 1) + 8, color=colour, alpha=0.6)
    axes.set(title="Reliability", xlabel="predicted probability of a valid submission", ylabel="share really valid")
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    axes.legend(frameon=False, fontsize=8)


def _scatter(axes: Axes, evaluation: WorldModelEvaluation) -> None:
    """Draw each solution by predicted and real reward, coloured by how it really ended."""
    row = evaluation.rows[-1]
    pairs = row.pairs
    axes.plot([0, 1], [0, 1], ":", color=NEUTRAL)
    for index, status in enumerate(STATUSES):
        own = pairs.take(np.flatnonzero(pairs.real_status == index))
        axes.scatter(own.predicted_reward, own.real_reward, 9, STATUS_COLOURS[status], alpha=0.6)
    seen = f", {row.executions} executions" if evaluation.settings["learns"] else ""
    axes.set(title=f"{evaluation.world_model}{seen}", xlabel="predicted reward", ylabel="real reward")
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))


def _status_legend(figure: Figure, evaluations: Sequence[WorldModelEvaluation]) -> None:
    """Name the colours of the statuses that occur, once for all panels."""
    seen = {int(index) for evaluation in evaluations for index in evaluation.rows[-1].pairs.real_status}
    dots = [
        Line2D([], [], marker="o", linestyle="", color=STATUS_COLOURS[STATUSES[index]], label=_words(STATUSES[index]))
        for index in sorted(seen)
    ]
    figure.legend(handles=dots, frameon=False, loc="outside lower center", ncols=len(STATUSES), title="really executed")


def _words(status: Status) -> str:
    return status.replace("_", " ")


def _learning(
    axes: Axes, evaluations: Sequence[WorldModelEvaluation], colours: dict[str, str], metric: str, label: str
) -> None:
    """Draw a metric against the executions seen, ± its standard error; a level line for one that does not learn."""
    most = max(row.executions for evaluation in evaluations for row in evaluation.rows)
    for evaluation in evaluations:
        rows = [row for row in _measured(evaluation) if row.means[metric].value is not None]
        values = np.array([row.means[metric].value for row in rows], dtype=np.float64)
        errors = [row.means[metric].error or 0.0 for row in rows]
        colour = colours[evaluation.world_model]
        if not evaluation.settings["learns"] and rows:
            axes.plot([0, most], [values[0]] * 2, "--", color=colour, label=evaluation.world_model)
        elif rows:
            executions = [row.executions for row in rows]
            axes.errorbar(executions, values, errors, marker="o", color=colour, capsize=2, label=evaluation.world_model)
    axes.set(title=label, xlabel="executions of each task", ylabel=label, xlim=(-0.05 * most, 1.05 * most))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
