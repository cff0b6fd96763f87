"""The figures of a robot run, drawn from what its folder holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from wmrl_envs.figures import (
    CALIBRATED,
    PREDICTED,
    REAL,
    REPORTED,
    draw_calibration,
    draw_line,
    draw_one,
    is_known,
    save_figure,
    styled,
)

__all__ = ["draw_robot_figures"]

_LINES = (
    ("predicted_reward", "predicted reward", PREDICTED),
    ("calibrated_reward", "calibrated reward", CALIBRATED),
    ("real_reward", "real success, where labelled", REAL),
)


def draw_robot_figures(folder: Path) -> list[Path]:
    """Draw a run's figures from its metrics.csv, calibration.json and summary.json.

    Args:
        folder: The run folder.

    Returns:
        The files written: success.png, calibration.png, and overview.png with both.
    """
    rows = pd.read_csv(folder / "metrics.csv")
    calibration = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    config = summary["config"]
    panels: dict[str, Callable[[Axes], None]] = {
        "success": lambda axes: _success(axes, rows, summary),
        "calibration": lambda axes: draw_calibration(axes, calibration, config["reward"]),
    }
    with styled():
        written = [draw_one(draw, folder / "figures" / f"{name}.png") for name, draw in panels.items()]
        overview = Figure(figsize=(10.5, 4.0), layout="constrained")
        grid = overview.subplot_mosaic([list(panels)])
        for name, draw in panels.items():
            draw(grid[name])
        overview.suptitle(f"{config['tasks']}: {config['reward']} rewards, seed {config['seed']}", fontsize=12)
        written.append(save_figure(overview, folder / "figures" / "overview.png"))
    return written


def _success(axes: Axes, rows: pd.DataFrame, summary: dict[str, Any]) -> None:
    """Draw the rollouts' rewards by step, and success on fresh initial states before and after."""
    for column, label, colour in _LINES:
        if is_known(rows, column):
            draw_line(axes, rows["step"], rows[column], label, colour)
    for when, x in (("before", 0.0), ("after", float(rows["step"].iloc[-1]))):
        point = summary[when]
        error = 2 * (point["standard_error"] or 0.0)
        bar = axes.errorbar(x, point["mean"], error, fmt="D", color=REPORTED, capsize=3, markersize=5)
        if when == "after":
            bar.set_label("success on fresh initial states (± 2 s.e.)")
    axes.set_title(f"Success of the policy ({summary['labels']} of {summary['rollouts']} rollouts labelled)")
    axes.set_xlabel("step")
    axes.set_ylabel("mean over rollouts")
    axes.set_ylim(-0.02, 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.legend(frameon=False, loc="best", fontsize=8)
