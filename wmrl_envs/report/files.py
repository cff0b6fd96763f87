"""Files of a run folder, of which any may be missing, torn or something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wmrl_envs.report.text import short_text

__all__ = ["as_object", "as_objects", "modified", "read_metrics", "read_object"]

MOST_FILE = 400_000_000
"""Bytes of a JSON or CSV file that is still read."""


def modified(path: Path) -> float:
    """Return when a file was last written, in seconds since the epoch; 0 if there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def read_object(path: Path, problems: list[str]) -> dict[str, Any]:
    """Return a file's JSON object; an empty one, with a note of the problem, if there is none to be had."""
    try:
        if path.stat().st_size > MOST_FILE:
            raise ValueError("it is too large")
        found = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as problem:
        problems.append(f"{path.name} could not be read ({short_text(str(problem), 80)})")
        return {}
    return found if isinstance(found, dict) else {}


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def as_objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a JSON list; none for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def read_metrics(path: Path, problems: list[str]) -> pd.DataFrame:
    """Return the numbers of metrics.csv by step; none where it is missing or no table."""
    empty = pd.DataFrame({"step": pd.Series(dtype=float)})
    try:
        if path.stat().st_size > MOST_FILE:
            raise ValueError("it is too large")
        rows = pd.read_csv(path, on_bad_lines="skip", encoding_errors="replace", low_memory=False)
    except FileNotFoundError:
        return empty
    except (OSError, ValueError, RecursionError) as problem:
        problems.append(f"metrics.csv could not be read ({short_text(str(problem), 80)})")
        return empty
    if "step" not in rows:
        problems.append("metrics.csv has no column step")
        return empty
    rows = rows.apply(pd.to_numeric, errors="coerce").replace([np.inf, -np.inf], np.nan).astype(float)
    rows = pd.DataFrame(rows[rows["step"].between(0, 1e12)])
    return rows.drop_duplicates("step", keep="last").sort_values("step", ignore_index=True)
