"""Files that every kind of run leaves in its folder."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from wmrl_envs.files import replacing, write_json

__all__ = ["versions", "write_calibration", "write_metrics"]


def write_metrics(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the rows as CSV, whole; a column is empty where a row lacks it."""
    with replacing(path) as temporary:
        pd.DataFrame(rows).to_csv(temporary, index=False)


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
