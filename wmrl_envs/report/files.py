"""Files of a run folder, of which any may be missing, torn or something else."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wmrl_envs.report.text import short_text

__all__ = ["as_object", "as_objects", "modified", "read_json", "read_metrics", "read_object", "read_text"]

MOST_FILE = 400_000_000
"""Bytes of a JSON or CSV file that is still read."""


def modified(path: Path) -> float:
    """Return when a file was last written, in seconds since the epoch; 0 if there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def read_text(path: Path) -> str:
    """Return a file's text.

    Raises:
        OSError: If there is none, or it cannot be read.
        ValueError: If it is no ordinary file, such as a pipe, which would never end, or it is too large.
    """
    size = path.stat().st_size
    if not path.is_file():
        raise ValueError("it is no ordinary file")
    if size > MOST_FILE:
        raise ValueError("it is too large")
    return path.read_text(encoding="utf-8", errors="replace")


def read_json(path: Path, problems: list[str]) -> Any:
    """Return what a JSON file holds; ``None``, with a note of the problem, if there is none to be had."""
    try:
        return json.loads(read_text(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as problem:
        problems.append(f"{path.name} could not be read ({_words(problem)})")
        return None


def _words(problem: Exception) -> str:
    words = problem.strerror if isinstance(problem, OSError) else None
    return short_text(words or str(problem), 80)


def read_object(path: Path, problems: list[str]) -> dict[str, Any]:
    """Return a file's JSON object; an empty one, with a note of the problem, if there is none to be had."""
    found = read_json(path, problems)
    if found is not None and not isinstance(found, dict):
        problems.append(f"{path.name} holds no values by name")
    return as_object(found)


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
        rows = pd.read_csv(io.StringIO(read_text(path)), on_bad_lines="skip", low_memory=False)
    except FileNotFoundError:
        return empty
    except (OSError, ValueError, RecursionError) as problem:
        problems.append(f"metrics.csv could not be read ({_words(problem)})")
        return empty
    if "step" not in rows:
        problems.append("metrics.csv has no column step")
        return empty
    rows = rows.apply(pd.to_numeric, errors="coerce").replace([np.inf, -np.inf], np.nan).astype(float)
    known = rows["step"].between(0, 1e12)
    if not known.all():
        problems.append(f"{int((~known).sum()):,} rows of metrics.csv have no valid step and are left out")
    rows = pd.DataFrame(rows[known])
    return rows.drop_duplicates("step", keep="last").sort_values("step", ignore_index=True)
