"""Small CSV tables as text: the answers of a task and the submissions held against them.

Everything stays text until its column says otherwise, so that the id ``007`` is never read as 7.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["TableError", "finite_numbers", "read_table", "shown"]


class TableError(ValueError):
    """Bytes that are no table; the message is one sentence fit for the author of the file."""


def read_table(content: bytes) -> dict[str, tuple[str, ...]]:
    """Return the columns of a comma-separated table with a header, in order, as text.

    UTF-8 with or without a byte-order mark, any line ends, blank lines skipped, nothing stripped.

    Raises:
        TableError: If the bytes are empty, no UTF-8 text, hold NUL bytes, are quoted wrongly, name a column twice, or
            have rows of another length than the header.
    """
    if not content.strip():
        raise TableError("it is empty")
    if b"\0" in content:
        raise TableError("it holds NUL bytes; write it as UTF-8 text")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise TableError("it is not UTF-8 text") from None
    try:
        # The csv module beats pandas by a factor of three at the size of a submission.
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error as error:
        raise TableError(f"it is not comma-separated text ({error})") from None
    if not rows:  # nothing but a byte-order mark
        raise TableError("it is empty")
    header = rows.pop(0)
    if len(set(header)) != len(header):
        raise TableError("a column is named twice")
    width = len(header)
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise TableError(f"data row {number} has {len(row)} values, the header has {width}")
    columns = zip(*rows, strict=True) if rows else [()] * width
    return dict(zip(header, columns, strict=True))


def finite_numbers(values: Sequence[str]) -> NDArray[np.float64]:
    """Return the numbers that a column of text holds: float64 ``[n]``.

    Raises:
        ValueError: If a value is missing, no number, NaN or infinite; the message names the first such value.
    """
    try:
        numbers = np.array(list(map(float, values)), dtype=np.float64)
    except ValueError:
        numbers = None
    # float() reads 1_000 and digits of every script, which no reader of CSV files does.
    if numbers is not None and np.isfinite(numbers).all():
        joined = "".join(values)
        if joined.isascii() and "_" not in joined:
            return numbers
    raise ValueError(_first_problem(values))


def _first_problem(values: Sequence[str]) -> str:
    for value in values:
        if not value.strip():
            return "a value is missing"
        try:
            number = float(value) if value.isascii() and "_" not in value else None
        except ValueError:
            number = None
        if number is None:
            return f"{shown(value)} is not a number"
        if not np.isfinite(number):
            return f"{shown(value)} is not a finite number"
    raise AssertionError("no problem among the values")  # pragma: no cover


def shown(value: str, longest: int = 40) -> str:
    """Return a value quoted for a message, cut to a length that a line can hold."""
    return repr(value if len(value) <= longest else value[:longest] + "...")
