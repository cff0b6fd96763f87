"""The figures of one run: calibration, residuals, outcomes by status, weights and cost."""

from __future__ import annotations

import numpy as np
import pandas as pd

from wmrl_envs.report.episodes import number, numbers
from wmrl_envs.report.figure import Control, Figure, Trace, axis, line, points
from wmrl_envs.report.folder import Run
from wmrl_envs.report.text import for_plotly
from wmrl_envs.report.thinning import Floats, evenly, rounded, smooth
from wmrl_envs.research.outcome import Status

__all__ = ["STATUS_COLOURS", "run_figures"]

STATUS_COLOURS = {
    Status.VALID: "@blue",
    Status.INVALID_SUBMISSION: "@sky",
    Status.NO_SUBMISSION: "@purple",
    Status.DISK: "@yellow",
    Status.MEMORY: "@green",
    Status.TIMEOUT: "@amber",
    Status.RUNTIME_ERROR: "@orange",
    Status.SYNTAX_ERROR: "@grey",
    Status.MALFORMED: "@ink",
}
_UNIT = {"range": [-0.02, 1.04]}


def run_figures(run: Run, *, most: int) -> list[Figure]:
    """Return the figures for which a run holds numbers.

    Args:
        run: The run.
        most: Points of a curve.
    """
    drawn = (_calibration(run, most), _residuals(run, most), _statuses(run, most), _tasks(run))
    return [figure for figure in (*drawn, _weights(run, most), _cost(run, most)) if figure is not None]


def _known(run: Run, column: str) -> Floats | None:
    """Return a column of the metrics, or ``None`` where it is unknown throughout."""
    if column not in run.rows or not run.rows[column].notna().any():
        return None
    return run.rows[column].to_numpy(float)


def _steps(run: Run) -> Floats:
    return run.rows["step"].to_numpy(float)


def _calibration(run: Run, most: int) -> Figure | None:
    maps = evenly(run.maps, min(60, most // 4))
    pairs = run.pairs
    if not maps and not len(pairs.step):
        return None
    traces: list[Trace] = [
        line([0, 1], [0, 1], "prediction as it is", "@muted", line={"dash": "dot", "width": 1.5}, hoverinfo="skip")
    ]
    if len(pairs.step):
        kept = np.array(evenly(range(len(pairs.step)), 2 * most))
        trace = points(pairs.predicted[kept], pairs.real[kept], "executed pairs", "@blue", most=2 * most + 1)
        trace["marker"] |= {"size": 6, "opacity": 0.55, "color": rounded(pairs.step[kept]), "colorscale": "@steps"}
        trace["marker"]["colorbar"] = {"title": {"text": "step"}, "thickness": 10, "outlinewidth": 0, "len": 0.9}
        trace["hovertemplate"] = "step %{marker.color}<br>predicted %{x:.3f}<br>real %{y:.3f}<extra></extra>"
        traces.append(trace | {"_upto": rounded(pairs.step[kept])})
    for place, found in enumerate(maps):
        # The map goes on flat beyond its knots.
        x, y = [0.0, *found.predicted, 1.0], [found.real[0], *found.real, found.real[-1]]
        bold = line(x, y, "calibration map", "@blue", most=60, line={"width": 3}, _slide=place)
        traces.append(bold | {"hovertemplate": f"%{{x:.3f}} becomes %{{y:.3f}}<extra>step {found.step}</extra>"})
    return Figure(
        id=f"{run.kind}-calibration",
        title="What predictions turn out to be",
        summary=_calibration_words(run),
        traces=traces,
        layout={"xaxis": axis("predicted reward", **_UNIT), "yaxis": axis("real reward", **_UNIT)},
        controls=[Control("Map after step", [str(found.step) for found in maps], "slider")] if len(maps) > 1 else [],
    )


def _calibration_words(run: Run) -> str:
    real, predicted = run.pairs.real, run.pairs.predicted
    moved = f"The map at {len(run.maps)} steps, earlier ones faint. " if len(run.maps) > 1 else ""
    if not len(real):
        return f"{moved}No executed pair is kept."
    bias = float((predicted - real).mean())
    way = "as they turned out" if abs(bias) < 0.005 else f"{abs(bias):.2f} too {'high' if bias > 0 else 'low'}"
    return f"{moved}{len(real):,} pairs were predicted and executed; predictions were {way} on average."


def _residuals(run: Run, most: int) -> Figure | None:
    pairs = run.pairs
    if not len(pairs.step):
        return None
    residual = pairs.real - pairs.predicted
    by_step = pd.Series(residual).groupby(pairs.step).mean()
    dots = points(pairs.step, residual, "an executed episode", "@muted", most=2 * most, opacity=0.4)
    dots["hovertemplate"] = "step %{x}<br>real − predicted %{y:+.3f}<extra></extra>"
    mean = line(by_step.index.to_numpy(float), smooth(by_step.to_numpy(float)), "moving mean", "@orange", most=most)
    mean["hovertemplate"] = "%{y:+.3f}<extra>moving mean</extra>"
    error = float(np.abs(residual).mean())
    return Figure(
        id=f"{run.kind}-residuals",
        title="Anchors and their residuals",
        summary=f"Real minus predicted reward of each executed episode; {error:.2f} in size on average. Above zero, "
        "the world model was too pessimistic.",
        traces=[dots, mean],
        layout={"xaxis": axis("step"), "yaxis": axis("real − predicted", zeroline=True)},
    )


def _statuses(run: Run, most: int) -> Figure | None:
    present = [
        status
        for status in STATUS_COLOURS
        if (share := _known(run, f"status_{status}")) is not None and np.nanmax(share) > 0
    ]
    if not present:
        return None
    columns = run.rows[[f"status_{status}" for status in present]].to_numpy(float)
    # A step whose outcomes are unknown has no shares; a status that a known one does not name had none.
    known = np.isfinite(columns).any(axis=1)
    steps = _steps(run)[known]
    shares = {status: smooth(np.nan_to_num(columns[known, place])) for place, status in enumerate(present)}
    # All layers of a stack need the same places, so that extremes of single ones cannot be kept.
    places = np.array(evenly(range(len(steps)), most))
    traces: list[Trace] = []
    for status in present:
        words, colour = status.replace("_", " "), STATUS_COLOURS[status]
        trace = line(steps[places], shares[status][places], words, colour, most=most + 1, line={"width": 0.5})
        trace |= {"stackgroup": "statuses", "fillcolor": f"{colour}/0.85"}
        trace["hovertemplate"] = f"%{{y:.0%}}<extra>{words}</extra>"
        traces.append(trace)
    if len(steps) == 1:
        traces = [
            {
                "type": "bar",
                "name": trace["name"],
                "x": trace["x"],
                "y": trace["y"],
                "marker": {"color": trace["fillcolor"]},
            }
            for trace in traces
        ]
    ends = ", ".join(f"{status.replace('_', ' ')} {shares[status][-1]:.0%}" for status in present)
    return Figure(
        id=f"{run.kind}-statuses",
        title="Outcomes by status",
        summary=f"Shares of the outcomes shown to the agent, predicted or real. At the end: {ends}.",
        traces=traces,
        layout={"xaxis": axis("step"), "yaxis": axis("share", range=[0, 1], tickformat=".0%"), "barmode": "stack"},
    )


def _tasks(run: Run) -> Figure | None:
    """Return success by task before and after, of a robot run."""
    rates = {when: found.get("success") for when, found in (("before", run.before), ("after", run.after))}
    known = {when: found for when, found in rates.items() if isinstance(found, dict)}
    tasks = list(dict.fromkeys(str(task) for found in known.values() for task in found))[:60]
    if not tasks:
        return None
    traces: list[Trace] = [
        {
            "type": "bar",
            "name": when,
            "x": [for_plotly(task) for task in tasks],
            "y": [number(found.get(task)) for task in tasks],
            "marker": {"color": colour},
            "hovertemplate": f"%{{x}}: %{{y:.0%}}<extra>{when}</extra>",
        }
        for when, colour in (("before", "@muted"), ("after", "@blue"))
        if (found := known.get(when)) is not None
    ]
    told = "; ".join(
        f"{task} " + " to ".join(f"{rate:.0%}" for found in known.values() for rate in numbers([found.get(task)]))
        for task in tasks[:12]
    )
    return Figure(
        id=f"{run.kind}-tasks",
        title="Success by task",
        summary=f"On fresh initial states, before and after fine-tuning: {told}.",
        traces=traces,
        layout={"xaxis": axis(""), "yaxis": axis("success", range=[0, 1.02], tickformat=".0%"), "barmode": "group"},
    )


def _weights(run: Run, most: int) -> Figure | None:
    columns = (
        ("lambda", "lambda: trust in predictions", "@blue"),
        ("alpha", "alpha: strength of the correction", "@green"),
        ("weight", "weight of executed groups", "@orange"),
    )
    traces = []
    for column, words, colour in columns:
        values = _known(run, column)
        if values is not None:
            trace = line(_steps(run), values, words, colour, most=most)
            traces.append(trace | {"hovertemplate": f"%{{y:.3f}}<extra>{words.partition(':')[0]}</extra>"})
    # Without predictions there is nothing to weigh.
    if not traces or _known(run, "predicted_reward") is None:
        return None
    return Figure(
        id=f"{run.kind}-weights",
        title="How the two streams are weighed",
        summary="Lambda is the trust in predictions, alpha the strength of the correction, and the weight what an "
        "executed group counts for.",
        traces=traces,
        layout={"xaxis": axis("step"), "yaxis": axis("weight", rangemode="tozero")},
    )


def _cost(run: Run, most: int) -> Figure | None:
    if run.kind == "robot":
        return _labels(run, most)
    executed, predicted = (_known(run, f"{name}_seconds") for name in ("execution", "prediction"))
    if executed is None:
        return None
    steps, full = _steps(run), _known(run, "full_seconds")
    columns = [
        (executed, "executed, warm-up included", "@green", "solid"),
        (predicted, "predicted", "@orange", "solid"),
    ]
    if predicted is not None and np.nanmax(predicted) > 0:
        columns.append((full, "executing everything (estimate)", "@muted", "dash"))
    traces = [
        line(
            steps,
            values,
            words,
            colour,
            most=most,
            line={"dash": dash},
            hovertemplate=f"%{{y:,.1f}} s<extra>{words}</extra>",
        )
        for values, words, colour, dash in columns
        if values is not None and np.nanmax(values) > 0
    ]
    ratio = _known(run, "cost_ratio")
    told = "" if ratio is None else f" At the end, {ratio[np.isfinite(ratio)][-1]:.0%} of executing everything."
    return Figure(
        id=f"{run.kind}-cost",
        title="Cost",
        summary=f"CPU seconds spent so far, against an estimate for executing every attempt.{told}",
        traces=traces,
        layout={"xaxis": axis("step"), "yaxis": axis("seconds", rangemode="tozero")},
    )


def _labels(run: Run, most: int) -> Figure | None:
    labels, rollouts = _known(run, "labels"), _known(run, "rollouts")
    if labels is None or rollouts is None:
        return None
    read, played = (np.nancumsum(column) for column in (labels, rollouts))
    traces = [
        line(_steps(run), read, "labels read", "@green", most=most),
        line(_steps(run), played, "rollouts played", "@muted", most=most, line={"dash": "dash"}),
    ]
    return Figure(
        id=f"{run.kind}-cost",
        title="Cost",
        summary=f"{read[-1]:,.0f} labels of success were read for {played[-1]:,.0f} rollouts.",
        traces=traces,
        layout={"xaxis": axis("step"), "yaxis": axis("count so far", rangemode="tozero")},
    )
