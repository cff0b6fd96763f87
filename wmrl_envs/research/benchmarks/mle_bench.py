"""mle-bench's competitions, as its ``mlebench prepare`` leaves them.

```
DIR/<id>/prepared/public/     what a solution finds in ./input
DIR/<id>/prepared/private/    the answers
competitions/<id>/            config.yaml, grade.py, leaderboard.csv, description.md
```

Each file of ``competitions/<id>`` is taken from the first of these folders that has it:

1. ``DIR/competitions/<id>``,
2. ``competitions/<id>`` beside DIR,
3. the installed package ``mlebench``, which is found without being imported.

So a leaderboard that git left as a pointer in an installed package can be put right without touching the package. The
description may also stand in the public folder, where mle-bench copies it.
`wmrl_envs.research.benchmarks.directions` says how the direction is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wmrl_envs.errors import MissingExtraError, TaskError
from wmrl_envs.research.benchmarks.boards import read_scores
from wmrl_envs.research.benchmarks.directions import computed_metric, direction_of
from wmrl_envs.research.benchmarks.place import (
    Place,
    package_folder,
    read_text,
    refuse_pointer,
    unknown_competition,
)
from wmrl_envs.research.benchmarks.process import GradingOrder
from wmrl_envs.research.benchmarks.scorer import BenchmarkScorer
from wmrl_envs.research.leaderboard import Leaderboard
from wmrl_envs.research.metrics import external_metric
from wmrl_envs.research.table import shown
from wmrl_envs.research.task import ResearchTask

__all__ = ["INSTALL", "competitions", "is_benchmark", "load_task"]

INSTALL = "pip install git+https://github.com/openai/mle-bench"


def is_benchmark(folder: Path) -> bool:
    """Return whether a folder holds prepared competitions of mle-bench."""
    return any(folder.glob("*/prepared/public"))


def competitions(folder: Path) -> list[str]:
    """Return the ids of the prepared competitions in a folder, sorted."""
    return sorted(path.parent.parent.name for path in folder.glob("*/prepared/public") if path.is_dir())


def load_task(text: str) -> ResearchTask:
    """Open a competition: ``DIR/ID``, with options as `Place` reads them.

    Raises:
        UnknownTaskError: If it is not prepared there.
        TaskError: If one of its files is missing, a Git-LFS pointer, or cannot be used; the message names it.
    """
    place = Place.parse(text)
    prepared = place.folder / place.id / "prepared"
    if not (prepared / "public").is_dir():
        raise unknown_competition("mle-bench", place, competitions, f"{place.id}/prepared/public/")
    files = _Files(place)
    config = _Config.read(files.find("config.yaml"))
    board = files.find("leaderboard.csv")
    scores, metric = read_scores(board), computed_metric(place.id, config.metric)
    greater = direction_of(metric, scores, board, place.greater_is_better)
    answers, sample = place.folder / config.answers, place.folder / config.sample
    refuse_pointer(answers, "the answers")
    public = prepared / "public"
    return ResearchTask(
        id=place.id,
        title=config.title,
        kind="competition",
        metric=external_metric(metric, greater),
        description=_description(files, public),
        folder=prepared.resolve(),
        limits=place.limits,
        leaderboard=Leaderboard(scores, scores, greater),
        scorer=BenchmarkScorer.of(_order(files, config, answers, sample, greater), public, medals=True),
        source=f"mle-bench, {place.id}",
    )


class _Files:
    """Finds the files of one competition."""

    def __init__(self, place: Place) -> None:
        self.package = package_folder("mlebench")
        roots = [place.folder, place.folder.parent, *([self.package] if self.package is not None else [])]
        self.folders = [root / "competitions" / place.id for root in roots]

    def find(self, name: str) -> Path:
        for folder in self.folders:
            if (folder / name).is_file():
                return folder / name
        install = "" if self.package is not None else f"; the package that holds it comes by `{INSTALL}`"
        raise TaskError(f"{name} is in none of {', '.join(map(str, self.folders))}{install}")

    def in_package(self, path: Path) -> bool:
        return self.package is not None and path.is_relative_to(self.package)


@dataclass(frozen=True, slots=True)
class _Config:
    """What is read of a ``config.yaml``."""

    title: str
    metric: str
    function: str
    """``module:function``."""
    answers: str
    """Relative to the data folder."""
    sample: str

    @classmethod
    def read(cls, path: Path) -> _Config:
        """Read a file.

        Raises:
            TaskError: If it cannot be read or lacks a field; the message names both.
            MissingExtraError: If PyYAML is not installed.
        """
        try:
            import yaml
        except ImportError as error:
            raise MissingExtraError("reading config.yaml needs PyYAML: pip install pyyaml") from error
        try:
            # Texts alone are read of it: this loader knows no tags, dates, or merged mappings.
            config = yaml.load(read_text(path, "the configuration"), Loader=yaml.BaseLoader)
        except (yaml.YAMLError, RecursionError) as error:
            raise TaskError(f"cannot read {path}: {error}") from error
        dataset, grader = (_part(path, config, name) for name in ("dataset", "grader"))
        return cls(
            title=_text(path, config, "name"),
            metric=_text(path, grader, "name", "grader."),
            function=_text(path, grader, "grade_fn", "grader."),
            answers=_text(path, dataset, "answers", "dataset."),
            sample=_text(path, dataset, "sample_submission", "dataset."),
        )


def _part(path: Path, config: Any, name: str) -> Mapping[str, Any]:
    part = config.get(name) if isinstance(config, Mapping) else None
    if not isinstance(part, Mapping):
        raise TaskError(f"{path} has no section {name!r}")
    return part


def _text(path: Path, part: Mapping[str, Any], name: str, where: str = "") -> str:
    value = part.get(name)
    if not isinstance(value, str) or not value.strip():
        got = "nothing" if value is None else shown(value) if isinstance(value, str) else f"a {type(value).__name__}"
        raise TaskError(f"{path}: {where}{name} must be a text, got {got}")
    return value.strip()


def _order(files: _Files, config: _Config, answers: Path, sample: Path, greater: bool) -> GradingOrder:
    module, _, function = config.function.partition(":")
    code = files.find(f"{module.rpartition('.')[2]}.py")
    refuse_pointer(code, "the grader")
    # From its package where it lies there; else from its file, whatever module the configuration says.
    name = config.function if files.in_package(code) else function
    return GradingOrder(
        kind="mle-bench",
        code=str(code),
        function=name,
        answers=str(answers),
        sample=str(sample),
        roots=(str(files.package.parent),) if files.package is not None else (),
        higher_is_better=greater,
    )


def _description(files: _Files, public: Path) -> str:
    beside = [folder / "description.md" for folder in files.folders]
    for path in (*beside, public / "description.md"):
        if path.is_file():
            return read_text(path, "the description")
    raise TaskError(f"description.md is in none of {', '.join(str(path.parent) for path in (*beside, public / '_'))}")
