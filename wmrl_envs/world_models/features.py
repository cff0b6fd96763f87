"""What a solution's source says about itself: a set of tokens read off its syntax tree.

* `DataNames`: the names that a task's data gives a meaning to (columns, id, targets, files).
* `syntax_tokens`: the tokens of one solution; numeric constants are left out on purpose.
* `FeatureTable`: solutions as rows of a 0/1 matrix whose columns grow with the tokens seen.

A token is there or not, so the distance between two solutions is the number of tokens in which they differ. Numbers
never become tokens: a world model that reads ``n_estimators=5000`` exactly would learn the design space by heart
instead of the code, and some failures stay invisible to it, as they do to any world model.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = ["DataNames", "FeatureTable", "sorted_tokens", "syntax_tokens"]

_BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__"}
_MAX_TEXT = 60
"""Longer string constants are prose or data, not an option of some function."""
_COUNTED = (ast.For, ast.While, ast.Try, ast.With, ast.Lambda, ast.IfExp, ast.If, ast.ListComp, ast.DictComp, ast.Raise)


@dataclass(frozen=True, slots=True)
class DataNames:
    """The strings of a task that mean something to its solutions."""

    columns: frozenset[str]
    """Every column of the public tables, id and targets included."""
    identifier: str
    targets: frozenset[str]
    files: frozenset[str]
    """Names of the public files, without folders."""

    @classmethod
    def of(cls, task: ResearchTask) -> DataNames:
        """Read the names out of a task's data inventory."""
        return cls(
            columns=frozenset(
                {column.name for column in task.inventory.columns}
                | {name for name in (task.id_column, *task.target_columns) if name}
            ),
            identifier=task.id_column,
            targets=frozenset(task.target_columns),
            files=frozenset(path.rsplit("/", 1)[-1] for path, _ in task.inventory.files),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the names, JSON-able."""
        return {
            "columns": sorted(self.columns),
            "identifier": self.identifier,
            "targets": sorted(self.targets),
            "files": sorted(self.files),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> DataNames:
        """Build the names that `state_dict` returned."""
        return cls(
            columns=frozenset(state["columns"]),
            identifier=state["identifier"],
            targets=frozenset(state["targets"]),
            files=frozenset(state["files"]),
        )


def syntax_tokens(code: str, names: DataNames) -> frozenset[str]:
    """Return the tokens of one solution.

    Args:
        code: Python source that compiles (`wmrl_envs.research.grading.gate` lets nothing else through).
        names: The task's names.

    Returns:
        Tokens such as ``call:LogisticRegression``, ``kw:SimpleImputer.strategy=median``, ``column:age``,
        ``unknown-column:agee``, ``undefined:X_tran`` or ``writes-submission``.

    Raises:
        SyntaxError: If the code does not compile.
    """
    tree = ast.parse(code)
    tokens: set[str] = set()
    bound: set[str] = set()
    loaded: set[str] = set()
    subscripted: set[str] = set()
    assigned: set[str] = set()
    nodes = list(ast.walk(tree))
    # One decision of an author should not count several times: a called method is no attribute as well, an imported
    # name is no variable, and a docstring is prose.
    skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    skipped.update(id(node.func) for node in nodes if isinstance(node, ast.Call))
    imported: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name):
            (loaded if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.Call):
            tokens.update(_call_tokens(node, names))
        elif isinstance(node, ast.Attribute):
            if id(node) not in skipped:
                tokens.add(f"attribute:{node.attr}")
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and id(node) not in skipped:
                tokens.update(_text_tokens(node.value, names))
        elif isinstance(node, ast.Subscript):
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
                (subscripted if isinstance(node.ctx, ast.Load) else assigned).add(node.slice.value)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            tokens.update(_import_tokens(node, imported))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
            tokens.add(f"defines:{node.name}")
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.BinOp | ast.UnaryOp):
            tokens.add(f"operator:{type(node.op).__name__}")
        elif isinstance(node, ast.Compare):
            tokens.update(f"operator:{type(operator).__name__}" for operator in node.ops)
        elif isinstance(node, _COUNTED):
            tokens.add(f"syntax:{type(node).__name__}")
    tokens.update(f"name:{name}" for name in bound)
    tokens.update(f"undefined:{name}" for name in loaded - bound - imported - _BUILTINS)
    tokens.update(f"new-column:{name}" for name in assigned - names.columns)
    tokens.update(f"unknown-column:{name}" for name in subscripted - assigned - names.columns)
    if "file:submission.csv" in tokens and ("call:to_csv" in tokens or "call:open" in tokens or "call:write" in tokens):
        tokens.add("writes-submission")
    return frozenset(tokens)


@lru_cache(maxsize=32_768)
def sorted_tokens(code: str, names: DataNames) -> tuple[str, ...]:
    """Return a solution's tokens, memoised for all world models of a process.

    Sorted, because the order of a set of strings differs from one process to the next; interned, because solutions of
    one task share most tokens.
    """
    return tuple(sys.intern(token) for token in sorted(syntax_tokens(code, names)))


def _called(node: ast.expr) -> str | None:
    """Name under which something is called: ``pd.read_csv`` and ``read_csv`` are both ``read_csv``."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def _call_tokens(node: ast.Call, names: DataNames) -> Iterator[str]:
    called = _called(node.func)
    if called is None:
        return
    yield f"call:{called}"
    for keyword in node.keywords:
        if keyword.arg is None:
            continue
        yield f"kw:{called}.{keyword.arg}"
        value = keyword.value
        if isinstance(value, ast.Constant) and isinstance(value.value, bool | str | None):
            if value.value not in names.columns:
                yield f"kw:{called}.{keyword.arg}={str(value.value)[:_MAX_TEXT]}"
        elif isinstance(value, ast.Name | ast.Attribute | ast.Call):
            yield f"kw:{called}.{keyword.arg}:{_called(value.func if isinstance(value, ast.Call) else value)}"
    for argument in node.args:
        inner = argument.func if isinstance(argument, ast.Call) else argument
        if isinstance(inner, ast.Name):
            yield f"argument:{called}({inner.id})"
        elif isinstance(argument, ast.Dict):
            for key in argument.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield f"argument:{called}({_role(key.value, names)})"


def _role(text: str, names: DataNames) -> str:
    if text == names.identifier:
        return "<id>"
    if text in names.targets:
        return "<target>"
    return text[:_MAX_TEXT]


def _text_tokens(text: str, names: DataNames) -> Iterator[str]:
    if text in names.columns:
        yield f"column:{_role(text, names)}"
        return
    last = text.rsplit("/", 1)[-1]
    if last in names.files or last == "submission.csv":
        yield f"file:{last}"
        yield f"path:{text[:_MAX_TEXT]}"
    elif len(text) <= _MAX_TEXT:
        yield f"text:{text}"


def _import_tokens(node: ast.Import | ast.ImportFrom, imported: set[str]) -> Iterator[str]:
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        imported.add(alias.asname or alias.name.split(".")[0])
        yield f"import:{module}.{alias.name}" if module else f"import:{alias.name}"


class FeatureTable:
    """Distinct solutions of one task as rows of a 0/1 matrix.

    Solutions with equal tokens share a row. New tokens append a column, in which earlier rows are 0: distances between
    rows do not depend on the order in which tokens came.
    """

    def __init__(self, names: DataNames) -> None:
        self._names = names
        self._columns: dict[str, int] = {}
        self._rows: dict[tuple[str, ...], int] = {}
        self._codes: dict[str, int] = {}
        self._cells = np.zeros((256, 256), dtype=np.float32)

    def __len__(self) -> int:
        """Return the number of distinct rows."""
        return len(self._rows)

    def __contains__(self, code: object) -> bool:
        """Return whether this very source has a row."""
        return code in self._codes

    @property
    def tokens(self) -> tuple[str, ...]:
        """The token of each column."""
        return tuple(self._columns)

    @property
    def cells(self) -> int:
        """Size of the matrix, rows times tokens."""
        return len(self._rows) * len(self._columns)

    @property
    def matrix(self) -> NDArray[np.float32]:
        """The rows so far: float32 [rows, tokens] of 0 and 1, a view that the next `row` call may outdate."""
        return self._cells[: len(self._rows), : len(self._columns)]

    def row(self, code: str) -> int:
        """Return the row of a solution, adding it if its tokens are new."""
        known = self._codes.get(code)
        if known is not None:
            return known
        tokens = sorted_tokens(code, self._names)
        row = self._rows.get(tokens)
        if row is None:
            row = self._rows[tokens] = len(self._rows)
            indices = [self._columns.setdefault(token, len(self._columns)) for token in tokens]
            self._grow()
            self._cells[row, indices] = 1.0
        self._codes[code] = row
        return row

    def _grow(self) -> None:
        rows, columns = self._cells.shape
        if len(self._rows) <= rows and len(self._columns) <= columns:
            return
        wider = np.zeros((_room(len(self._rows), rows), _room(len(self._columns), columns)), dtype=np.float32)
        wider[:rows, :columns] = self._cells
        self._cells = wider


def _room(needed: int, present: int) -> int:
    while present < needed:
        present *= 2
    return present
