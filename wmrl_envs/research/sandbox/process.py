"""Runs solutions in confined processes on this machine."""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

from wmrl_envs.errors import ConfigurationError, SandboxError
from wmrl_envs.research.execution import RunResult, describe_limit, outcome_from_run
from wmrl_envs.research.grading import Submission, gate
from wmrl_envs.research.outcome import Outcome
from wmrl_envs.research.sandbox import wire
from wmrl_envs.research.sandbox.host import Zygote
from wmrl_envs.research.sandbox.isolation import Isolation, IsolationReport, choose_layers, namespaces_problem, probe
from wmrl_envs.research.sandbox.paths import readable_paths
from wmrl_envs.research.sandbox.scratch import make_scratch, path_cleaner, remove_folder
from wmrl_envs.research.scoring import InvalidSubmission, Left
from wmrl_envs.research.submission import read_submission_file
from wmrl_envs.research.task import Limits

__all__ = ["ProcessSandbox"]

_logger = logging.getLogger(__name__)

_GRACE_SECONDS = 90.0
"""How long beyond a solution's longest time an answer may take before the harness counts as broken, in seconds."""
_CAUSES = {
    "cpu": "timeout",
    "wall": "timeout",
    "memory": "memory",
    "disk": "disk",
    "processes": "error",
    "threads": "error",
    "abandoned": "error",
}


class ProcessSandbox:
    """Grades submissions by running them, each in a process of its own on this machine.

    A solution runs as ``python solution.py`` would, in a fresh folder with the task's public data at ``./input``. It is
    forked from a process that has imported numpy, pandas, scipy and scikit-learn and never sees private data; it may
    read the libraries and the public data, write its folder, and do nothing else (`choose_layers` says what holds it
    to that). Grades are computed here, where the answers are. Its hash seed is fixed and its random generators are
    seeded by `Submission.seed`, so a run can be repeated.

    Seconds that a solution waits for a processor which other programs have do not count against its wall limit.
    ``Limits.memory_mb`` counts the private memory of the process tree; pages of library files are shared by all
    solutions and are not counted. ``Limits.processes`` allows that many further processes (``subprocess``,
    ``os.fork``); joblib runs jobs one after another where it is 0.
    """

    def __init__(
        self,
        *,
        workers: int | None = None,
        isolation: Isolation = "auto",
        limits: Limits | Mapping[str, Any] | None = None,
    ) -> None:
        """Choose the isolation; nothing is started before the first run.

        Args:
            workers: How many solutions run at once; None means as many as there are CPUs.
            isolation: ``"strict"`` needs Landlock and seccomp, ``"auto"`` takes the strongest there is and warns once
                if that is less, ``"none"`` leaves limits and the watchdog alone.
            limits: In place of the task's; a mapping changes some of them.

        Raises:
            ConfigurationError: If an argument cannot work.
            IsolationError: If ``"strict"`` is not possible on this machine.
        """
        if workers is not None and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
            raise ConfigurationError(
                f"workers must be a whole number of at least 1, or None for one per CPU, got {workers!r}"
            )
        if isinstance(limits, Mapping):
            Limits().override(limits)  # refuses unknown names early
        self._arguments = {"workers": workers, "isolation": isolation, "limits": limits}
        self._layers = choose_layers(isolation)
        self._limits = limits
        self.workers = workers or len(os.sched_getaffinity(0))
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._zygote: Zygote | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._folder: Path | None = None
        self._runs = 0

    @property
    def isolation_report(self) -> IsolationReport:
        """What this machine can isolate."""
        return probe()

    @property
    def layers(self) -> str:
        """What confines the solutions, in words."""
        return self._layers.name

    @property
    def zygote_pid(self) -> int | None:
        """Process id of the process that solutions are forked from; None before the first run."""
        return self._zygote.pid if self._zygote is not None else None

    def limits_of(self, submission: Submission) -> Limits:
        """Return the limits that a submission runs under."""
        if isinstance(self._limits, Limits):
            return self._limits
        limits = submission.task.limits
        return limits if self._limits is None else limits.override(self._limits)

    def grade(self, submissions: Sequence[Submission]) -> list[Outcome | None]:
        """Run the submissions, ``workers`` at a time, and grade them.

        Returns:
            One outcome per submission, in order; None where the harness failed twice (logged as a warning).

        Raises:
            SandboxError: If solutions cannot be run here at all.
            TaskError: If a task's own answers cannot be used.
        """
        outcomes = [gate(submission) for submission in submissions]
        waiting = [index for index, outcome in enumerate(outcomes) if outcome is None]
        pool = self._resources()[1]
        graded = pool.map(self._grade_one, [submissions[index] for index in waiting])
        for index, outcome in zip(waiting, graded, strict=True):
            outcomes[index] = outcome
        return outcomes

    def _grade_one(self, submission: Submission) -> Outcome | None:
        assert submission.code is not None
        task, limits = submission.task, self.limits_of(submission)
        files, most = task.scorer.files, task.scorer.most_bytes(task)
        for attempt in ("first", "second"):
            try:
                result = self.run(submission.code, task.public, limits, submission.seed, collect=files, most_bytes=most)
                return outcome_from_run(task, result, self)
            except SandboxError as error:
                _logger.warning("%s attempt to run a solution of task %s failed: %s", attempt, task.id, error)
        return None

    def run(
        self,
        code: str,
        public: Path | str,
        limits: Limits | None = None,
        seed: int = 0,
        *,
        collect: Sequence[str] = ("submission.csv",),
        most_bytes: int | None = None,
        bring: Mapping[str, bytes | Path] | None = None,
    ) -> RunResult:
        """Run one program, in the calling thread.

        Args:
            code: Python source.
            public: Folder that it finds as ``./input``.
            limits: What it may use; None means the default ones.
            seed: Seeds its random generators.
            collect: Paths of the files to read from its working folder when it has ended.
            most_bytes: Largest file that is read; None means as much as the disk limit.
            bring: By path in its working folder, the content of a file or a folder to copy there before it starts.

        Raises:
            SandboxError: If the harness failed; nothing is known about the program.
        """
        limits = limits or Limits()
        zygote, _, folder = self._resources()
        public = Path(public).resolve()
        if not public.is_dir():
            raise SandboxError(f"the public data folder {public} does not exist")
        scratch = self._scratch(folder)
        try:
            make_scratch(scratch, code, public, bring)
            header, output = self._ask(zygote, code, public, scratch, limits, seed)
            if header["failure"] is not None:
                raise SandboxError(f"a solution's process could not be set up: {header['failure']}")
            most = most_bytes or limits.disk_mb * 2**20
            left = _read_left(scratch, collect, most, limits.disk_mb * 2**20)
        except shutil.Error as error:
            raise SandboxError(f"the files of a program could not be laid out: {error}") from error
        finally:
            remove_folder(scratch)
        return self._result(header, output, code, limits, path_cleaner(scratch, public), left)

    def _ask(
        self, zygote: Zygote, code: str, public: Path, scratch: Path, limits: Limits, seed: int
    ) -> tuple[dict[str, Any], bytes]:
        confined = self._layers.landlock or self._layers.namespaces
        request: dict[str, Any] = {
            "code": code,
            "scratch": str(scratch),
            "seed": seed,
            "limits": {**dataclasses.asdict(limits), "wall_seconds": limits.wall_limit},
            "layers": dataclasses.asdict(self._layers),
            "paths": [*readable_paths(public, limits.processes > 0)] if confined else [],
            "stage": str(scratch.parent / "root"),
            "shared_memory": bool(confined and limits.processes) and namespaces_problem() is None,
        }
        request["paths"].append((str(scratch), "workshop" if limits.processes else "scratch"))
        try:
            with zygote.supervisor() as connection:
                connection.settimeout(limits.wall_limit * wire.MOST_STRETCH + _GRACE_SECONDS)
                wire.send(connection, request)
                return wire.receive(connection)
        except SandboxError:
            self._forget(zygote)
            raise
        except (OSError, EOFError, ValueError) as error:
            self._forget(zygote)
            raise SandboxError(f"no answer from a solution's supervisor ({type(error).__name__}: {error})") from error

    @staticmethod
    def _result(
        header: dict[str, Any],
        output: bytes,
        code: str,
        limits: Limits,
        clean: Callable[[str], str],
        left: Left,
    ) -> RunResult:
        fired, said = header["fired"], header["said"]
        split = header["stdout_bytes"]
        cause = _CAUSES[fired] if fired else "ok" if header["exit_code"] == 0 else "error"
        return RunResult(
            cause=cause,
            exit_code=header["exit_code"],
            stdout=clean(output[:split].decode(errors="replace")),
            stderr=clean(output[split:].decode(errors="replace")),
            error_type=said["type"],
            error_line=said["line"] if (said["line"] or 0) <= code.count("\n") + 1 else None,
            seconds=float(header["seconds"]),
            message=describe_limit(fired, limits) if fired and fired != "abandoned" else "",
            left=left,
        )

    def _scratch(self, folder: Path) -> Path:
        with self._lock:
            self._runs += 1
            return folder / f"run-{self._runs}"

    def _resources(self) -> tuple[Zygote, ThreadPoolExecutor, Path]:
        """Return the zygote, the workers and the folder of scratch folders, started where they are not yet."""
        with self._lock:
            if self._owner != os.getpid():  # a fork of the process that started them: they are not ours
                self._owner, self._zygote, self._pool, self._folder = os.getpid(), None, None, None
            if self._zygote is None:
                self._zygote = Zygote()
                weakref.finalize(self, _release, os.getpid(), self._zygote.close)
            if self._pool is None or self._folder is None:
                self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="wmrl-sandbox")
                self._folder = Path(tempfile.mkdtemp(prefix="wmrl-sandbox-")).resolve()
                (self._folder / "root").mkdir()  # where namespaces build a root folder
                weakref.finalize(self, _release, os.getpid(), remove_folder, self._folder)
            return self._zygote, self._pool, self._folder

    def _forget(self, zygote: Zygote) -> None:
        """Have the next run start a new zygote."""
        with self._lock:
            if self._zygote is zygote:
                self._zygote = None
                zygote.close()

    def close(self) -> None:
        """End everything that was started; a later run starts it again."""
        with self._lock:
            zygote, pool, folder = self._zygote, self._pool, self._folder
            self._zygote = self._pool = self._folder = None
        if self._owner != os.getpid():
            return
        if zygote is not None:
            zygote.close()
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        if folder is not None:
            remove_folder(folder)

    def __enter__(self) -> ProcessSandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._arguments,)

    def __repr__(self) -> str:
        return f"ProcessSandbox(workers={self.workers}, layers={self.layers!r})"


def _read_left(scratch: Path, names: Sequence[str], most: int, room: int) -> Left:
    """Read the files that a program left: each at most ``most`` bytes, all of them at most ``room``.

    Files with holes are larger than what they take of a disk, so many of them could take more memory than disk.
    """
    left: dict[str, bytes | InvalidSubmission] = {}
    for name in names:
        file = _read_one(scratch, name, min(most, room))
        if file is not None:
            left[name] = file
        if isinstance(file, bytes):
            room -= len(file)
    return left


def _read_one(scratch: Path, name: str, most: int) -> bytes | None | InvalidSubmission:
    """Read a file that a program left, unless a link of its own leads there."""
    for folder in PurePosixPath(name).parents[:-1]:
        if (scratch / folder).is_symlink():
            return InvalidSubmission(f"{name} lies behind a link")
    return read_submission_file(scratch / name, most, name)


def _rebuild(arguments: dict[str, Any]) -> ProcessSandbox:
    """Make a sandbox of the same arguments: a copy starts processes of its own."""
    return ProcessSandbox(**arguments)


def _release(owner: int, action: Callable[..., None], *arguments: Any) -> None:
    if os.getpid() == owner:  # not in a fork of the process that made it
        action(*arguments)
