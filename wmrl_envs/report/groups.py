"""Runs of one configuration but for the seed are one curve; a group is named by what sets it apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wmrl_envs.report.folder import Run
from wmrl_envs.report.text import short_text

__all__ = ["Group", "base_name", "differing", "grouped", "shown"]

_NOT_THE_METHOD = ("seed", "checkpoint_every", "isolation", "videos")
"""Settings that change no curve, and so never set runs apart."""


@dataclass(frozen=True)
class Group:
    """Runs that differ in the seed alone."""

    name: str
    runs: list[Run]


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Return the groups in the order of their first runs."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        key = {name: value for name, value in run.config.items() if name not in _NOT_THE_METHOD}
        found.setdefault(json.dumps(key, sort_keys=True, default=str), []).append(run)
    together = list(found.values())
    apart = [name for name in differing([group[0].config for group in together]) if name not in _NOT_THE_METHOD]
    names = [_name(group[0].config, apart) for group in together]
    return [
        Group(name if names.count(name) == 1 else f"{name} ({place + 1})", group)
        for place, (name, group) in enumerate(zip(names, together, strict=True))
    ]


def differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings that are not the same in all configurations, in the order in which they first occur."""
    names = list(dict.fromkeys(name for config in configs for name in config))
    return [
        name
        for name in names
        if len({json.dumps(config.get(name, "\0"), sort_keys=True, default=str) for config in configs}) > 1
    ]


def shown(value: Any) -> str:
    """Return a setting's value as a table shows it."""
    if value is None:
        return "unset"
    if value == "":
        return "(empty)"
    return short_text(value if isinstance(value, str) else json.dumps(value, default=str), 200)


def _name(config: Mapping[str, Any], apart: Sequence[str]) -> str:
    """Return ``rectified, warmup 60``: the scheme's and the task's names speak for themselves."""
    if not apart:
        apart = ("reward",)
    own = ("task", "tasks", "reward", "agent")
    words = [
        base_name(config.get(name)) if name in own else f"{name.replace('_', ' ')} {shown(config.get(name))}"
        for name in apart
        if name in config
    ]
    return short_text(", ".join(words), 80) or "run"


def base_name(value: Any) -> str:
    """Return the names of tasks without the folders that they lie in."""
    names = [Path(part.strip()).name for part in str(value).split(",")]
    return short_text(", ".join(names), 60)
