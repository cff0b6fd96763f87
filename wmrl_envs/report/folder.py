"""What a run folder holds, read without trust: a run that goes on, was killed, or is by another program."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.report.episodes import Episode, aligned, number, read_episodes
from wmrl_envs.report.files import as_object, as_objects, modified, read_json, read_metrics, read_object, read_text
from wmrl_envs.report.text import short_text

__all__ = ["Map", "Pairs", "Run", "State", "find_runs", "read_run", "read_runs", "tell_apart"]

STALE_SECONDS = 900.0
"""A run without a summary that wrote nothing for so long is taken for stopped."""
_WHAT_IT_IS = "a run folder is what wmrl train leaves: it holds config.json, and metrics.csv once a step is done"

State = Literal["finished", "going", "stopped"]


@dataclass(frozen=True)
class Pairs:
    """Episodes that were both predicted and executed, all arrays [n]."""

    step: np.ndarray
    predicted: np.ndarray
    real: np.ndarray


@dataclass(frozen=True)
class Map:
    """A calibration map at a step: its knots."""

    step: int
    predicted: list[float]
    real: list[float]


@dataclass(frozen=True)
class Run:
    """One run folder."""

    folder: Path
    name: str
    kind: Literal["research", "robot"]
    state: State
    config: dict[str, Any]
    versions: dict[str, str]
    before: dict[str, Any]
    after: dict[str, Any]
    summary: dict[str, Any]
    rows: pd.DataFrame
    """metrics.csv: numbers alone, one row a step, in order."""
    pairs: Pairs
    maps: list[Map]
    episodes: list[Episode]
    episodes_written: int
    videos: list[Path]
    best: list[dict[str, Any]]
    """Per task: ``task``, ``status``, ``reward``, ``score``, ``report_reward``, ``code``, where known."""
    modified: float
    """Seconds since the epoch at which anything was last written."""
    problems: list[str] = field(default_factory=list)

    @property
    def step(self) -> int:
        """Steps done."""
        return int(self.rows["step"].iloc[-1]) if len(self.rows) else 0

    @property
    def steps(self) -> int | None:
        """Steps planned, where the configuration says so."""
        planned = number(self.config.get("steps"))
        return None if planned is None else int(planned)


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the run folders that are meant: each path, or those directly inside it where it is none itself.

    Raises:
        ConfigurationError: If a path is no run folder and holds none; it says what one is.
    """
    found: list[Path] = []
    for path in paths:
        inside = [path] if (path / "config.json").is_file() else _inside(path)
        found += [folder for folder in inside if folder not in found]
    return found


def _inside(path: Path) -> list[Path]:
    if not path.is_dir():
        problem = "is a file" if path.exists() else "does not exist"
        raise ConfigurationError(f"{path} {problem}; {_WHAT_IT_IS}")
    try:
        inside = sorted(file.parent for file in path.glob("*/config.json") if (file.parent / "metrics.csv").is_file())
    except OSError as problem:
        raise ConfigurationError(f"{path} cannot be read: {problem.strerror}; {_WHAT_IT_IS}") from problem
    if not inside:
        raise ConfigurationError(f"{path} holds no config.json, and no folder in it is a run; {_WHAT_IT_IS}")
    return inside


def read_runs(folders: Sequence[Path], *, episodes: int) -> list[Run]:
    """Read runs; two folders of one name are told apart by the folders above them.

    Args:
        folders: Run folders.
        episodes: Episodes to keep of all of them together.

    Raises:
        ConfigurationError: If a folder's config.json cannot be read.
    """
    runs = [read_run(folder, episodes=max(8, episodes // max(1, len(folders)))) for folder in folders]
    return tell_apart(runs)


def tell_apart(runs: Sequence[Run]) -> list[Run]:
    """Return the runs, those of equal names with the names of the folders above them."""
    names = [run.name for run in runs]
    return [replace(run, name=_longer(run)) if names.count(run.name) > 1 else run for run in runs]


def _longer(run: Run) -> str:
    return short_text("/".join(run.folder.absolute().parts[-3:]))


def read_run(folder: Path, *, episodes: int = 400) -> Run:
    """Read a run folder; only its config.json must be there.

    Args:
        folder: The run folder.
        episodes: Episodes of trajectories.jsonl to keep.

    Raises:
        ConfigurationError: If config.json is missing, unreadable or no JSON object.
    """
    problems: list[str] = []
    config = _config(folder)
    read = {name: read_object(folder / f"{name}.json", problems) for name in ("versions", "before", "summary", "after")}
    summary = read["summary"]
    rows = read_metrics(folder / "metrics.csv", problems)
    found = read_episodes(folder / "trajectories.jsonl", episodes)
    if found.damaged:
        problems.append(f"{found.damaged} lines of trajectories.jsonl could not be read")
    calibration = read_object(folder / "calibration.json", problems)
    newest = max((modified(folder / name) for name in _FILES), default=0.0)
    return Run(
        folder=folder,
        name=short_text(folder.absolute().name),
        kind="robot" if "tasks" in config and "task" not in config else "research",
        state="finished" if summary else "going" if time.time() - newest < STALE_SECONDS else "stopped",
        config=config,
        versions={short_text(name, 40): short_text(value, 40) for name, value in read["versions"].items()},
        before=read["before"],
        after=as_object(summary.get("after")) or read["after"],
        summary=summary,
        rows=rows,
        pairs=_pairs(calibration, found.chosen),
        maps=_maps(folder, calibration, rows, problems),
        episodes=found.chosen,
        episodes_written=found.total,
        videos=_videos(folder),
        best=[_best(folder, entry) for entry in as_objects(summary.get("best_solutions"))[:50]],
        modified=newest,
        problems=problems,
    )


_FILES = ("config.json", "before.json", "after.json", "metrics.csv", "summary.json", "trajectories.jsonl")


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(read_text(path))
    except OSError as problem:
        raise ConfigurationError(f"{path} cannot be read: {problem.strerror}; {_WHAT_IT_IS}") from problem
    except (ValueError, RecursionError) as problem:
        raise ConfigurationError(f"{path} is damaged: {problem}; {_WHAT_IT_IS}") from problem
    if not isinstance(config, dict):
        raise ConfigurationError(f"{path} holds no settings by name; {_WHAT_IT_IS}")
    return config


def _pairs(calibration: Mapping[str, Any], episodes: Sequence[Episode]) -> Pairs:
    """Return the pairs of calibration.json; those of the episodes kept while a run has not written it."""
    columns = aligned(calibration, "step", "predicted", "real")
    if not columns[0]:
        both = [
            (episode.step, episode.rewards["predicted_reward"], episode.rewards["real_reward"])
            for episode in episodes
            if {"predicted_reward", "real_reward"} <= episode.rewards.keys()
        ]
        columns = [[float(pair[index]) for pair in both] for index in range(3)]
    step, predicted, real = (np.array(column, dtype=float) for column in columns)
    return Pairs(step, predicted, real)


def _maps(folder: Path, calibration: Mapping[str, Any], rows: pd.DataFrame, problems: list[str]) -> list[Map]:
    """Return the calibration map as it moved; that of the end alone for a run that did not note it down."""
    history = read_json(folder / "calibration_history.json", problems)
    last = float(rows["step"].iloc[-1]) if len(rows) else 0.0
    end = {"step": last, **as_object(calibration.get("knots"))}
    maps = [found for entry in as_objects(history) or [end] if (found := _map(entry)) is not None]
    return sorted(maps, key=lambda found: found.step)


def _map(entry: Mapping[str, Any]) -> Map | None:
    step, (predicted, real) = number(entry.get("step")), aligned(entry, "predicted", "real")
    # Knots out of order are no map: drawn, they would say something that the run never used.
    if step is None or not predicted or predicted != sorted(predicted):
        return None
    return Map(int(step), predicted, real)


def _videos(folder: Path) -> list[Path]:
    """Return the videos that really lie in the run folder, in the order of their names."""
    try:
        root = folder.resolve()
        found = [path for path in sorted((folder / "videos").rglob("*.mp4")) if path.is_file()]
        return [path for path in found if path.resolve().is_relative_to(root)][:5000]
    except OSError:
        return []


def _best(folder: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {name: number(entry.get(name)) for name in ("reward", "score", "report_reward")}
    found |= {name: short_text(entry[name], 80) for name in ("task", "status") if isinstance(entry.get(name), str)}
    file = entry.get("file")
    # The name comes from a file of the run, so it may point to nothing but one of the run's own programs.
    if isinstance(file, str) and os.path.basename(file) == file and file.endswith(".py"):
        try:
            if not (folder / file).is_symlink():
                found["code"] = read_text(folder / file)[:100_000]
        except (OSError, ValueError):
            pass
    return {name: value for name, value in found.items() if value is not None}
