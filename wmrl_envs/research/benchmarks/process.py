"""Grading processes: one for each competition, which alone reads its answers, kept for as long as it is asked."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from wmrl_envs.errors import SandboxError, TaskError
from wmrl_envs.research.scoring import InvalidSubmission

__all__ = ["GradingOrder", "GradingProcess", "check", "close_all", "grade", "pid_of"]

GRADING_SECONDS = 600.0
"""How long one grade, or starting the process, may take."""
MOST_PROCESSES = 8
"""How many competitions have a process at once; the one that was asked the longest time ago makes room."""

_PROGRAM = Path(__file__).with_name("grader_program.py")
_PASSED_ON = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PATH")


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingOrder:
    """What a grading process grades: the benchmark's code and the answers, by their paths."""

    kind: Literal["mle-bench", "mle-dojo", "dsbench"]
    code: str
    """The file with the benchmark's code."""
    function: str = ""
    """A function of the file, a ``module:function``, or a class; empty for a script."""
    answers: str
    sample: str
    """A sample submission; it need not exist."""
    roots: tuple[str, ...] = ()
    """Folders that its imports are searched in first."""
    higher_is_better: bool
    seconds: float = GRADING_SECONDS

    def stamp(self) -> tuple[tuple[int, int] | None, ...]:
        """Return what changes when a file that the process has read changes."""
        return tuple(_stamp(Path(path)) for path in (self.code, self.answers, self.sample))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


class GradingProcess:
    """One process, started at its first grade and again after a death; for threads as well."""

    def __init__(self, order: GradingOrder) -> None:
        self.order = order
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._unread = b""
        self._stamp: Any = None

    @property
    def pid(self) -> int | None:
        """Its process id; None before the first grade."""
        return None if self._process is None else self._process.pid

    def grade(self, name: str, content: bytes) -> float | InvalidSubmission:
        """Grade a submission.

        Args:
            name: Name of the file; its ending says what it holds.
            content: What it holds.

        Returns:
            The benchmark's score, or why the submission has none.

        Raises:
            TaskError: If the benchmark's files cannot be used; it names the file.
            SandboxError: If the process died twice, or took longer than ``order.seconds``.
        """
        with self._lock:
            for attempt in ("first", "second"):
                try:
                    reply = self._ask(name, content)
                    break
                except _Death as death:
                    self._stop()
                    if attempt == "second" or death.final:
                        raise SandboxError(f"{Path(self.order.code).name} did not grade {name}: {death}") from None
            if "broken" in reply:
                self._stop()
                raise TaskError(f"the {self.order.kind} competition cannot be graded: {reply['broken']}")
        if "invalid" in reply:
            return InvalidSubmission(f"{name} is no valid submission: {reply['invalid']}")
        return float(reply["score"])

    def check(self) -> None:
        """Start the process if it does not run, which imports the benchmark's code and reads the answers.

        Raises:
            TaskError: If they cannot be used.
            SandboxError: If the process died.
        """
        with self._lock:
            try:
                reply = self._started()
            except _Death as death:
                self._stop()
                raise SandboxError(f"the grader {self.order.code} did not start: {death}") from None
            if reply is not None and "broken" in reply:
                self._stop()
                raise TaskError(f"the {self.order.kind} competition cannot be graded: {reply['broken']}")

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._stop()

    def _ask(self, name: str, content: bytes) -> dict[str, Any]:
        reply = self._started()
        if reply is not None and "broken" in reply:
            return reply
        assert self._process is not None and self._process.stdin is not None and self._folder is not None
        path = self._folder / Path(name).name
        try:
            os.truncate(self._folder / "stderr", 0)  # graders warn at each submission
            path.write_bytes(content)
            self._process.stdin.write(json.dumps(str(path)).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death() from None
        except OSError as error:
            raise _Death(f"it cannot be asked ({error})") from None
        try:
            return self._read()
        finally:
            path.unlink(missing_ok=True)

    def _started(self) -> dict[str, Any] | None:
        """Start the process unless it runs with the files as they are; return what it says first."""
        stamp = self.order.stamp()
        if self._process is not None and self._process.poll() is None and stamp == self._stamp:
            return None
        self._stop()
        self._stamp = stamp
        self._folder = Path(tempfile.mkdtemp(prefix="wmrl-grading-"))
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= dict.fromkeys(("HOME", "TMPDIR"), str(self._folder))
        with (self._folder / "stderr").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(_PROGRAM), json.dumps(dataclasses.asdict(self.order))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=self._folder,
                env=environment,
                start_new_session=True,
            )
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        deadline = time.monotonic() + self.order.seconds
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise _Death(f"it took longer than {self.order.seconds:g} seconds", final=True)
                chunk = os.read(descriptor, 2**16)
                if not chunk:
                    raise self._death()
                self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            reply: dict[str, Any] = json.loads(line)
        except ValueError:
            raise _Death(f"it answered {line[:50]!r}") from None
        return reply

    def _death(self) -> _Death:
        assert self._process is not None and self._folder is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        said = (self._folder / "stderr").read_text(errors="replace").strip().splitlines()
        return _Death(f"its process ended with code {self._process.returncode}" + (f" ({said[-1]})" if said else ""))

    def _stop(self) -> None:
        process, self._process, self._unread = self._process, None, b""
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


class _Death(Exception):
    def __init__(self, why: str, final: bool = False) -> None:
        super().__init__(why)
        self.final = final
        """Whether another attempt would only take as long again."""


class _Pool:
    """The processes of this process; those of a parent are left to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: OrderedDict[GradingOrder, GradingProcess] = OrderedDict()

    def get(self, order: GradingOrder) -> GradingProcess:
        with self._lock:
            process = self._processes.setdefault(order, GradingProcess(order))
            self._processes.move_to_end(order)
            leaving = []
            while len(self._processes) > MOST_PROCESSES:
                leaving.append(self._processes.popitem(last=False)[1])
        for old in leaving:
            old.close()
        return process

    def pid_of(self, order: GradingOrder) -> int | None:
        with self._lock:
            process = self._processes.get(order)
        return None if process is None else process.pid

    def close(self) -> None:
        with self._lock:
            processes, self._processes = list(self._processes.values()), OrderedDict()
        for process in processes:
            process.close()


_pool = _Pool()


def _forget() -> None:
    """Leave the processes to the parent: a fork must neither share their pipes nor end them."""
    global _pool
    _pool = _Pool()


os.register_at_fork(after_in_child=_forget)
atexit.register(lambda: _pool.close())


def grade(order: GradingOrder, name: str, content: bytes) -> float | InvalidSubmission:
    """Grade a submission in the process of its competition; as `GradingProcess.grade`."""
    return _pool.get(order).grade(name, content)


def check(order: GradingOrder) -> None:
    """Start the process of a competition; as `GradingProcess.check`."""
    _pool.get(order).check()


def pid_of(order: GradingOrder) -> int | None:
    """Return the id of the process of a competition; None where none runs."""
    return _pool.pid_of(order)


def close_all() -> None:
    """End all grading processes; the next grade starts them again."""
    _pool.close()
