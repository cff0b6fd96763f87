"""What a task's public folder holds, without its rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wmrl_envs.errors import TaskError

__all__ = ["Column", "DataInventory"]

_SIZES = (("MB", 2**20), ("kB", 2**10))


@dataclass(frozen=True, slots=True)
class Column:
    """One column of ``train.csv``."""

    name: str
    dtype: Literal["int", "float", "bool", "string"]
    n_unique: int
    """Distinct values, missing ones aside."""
    n_missing: int
    role: Literal["id", "target", "feature"]
    """A column that ``test.csv`` lacks is a target, whatever the submission calls it."""
    example: str
    """The first value that is not missing, as text; empty where all are missing."""


@dataclass(frozen=True, slots=True)
class DataInventory:
    """Files and columns of a public folder."""

    files: tuple[tuple[str, int], ...]
    """Path inside the folder and size in bytes, sorted by path."""
    train_rows: int
    test_rows: int
    columns: tuple[Column, ...]
    """Columns of ``train.csv``, in its order."""

    @classmethod
    def of(cls, public: Path, id_column: str, target_columns: Sequence[str]) -> DataInventory:
        """Take stock of a public folder; nothing else is read.

        Raises:
            TaskError: If ``train.csv`` or ``test.csv`` cannot be read.
        """
        import pandas as pd

        def read(name: str) -> pd.DataFrame:
            try:
                return pd.read_csv(public / name, dtype={id_column: str})
            except (OSError, ValueError) as error:
                raise TaskError(f"cannot read {public / name}: {error}") from error

        train, test = read("train.csv"), read("test.csv")
        columns = []
        for name in train.columns:
            values = train[name]
            present = values.dropna()
            hidden = name in target_columns or name not in test.columns
            columns.append(
                Column(
                    name=str(name),
                    dtype=_kind(values.dtype.kind),
                    n_unique=int(present.nunique()),
                    n_missing=len(values) - len(present),
                    role="id" if name == id_column else "target" if hidden else "feature",
                    example=str(present.iloc[0]) if len(present) else "",
                )
            )
        paths = sorted(path for path in public.rglob("*") if path.is_file())
        files = tuple((path.relative_to(public).as_posix(), path.stat().st_size) for path in paths)
        return cls(files=files, train_rows=len(train), test_rows=len(test), columns=tuple(columns))

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that a solution may learn from."""
        return tuple(column for column in self.columns if column.role == "feature")

    def describe(self) -> str:
        """Return the inventory as text for an agent; numbered columns of one type, such as pixels, share a line."""
        lines = [f"- input/{name} ({_size(size)})" for name, size in self.files]
        lines += ["", f"train.csv has {self.train_rows} rows, test.csv {self.test_rows}. Columns of train.csv:", ""]
        for run in _runs(self.columns):
            first, last = run[0], run[-1]
            name = first.name if len(run) == 1 else f"{first.name} ... {last.name} ({len(run)} columns)"
            missing = sum(column.n_missing for column in run)
            distinct = f", {first.n_unique} distinct" if len(run) == 1 else ""
            note = "" if first.role == "feature" else f", {first.role}"
            example = first.example if len(first.example) <= 60 else first.example[:60] + "..."
            lines.append(f"- {name}: {first.dtype}{distinct}, {missing} missing{note}; such as {example!r}")
        return "\n".join(lines)

    def brief(self, limit: int = 40) -> str:
        """Return the columns and their types in one line, for readers with little room.

        Args:
            limit: Most entries; features beyond them are counted.
        """
        runs = _runs(self.columns)
        special = sum(run[0].role != "feature" for run in runs)
        features, entries = 0, []
        for run in runs:
            first = run[0]
            features += first.role == "feature"
            if first.role == "feature" and features > limit - special:
                continue
            name = first.name if len(run) == 1 else f"{first.name} ... {run[-1].name}"
            note = "" if first.role == "feature" else f" {first.role}"
            missing = ", with gaps" if any(column.n_missing for column in run) else ""
            entries.append(f"{name} ({first.dtype}{note}{missing})")
        left = features - max(limit - special, 0)
        return ", ".join([*entries, f"and {left} more"] if left > 0 else entries)


def _kind(kind: str) -> Literal["int", "float", "bool", "string"]:
    if kind in "iu":
        return "int"
    return "float" if kind == "f" else "bool" if kind == "b" else "string"


def _size(size: int) -> str:
    for unit, factor in _SIZES:
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"


def _runs(columns: Sequence[Column]) -> list[list[Column]]:
    """Split columns into runs that a reader can take together: five or more of a stem, a type and a role."""
    runs: list[list[Column]] = []
    for column in columns:
        if runs and _family(runs[-1][0]) == _family(column):
            runs[-1].append(column)
        else:
            runs.append([column])
    return [part for run in runs for part in ([run] if len(run) >= 5 else [[column] for column in run])]


def _family(column: Column) -> tuple[str, str, str]:
    return re.sub(r"\d+$", "#", column.name), column.dtype, column.role
