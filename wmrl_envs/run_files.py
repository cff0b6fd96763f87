"""Files that every kind of run leaves in its folder."""

from __future__ import annotations

import csv
import errno
import importlib.metadata
import io
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from wmrl_envs.errors import CheckpointError
from wmrl_envs.files import write_json, write_text

__all__ = ["MetricsFile", "versions", "write_calibration", "writing_to"]


_UNWRITABLE = {errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EISDIR, errno.ENOSPC, errno.EROFS}


class MetricsFile:
    """A run's metrics.csv: one row per step, an empty cell where a row lacks a column.

    Steps are appended, so that a long run's last step costs what its first did. The file is written whole the first
    time and where a row brings a new column; a killed run leaves at most its last line torn.
    """

    def __init__(self, folder: Path) -> None:
        """Write to ``metrics.csv`` in a run folder."""
        self._path = folder / "metrics.csv"
        self._columns: dict[str, None] = {}
        self._written = 0

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Bring the file up to date with all rows so far; those of earlier calls are unchanged among them."""
        new = rows[self._written :]
        added = dict.fromkeys(name for row in new for name in row if name not in self._columns)
        if self._written and not added:
            with self._path.open("a", encoding="utf-8", newline="") as file:
                file.write(self._lines(new))
        else:
            self._columns |= added
            header = dict(zip(self._columns, self._columns, strict=True))
            write_text(self._path, self._lines([header, *rows]))
        self._written = len(rows)

    def _lines(self, rows: Sequence[Mapping[str, Any]]) -> str:
        text = io.StringIO()
        # Each value as Python writes it: a column's other values change nothing, such as a whole number's form.
        csv.DictWriter(text, list(self._columns), restval="", lineterminator="\n").writerows(rows)
        return text.getvalue()


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Say of a run whose files cannot be written, such as on a full disk, how it goes on.

    Raises:
        CheckpointError: If that is what ended the ``with`` block.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        raise CheckpointError(
            f"the run's files cannot be written to {folder} ({error}); mend that and go on from the last checkpoint "
            f"with --resume {folder}"
        ) from error


def write_calibration(folder: Path, pairs: Sequence[Sequence[float]], knots: dict[str, Any]) -> None:
    """Write calibration.json: the map that training ended with, and what it was fitted on.

    Args:
        folder: The run folder.
        pairs: ``(step, predicted, real)`` of each episode that was both predicted and executed.
        knots: ``predicted`` and ``real``, as ``CorrectionWrapper.calibration`` gives them.
    """
    columns = {name: [pair[index] for pair in pairs] for index, name in enumerate(("step", "predicted", "real"))}
    write_json(folder / "calibration.json", columns | {"knots": knots})


def versions(*further: str) -> dict[str, str]:
    """Return the versions of everything that can change a result, of further packages as well."""
    packages = ("wmrl-envs", "gymnasium", "numpy", "pandas", "scikit-learn", "scipy", "stable-baselines3", "torch")
    found = {"python": platform.python_version()}
    for name in (*packages, *further):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
