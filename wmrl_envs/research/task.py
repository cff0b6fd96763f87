"""A research task: a folder with a description, public data, private answers and a leaderboard.

```
<id>/
  task.json           format, id, title, kind, metric, id_column, target_columns, label_column, limits, design, license,
                      source, grader
  description.md      what an agent reads
  public/             train.csv, test.csv, sample_submission.csv and any other file; a solution finds them in ./input
  private/answers.csv the id column, the target columns, and half: "train" or "report"
  leaderboard.json    {"train": [scores...], "report": [scores...]}
  LICENSE-data.txt    licence and source of the data
```

A task whose ``grader`` is ``"command"`` has what its command needs in ``private/`` instead of answers, any files in
``public/``, and a ``scale`` in task.json where it has no leaderboard (`wmrl_envs.research.command`). The folders that
benchmarks prepare are opened as they are: ``"mle-bench:DIR/ID"``, ``"mle-dojo:DIR/ID"``, ``"dsbench:DIR/ID"``
(`wmrl_envs.research.benchmarks`).
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from wmrl_envs.errors import TaskError, UnknownTaskError, did_you_mean
from wmrl_envs.research.answers import Answers
from wmrl_envs.research.command import CommandScorer
from wmrl_envs.research.inventory import DataInventory
from wmrl_envs.research.leaderboard import Leaderboard, Ranking
from wmrl_envs.research.limits import Limits
from wmrl_envs.research.manifest import KINDS, read_manifest
from wmrl_envs.research.metrics import Metric
from wmrl_envs.research.scoring import Scorer
from wmrl_envs.research.submission import AnswersScorer
from wmrl_envs.research.table import shown

__all__ = ["BENCHMARKS", "KINDS", "TASKS_DIR", "Limits", "ResearchTask", "bundled_tasks", "load_task"]

TASKS_DIR = Path(__file__).resolve().parent / "tasks"
"""Folder of the bundled tasks."""

BENCHMARKS = {
    "mle-bench": "wmrl_envs.research.benchmarks.mle_bench",
    "mle-dojo": "wmrl_envs.research.benchmarks.mle_dojo",
    "dsbench": "wmrl_envs.research.benchmarks.dsbench",
}
"""By prefix of a task's name, the module whose ``load_task`` opens the folders of a benchmark."""

_FILES = {
    "task.json": "the task's metadata",
    "description.md": "what an agent reads about the task",
    "public/train.csv": "the rows with targets that solutions learn from",
    "public/test.csv": "the rows without targets that solutions predict",
    "public/sample_submission.csv": "the id and target columns of a submission, with placeholder values",
    "private/answers.csv": "the id column, the target columns and half (train or report) of every test row",
    "leaderboard.json": 'the scores to rank against, {"train": [scores...], "report": [scores...]}; where task.json '
    "has a design, wmrl tasks leaderboard FOLDER makes it",
}

_COMMAND_FILES = {
    "task.json": "the task's metadata",
    "description.md": "what an agent reads about the task",
    "leaderboard.json": _FILES["leaderboard.json"] + ", unless task.json has a scale",
}

_CACHES = ("_answers", "inventory")


@dataclass(frozen=True, eq=False, kw_only=True)
class ResearchTask:
    """One task; two are equal if they are the same folder.

    The private answers and the data inventory are read when they are first asked for, and do not travel when a task is
    pickled: a process that only runs solutions never holds answers.
    """

    id: str
    title: str
    kind: str
    """One of ``KINDS``, ``"code"`` where a command grades, ``"competition"`` where a benchmark does."""
    metric: Metric
    description: str
    """Markdown that an agent reads."""
    folder: Path
    """The task folder, resolved."""
    limits: Limits
    """What one execution of a solution may use."""
    leaderboard: Ranking
    scorer: Scorer = AnswersScorer()
    """Scores what a solution leaves."""
    id_column: str = ""
    """Column of ids; empty where the scorer is not ours."""
    target_columns: tuple[str, ...] = ()
    label_column: str | None = None
    """Column of ``train.csv`` that holds the target; None where that is the target columns themselves, several."""
    design: dict[str, Any] | None = None
    """Parameters of the design space, or None where the task has none."""
    license: str = ""
    source: str = ""

    @property
    def public(self) -> Path:
        """The folder that a solution finds as ``./input``."""
        return self.folder / "public"

    @classmethod
    def load(cls, path: Path | str, leaderboard: Ranking | None = None) -> ResearchTask:
        """Read a task folder.

        Args:
            path: The folder.
            leaderboard: Boards to use in place of ``leaderboard.json``, which then need not exist (it is made by
                scoring solutions of the task).

        Raises:
            TaskError: If a file is missing, unreadable, or contradicts the format; the message names it.
        """
        folder = Path(path).resolve()
        if not folder.is_dir():
            raise TaskError(f"{folder} is no task folder")
        fields = read_manifest(folder / "task.json") if (folder / "task.json").is_file() else {}
        scorer = fields.get("scorer", AnswersScorer())
        files = _FILES if isinstance(scorer, AnswersScorer) else _COMMAND_FILES
        if isinstance(scorer, CommandScorer) and scorer.script is not None:
            files = files | {scorer.script: "the script that grades"}
        scale = fields.pop("leaderboard", None)
        board = leaderboard or (None if (folder / "leaderboard.json").is_file() else scale)
        needed = {name: content for name, content in files.items() if board is None or name != "leaderboard.json"}
        missing = [f"{name} ({content})" for name, content in needed.items() if not (folder / name).is_file()]
        missing += [f"the folder {name}/" for name in ("public", "private") if not (folder / name).is_dir()]
        if missing:
            raise TaskError(f"the task folder {folder} lacks {', '.join(missing)}")
        if board is None:
            board = Leaderboard.load(folder / "leaderboard.json", fields["metric"].greater_is_better)
        try:
            description = (folder / "description.md").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TaskError(f"cannot read {folder / 'description.md'}: {error}") from error
        return cls(description=description, folder=folder, leaderboard=board, **fields)

    def answers(self) -> Answers:
        """Return the private answers, for scoring; nothing that runs solutions may call this.

        Raises:
            TaskError: If ``private/answers.csv`` cannot be used, the metric does not exist on a half of it, or the task
                is scored in another way.
        """
        if not isinstance(self.scorer, AnswersScorer):
            raise TaskError(f"task {self.id!r} has no answers.csv: it is scored by a {type(self.scorer).__name__}")
        return self._answers

    @cached_property
    def _answers(self) -> Answers:
        return Answers.load(self.folder / "private" / "answers.csv", self.id_column, self.target_columns, self.metric)

    @cached_property
    def inventory(self) -> DataInventory:
        """What the public folder holds: files, sizes, columns."""
        return DataInventory.of(self.public, self.id_column, self.target_columns)

    def prompt(self) -> str:
        """Return what an agent reads as the task: description, data, and how a solution runs."""
        return (
            f"{self.description.strip()}\n\n## Data\n\n{self.inventory.describe()}\n\n## How your solution runs\n\n"
            f"Reply with one Python program in a ```python fence. Its working folder holds the files above in ./input "
            f"(read-only); {self.scorer.instructions(self)} "
            f"Limits: {self.limits.seconds:g} CPU seconds, {self.limits.memory_mb} MB of memory, "
            f"{self.limits.disk_mb} MB of disk, no network. numpy, pandas and scikit-learn are installed.\n"
        )

    def __eq__(self, other: object) -> bool:
        return self.folder == other.folder if isinstance(other, ResearchTask) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.folder)

    def __repr__(self) -> str:
        return f"ResearchTask({self.id!r}, {str(self.folder)!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _CACHES}


def bundled_tasks() -> tuple[str, ...]:
    """Return the names of the tasks that come with the package, sorted."""
    return tuple(sorted(path.parent.name for path in TASKS_DIR.glob("*/task.json")))


def load_task(name_or_path: str | Path) -> ResearchTask:
    """Load a bundled task by name, any task folder by path, or a benchmark's as ``"mle-bench:DIR/ID"``.

    A string is a bundled task's name first and a path second. A folder is read once and kept until one of the files
    that were read changes.

    Raises:
        UnknownTaskError: If it is neither a bundled name nor a folder.
        TaskError: If the folder is no complete task.
    """
    names = bundled_tasks()
    name = str(name_or_path)
    prefix, colon, place = name.partition(":")
    if colon and prefix in BENCHMARKS:
        loaded: ResearchTask = importlib.import_module(BENCHMARKS[prefix]).load_task(place)
        return loaded
    try:
        folder = (TASKS_DIR / name if name_or_path in names else Path(name)).resolve()
        found = bool(name) and folder.is_dir()
    except (OSError, ValueError):  # no path at all: too long, or with a NUL
        found = False
    if not found:
        raise UnknownTaskError(
            f"unknown task {shown(name, 200)}; the bundled tasks are {', '.join(names)}; the path of a task folder "
            f"works as well, and a benchmark's task as {', '.join(f'{prefix}:DIR/ID' for prefix in BENCHMARKS)}."
            f"{did_you_mean(name, names)}"
        )
    return _load_cached(folder, tuple(_stamp(folder / file) for file in _FILES if not file.startswith("public/")))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=64)
def _load_cached(folder: Path, stamps: tuple[tuple[int, int] | None, ...]) -> ResearchTask:
    return ResearchTask.load(folder)
