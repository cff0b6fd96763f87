"""What a task's public folder holds, without its rows."""

from __future__ import annotations

import re
import zipfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from wmrl_envs.errors import TaskError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Column", "DataInventory", "data_files"]

MANY_FILES = 20
"""More files than these of one folder and ending are counted, not listed."""
SHOWN_MEMBERS = 10
"""Names of an archive that are listed."""
MOST_HEADER = 400
"""Longest header line that is shown, in characters."""
_SIZES = (("MB", 2**20), ("kB", 2**10))


def data_files(folder: Path) -> list[Path]:
    """Return the files of a folder and those below it, sorted, without what installers compile of Python files."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")


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
    """Path inside the folder and size in bytes, sorted by path; many files of one folder and ending, such as images,
    are one entry: ``"images/*.png (5000 files)"``, with the size of all."""
    train_rows: int
    test_rows: int
    columns: tuple[Column, ...]
    """Columns of ``train.csv``, in its order; none where there is no such file."""
    archives: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Path of each zip archive, and the first names in it."""
    tables: tuple[tuple[str, str], ...] = ()
    """Path and header line of each other CSV file, where ``train.csv`` or ``test.csv`` is missing."""

    @classmethod
    def of(cls, public: Path, id_column: str, target_columns: Sequence[str]) -> DataInventory:
        """Take stock of a public folder; nothing else is read.

        Raises:
            TaskError: If ``train.csv`` or ``test.csv`` is there and cannot be read.
        """
        import pandas as pd

        def read(name: str) -> pd.DataFrame | None:
            if not (public / name).is_file():
                return None
            try:
                return pd.read_csv(public / name, dtype={id_column: str})
            except (OSError, ValueError) as error:
                raise TaskError(f"cannot read {public / name}: {error}") from error

        paths = data_files(public)
        found = [(path.relative_to(public).as_posix(), path) for path in paths]
        train, test = read("train.csv"), read("test.csv")
        whole = train is not None and test is not None
        return cls(
            files=_collapsed([(name, path.stat().st_size) for name, path in found]),
            train_rows=0 if train is None else len(train),
            test_rows=0 if test is None else len(test),
            columns=() if train is None else _columns(train, test, id_column, target_columns),
            archives=tuple((name, _members(path)) for name, path in found if name.endswith(".zip")),
            tables=() if whole else _headers([(name, path) for name, path in found if name.endswith(".csv")]),
        )

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that a solution may learn from."""
        return tuple(column for column in self.columns if column.role == "feature")

    def describe(self) -> str:
        """Return the inventory as text for an agent; numbered columns of one type, such as pixels, share a line."""
        lines = [f"- input/{name} ({_size(size)})" for name, size in self.files]
        lines += [f"\ninput/{name} holds {', '.join(members)}." for name, members in self.archives]
        lines += [f"\nColumns of input/{name}: {header}" for name, header in self.tables]
        if not self.columns:
            return "\n".join(lines)
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


def _columns(
    train: pd.DataFrame, test: pd.DataFrame | None, id_column: str, target_columns: Sequence[str]
) -> tuple[Column, ...]:
    columns = []
    for name in train.columns:
        values = train[name]
        present = values.dropna()
        hidden = name in target_columns or (test is not None and name not in test.columns)
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
    return tuple(columns)


def _collapsed(files: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Make one entry of many files of one folder and one ending."""
    families = defaultdict(list)
    for name, size in files:
        folder, _, base = name.rpartition("/")
        families[folder, base.rpartition(".")[2] if "." in base else ""].append((name, size))
    entries = []
    for (folder, ending), members in families.items():
        if len(members) <= MANY_FILES:
            entries += members
            continue
        pattern = f"{folder}/*" if folder else "*"
        name = f"{pattern}.{ending}" if ending else pattern
        entries.append((f"{name} ({len(members)} files)", sum(size for _, size in members)))
    return tuple(sorted(entries))


def _members(path: Path) -> tuple[str, ...]:
    """Return the first names in a zip archive, and how many more there are."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
    except (OSError, zipfile.BadZipFile, NotImplementedError):
        return ("nothing that can be read",)
    more = len(names) - SHOWN_MEMBERS
    return (*names[:SHOWN_MEMBERS], *([f"and {more} more"] if more > 0 else []))


def _headers(tables: Sequence[tuple[str, Path]]) -> tuple[tuple[str, str], ...]:
    headers = []
    for name, path in tables[:MANY_FILES]:
        with path.open(encoding="utf-8", errors="replace") as file:
            header = file.readline(MOST_HEADER + 1).strip()
        headers.append((name, header if len(header) <= MOST_HEADER else header[:MOST_HEADER] + "..."))
    return tuple(headers)


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
