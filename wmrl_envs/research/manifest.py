"""The metadata of a task folder: ``task.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wmrl_envs.errors import ConfigurationError, TaskError, did_you_mean
from wmrl_envs.research.command import COMMAND_FIELDS, CommandScorer
from wmrl_envs.research.leaderboard import ScoreScale
from wmrl_envs.research.limits import Limits
from wmrl_envs.research.metrics import external_metric, metric_named
from wmrl_envs.research.submission import AnswersScorer

__all__ = ["GRADERS", "KINDS", "fields_of", "read_manifest"]

KINDS = ("tabular-classification", "tabular-regression", "ordinal", "text", "image")
"""Kinds of tasks that a design space may have; a task that a command grades may also be of the kind ``"code"``."""

GRADERS = ("answers", "command")
"""What scores a submission: ``private/answers.csv`` by one of our metrics, or a command of the task's author."""

_TEXTS = ("id", "title", "kind", "metric", "license", "source")
_COMMON = ("format", *_TEXTS, "grader", "limits")
_ANSWERS_FIELDS = ("design", "id_column", "label_column", "target_columns")


def fields_of(grader: object) -> tuple[str, ...]:
    """Return every field that is read where a task has this grader; a file may hold more."""
    return (*_COMMON, *(COMMAND_FIELDS if grader == "command" else _ANSWERS_FIELDS))


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
    grader, limits = manifest.get("grader", "answers"), manifest.get("limits", {})
    if grader not in GRADERS:
        raise TaskError(
            f"unknown grader {grader!r}; the graders are {', '.join(GRADERS)}.{did_you_mean(str(grader), GRADERS)}"
        )
    kinds = (*KINDS, "code") if grader == "command" else KINDS
    if texts["kind"] not in kinds:
        raise TaskError(
            f"unknown kind {texts['kind']!r}; the kinds are {', '.join(kinds)}.{did_you_mean(texts['kind'], kinds)}"
        )
    if not isinstance(limits, dict):
        raise TaskError(f"limits must be an object, got {limits!r}")
    design = manifest.get("design")
    if not isinstance(design, dict | None):
        raise TaskError(f"design must be an object or null, got {design!r}")
    read = _by_command if grader == "command" else _by_answers
    return texts | {"limits": Limits().override(limits), "design": design} | read(manifest, texts["metric"])


def _by_answers(manifest: Mapping[str, Any], metric_name: str) -> dict[str, Any]:
    metric = metric_named(metric_name)
    id_column = _text(manifest, "id_column", default="id")
    targets = manifest.get("target_columns")
    if not isinstance(targets, list) or not targets or not all(isinstance(name, str) and name for name in targets):
        raise TaskError(f"target_columns must be a list of column names, got {targets!r}")
    if len({id_column, "half", *targets}) != len(targets) + 2:
        raise TaskError("id_column, target_columns and 'half' must all be different names")
    if len(targets) > 1 and not metric.several_columns:
        raise TaskError(f"{metric.name} scores one target column, target_columns names {len(targets)}")
    label = manifest.get("label_column", targets[0] if len(targets) == 1 else None)
    if not isinstance(label, str | None):
        raise TaskError(f"label_column must be the name of a column of train.csv or null, got {label!r}")
    return {
        "id_column": id_column,
        "target_columns": tuple(targets),
        "label_column": label,
        "metric": metric,
        "scorer": AnswersScorer(),
    }


def _by_command(manifest: Mapping[str, Any], metric_name: str) -> dict[str, Any]:
    greater, scale = manifest.get("greater_is_better"), manifest.get("scale")
    if not isinstance(greater, bool):
        raise TaskError(f"greater_is_better must be true or false where a command grades, got {greater!r}")
    fields: dict[str, Any] = {
        "metric": external_metric(metric_name, greater),
        "scorer": CommandScorer.from_manifest(manifest),
    }
    if scale is None:
        return fields
    if not isinstance(scale, dict) or set(scale) != {"zero", "one"}:
        raise TaskError(f'scale must be {{"zero": SCORE, "one": SCORE}}, got {scale!r}')
    board = ScoreScale(scale["zero"], scale["one"])
    if (board.one > board.zero) is not greater:
        raise TaskError(
            f"scale runs from {board.zero:g} to {board.one:g}, and greater_is_better is {str(greater).lower()}; "
            "'one' is the better of the two"
        )
    return fields | {"leaderboard": board}


def _text(manifest: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = manifest.get(name, default)
    if not isinstance(value, str) or not value:
        raise TaskError(f"{name!r} must be a text, got {value!r}")
    return value
