"""The executions that a learned world model starts from, and their cache on disk."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
import zlib
from collections.abc import Collection, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wmrl_envs.errors import WorldModelError
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.grading import Grader, Submission, check_graded
from wmrl_envs.research.inventory import data_files
from wmrl_envs.research.leaderboard import HALVES
from wmrl_envs.research.outcome import Outcome
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.world_models.pairs import pack_outcome, unpack_outcome

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = ["WarmupCache", "default_cache_dir", "warm_up", "warmup_submissions"]

_FORMAT = 1
_LIBRARIES = ("numpy", "pandas", "scikit-learn")
_WHOLE_FILE = 16 * 2**20
"""Larger files of a task enter its key by size and time of change instead of content."""


def warmup_submissions(
    task: ResearchTask, n: int, seed: int, recorded: Collection[str] | None = None
) -> list[Submission]:
    """Draw distinct solutions from the prior of a task's design space.

    Args:
        task: A task with a design space.
        n: Solutions to draw; fewer come back where the space is smaller.
        seed: Seed of the draw, together with the task's id.
        recorded: Sources of which outcomes are on record. They are preferred, so that a partly recorded task is made
            ready without executing anything where the record is large enough.

    Raises:
        WorldModelError: If the task has no design space.
    """
    if task.design is None:
        raise WorldModelError(
            f"task {task.id!r} has no design space to draw warm-up solutions from; execute some solutions and pass "
            "them to LearnedWorldModel.fit(submissions, outcomes) before the environment is reset"
        )
    space = DesignSpace.of(task)
    rng = np.random.default_rng([seed, zlib.crc32(task.id.encode())])
    drawn: dict[str, bool] = {}
    for _ in range(64):
        for choices in space.sample(n, rng):
            code = space.render(choices)
            drawn[code] = recorded is None or code in recorded
        if sum(drawn.values()) >= n or len(drawn) >= space.size:
            break
    if recorded is not None and sum(drawn.values()) < n:
        drawn.update(dict.fromkeys(rng.permutation(sorted(recorded)).tolist(), True))
    codes = sorted(drawn, key=drawn.__getitem__, reverse=True)[:n]
    return [Submission(task, code, int(rng.integers(2**31))) for code in codes]


def warm_up(
    task: ResearchTask, grader: Grader, n: int, seed: int, source: str, cache: WarmupCache
) -> list[tuple[Submission, Outcome]]:
    """Return n executed solutions of a task, or fewer where the harness failed on some.

    Args:
        task: A task with a design space.
        grader: Executes what is on no record.
        n: Solutions to draw.
        seed: Seed of the draw.
        source: ``"recordings"`` or ``"execution"``.
        cache: Remembers executions.

    Raises:
        WorldModelError: If the task has no design space.
    """
    replay = _recordings(grader) if source == "recordings" else None
    recorded = _recorded(replay, task) if replay is not None else frozenset[str]()
    submissions = warmup_submissions(task, n, seed, recorded if recorded else None)
    live = [submission for submission in submissions if submission.code not in recorded]
    on_record = [submission for submission in submissions if submission.code in recorded]
    outcomes = dict(zip(live, _execute(grader, live, cache), strict=True))
    if replay is not None and on_record:
        outcomes.update(zip(on_record, replay.grade(on_record), strict=True))
    executed = ((submission, outcomes[submission]) for submission in submissions)
    return [(submission, outcome) for submission, outcome in executed if outcome is not None]


_BUNDLED = ReplaySandbox()
"""Shared, so that the thousand runs of a comparison read each recording once."""


def _recordings(grader: Grader) -> ReplaySandbox:
    return grader if isinstance(grader, ReplaySandbox) and grader.tables is not None else _BUNDLED


@lru_cache(maxsize=16)
def _recorded(replay: ReplaySandbox, task: ResearchTask) -> frozenset[str]:
    return replay.recorded(task)


def _execute(grader: Grader, submissions: Sequence[Submission], cache: WarmupCache) -> list[Outcome | None]:
    if not submissions:
        return []
    key = cache.key(grader, submissions)
    cached = cache.load(key, len(submissions)) if key else None
    if cached is not None:
        return cached
    outcomes = list(grader.grade(submissions))
    check_graded(grader, submissions, outcomes)
    if key:
        cache.save(key, outcomes)
    return outcomes


def default_cache_dir() -> Path:
    """Return ``$XDG_CACHE_HOME/wmrl-envs``, by default ``~/.cache/wmrl-envs``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "wmrl-envs"


class WarmupCache:
    """Outcomes of executed warm-ups, one JSON file per content.

    The key is a hash of the solutions and their seeds, the task's files, leaderboard and limits, the kind of grader
    and the versions of the libraries that the solutions use, so nothing in the cache is ever out of date. A folder
    that cannot be used costs a warning and the time of executing again.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(folder) if folder is not None else default_cache_dir()

    def key(self, grader: Grader, submissions: Sequence[Submission]) -> str | None:
        """Return the content's hash, or ``None`` for a grader that does not execute here or that is not ours.

        A replay costs nothing to ask again, and of somebody's own grader we cannot know when it would answer
        differently.
        """
        kind = type(grader)
        limits_of = getattr(grader, "limits_of", None)
        if limits_of is None or not kind.__module__.startswith("wmrl_envs."):
            return None
        task = submissions[0].task
        parts: list[Any] = [_FORMAT, f"{kind.__module__}.{kind.__qualname__}", repr(limits_of(submissions[0]))]
        parts += [_task_files(task.folder), [task.leaderboard.scores(half) for half in HALVES]]
        parts += [[version(name) for name in _LIBRARIES]]
        parts += [[submission.code, submission.seed] for submission in submissions]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def load(self, key: str, n: int) -> list[Outcome | None] | None:
        """Return n outcomes, or ``None`` where the cache has none that can be read."""
        path = self._path(key)
        try:
            records = json.loads(path.read_text(encoding="utf-8"))
            outcomes = [None if record is None else unpack_outcome(record) for record in records]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            warnings.warn(f"ignoring the unreadable warm-up cache {path}: {error}", RuntimeWarning, stacklevel=2)
            return None
        return outcomes if len(outcomes) == n else None

    def save(self, key: str, outcomes: Sequence[Outcome | None]) -> None:
        """Store outcomes; a batch in which the harness failed is not stored, so that it is tried again."""
        if any(outcome is None for outcome in outcomes):
            return
        records = [pack_outcome(outcome) for outcome in outcomes if outcome is not None]
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, beside = tempfile.mkstemp(prefix=path.name, dir=path.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(records, file)
            os.replace(beside, path)
        except OSError as error:
            warnings.warn(
                f"cannot cache the executed warm-up in {path.parent}: {error}. Pass cache_dir= or set XDG_CACHE_HOME "
                "to a folder that can be written; until then the warm-up is executed each time",
                RuntimeWarning,
                stacklevel=2,
            )

    def _path(self, key: str) -> Path:
        return self.folder / "warmup" / f"{key[:40]}.json"


def _task_files(folder: Path) -> list[list[str | int]]:
    entries: list[list[str | int]] = []
    for path in data_files(folder):
        if path.name.startswith("recording"):
            continue
        status = path.stat()
        content = f"{status.st_size} {status.st_mtime_ns}"
        if status.st_size <= _WHOLE_FILE:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        entries.append([path.relative_to(folder).as_posix(), content])
    return entries
