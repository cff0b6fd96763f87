"""What a task wants predicted, and how its submission is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from wmrl_envs.errors import TaskError

if TYPE_CHECKING:
    from wmrl_envs.research.metrics import Metric
    from wmrl_envs.research.task import ResearchTask

__all__ = ["Goal", "GoalKind"]

GoalKind = Literal["ranking", "probabilities", "ordinal", "number", "label"]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a task wants predicted, and how it is written down."""

    kind: GoalKind
    label: str
    """The column of ``train.csv`` to learn from."""
    target: str
    """Python expression for the values to learn, from the data frame ``train``."""
    identifier: str
    """The id column of a submission."""
    column: str
    """The column of a submission that holds the prediction (the first one, where there are several)."""
    text_ids: bool = False
    """Whether ids are numbers that lose something, such as leading zeros, if they are read as numbers."""

    def read(self, name: str, *options: str) -> str:
        """Return the statement that reads ``input/<name>.csv`` into a data frame of that name."""
        if self.text_ids:
            options = (*options, f'dtype={{"{self.identifier}": str}}')
        arguments = ", ".join([f'"input/{name}.csv"', *options])
        return f"{name} = pd.read_csv({arguments})"

    @classmethod
    def of(cls, task: ResearchTask) -> Goal:
        """Return the goal of a task.

        Raises:
            TaskError: If solutions would have to predict several things, or the positive class is not known.
        """
        labels = [column for column in task.inventory.columns if column.role == "target"]
        names = [column.name for column in labels]
        kind = _kind(task.metric, len(task.target_columns))
        if len(labels) != 1 or (len(task.target_columns) > 1 and kind != "probabilities"):
            raise TaskError(
                f"task {task.id!r}: a design space needs one column of train.csv that test.csv lacks, and one target "
                f"column (several for class probabilities); found {', '.join(names) or 'none'} and "
                f"{', '.join(task.target_columns)}"
            )
        label = labels[0]
        target = f'train["{label.name}"]'
        positive = (task.design or {}).get("positive", 1)
        if kind == "ranking" and (label.dtype not in {"int", "bool"} or positive != 1):
            if "positive" not in (task.design or {}):
                raise TaskError(
                    f"task {task.id!r}: its label {label.name!r} holds values such as {label.example!r}; name the "
                    'class whose probability is asked for, as "positive" in the design of its task.json'
                )
            value = f'"{positive}"' if isinstance(positive, str) else repr(positive)
            target = f"({target} == {value}).astype(int)"
        return cls(kind, label.name, target, task.id_column, task.target_columns[0], _has_text_ids(task))


def _has_text_ids(task: ResearchTask) -> bool:
    import pandas as pd

    path = task.public / "test.csv"
    read, exact = pd.read_csv(path), pd.read_csv(path, dtype={task.id_column: str}, keep_default_na=False)
    return bool((read[task.id_column].astype(str) != exact[task.id_column]).any())


def _kind(metric: Metric, columns: int) -> GoalKind:
    if metric.needs == "probability":
        return "probabilities" if columns > 1 else "ranking"
    if metric.needs == "number":
        return "ranking" if metric.answers == "binary" else "number"
    return "ordinal" if metric.needs == "ordinal" else "label"
