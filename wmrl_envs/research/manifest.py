"""The metadata of a task folder: ``task.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wmrl_envs.errors import ConfigurationError, TaskError, did_you_mean
from wmrl_envs.research.limits import Limits
from wmrl_envs.research.metrics import metric_named

__all__ = ["FIELDS", "KINDS", "read_manifest"]

KINDS = ("tabular-classification", "tabular-regression", "ordinal", "text", "image")

_TEXTS = ("id", "title", "kind", "metric", "license", "source")

FIELDS = ("format", *_TEXTS, "id_column", "target_columns", "label_column", "limits", "design")
"""Every field that is read; a file may hold more."""


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the checked fields of a ``task.json``, under the names and in the types of ``ResearchTask``.

    Raises:
        TaskError: If the file cannot be read or a field is missing or wrong; the message names both.
    """
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TaskError(f"cannot read {path}: {error}") from error
    if not isinstance(manifest, dict):
        raise TaskError(f"{path} must hold one JSON object")
    try:
        return _checked(manifest)
    except (TaskError, ConfigurationError) as error:
        raise TaskError(f"{path}: {error}") from error


def _checked(manifest: Mapping[str, Any]) -> dict[str, Any]:
    if manifest.get("format") != 1:
        raise TaskError(f"format {manifest.get('format')!r} is unknown; this version reads format 1")
    texts = {name: _text(manifest, name) for name in _TEXTS}
    metric = metric_named(texts.pop("metric"))
    if texts["kind"] not in KINDS:
        raise TaskError(
            f"unknown kind {texts['kind']!r}; the kinds are {', '.join(KINDS)}.{did_you_mean(texts['kind'], KINDS)}"
        )
    id_column = _text(manifest, "id_column", default="id")
    targets = manifest.get("target_columns")
    if not isinstance(targets, list) or not targets or not all(isinstance(name, str) and name for name in targets):
        raise TaskError(f"target_columns must be a list of column names, got {targets!r}")
    if len({id_column, "half", *targets}) != len(targets) + 2:
        raise TaskError("id_column, target_columns and 'half' must all be different names")
    if len(targets) > 1 and not metric.several_columns:
        raise TaskError(f"{metric.name} scores one target column, target_columns names {len(targets)}")
    design, limits = manifest.get("design"), manifest.get("limits", {})
    if not isinstance(design, dict | None) or not isinstance(limits, dict):
        raise TaskError("design must be an object or null, and limits an object")
    label = manifest.get("label_column", targets[0] if len(targets) == 1 else None)
    if not isinstance(label, str | None):
        raise TaskError(f"label_column must be the name of a column of train.csv or null, got {label!r}")
    return {
        **texts,
        "id_column": id_column,
        "target_columns": tuple(targets),
        "label_column": label,
        "metric": metric,
        "limits": Limits().override(limits),
        "design": design,
    }


def _text(manifest: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = manifest.get(name, default)
    if not isinstance(value, str) or not value:
        raise TaskError(f"{name!r} must be a text, got {value!r}")
    return value
