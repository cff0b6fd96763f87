"""The picture beside a rollout: its progress so far, the success probability, and what really came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["PROGRESS_COLOUR", "SUCCESS_COLOUR", "Curve", "ProgressPanel", "title_strip"]

Image = NDArray[np.uint8]
Colour = tuple[int, int, int]
Point = tuple[float, float]

# Okabe and Ito's blue and vermilion, which the colour-blind tell apart; dashes and shapes say the same once more.
PROGRESS_COLOUR: Colour = (0, 114, 178)
SUCCESS_COLOUR: Colour = (213, 94, 0)
BLACK: Colour = (40, 40, 40)
GREY: Colour = (110, 110, 110)
GRID: Colour = (222, 222, 222)
UNIT = 256
"""The height of a panel at which the measures below are pixels."""
LEFT, RIGHT, TOP, BOTTOM, ROW = 30, 24, 74, 28, 20
"""Margins around the axes, and the height of a line of text."""
STRIP = 28
SMALL, LARGE = 0.4, 0.46
DASH = 5.0
FRACTION = 4
"""Bits of a pixel's fraction that lines are drawn to."""


@dataclass(frozen=True)
class Curve:
    """Values in [0, 1] over the frames of a rollout."""

    name: str
    values: NDArray[np.float32]
    """[T]"""
    colour: Colour
    dashed: bool = False


class ProgressPanel:
    """A square picture whose curves grow with the frames; time runs to the right, 0 to 1 upwards."""

    def __init__(self, height: int, frames: int, curves: Sequence[Curve]) -> None:
        self._frames, self._curves, self._unit = frames, curves, height / UNIT
        self._image: Image = np.full((height, height, 3), 255, np.uint8)
        for value in (1.0, 0.5, 0.0):
            self._line((LEFT, self._y(value)), (UNIT - RIGHT, self._y(value)), GRID if value else GREY, 1)
            self._text(f"{value:g}", (6, self._y(value) + 4), GREY, SMALL)
        self._line((LEFT, self._y(0.0)), (LEFT, self._y(1.0)), GREY, 1)
        self._text("1", (LEFT - 2, UNIT - 10), GREY, SMALL)
        if frames > 1:
            self._text(f"{frames} frames", (UNIT - RIGHT - 46 - 6 * len(str(frames)), UNIT - 10), GREY, SMALL)
        if not curves:
            self._text("not scored", (LEFT, 16), GREY, LARGE)

    def outcome(self, solved: bool, anchor: bool) -> None:
        """Mark what really came of the rollout: a full dot at 1 where it was solved, a cross at 0 where it was not."""
        row = 16 + 2 * ROW
        for x, y in ((LEFT + 9, row - 4), (UNIT - RIGHT / 2, self._y(float(solved)))):
            if solved:
                self._dot((x, y), 5.0, BLACK, self._image)
                continue
            self._line((x - 4, y - 4), (x + 4, y + 4), BLACK, 2)
            self._line((x - 4, y + 4), (x + 4, y - 4), BLACK, 2)
        words = f"really {'solved' if solved else 'failed'}{', an anchor' if anchor else ''}"
        self._text(words, (LEFT + 26, row), BLACK, LARGE)

    def pictures(self) -> Iterator[Image]:
        """Yield one uint8 [height, height, 3] per frame."""
        for frame in range(self._frames):
            for row, curve in reversed(list(enumerate(self._curves))):  # the first lies on top
                self._grow(curve, frame)
                self._legend(row, curve, frame)
            picture = self._image.copy()
            for curve in reversed(self._curves):
                self._dot(self._at(curve, frame), 4.0, curve.colour, picture)
            yield picture

    def _grow(self, curve: Curve, frame: int) -> None:
        if frame == 0:
            return
        (x0, y0), (x1, y1) = self._at(curve, frame - 1), self._at(curve, frame)
        if not curve.dashed:
            self._line((x0, y0), (x1, y1), curve.colour, 2)
            return
        # Dashes lie where the horizontal axis says, so that they do not begin anew at every frame.
        for tick in range(int(x0 // DASH), int(x1 // DASH) + 1):
            if tick % 2 == 0:
                ends = np.clip([tick * DASH, (tick + 1) * DASH], x0, x1)
                heights = np.interp(ends, [x0, x1], [y0, y1])
                self._line((ends[0], heights[0]), (ends[1], heights[1]), curve.colour, 2)

    def _legend(self, row: int, curve: Curve, frame: int) -> None:
        y = 16 + row * ROW
        self._image[self._pixels(y - 14) : self._pixels(y + 5)] = 255
        pieces = ((LEFT, LEFT + 7), (LEFT + 11, LEFT + 18)) if curve.dashed else ((LEFT, LEFT + 18),)
        for start, end in pieces:
            self._line((start, y - 4), (end, y - 4), curve.colour, 2)
        self._text(f"{curve.name} {curve.values[frame]:.2f}", (LEFT + 26, y), curve.colour, LARGE)

    def _at(self, curve: Curve, frame: int) -> Point:
        across = frame / max(self._frames - 1, 1)
        return LEFT + across * (UNIT - LEFT - RIGHT), self._y(float(curve.values[frame]))

    def _y(self, value: float) -> float:
        return UNIT - BOTTOM - value * (UNIT - TOP - BOTTOM)

    def _pixels(self, length: float, bits: int = 0) -> int:
        return int(round(length * self._unit * 2.0**bits))

    def _fixed(self, point: Point) -> tuple[int, int]:
        return self._pixels(point[0], FRACTION), self._pixels(point[1], FRACTION)

    def _line(self, start: Point, end: Point, colour: Colour, width: int) -> None:
        thick = max(self._pixels(width), 1)
        cv2.line(self._image, self._fixed(start), self._fixed(end), colour, thick, cv2.LINE_AA, FRACTION)

    def _dot(self, centre: Point, radius: float, colour: Colour, image: Image) -> None:
        cv2.circle(image, self._fixed(centre), self._pixels(radius, FRACTION), colour, -1, cv2.LINE_AA, FRACTION)

    def _text(self, text: str, corner: Point, colour: Colour, scale: float) -> None:
        where = self._pixels(corner[0]), self._pixels(corner[1])
        _put_text(self._image, text, where, colour, scale * self._unit)


def title_strip(text: str, width: int, height: int) -> Image:
    """Return a strip to lay over pictures of ``height``, uint8 [.., width, 3]; what does not fit ends in dots."""
    unit = height / UNIT
    strip: Image = np.full((2 * round(STRIP * unit / 2), width, 3), 255, np.uint8)
    shown = text
    while shown and _text_width(shown, LARGE * unit) > width - 16 * unit:
        shown = shown.removesuffix("...")[:-1].rstrip() + "..." if shown != "..." else ""
    _put_text(strip, shown, (round(8 * unit), round(18 * unit)), BLACK, LARGE * unit)
    return strip


def _put_text(image: Image, text: str, corner: tuple[int, int], colour: Colour, scale: float) -> None:
    cv2.putText(image, text, corner, cv2.FONT_HERSHEY_SIMPLEX, scale, colour, max(round(2 * scale), 1), cv2.LINE_AA)


def _text_width(text: str, scale: float) -> int:
    return int(cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, scale, max(round(2 * scale), 1))[0][0])
