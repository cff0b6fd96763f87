"""A figure of the page: traces and axes as Plotly reads them, and what the page adds around them.

Colours are names such as ``"@blue"`` or ``"@blue/0.2"`` (with its opacity), which the page turns into those of its
light or dark palette. A trace may carry keys of the page's own:

- ``_when``: the choice of each control for which it is shown, ``None`` for all;
- ``_upto``: steps of its points, of which a slider shows those up to its own;
- ``_slide``: its place on a slider, before which it is hidden and after which it stays as a faint line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wmrl_envs.report.text import for_plotly
from wmrl_envs.report.thinning import Floats, extremes, rounded

__all__ = ["GROUP_STYLES", "MOST_GROUPS", "STREAMS", "Control", "Figure", "axis", "line", "points"]

Trace = dict[str, Any]

STREAMS = {
    "real_reward": ("real, where executed", "@green"),
    "predicted_reward": ("predicted", "@orange"),
    "calibrated_reward": ("calibrated", "@blue"),
}
"""Words and colour of each stream of rewards. The corrected return is none: it is a learning signal on a scale of its
own, whose mean says nothing of the policy."""

_COLOURS = ("@blue", "@orange", "@green", "@purple", "@sky", "@ink", "@yellow")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
GROUP_STYLES = [(colour, dash) for dash in _DASHES for colour in _COLOURS]
"""Colour and dash that tell groups apart, so that no two of the first 35 look alike, to the colour-blind too."""
MOST_GROUPS = len(GROUP_STYLES)
"""Groups that a figure shows."""


@dataclass(frozen=True)
class Control:
    """What a reader can choose about a figure."""

    label: str
    options: list[str]
    kind: str = "choice"
    """``choice``, or ``slider``, on which the last option is chosen at first and options are steps."""


@dataclass(frozen=True)
class Figure:
    """A figure with its words."""

    id: str
    title: str
    summary: str
    """What is to be seen, for those too who see no figure."""
    traces: list[Trace]
    layout: dict[str, Any]
    controls: list[Control] = field(default_factory=list)
    wide: bool = False
    layouts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What the choice of the last control that is no slider changes of the layout, by option."""

    def to_dict(self) -> dict[str, Any]:
        """Return what the page draws, JSON-able."""
        return {
            "id": self.id,
            "title": self.title,
            "summary": self.summary,
            "data": self.traces,
            "layout": self.layout,
            "layouts": self.layouts,
            "wide": self.wide,
            "controls": [vars(control) for control in self.controls],
        }


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis with its title."""
    return {"title": {"text": title}, **more}


def line(
    x: Sequence[float] | Floats, y: Sequence[float] | Floats, name: str, colour: str, *, most: int = 300, **more: Any
) -> Trace:
    """Return a line through known points, thinned with its extremes kept.

    Args:
        x: Places, [n].
        y: Values, [n].
        name: What the legend and the hover say.
        colour: Name of a colour.
        most: Points to keep.
        more: Further keys of the trace; those of ``line`` go on top of colour and width.
    """
    kept = extremes(np.asarray(y, dtype=float), most)
    style = {"color": colour, "width": 2.2} | more.pop("line", {})
    return {
        "type": "scatter",
        "mode": "lines",
        "name": for_plotly(name),
        "x": rounded(np.asarray(x, dtype=float)[kept], 6),
        "y": rounded(np.asarray(y, dtype=float)[kept]),
        "line": style,
        **more,
    }


def points(
    x: Sequence[float] | Floats, y: Sequence[float] | Floats, name: str, colour: str, *, most: int = 400, **more: Any
) -> Trace:
    """Return single points, thinned with their extremes kept; arguments as `line`, with ``marker`` for the style."""
    kept = extremes(np.asarray(y, dtype=float), most)
    style: Mapping[str, Any] = {"color": colour, "size": 6} | more.pop("marker", {})
    return {
        "type": "scatter",
        "mode": "markers",
        "name": for_plotly(name),
        "x": rounded(np.asarray(x, dtype=float)[kept], 6),
        "y": rounded(np.asarray(y, dtype=float)[kept]),
        "marker": dict(style),
        **more,
    }
