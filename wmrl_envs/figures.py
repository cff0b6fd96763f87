"""The figures of a training run, drawn from what its folder holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from wmrl_envs.files import replacing
from wmrl_envs.research.outcome import STATUSES, Status

__all__ = [
    "STATUS_COLOURS",
    "draw_calibration",
    "draw_figures",
    "draw_line",
    "draw_one",
    "is_known",
    "save_figure",
]

REAL, PREDICTED, CALIBRATED, REPORTED, NEUTRAL = "#1b7837", "#e08214", "#2166ac", "#222222", "#999999"
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
"""Steps that a line's moving mean spans; the raw points stay visible behind it."""


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
        "calibration": lambda axes: draw_calibration(axes, calibration, summary["config"]["reward"]),
        "weight": lambda axes: _weight(axes, rows),
        "statuses": lambda axes: _statuses(axes, rows),
        "cost": lambda axes: _cost(axes, rows, summary["ledger"]),
    }
    with styled():
        written = [draw_one(draw, folder / "figures" / f"{name}.png") for name, draw in panels.items()]
        overview = Figure(figsize=(13.5, 7.2), layout="constrained")
        grid = overview.subplot_mosaic([["score", "calibration", "weight"], ["statuses", "statuses", "cost"]])
        for name, draw in panels.items():
            draw(grid[name])
        overview.suptitle(_title(summary["config"]), fontsize=12)
        written.append(save_figure(overview, folder / "figures" / "overview.png"))
    return written


def styled() -> AbstractContextManager[None]:
    """Return a context in which figures are drawn in the package's style."""
    return matplotlib.rc_context(
        {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9, "axes.titlesize": 10}
    )


def _title(config: dict[str, Any]) -> str:
    tasks = ", ".join(Path(name.strip()).name for name in config["task"].split(","))
    return f"{tasks}: {config['agent']} on {config['reward']} rewards, seed {config['seed']}"


def draw_one(draw: Callable[[Axes], None], path: Path) -> Path:
    """Write a figure of one panel."""
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    draw(figure.subplots())
    return save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure, whole."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)
    return path


def is_known(rows: pd.DataFrame, column: str) -> bool:
    """Return whether any step has a column's number."""
    return column in rows and bool(rows[column].notna().any())


def _smooth(values: pd.Series) -> pd.Series:
    return values.rolling(SMOOTHING, min_periods=1, center=True).mean()


def draw_line(axes: Axes, x: pd.Series, y: pd.Series, label: str, colour: str) -> None:
    """Draw a column as faint points and its moving mean."""
    axes.plot(x, y, ".", color=colour, alpha=0.25, markersize=3)
    axes.plot(x, _smooth(y), color=colour, label=label)


def _score(axes: Axes, rows: pd.DataFrame, summary: dict[str, Any]) -> None:
    """Draw reward against what was spent on real executions, and the reported score before and after."""
    axes.set_title("Reward of the policy")
    executes = rows["executions"].iloc[-1] > rows["warmup_executions"].iloc[-1]
    seconds = rows["execution_seconds"] if executes else rows["step"]
    axes.set_xlabel("CPU seconds of real execution" if executes else "step (nothing is executed after the warm-up)")
    for column, label, colour in (
        ("predicted_reward", "predicted", PREDICTED),
        ("calibrated_reward", "calibrated", CALIBRATED),
        ("real_reward", "real, where executed", REAL),
    ):
        same = (
            column == "calibrated_reward" and is_known(rows, column) and rows[column].equals(rows["predicted_reward"])
        )
        if is_known(rows, column) and not same:
            draw_line(axes, seconds, rows[column], label, colour)
    warmup = float(rows["warmup_seconds"].iloc[-1])
    if executes and warmup > 0:
        axes.axvspan(0, warmup, color=NEUTRAL, alpha=0.15, linewidth=0, label="warm-up of the world model")
    for when, x in (("before", 0.0), ("after", float(seconds.iloc[-1]))):
        if summary[when] is not None:
            point = summary[when]
            error = 2 * (point["standard_error"] or 0.0)
            bar = axes.errorbar(x, point["score"], error, fmt="D", color=REPORTED, capsize=3, markersize=5)
            if when == "after":
                bar.set_label("reported (other half, ± 2 s.e.)")
    axes.set_ylabel("mean reward")
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=-0.02 * float(seconds.iloc[-1]))
    axes.legend(frameon=False, loc="lower right", fontsize=8)


def draw_calibration(axes: Axes, calibration: dict[str, Any], reward: str) -> None:
    """Draw the executed episodes' pairs, dark early and bright late, and the map as training left it."""
    axes.plot([0, 1], [0, 1], ":", color=NEUTRAL, label="prediction as it is")
    x, y = (calibration["knots"][name] for name in ("predicted", "real"))
    if x:
        axes.plot(x, y, color=CALIBRATED, label="calibration map at the end")
        axes.plot([0, x[0]], [y[0], y[0]], "--", color=CALIBRATED, linewidth=0.8)
        axes.plot([x[-1], 1], [y[-1], y[-1]], "--", color=CALIBRATED, linewidth=0.8)
    if calibration["step"]:
        late = np.argsort(calibration["step"])
        columns = (np.array(calibration[name])[late] for name in ("predicted", "real", "step"))
        predicted, real, step = columns
        points = axes.scatter(predicted, real, c=step, s=10, alpha=0.6, linewidths=0, label="executed pairs")
        bar = axes.figure.colorbar(points, ax=axes, pad=0.02, fraction=0.05)
        bar.set_label("step")
        if bar.solids is not None:
            bar.solids.set_alpha(1)  # the points are see-through, the scale is not
        bar.ax.yaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        # Right of the ladder's gap between failures and valid submissions few pairs lie below the diagonal.
        axes.legend(framealpha=0.85, edgecolor="none", loc="center right", fontsize=8, bbox_to_anchor=(1, 0.3))
    else:
        text = f"reward scheme {reward!r}:\nno episode was both predicted and executed"
        axes.text(0.5, 0.5, text, ha="center", va="center", backgroundcolor="white")
    axes.set_title("What predictions turn out to be")
    axes.set_xlabel("predicted reward")
    axes.set_ylabel("real reward")
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)


def _weight(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw what the predicted and the real stream count for."""
    drawn = False
    for column, label, colour in (
        ("lambda", "lambda: trust in predictions", CALIBRATED),
        ("alpha", "alpha: strength of the correction", REAL),
        ("weight", "weight of executed groups", PREDICTED),
    ):
        if is_known(rows, column):
            known = rows[rows[column].notna()]  # a step without anchors has no weight of anchors
            axes.plot(known["step"], known[column], color=colour, label=label)
            drawn = True
    axes.set_title("How the two streams are weighed")
    axes.set_xlabel("step")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    if drawn:
        axes.set_ylim(top=1.25 * max(line.get_ydata().max() for line in axes.lines))  # type: ignore[union-attr]
        axes.legend(frameon=False, loc="upper left", fontsize=8)


def _statuses(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw the shares of outcomes over time."""
    # From the ladder's top to its bottom, so that what trains away vanishes at the upper edge.
    shown = [status for status in reversed(STATUSES) if rows[f"status_{status}"].max() > 0]
    shares = [_smooth(rows[f"status_{status}"]) for status in shown]
    if len(rows) > 1:
        axes.stackplot(
            rows["step"],
            *shares,
            labels=[status.replace("_", " ") for status in shown],
            colors=[STATUS_COLOURS[status] for status in shown],
        )
        axes.set_xlim(1, rows["step"].max())
    else:
        bottom = 0.0
        for status, share in zip(shown, shares, strict=True):
            height = float(share.iloc[0])
            axes.bar(1, height, 0.5, bottom, color=STATUS_COLOURS[status], label=status.replace("_", " "))
            bottom += height
    axes.set_title("Outcomes shown to the agent (predicted, or real in executed groups)")
    axes.set_xlabel("step")
    axes.set_ylabel("share")
    axes.set_ylim(0, 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], framealpha=0.85, edgecolor="none", loc="lower right", fontsize=8)


def _cost(axes: Axes, rows: pd.DataFrame, ledger: dict[str, Any]) -> None:
    """Draw the seconds spent against those of executing everything."""
    axes.plot(rows["step"], rows["execution_seconds"], color=REAL, label="executed, warm-up included")
    if ledger["predictions"]:
        axes.plot(rows["step"], rows["prediction_seconds"], color=PREDICTED, label="predicted")
        if ledger["full_seconds"]:
            everything = ledger["full_seconds"] * np.arange(1, len(rows) + 1) / len(rows)
            axes.plot(rows["step"], everything, "--", color=NEUTRAL, label="executing everything (estimate)")
    axes.set_title("Cost")
    axes.set_xlabel("step")
    axes.set_ylabel("seconds")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.legend(frameon=False, loc="upper left", fontsize=8)
