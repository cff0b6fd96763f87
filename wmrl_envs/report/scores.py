"""What evaluations said of runs, and what it had cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wmrl_envs.report.episodes import number
from wmrl_envs.report.figure import GROUP_STYLES, MOST_GROUPS, Figure, Trace, axis, points
from wmrl_envs.report.folder import Run
from wmrl_envs.report.groups import Group
from wmrl_envs.report.text import for_plotly
from wmrl_envs.report.thinning import Floats

__all__ = ["end_of", "reported", "spent", "tradeoff"]


def reported(run: Run, when: str) -> tuple[float | None, float | None]:
    """Return an evaluation's score and its standard error: a robot's mean success is its score."""
    found = run.before if when == "before" else run.after
    return number(found.get("mean" if run.kind == "robot" else "score")), number(found.get("standard_error"))


def spent(run: Run) -> Floats:
    """Return what each step had cost in real terms, cumulated, [rows]; NaN where unknown.

    CPU seconds of execution in research, labels read on robots.
    """
    column = "labels" if run.kind == "robot" else "execution_seconds"
    if column not in run.rows:
        return np.full(len(run.rows), np.nan)
    values: Floats = run.rows[column].to_numpy(dtype=np.float64)
    if run.kind == "robot" and np.isfinite(values).any():
        return np.nancumsum(values)
    return values


def end_of(run: Run, *, against_cost: bool) -> float:
    """Return the last step, or what had been spent by then; NaN where unknown."""
    column = spent(run) if against_cost else run.rows["step"].to_numpy(float)
    known = column[np.isfinite(column)]
    return float(known[-1]) if len(known) else np.nan


def tradeoff(groups: Sequence[Group], kind: str) -> Figure | None:
    """Return reported score against what it cost, a point a run; ``None`` for fewer than two points."""
    traces: list[Trace] = []
    for place, group in enumerate(groups[:MOST_GROUPS]):
        found = [
            (spent_by_then, score, run)
            for run in group.runs
            for score, _ in [reported(run, "after")]
            for spent_by_then in [end_of(run, against_cost=True)]
            if score is not None and np.isfinite(spent_by_then)
        ]
        if found:
            trace = points(
                [at for at, _, _ in found], [score for _, score, _ in found], group.name, GROUP_STYLES[place][0]
            )
            trace["marker"] |= {"size": 11, "symbol": _SYMBOLS[(place // 7) % len(_SYMBOLS)], "opacity": 0.85}
            trace["text"] = [for_plotly(run.name) for _, _, run in found]
            trace["hovertemplate"] = "%{text}<br>score %{y:.3f} for %{x:,.0f}<extra></extra>"
            traces.append(trace)
    if sum(len(trace["x"]) for trace in traces) < 2:
        return None
    cost = "labels read" if kind == "robot" else "CPU seconds really executed, warm-up included"
    return Figure(
        id=f"{kind}-tradeoff",
        title="What a score cost",
        summary=f"Each run's evaluation after training against {cost}: up and to the left is better.",
        traces=traces,
        layout={"xaxis": axis(cost, rangemode="tozero"), "yaxis": axis("reported score")},
        wide=True,
    )


_SYMBOLS = ("circle", "square", "triangle-up", "cross", "star")
