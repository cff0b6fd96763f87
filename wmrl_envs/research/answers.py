"""The private answers of a task, ready to score submissions against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import TaskError
from wmrl_envs.research.leaderboard import HALVES, Half
from wmrl_envs.research.metrics import Metric
from wmrl_envs.research.table import TableError, finite_numbers, read_table, shown

__all__ = ["Answers"]

MAX_ORDINAL_RANGE = 1000
"""Most classes between the lowest and the highest of an ordinal target; the kappa's matrix is their square."""


class Answers:
    """Answers by id, split in two halves: one gives the training reward, the other the reported score.

    Args:
        ids: Every id of the test set, as text, in the file's order.
        columns: Text of each target column, in the order of ``ids``.
        halves: ``"train"`` or ``"report"`` for each id.
        metric: The metric they are scored by; it must exist on each half.

    Raises:
        TaskError: If an id appears twice, a value cannot be an answer, or the metric does not exist on a half.
    """

    def __init__(
        self, ids: Sequence[str], columns: Mapping[str, Sequence[str]], halves: Sequence[str], metric: Metric
    ) -> None:
        self.metric = metric
        self.ids = tuple(ids)
        self.target_columns = tuple(columns)
        self.index = {identifier: place for place, identifier in enumerate(self.ids)}
        if len(self.index) != len(self.ids):
            twice = next(identifier for place, identifier in enumerate(self.ids) if self.index[identifier] != place)
            raise TaskError(f"the id {shown(twice)} appears twice")
        self.class_names: tuple[str, ...] = ()
        """Names of the classes where the target is a label, by index; empty otherwise."""
        self._numeric_classes = False
        self.values = self._read_values(columns)
        """float64 ``[n]`` or ``[n, k]``, or int64 ``[n]`` class indices where the target is a label."""
        for half in set(halves) - set(HALVES):
            raise TaskError(f"the column 'half' holds {shown(half)}; it says 'train' or 'report' for each id")
        marks = np.array(halves)
        self.rows: dict[Half, NDArray[np.intp]] = {half: np.flatnonzero(marks == half) for half in HALVES}
        """Places of each half in ``ids``."""
        self._of_half = {half: self.values[rows] for half, rows in self.rows.items()}
        for half in HALVES:
            problem = _problem(metric, self._of_half[half])
            if problem is not None:
                raise TaskError(f"{metric.name} cannot be computed on the {half} half of the answers: {problem}")

    @classmethod
    def load(cls, path: Path, id_column: str, target_columns: Sequence[str], metric: Metric) -> Answers:
        """Read ``private/answers.csv``: the id column, the target columns and ``half``.

        Raises:
            TaskError: If the file cannot be read or its answers cannot be scored; the message names the file.
        """
        try:
            table = read_table(path.read_bytes())
            missing = [name for name in (id_column, *target_columns, "half") if name not in table]
            if missing:
                raise TaskError(f"it lacks the columns {missing}")
            columns = {name: table[name] for name in target_columns}
            return cls(table[id_column], columns, table["half"], metric)
        except (OSError, TableError, TaskError) as error:
            raise TaskError(f"the answers {path} cannot be used: {error}") from error

    def _read_values(self, columns: Mapping[str, Sequence[str]]) -> NDArray[Any]:
        if len(columns) != 1 and not self.metric.several_columns:
            raise TaskError(f"{self.metric.name} scores one target column, the task has {len(columns)}")
        if self.metric.needs == "label":
            return self._read_classes(next(iter(columns.values())))
        read = []
        for name, texts in columns.items():
            try:
                read.append(finite_numbers(texts))
            except ValueError as error:
                raise TaskError(f"in the target column {name!r} {error}") from None
        return read[0] if len(read) == 1 else np.column_stack(read)

    def _read_classes(self, texts: Sequence[str]) -> NDArray[np.int64]:
        if "" in texts:
            raise TaskError("a class is missing")
        try:
            numbers = finite_numbers(texts)
        except ValueError:
            self._class_of: dict[Any, int] = {name: place for place, name in enumerate(sorted(set(texts)))}
            self.class_names = tuple(self._class_of)
            return np.array([self._class_of[text] for text in texts], dtype=np.int64)
        classes, indices = np.unique(numbers, return_inverse=True)
        self._numeric_classes = True
        self._class_of = {float(number): place for place, number in enumerate(classes)}
        self.class_names = tuple(f"{number:g}" for number in classes)
        return indices.astype(np.int64)

    def read_submitted(self, columns: Mapping[str, Sequence[str]]) -> NDArray[Any]:
        """Return the values of a submission in the form that the metric takes, in the submission's own order.

        Args:
            columns: Text of each target column of the submission.

        Raises:
            ValueError: If a value is not what the metric needs; the message says which, and nothing about the answers.
        """
        if self.metric.needs == "label":
            (texts,) = (columns[name] for name in self.target_columns)
            return self._submitted_classes(texts)
        read = []
        for name in self.target_columns:
            try:
                read.append(finite_numbers(columns[name]))
            except ValueError as error:
                raise ValueError(f"in column {name!r} {error}") from None
        values = read[0] if len(read) == 1 else np.column_stack(read)
        if self.metric.needs == "probability":
            return _probabilities(values)
        if self.metric.needs == "ordinal":
            return np.clip(np.rint(values), self.values.min(), self.values.max())
        return values

    def _submitted_classes(self, texts: Sequence[str]) -> NDArray[np.int64]:
        name = self.target_columns[0]
        if not self._numeric_classes:
            if "" in texts:
                raise ValueError(f"in column {name!r} a value is missing")
            return np.array([self._class_of.get(text, -1) for text in texts], dtype=np.int64)
        try:
            numbers = finite_numbers(texts)
        except ValueError as error:
            raise ValueError(f"in column {name!r} {error}, and the classes are numbers") from None
        return np.array([self._class_of.get(number, -1) for number in numbers.tolist()], dtype=np.int64)

    def score(self, submitted: NDArray[Any], half: Half) -> float:
        """Return the metric on one half; it may be infinite or NaN where the submitted numbers overflow.

        Args:
            submitted: Values in the order of ``ids``, as ``read_submitted`` gives them.
            half: Which half of the answers.
        """
        return self.metric.score(self._of_half[half], submitted[self.rows[half]])

    def __len__(self) -> int:
        return len(self.ids)


def _probabilities(values: NDArray[np.float64]) -> NDArray[np.float64]:
    if values.min(initial=0.0) < 0.0:
        raise ValueError("a probability is below 0")
    if values.ndim == 1:
        if values.max(initial=0.0) > 1.0:
            raise ValueError("a probability is above 1")
        return values
    with np.errstate(over="ignore"):
        sums = values.sum(axis=1, keepdims=True)
    if not ((sums > 0.0) & np.isfinite(sums)).all():
        raise ValueError("the probabilities of a row must have a positive, finite sum")
    normalised: NDArray[np.float64] = values / sums
    return normalised


def _problem(metric: Metric, values: NDArray[Any]) -> str | None:
    """Say why a metric does not exist on these answers, or return None."""
    if len(values) == 0:
        return "it is empty"
    if metric.needs == "probability" and not np.isin(values, (0.0, 1.0)).all():
        return "an answer is neither 0 nor 1"
    if values.ndim == 2 and metric.answers == "classes":
        if not (values.sum(axis=1) == 1.0).all():
            return "exactly one class of each row must be 1"
        values = values.argmax(axis=1)
    if metric.needs == "ordinal":
        if not (values == np.rint(values)).all():
            return "an ordinal class is no whole number"
        if np.ptp(values) >= MAX_ORDINAL_RANGE:
            return f"its classes span {int(np.ptp(values)) + 1} numbers, at most {MAX_ORDINAL_RANGE} are scored"
    if metric.answers == "binary" and set(np.unique(values).tolist()) != {0.0, 1.0}:
        return "it must hold both 0 and 1, and nothing else"
    if metric.answers == "classes" and len(np.unique(values)) < 2:
        return "it holds one class only"
    if metric.answers == "non-negative" and values.min() < 0.0:
        return "it holds a number below 0"
    if metric.answers == "varying" and (np.ptp(values, axis=0) == 0.0).any():
        return "all its numbers are equal"
    return None
