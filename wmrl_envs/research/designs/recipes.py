"""Which columns a task's tabular solutions use, and the features that a person would derive for it.

A task folder states them in ``task.json`` under ``design``, with the field names of `Recipe`. The recipes of the
bundled tasks stand here, and what neither says is derived from the public data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from wmrl_envs.errors import TaskError, did_you_mean

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = ["RECIPES", "Recipe"]

_FEW = 60
"""Most distinct values of a text column that is taken as a category."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The columns of a table, and features derived from them."""

    numeric: tuple[str, ...]
    categorical: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """Statements that add columns to the data frame ``frame``, which holds every column but the label."""
    new_numeric: tuple[str, ...] = ()
    """The numeric columns that ``lines`` add."""
    new_categorical: tuple[str, ...] = ()
    """The text columns that ``lines`` add."""
    band: str
    """Numeric column that is cut into bands."""
    edges: tuple[float, ...]
    """Band edges that cover every row, and -1 where values are missing."""
    narrow: tuple[float, ...]
    """Band edges that some row of the training or the test data lies outside of."""
    misspelt: tuple[str, str]
    """A column that ``lines`` read, and a misspelling of it."""

    @classmethod
    def of(cls, task: ResearchTask) -> Recipe:
        """Return the recipe of a task: stated by its ``design``, else bundled, else derived from its public data.

        Raises:
            TaskError: If there is no numeric column, or the design names a column that the data lack.
        """
        names = [field.name for field in fields(cls)]
        stated = {name: value for name, value in (task.design or {}).items() if name in names}
        settings: dict[str, Any] = {**_columns(task), **RECIPES.get(task.id, {}), **stated}
        _check_columns(task, settings)
        if not {"lines", "band", "edges", "narrow", "misspelt"} <= set(settings):
            settings = {**_derived(task, settings["numeric"]), **settings}
        frozen: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
        }
        return cls(**frozen)


def _columns(task: ResearchTask) -> dict[str, tuple[str, ...]]:
    features = task.inventory.features
    return {
        "numeric": tuple(column.name for column in features if column.dtype != "string"),
        "categorical": tuple(
            column.name for column in features if column.dtype == "string" and column.n_unique <= _FEW
        ),
    }


def _check_columns(task: ResearchTask, settings: Mapping[str, Any]) -> None:
    present = [column.name for column in task.inventory.features]
    for name in (*settings["numeric"], *settings["categorical"]):
        if name not in present:
            raise TaskError(
                f"task {task.id!r}: its design names the column {name!r}, which train.csv and test.csv do not share; "
                f"they share {', '.join(present)}.{did_you_mean(name, present)}"
            )
    if not settings["numeric"]:
        raise TaskError(
            f"task {task.id!r} has no numeric column, so the tabular family has no solutions for it; "
            'leave "design" out of its task.json, or state a family that suits it'
        )


def _derived(task: ResearchTask, numeric: tuple[str, ...]) -> dict[str, Any]:
    """Return plain features for data that nobody wrote a recipe for: a logarithm, a product, quintile bands."""
    import pandas as pd

    values = pd.read_csv(task.public / "train.csv")[list(numeric)]
    distinct = values.nunique()
    first, second = numeric[0], numeric[min(1, len(numeric) - 1)]
    band = str(distinct.idxmax())
    low, high = float(values[band].min()), float(values[band].max())
    inner = np.unique(np.round(values[band].quantile([0.2, 0.4, 0.6, 0.8]).to_numpy(), 6)).tolist()
    width = max(high - low, 1.0)
    start = min(low, -1.0) - width
    other = first.swapcase() if first.swapcase() != first else f"{first}_value"
    return {
        "lines": (
            f'frame["{first}_log"] = np.log1p(frame["{first}"].clip(lower=0))',
            f'frame["{first}_{second}"] = frame["{first}"] * frame["{second}"]',
        ),
        "new_numeric": (f"{first}_log", f"{first}_{second}"),
        "band": band,
        "edges": (start, *inner, high + width),
        "narrow": (start, *inner[:-1], (inner[-1] + high) / 2.0),
        "misspelt": (first, other),
    }


RECIPES: dict[str, dict[str, Any]] = {
    "titanic": {
        "lines": (
            'frame["title"] = frame["name"].str.extract(r", (\\w+)\\.", expand=False).fillna("none")',
            'frame["family"] = frame["sibsp"] + frame["parch"] + 1',
            'frame["fare_each"] = np.log1p(frame["fare"].clip(lower=0) / frame["family"])',
            'frame["alone"] = (frame["family"] == 1).astype(int)',
        ),
        "new_numeric": ("family", "fare_each", "alone"),
        "new_categorical": ("title",),
        "band": "age",
        "edges": (-2, 0, 8, 16, 30, 45, 60, 100),
        "narrow": (-2, 0, 8, 16, 30, 45, 60, 76),
        "misspelt": ("fare", "Fare"),
    },
    "weather": {
        "lines": (
            'day = pd.to_datetime(frame["date"])',
            'frame["year"] = day.dt.year',
            'frame["season"] = np.cos(2 * np.pi * (day.dt.day_of_year - 200) / 365.25)',
            'frame["temp_range"] = frame["temp_max"] - frame["temp_min"]',
            'frame["wet"] = (frame["precipitation"] > 0).astype(int)',
        ),
        "new_numeric": ("year", "season", "temp_range", "wet"),
        "band": "temp_min",
        "edges": (-20, 0, 4, 8, 12, 40),
        "narrow": (-7, 0, 4, 8, 12, 40),
        "misspelt": ("temp_max", "temp_maximum"),
    },
    "anes96": {
        "lines": (
            'frame["to_clinton"] = (frame["selfLR"] - frame["ClinLR"]).abs()',
            'frame["to_dole"] = (frame["selfLR"] - frame["DoleLR"]).abs()',
            'frame["lean"] = (frame["to_clinton"] - frame["to_dole"]) * (frame["vote"] == "Dole")',
            'frame["city"] = np.log1p(frame["popul"])',
        ),
        "new_numeric": ("to_clinton", "to_dole", "lean", "city"),
        "band": "age",
        "edges": (18, 30, 45, 60, 75, 120),
        "narrow": (18, 30, 45, 60, 75, 85),
        "misspelt": ("selfLR", "SelfLR"),
    },
    "abalone": {
        "lines": (
            'frame["volume"] = frame["length"] * frame["diameter"] * frame["height"]',
            'frame["shell_share"] = frame["shell_weight"] / frame["whole_weight"]',
            'frame["meat_share"] = frame["shucked_weight"] / frame["whole_weight"]',
            'frame["shell_log"] = np.log(frame["shell_weight"])',
        ),
        "new_numeric": ("volume", "shell_share", "meat_share", "shell_log"),
        "band": "length",
        "edges": (0, 0.3, 0.4, 0.5, 0.6, 0.7, 1.0),
        "narrow": (0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
        "misspelt": ("whole_weight", "total_weight"),
    },
    "arrests": {
        "lines": (
            'frame["clean"] = (frame["checks"] == 0).astype(int)',
            'frame["young"] = (frame["age"] < 21).astype(int)',
            'frame["checks_by_age"] = frame["checks"] / frame["age"]',
            'frame["group"] = frame["colour"] + "-" + frame["employed"]',
        ),
        "new_numeric": ("clean", "young", "checks_by_age"),
        "new_categorical": ("group",),
        "band": "age",
        "edges": (0, 18, 21, 25, 30, 40, 120),
        "narrow": (0, 18, 21, 25, 30, 40, 60),
        "misspelt": ("age", "Age"),
    },
    "flights": {
        "lines": (
            'frame["day"] = pd.to_datetime(frame["date"]).dt.day_of_year',
            'frame["hour"] = frame["sched_dep_time"] // 100',
            'frame["evening"] = (frame["hour"] >= 16).astype(int)',
            'frame["storm"] = frame["wind_speed"] * (10 - frame["visib"])',
        ),
        "new_numeric": ("day", "hour", "evening", "storm"),
        "band": "pressure",
        "edges": (-2, 1005, 1012, 1018, 1024, 1100),
        "narrow": (-2, 1005, 1012, 1018, 1024, 1041),
        "misspelt": ("sched_dep_time", "dep_time"),
    },
    "randhie": {
        "lines": (
            'frame["child"] = (frame["age"] < 12).astype(int)',
            'frame["income_each"] = np.log1p(frame["income"].clip(lower=0) / frame["family"])',
            'frame["woman"] = ((frame["sex"] == "female") & (frame["age"] > 16)).astype(int)',
            'frame["burden"] = frame["disea"] * (1 + frame["physlm"])',
        ),
        "new_numeric": ("child", "income_each", "woman", "burden"),
        "band": "income",
        "edges": (-2, 4000, 8000, 12000, 16000, 100000),
        "narrow": (-2, 4000, 8000, 12000, 16000, 26000),
        "misspelt": ("income", "Income"),
    },
}
