"""The most recent observations, first in first out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wmrl_envs.correction._arrays import FloatArray

__all__ = ["Window"]


class Window:
    """The last ``capacity`` columns that were added, always one contiguous view in order of arrival.

    A ring buffer would need no copy, but would present the columns in an order that depends on its history. In order of
    arrival, a window that was saved and loaded adds up to the same last bit. One copy per ``capacity`` columns pays
    for it.
    """

    def __init__(self, rows: int, capacity: int) -> None:
        self._buffer: FloatArray = np.empty((rows, 2 * capacity))
        self._capacity = capacity
        self._start = self._end = 0

    def __len__(self) -> int:
        """Return the number of columns held, at most the capacity."""
        return self._end - self._start

    @property
    def values(self) -> FloatArray:
        """The columns held, [rows, len(self)], oldest first: a view, which the next ``add`` may overwrite."""
        return self._buffer[:, self._start : self._end]

    def add(self, *rows: FloatArray) -> None:
        """Add one column per element of the (equally long, 1-D) rows, and drop the oldest beyond the capacity."""
        count = len(rows[0])
        if count > self._capacity:
            rows = tuple(row[-self._capacity :] for row in rows)
            count = self._capacity
        if self._end + count > self._buffer.shape[1]:
            # At most `capacity` columns fit before the new ones, so that the copy always makes room.
            kept = min(len(self), self._capacity)
            self._buffer[:, :kept] = self._buffer[:, self._end - kept : self._end].copy()
            self._start, self._end = 0, kept
        for row, values in zip(self._buffer, rows, strict=True):
            row[self._end : self._end + count] = values
        self._end += count
        self._start = max(self._start, self._end - self._capacity)

    def tolist(self) -> list[list[float]]:
        """Return the columns held as one list per row, for a saved state."""
        listed: list[list[float]] = self.values.tolist()
        return listed

    def restored(self, rows: Sequence[Sequence[float]]) -> Window:
        """Return a new window of the same shape that holds what ``tolist`` gave.

        Raises:
            ValueError: If the rows do not fit this window, or hold something that is no finite number.
        """
        window = Window(len(self._buffer), self._capacity)
        arrays = [np.asarray(row, dtype=np.float64) for row in rows]
        if len(arrays) != len(self._buffer) or any(a.ndim != 1 or len(a) > self._capacity for a in arrays):
            raise ValueError(f"expected {len(self._buffer)} rows of at most {self._capacity} values")
        if len({len(a) for a in arrays}) != 1 or not all(np.isfinite(a).all() for a in arrays):
            raise ValueError("expected rows of equal length and finite values")
        window.add(*arrays)
        return window
