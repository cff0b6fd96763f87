"""The figures of a training run, drawn from what its folder holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wmrl_envs.files import replacing
from wmrl_envs.research.outcome import STATUSES, Status

__all__ = ["STATUS_COLOURS", "draw_figures"]

matplotlib.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 9, "axes.titlesize": 10})

REAL, PREDICTED, CALIBRATED, REPORTED = "#1b7837", "#e08214", "#2166ac", "#222222"
STATUS_COLOURS = {
    Status.MALFORMED: "#4d4d4d",
    Status.SYNTAX_ERROR: "#878787",
    Status.RUNTIME_ERROR: "#b2182b",
    Status.TIMEOUT: "#d6604d",
    Status.MEMORY: "#f4a582",
    Status.DISK: "#fddbc7",
    Status.NO_SUBMISSION: "#b39ddb",
    Status.INVALID_SUBMISSION: "#7e57c2",
    Status.VALID: "#4393c3",
}
SMOOTHING = 5
"""Half-life, in steps, of the smoothed lines; each line's raw points stay visible behind it."""


def draw_figures(folder: Path) -> list[Path]:
    """Draw a run's figures from its metrics.csv, calibration.json and summary.json.

    Args:
        folder: The run folder.

    Returns:
        The files written: one per figure, and ``overview.png`` with all of them.
    """
    rows = pd.read_csv(folder / "metrics.csv")
    calibration = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    panels: dict[str, Callable[[Axes], None]] = {
        "score": lambda axes: _score(axes, rows, summary),
        "calibration": lambda axes: _calibration(axes, calibration),
        "weight": lambda axes: _weight(axes, rows),
        "statuses": lambda axes: _statuses(axes, rows),
        "cost": lambda axes: _cost(axes, rows, summary["ledger"]),
    }
    written = []
    for name, draw in panels.items():
        figure = Figure(figsize=(5.2, 3.6), layout="constrained")
        draw(figure.subplots())
        written.append(_save(figure, folder / "figures" / f"{name}.png"))
    overview = Figure(figsize=(14, 7), layout="constrained")
    grid = overview.subplot_mosaic([["score", "calibration", "weight"], ["statuses", "statuses", "cost"]])
    for name, draw in panels.items():
        draw(grid[name])
    config = summary["config"]
    overview.suptitle(f"{config['task']}: {config['agent']} on {config['reward']} rewards, seed {config['seed']}")
    written.append(_save(overview, folder / "figures" / "overview.png"))
    return written


def _save(figure: Figure, path: Path) -> Path:
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)
    return path


def _line(axes: Axes, x: Any, y: pd.Series, label: str, colour: str) -> None:
    axes.plot(x, y, ".", color=colour, alpha=0.25, markersize=3)
    axes.plot(x, y.ewm(halflife=SMOOTHING, ignore_na=True).mean(), color=colour, label=label)


def _score(axes: Axes, rows: pd.DataFrame, summary: dict[str, Any]) -> None:
    seconds = rows["execution_seconds"]
    for column, label, colour in (
        ("predicted_reward", "predicted", PREDICTED),
        ("calibrated_reward", "calibrated", CALIBRATED),
        ("real_reward", "real (executed rollouts)", REAL),
    ):
        if column in rows and rows[column].notna().any():
            _line(axes, seconds, rows[column], label, colour)
    for when, x in (("before", 0.0), ("after", float(seconds.iloc[-1]))):
        if summary[when] is not None:
            point = summary[when]
            label = "reported (other half)" if when == "after" else None
            axes.errorbar(
                x, point["score"], 2 * point["standard_error"], fmt="D", color=REPORTED, capsize=3, label=label
            )
    axes.set(title="Reward of the policy", xlabel="CPU seconds of real execution", ylabel="mean reward", ylim=(0, 1))
    axes.legend(frameon=False, loc="lower right")


def _calibration(axes: Axes, calibration: dict[str, Any]) -> None:
    axes.plot([0, 1], [0, 1], ":", color="#999999", label="no correction")
    axes.plot(
        calibration["predicted"], calibration["real"], ".", color=REAL, alpha=0.35, markersize=4, label="executed pairs"
    )
    if calibration["knots"]["predicted"]:
        axes.plot(
            [0, *calibration["knots"]["predicted"], 1],
            [calibration["knots"]["real"][0], *calibration["knots"]["real"], calibration["knots"]["real"][-1]],
            color=CALIBRATED,
            label="calibration map",
        )
    axes.set(
        title="What predictions turn out to be",
        xlabel="predicted reward",
        ylabel="real reward",
        xlim=(0, 1),
        ylim=(0, 1.02),
    )
    axes.legend(frameon=False, loc="upper left")


def _weight(axes: Axes, rows: pd.DataFrame) -> None:
    for column, label, colour in (
        ("lambda", "lambda: trust in predictions", CALIBRATED),
        ("alpha", "alpha: strength of correction", REAL),
        ("weight", "weight of executed groups", PREDICTED),
    ):
        if column in rows and rows[column].notna().any():
            axes.plot(rows["step"], rows[column], color=colour, label=label)
    axes.set(title="How the two streams are weighed", xlabel="step", ylabel="weight")
    axes.set_ylim(bottom=0)
    if axes.lines:
        axes.legend(frameon=False)


def _statuses(axes: Axes, rows: pd.DataFrame) -> None:
    # From the ladder's top to its bottom, so that what trains away vanishes at the upper edge.
    shown = [status for status in reversed(STATUSES) if rows[f"status_{status}"].max() > 0]
    shares = [rows[f"status_{status}"].rolling(SMOOTHING, min_periods=1).mean() for status in shown]
    axes.stackplot(
        rows["step"],
        *shares,
        labels=[status.replace("_", " ") for status in shown],
        colors=[STATUS_COLOURS[status] for status in shown],
    )
    axes.set(
        title="Outcomes shown to the agent",
        xlabel="step",
        ylabel="share",
        ylim=(0, 1),
        xlim=(1, max(2, rows["step"].max())),
    )
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def _cost(axes: Axes, rows: pd.DataFrame, ledger: dict[str, Any]) -> None:
    axes.plot(rows["step"], rows["execution_seconds"], color=REAL, label="execution (warm-up included)")
    axes.plot(rows["step"], rows["prediction_seconds"], color=PREDICTED, label="prediction")
    ratio = ledger.get("cost_ratio")
    if ratio:
        everything = rows["execution_seconds"].iloc[-1] / ratio
        axes.plot(
            rows["step"],
            everything * np.arange(1, len(rows) + 1) / len(rows),
            "--",
            color="#999999",
            label="executing everything (estimate)",
        )
    axes.set(title="Cost", xlabel="step", ylabel="seconds", yscale="symlog")
    axes.legend(frameon=False)
