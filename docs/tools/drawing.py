"""A small SVG writer for the documentation's diagrams: words stay words, and colours follow the reader's choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

__all__ = ["Axes", "Drawing"]

_STYLE = """
svg.diagram{--ink:#1b1f24;--dim:#57606a;--line:#8c959f;--paper:#f6f8fa;--model:#0a58ca;--real:#1a7f37;--wrong:#bc4c00;
font:14px system-ui,sans-serif}
@media(prefers-color-scheme:dark){svg.diagram{--ink:#e6edf3;--dim:#9da7b3;--line:#6e7781;--paper:#262c36;
--model:#6cb6ff;--real:#57c46b;--wrong:#f0883e}}
""".replace("\n", "")


class Drawing:
    """Collects shapes; colours are names of the style: ink, dim, line, paper, model, real, wrong."""

    def __init__(self, width: float, height: float, title: str, words: str) -> None:
        """Begin a drawing.

        Args:
            width: In pixels.
            height: In pixels.
            title: Its name, for those who hear it.
            words: What is to be seen, for those who hear it.
        """
        self._parts = [
            f'<svg class="diagram" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">'
            f"<title>{escape(title)}</title><desc>{escape(words)}</desc><style>{_STYLE}</style>"
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0L8 4L0 8z" style="fill:var(--line)"/></marker></defs>'
        ]

    def text(
        self,
        x: float,
        y: float,
        words: str,
        colour: str = "ink",
        *,
        at: str = "middle",
        size: float = 14,
        bold: bool = False,
    ) -> None:
        """Write one line; ``at`` is start, middle or end."""
        weight = ";font-weight:600" if bold else ""
        style = f"fill:var(--{colour});font-size:{size:g}px{weight}"
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{at}" style="{style}">{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, lines: Sequence[str], colour: str = "line") -> None:
        """Draw a box with a first line in bold and others under it."""
        self.rectangle(x, y, width, height, "paper", colour, radius=8)
        top = y + height / 2 - 9 * (len(lines) - 1) + 5
        for index, line in enumerate(lines):
            small = index > 0
            self.text(
                x + width / 2,
                top + 18 * index,
                line,
                "dim" if small else "ink",
                size=12.5 if small else 14,
                bold=not small,
            )

    def rectangle(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        edge: str = "none",
        *,
        radius: float = 0,
        opacity: float = 1,
    ) -> None:
        """Draw a rectangle; a negative height goes upwards."""
        if height < 0:
            y, height = y + height, -height
        stroke = "none" if edge == "none" else f"var(--{edge})"
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:g}" '
            f'style="fill:var(--{fill});stroke:{stroke};stroke-width:1.5;fill-opacity:{opacity:g}"/>'
        )

    def line(
        self,
        points: Sequence[tuple[float, float]],
        colour: str = "line",
        *,
        width: float = 1.5,
        dashed: bool = False,
        arrow: bool = False,
    ) -> None:
        """Draw a line through points."""
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        style = f"fill:none;stroke:var(--{colour});stroke-width:{width:g}" + (";stroke-dasharray:5 4" if dashed else "")
        tip = ' marker-end="url(#tip)"' if arrow else ""
        self._parts.append(f'<path d="{path}" style="{style}"{tip}/>')

    def dot(self, x: float, y: float, colour: str, *, radius: float = 2.6, opacity: float = 0.55) -> None:
        """Draw a dot."""
        self._parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" style="fill:var(--{colour});fill-opacity:{opacity:g}"/>'
        )

    def axes(
        self,
        frame: tuple[float, float, float, float],
        x: tuple[float, float],
        y: tuple[float, float],
        labels: tuple[str, str],
    ) -> Axes:
        """Draw axes in a frame (left, top, right, bottom) and return the way from numbers to places."""
        return Axes(self, frame, x, y, labels)

    def save(self, path: Path) -> None:
        """Write the file, one shape a line."""
        path.write_text("\n".join([*self._parts, "</svg>"]) + "\n")


class Axes:
    """Places numbers in a frame."""

    def __init__(
        self,
        drawing: Drawing,
        frame: tuple[float, float, float, float],
        x: tuple[float, float],
        y: tuple[float, float],
        labels: tuple[str, str],
    ) -> None:
        """Draw the frame and its labels."""
        self._drawing, self._frame, self._x, self._y = drawing, frame, x, y
        left, top, right, bottom = frame
        drawing.line([(left, top), (left, bottom), (right, bottom)])
        drawing.text((left + right) / 2, bottom + 36, labels[0], "dim", size=12.5)
        drawing.text(left - 8, top - 10, labels[1], "dim", at="start", size=12.5)

    def x(self, value: float) -> float:
        """Return the place of a number on the horizontal axis."""
        left, _, right, _ = self._frame
        return left + (value - self._x[0]) / (self._x[1] - self._x[0]) * (right - left)

    def y(self, value: float) -> float:
        """Return the place of a number on the vertical axis."""
        _, top, _, bottom = self._frame
        return bottom - (value - self._y[0]) / (self._y[1] - self._y[0]) * (bottom - top)

    def ticks(
        self, x: Sequence[float] = (), y: Sequence[float] = (), form: Callable[[float], str] = "{:g}".format
    ) -> None:
        """Write numbers along the axes."""
        for value in x:
            self._drawing.text(self.x(value), self._frame[3] + 18, form(value), "dim", size=12)
        for value in y:
            self._drawing.text(self._frame[0] - 8, self.y(value) + 4, form(value), "dim", at="end", size=12)

    def points(self, xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
        """Return the places of points."""
        return [(self.x(x), self.y(y)) for x, y in zip(xs, ys, strict=True)]
