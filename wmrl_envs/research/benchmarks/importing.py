"""A benchmark's competition as a task folder of ours: it has two halves, one of our metrics, and a design space.

The answers are split at random in a training half and a report half, by their classes where there are few. The board is
the benchmark's, on both halves: its scores are on all answers, so positions are those of a sample of it. The data are
hard links where the disk allows it, else copies.
"""

from __future__ import annotations

import csv
import dataclasses
import os
import shutil
import tempfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.errors import ConfigurationError, TaskError
from wmrl_envs.files import check_folder, write_json, write_text
from wmrl_envs.research.benchmarks.place import refuse_pointer, refuse_pointers
from wmrl_envs.research.benchmarks.scorer import BenchmarkScorer
from wmrl_envs.research.metrics import METRICS, Metric, metric_named
from wmrl_envs.research.table import TableError, read_table
from wmrl_envs.research.task import ResearchTask, load_task

__all__ = ["OUR_METRICS", "import_competition"]

OUR_METRICS = {
    "accuracy": "accuracy",
    "auc": "auc",
    "auc-roc": "auc",
    "log-loss": "log_loss",
    "macro-f1-score": "f1_macro",
    "mae": "mae",
    "mean-absolute-error": "mae",
    "mean-column-wise-rmsle": "rmsle",
    "multi-class-classification-accuracy": "accuracy",
    "multi-class-log-loss": "log_loss",
    "quadratic-weighted-kappa": "quadratic_weighted_kappa",
    "r2": "r2",
    "rmse": "rmse",
    "rmsle": "rmsle",
    "roc-auc": "auc",
    "root-mean-squared-error": "rmse",
    "mean-column-wise-rmse": "rmse",
}
"""Our metric for each name of a benchmark's that means the same."""

MOST_STRATA = 100
"""Most classes by which the answers are split; answers with more values are split as they come."""

_TABLES = ("train.csv", "test.csv")
_FAMILIES = ("tabular", "text")


def import_competition(name: str, out: Path, metric: str | None = None, seed: int = 0) -> ResearchTask:
    """Write a task folder made of a competition, and return the task.

    Args:
        name: The competition, as `load_task` takes it.
        out: The folder to make; its name becomes the task's id.
        metric: One of our metrics; None means the one that the competition's metric is called in ``OUR_METRICS``.
        seed: Splits the answers.

    Raises:
        ConfigurationError: If the folder exists and holds something, or cannot be written.
        TaskError: If the competition does not fit our format; the message says what is in the way.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigurationError(f"{out} exists and is not empty; name a new folder")
    out = out.resolve()
    check_folder(out.parent)
    task = load_task(name)
    scorer = task.scorer
    if not isinstance(scorer, BenchmarkScorer):
        raise TaskError(f"{name} is no benchmark's competition; it must be such as mle-bench:DIR/ID")
    refuse_pointers(task.public)
    chosen = _metric(task, metric)
    sample, answers = (_table(Path(path)) for path in (scorer.order.sample, scorer.order.answers))
    id_column, targets = _columns(task, chosen, sample, answers)
    out.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    try:
        _public(task, Path(scorer.order.sample), building / "public")
        halves = _halves(list(zip(*(answers[target] for target in targets), strict=True)), chosen, seed)
        _write_answers(building / "private" / "answers.csv", answers, id_column, targets, halves)
        scores = task.leaderboard.scores()
        write_json(building / "leaderboard.json", {"train": scores, "report": scores})
        write_text(building / "description.md", task.description.strip() + "\n")
        source = f"{task.source}; answers split by seed {seed}"
        licence = f"The data of this competition, under its own rules. Imported from: {source}\n"
        write_text(building / "LICENSE-data.txt", licence)
        manifest = {
            "format": 1,
            "id": out.name,
            "title": task.title,
            "kind": _kind(chosen),
            "metric": chosen.name,
            "id_column": id_column,
            "target_columns": list(targets),
            "label_column": _label(building / "public", targets),
            "limits": {key: value for key, value in dataclasses.asdict(task.limits).items() if value is not None},
            "design": None,
            "license": "the rules of the competition",
            "source": source,
        }
        _finish(building, manifest)
        building.chmod(0o755)
        if out.exists():
            out.rmdir()
        building.rename(out)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return ResearchTask.load(out)


def _kind(metric: Metric) -> str:
    if metric.needs == "ordinal":
        return "ordinal"
    ranks = metric.answers == "binary"
    return "tabular-regression" if metric.needs == "number" and not ranks else "tabular-classification"


def _metric(task: ResearchTask, name: str | None) -> Metric:
    chosen = name or OUR_METRICS.get(task.metric.name.lower().replace("_", "-"))
    if chosen is None:
        raise TaskError(
            f"none of our metrics is called {task.metric.name!r}; name the one that is meant by --metric: "
            f"{', '.join(METRICS)}"
        )
    metric = metric_named(chosen)
    if metric.greater_is_better != task.metric.greater_is_better:
        words = {True: "higher", False: "lower"}
        raise TaskError(
            f"of {metric.name}, {words[metric.greater_is_better]} is better, of the board of {task.id} "
            f"{words[task.metric.greater_is_better]}: it ranks another metric"
        )
    return metric


def _table(path: Path) -> Mapping[str, Sequence[str]]:
    if path.suffix != ".csv":
        raise TaskError(f"{path} is no CSV file, so the competition cannot become a task folder")
    refuse_pointer(path, "the table")
    try:
        return read_table(path.read_bytes())
    except TableError as error:
        raise TaskError(f"{path} cannot be read: {error}") from error


def _columns(
    task: ResearchTask, metric: Metric, sample: Mapping[str, Sequence[str]], answers: Mapping[str, Sequence[str]]
) -> tuple[str, tuple[str, ...]]:
    """Return the id column and the target columns: those of the sample submission, which the answers must have too."""
    id_column, *targets = sample
    missing = [name for name in sample if name not in answers]
    if missing or not targets:
        raise TaskError(
            f"the sample submission of {task.id} needs an id and targets that its answers have; they lack "
            f"{', '.join(missing) or 'targets'} and have {', '.join(answers)}: it cannot become a task folder"
        )
    if len(targets) > 1 and not metric.several_columns:
        raise TaskError(f"{metric.name} scores one target column, the sample submission has {', '.join(targets)}")
    if "half" in sample:
        raise TaskError("the sample submission has a column 'half', which our answers need for themselves")
    if sorted(sample[id_column]) != sorted(answers[id_column]) or len(set(answers[id_column])) != len(
        answers[id_column]
    ):
        raise TaskError(
            f"the sample submission of {task.id} and its answers do not hold the same {id_column!r}, each once"
        )
    return id_column, tuple(targets)


def _public(task: ResearchTask, sample: Path, target: Path) -> None:
    """Link or copy the public folder; unpack the two tables where only an archive has them."""
    for path in sorted(task.public.rglob("*")):
        if path.is_file() and path.resolve() != sample.resolve():
            _place(path, target / path.relative_to(task.public))
    for name in _TABLES:
        if not (target / name).is_file() and not _unpack(task.public, name, target / name):
            raise TaskError(
                f"the public folder {task.public} holds no {name}, neither as a file nor in a zip archive: the "
                f"competition cannot become a task folder; it can be trained on as it is, by its name"
            )
    (target / "sample_submission.csv").unlink(missing_ok=True)
    _place(sample, target / "sample_submission.csv")


def _place(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path.resolve(), target)
    except OSError:  # another disk, or one without links
        shutil.copy2(path, target)


def _unpack(public: Path, name: str, target: Path) -> bool:
    for path in sorted(public.glob("*.zip")):
        try:
            with zipfile.ZipFile(path) as archive:
                found = [info for info in archive.infolist() if info.filename.rpartition("/")[2] == name]
                if len(found) == 1:
                    with archive.open(found[0]) as packed, target.open("wb") as file:
                        shutil.copyfileobj(packed, file)
                    return True
        except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise TaskError(f"cannot unpack {path}: {error}") from error
    return False


def _halves(values: Sequence[tuple[str, ...]], metric: Metric, seed: int) -> list[str]:
    """Return ``"train"`` or ``"report"`` for each row: every second one of each class, in a random order."""
    classes = metric.answers in ("binary", "classes") and len(set(values)) <= MOST_STRATA
    strata: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row, value in enumerate(values):
        strata[value if classes else ()].append(row)
    rng = np.random.default_rng(seed)
    halves, dealt = [""] * len(values), 0
    for value in sorted(strata):
        for row in rng.permutation(strata[value]).tolist():
            halves[row] = ("train", "report")[dealt % 2]
            dealt += 1  # on through the classes, so that odd ones do not all favour one half
    return halves


def _write_answers(
    path: Path, answers: Mapping[str, Sequence[str]], id_column: str, targets: Sequence[str], halves: Sequence[str]
) -> None:
    path.parent.mkdir(parents=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([id_column, *targets, "half"])
        writer.writerows(zip(answers[id_column], *(answers[target] for target in targets), halves, strict=True))


def _label(public: Path, targets: Sequence[str]) -> str | None:
    """Return the one column of train.csv to learn from: the target, or the one whose values name the target columns."""
    import pandas as pd

    try:
        train, test = (pd.read_csv(public / name, nrows=0).columns for name in _TABLES)
        if len(targets) == 1 and targets[0] in train:
            return targets[0]
        hidden = [name for name in train if name not in test]
        columns = pd.read_csv(public / "train.csv", usecols=hidden, dtype=str)
    except ValueError as error:
        raise TaskError(f"train.csv or test.csv of the public folder cannot be read: {error}") from error
    naming = [name for name in hidden if set(columns[name].dropna()) == set(targets)]
    return naming[0] if len(naming) == 1 else None


def _finish(folder: Path, manifest: dict[str, Any]) -> None:
    """Write task.json with the first family of solutions that suits the data, and read the answers once."""
    from wmrl_envs.research.design_space import DesignSpace

    write_json(folder / "task.json", manifest)
    task = ResearchTask.load(folder)
    task.answers()
    for family in _FAMILIES:
        design = {"family": family}
        try:
            DesignSpace.of(dataclasses.replace(task, design=design))
        except TaskError:
            continue
        write_json(folder / "task.json", manifest | {"design": design})
        return
