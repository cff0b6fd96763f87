"""Learning curves: one run's streams of rewards, or several groups of runs with their spread over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wmrl_envs.report.figure import GROUP_STYLES, MOST_GROUPS, STREAMS, Control, Figure, Trace, axis, line, points
from wmrl_envs.report.groups import Group
from wmrl_envs.report.scores import end_of, reported, spent
from wmrl_envs.report.text import for_plotly
from wmrl_envs.report.thinning import Floats, rounded, smooth

__all__ = ["learning_curves"]

_REWARD_AXIS = axis("mean reward", rangemode="tozero")


def learning_curves(groups: Sequence[Group], kind: str, *, most: int) -> Figure | None:
    """Return the figure, or ``None`` where no step was done.

    Args:
        groups: Runs grouped, of one kind.
        kind: ``"research"`` or ``"robot"``.
        most: Points of a curve.
    """
    groups = [group for group in groups if any(len(run.rows) for run in group.runs)][:MOST_GROUPS]
    if not groups:
        return None
    runs = [run for group in groups for run in group.runs]
    streams = _streams(groups)
    against = ["Step"]
    if any(np.nanmax(spent(run), initial=0.0) > 0 for run in runs):
        against.append("Labels read" if kind == "robot" else "CPU seconds executed")
    if not streams:
        return None
    controls = [Control("Against", against)]
    if len(groups) > 1:
        controls.insert(0, Control("Reward", [STREAMS[name][0] for name in streams]))
    traces = [trace for x_index in range(len(against)) for trace in _traces(groups, streams, x_index, most)]
    return Figure(
        id=f"{kind}-curves",
        title="Learning curves",
        summary=_words(groups, kind),
        traces=traces,
        layout={"xaxis": axis("step"), "yaxis": _REWARD_AXIS | {"range": [0, 1.02]}},
        layouts={"CPU seconds executed": {"xaxis": axis("CPU seconds really executed, warm-up included")}}
        | {"Labels read": {"xaxis": axis("labels read")}},
        controls=[control for control in controls if len(control.options) > 1 or len(controls) == 2],
        wide=True,
    )


def _traces(groups: Sequence[Group], streams: Sequence[str], x_index: int, most: int) -> list[Trace]:
    """Return the curves against one axis: a stream a colour for one group, a group a colour for several."""
    traces: list[Trace] = []
    for place, group in enumerate(groups):
        for choice, stream in enumerate(streams):
            if len(groups) == 1:
                words, colour = STREAMS[stream]
                style = (colour, "dash" if stream == "predicted_reward" else "solid")
                traces += _curve(group, stream, x_index, words, style, [x_index], most)
            else:
                traces += _curve(group, stream, x_index, group.name, GROUP_STYLES[place], [choice, x_index], most)
        traces += _reports(group, place, x_index, len(groups) == 1)
    return traces


def _streams(groups: Sequence[Group]) -> list[str]:
    """Return the streams that are known; of several groups first one that most of them have."""

    def has(group: Group, name: str) -> bool:
        return any(name in run.rows and run.rows[name].notna().any() for run in group.runs)

    counts = {name: sum(has(group, name) for group in groups) for name in STREAMS}
    known = [name for name in STREAMS if counts[name]]
    return known if len(groups) == 1 else sorted(known, key=lambda name: -counts[name])


def _curve(
    group: Group, stream: str, x_index: int, words: str, style: tuple[str, str], when: list[int], most: int
) -> list[Trace]:
    """Return a group's curve: its points behind a moving mean for one run, a mean within its spread for several."""
    colour, dash = style
    known = [
        (x[keep], y[keep])
        for run in group.runs
        if stream in run.rows
        for x, y in [((run.rows["step"].to_numpy(float), spent(run))[x_index], run.rows[stream].to_numpy(float))]
        for keep in [np.isfinite(x) & np.isfinite(y)]
        if keep.any()
    ]
    if not known:
        return []
    hover = f"%{{y:.3f}}<extra>{for_plotly(words)}</extra>"
    shared: dict[str, Any] = {"_when": when, "legendgroup": for_plotly(words), "hovertemplate": hover}
    if len(known) == 1:
        x, y = known[0]
        faint: dict[str, Any] = {"opacity": 0.3, "showlegend": False, "hoverinfo": "skip", "hovertemplate": None}
        return [
            points(x, y, f"{words}, each step", colour, most=most, marker={"size": 4}, **(shared | faint)),
            line(x, smooth(y), words, colour, most=most, line={"dash": dash}, **shared),
        ]
    grid, mean, spread = _over_seeds(known, most)
    name = f"{words} (mean of {len(known)} runs)"
    band = line(
        np.concatenate([grid, grid[::-1]]),
        np.concatenate([mean + spread, (mean - spread)[::-1]]),
        f"{words}, ± 1 standard deviation",
        colour,
        most=4 * most,
        line={"width": 0},
        fill="toself",
        fillcolor=f"{colour}/0.16",
        showlegend=False,
        **(shared | {"hoverinfo": "skip", "hovertemplate": None}),
    )
    return [band, line(grid, mean, name, colour, most=most, line={"dash": dash}, **shared)]


def _over_seeds(known: list[tuple[Floats, Floats]], most: int) -> tuple[Floats, Floats, Floats]:
    """Return places, mean and standard deviation over the runs that got so far: [n] each."""
    places = np.unique(np.concatenate([x for x, _ in known]))
    grid = places if len(places) <= most else np.linspace(places[0], places[-1], most)
    values = np.array([np.interp(grid, x, smooth(y), left=np.nan, right=np.nan) for x, y in known])
    here = np.isfinite(values)
    count = here.sum(axis=0)
    kept = count > 0  # a grid of few places may fall between the points of runs that do not meet
    grid, values, here, count = grid[kept], values[:, kept], here[:, kept], count[kept]
    mean = np.where(here, values, 0.0).sum(axis=0) / count
    squares = np.where(here, values - mean, 0.0) ** 2
    return grid, mean, np.sqrt(squares.sum(axis=0) / np.maximum(count - 1, 1))


def _reports(group: Group, place: int, x_index: int, alone: bool) -> list[Trace]:
    """Return the reported scores before and after as diamonds, two standard errors about them."""
    marks = []
    for when in ("before", "after"):
        found = [(run, score, error) for run in group.runs for score, error in [reported(run, when)]]
        ends = [end_of(run, against_cost=bool(x_index)) for run, score, _ in found if score is not None]
        scores = [score for _, score, _ in found if score is not None]
        if not scores:
            continue
        ends = [end for end in ends if np.isfinite(end)]
        if not ends:
            continue
        own = next(error for _, score, error in found if score is not None)
        spread = 2 * _standard_error(scores) if len(scores) > 1 else np.nan if own is None else 2 * own
        end = float(np.mean(ends))
        # Beside one another, so that groups that start alike do not hide each other.
        aside = 0.0 if alone else (1 + place) * 0.008 * end
        marks.append((-aside if when == "before" else end + aside, float(np.mean(scores)), spread))
    if not marks:
        return []
    colour = "@ink" if alone else GROUP_STYLES[place][0]
    name = "reported, before and after (± 2 s.e.)"
    trace = points([mark[0] for mark in marks], [mark[1] for mark in marks], name, colour)
    trace["marker"] |= {"symbol": "diamond", "size": 11, "line": {"color": "@paper", "width": 1.5}}
    trace["error_y"] = {"array": rounded([mark[2] for mark in marks]), "color": colour, "thickness": 1.5, "width": 5}
    words = "reported" if alone else f"{for_plotly(group.name)}, reported"
    trace |= {"_when": [x_index] if alone else [None, x_index], "showlegend": alone}
    trace["hovertemplate"] = f"%{{y:.3f}}<extra>{words}</extra>"
    if not alone:
        trace["legendgroup"] = for_plotly(group.name)
    return [trace]


def _standard_error(scores: Sequence[float]) -> float:
    return float(np.std(scores, ddof=1) / np.sqrt(len(scores)))


def _words(groups: Sequence[Group], kind: str) -> str:
    parts = []
    for group in groups[:4]:
        ends = [
            [score for run in group.runs for score, _ in [reported(run, when)] if score is not None] for when in _WHEN
        ]
        if all(ends):
            parts.append(f"{group.name} from {np.mean(ends[0]):.2f} to {np.mean(ends[1]):.2f}")
    what = "success on fresh initial states" if kind == "robot" else "reported score"
    several = " Bands: one standard deviation over seeds." if any(len(group.runs) > 1 for group in groups) else ""
    unseen = "" if kind == "robot" else " on answers that training never saw"
    told = "Mean reward of each step's rollouts."
    if parts:
        told = f"{what[0].upper()}{what[1:]}: {'; '.join(parts)}{'; and others' if len(groups) > 4 else ''}."
    return f"{told} Lines are moving means, diamonds are evaluations{unseen}.{several}"


_WHEN = ("before", "after")
