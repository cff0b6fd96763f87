"""The process beside one solution: starts it, watches its limits, collects its output, and leaves nothing of it alive.

It is forked from the zygote, so it holds nothing private, and answers the trusted side over a socket. When that side
dies, the socket closes and the solution is killed.

This module imports nothing of the package: the zygote loads it by path.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import time
from typing import Any, NoReturn

from . import confine, processes, wire
from .capture import READ_BYTES, Capture
from .runner import run_solution

__all__ = ["supervise"]

_LOOK_EVERY = 0.025
"""Seconds between two looks at the limits."""
_SETUP_SECONDS = 60.0
"""How long the solution's process may take to confine itself, in seconds; far more than it needs on a busy machine."""
_REPORT_BYTES = 2048
_MOST_FILES = 5_000
_MOST_THREADS = 256


def supervise(connection: socket.socket) -> NoReturn:
    """Serve one request and end the process."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        confine.adopt_orphans()
        request, _ = wire.receive(connection)
        result, body = _Run(request, connection).result()
        wire.send(connection, result, body)
    except (EOFError, OSError):
        pass  # the trusted side is gone, or will see that the connection closed without an answer
    finally:
        os._exit(0)


def _checked(report: bytes) -> dict[str, Any]:
    """Return what a solution's process says about its end, or as much of it as has the right form.

    Other people's code may write anything there.
    """
    try:
        said = json.loads(report)
    except (ValueError, RecursionError):
        said = None
    said = said if isinstance(said, dict) else {}
    name, line = said.get("type"), said.get("line")
    return {
        "type": name if isinstance(name, str) and name.isidentifier() and len(name) <= 100 else None,
        "line": line if type(line) is int and 0 < line < 10**6 else None,
        "memory": said.get("memory") is True,
        "disk": said.get("disk") is True,
    }


class _Run:
    """One execution of a solution."""

    def __init__(self, request: dict[str, Any], connection: socket.socket) -> None:
        self._request = request
        self._limits: dict[str, Any] = request["limits"]
        self._connection = connection
        self._fired: str | None = None  # the limit that ended it: wall, cpu, memory, disk, processes, abandoned
        self._captures = [Capture(int(self._limits["output_kb"]) * 1024) for _ in range(2)]
        self._report = bytearray()
        self._memory: dict[str, int] = {}
        self._setup_cpu = 0.0
        self._wall = 0.0

    def result(self) -> tuple[dict[str, Any], bytes]:
        """Run it and return the answer for the trusted side."""
        ends = [os.pipe() for _ in range(4)]
        own = os.getpid()
        self._child = os.fork()
        self._tree = processes.ProcessTree(self._child)
        if self._child == 0:
            self._connection.close()
            out, err, report, setup = (write for _, write in ends)
            run_solution(self._request, out, err, report, setup, own)
        for _, write in ends:
            os.close(write)
        pipes = [read for read, _ in ends]
        failure = None
        try:
            failure = self._wait_for_setup(pipes.pop())
            if failure is None:
                self._watch(pipes)
        finally:
            status = self._end_tree()
        if self._fired == "abandoned":  # nobody else will
            shutil.rmtree(self._request["scratch"], ignore_errors=True)
            with contextlib.suppress(OSError):  # the folder of all scratch folders, once it is empty
                os.rmdir(self._request["stage"])
                os.rmdir(os.path.dirname(self._request["scratch"]))
        for index, pipe in enumerate(pipes):
            self._drain(index, pipe)
        return self._answer(status, failure)

    def _wait_for_setup(self, pipe: int) -> str | None:
        """Return None once the process is confined, else what went wrong; its clock starts here."""
        said = b""
        deadline = time.monotonic() + _SETUP_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([pipe], [], [], left)[0]:
                break
            part = os.read(pipe, 4096)
            if not part:
                break
            said += part
        os.close(pipe)
        try:
            message = json.loads(said)
        except ValueError:
            return "the solution's process ended before it was confined"
        if "failure" in message:
            return str(message["failure"])
        self._memory, self._setup_cpu = message["memory"], message["cpu"]
        self._start = time.monotonic() - processes.seconds_in_queue(self._child)
        return None

    def _elapsed(self) -> float:
        """Return the seconds that count against the wall limit.

        Time in which the program was ready but other programs had the processors says nothing about it, so it does not
        count, up to a bound that the trusted side can rely on.
        """
        elapsed = time.monotonic() - self._start
        return max(elapsed - processes.seconds_in_queue(self._child), elapsed / wire.MOST_STRETCH)

    def _watch(self, pipes: list[int]) -> None:
        """Read output and look at the limits until the solution's main process ends or a limit is reached."""
        poller = select.poll()
        for pipe in pipes:
            os.set_blocking(pipe, False)
            poller.register(pipe, select.POLLIN)
        poller.register(self._connection, select.POLLIN)
        ended = self._open_child()
        if ended is not None:
            poller.register(ended, select.POLLIN)
        next_look = time.monotonic()
        while self._fired is None:
            now = time.monotonic()
            if now >= next_look:
                self._look()
                next_look = now + _LOOK_EVERY
                continue
            ready = [fd for fd, _ in poller.poll(max(0.0, (next_look - now) * 1000))]
            for fd in ready:
                if fd == self._connection.fileno():
                    self._fired = "abandoned"
                elif fd in pipes and not self._read(pipes.index(fd), fd):
                    poller.unregister(fd)
            if ended in ready or (ended is None and self._has_ended()):
                break
        self._wall = self._elapsed()
        if ended is not None:
            os.close(ended)

    def _open_child(self) -> int | None:
        """Return a descriptor that becomes readable when the solution's main process ends (Linux 5.3 and newer)."""
        try:
            return os.pidfd_open(self._child)
        except OSError:
            return None

    def _has_ended(self) -> bool:
        # left as a zombie, so that its process group cannot become another's before it is killed
        return os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _read(self, index: int, pipe: int) -> bool:
        """Take in what is in a pipe and return whether more may come."""
        try:
            data = os.read(pipe, READ_BYTES)
        except BlockingIOError:
            return True
        if index < 2:
            self._captures[index].add(data)
        elif len(self._report) < _REPORT_BYTES:
            self._report += data[:_REPORT_BYTES]
        return bool(data)

    def _drain(self, index: int, pipe: int) -> None:
        os.set_blocking(pipe, False)
        for _ in range(64):  # a pipe holds 64 KiB by default and at most 1 MiB
            try:
                data = os.read(pipe, READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                break
            if index < 2:
                self._captures[index].add(data)
            else:
                self._report += data[:_REPORT_BYTES]
        os.close(pipe)

    def _look(self) -> None:
        """Compare the whole tree with the limits."""
        limits = self._limits
        self._tree.look()
        tree = self._tree.alive
        if self._elapsed() > limits["wall_seconds"]:
            self._fired = "wall"
        elif self._setup_cpu + limits["seconds"] < self._tree.cpu_seconds():
            self._fired = "cpu"
        elif len(tree) > 1 + limits["processes"]:
            self._fired = "processes"
        elif self._tree.threads > _MOST_THREADS or self._tree.headless:
            self._fired = "threads"
        elif processes.memory_bytes(tree, self._memory["shared"], self._memory_limit()) > self._memory_limit():
            self._fired = "memory"
        elif self._disk_full(tree):
            self._fired = "disk"

    def _memory_limit(self) -> int:
        return int(self._limits["memory_mb"]) * 2**20

    def _disk_full(self, tree: list[int]) -> bool:
        limit = int(self._limits["disk_mb"]) * 2**20
        return processes.disk_bytes(self._request["scratch"], tree, limit, _MOST_FILES) > limit

    def _end_tree(self) -> int:
        """Kill whatever is left of the solution and return its main process's exit code."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
        while True:
            for orphan in processes.children(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(orphan, signal.SIGKILL)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return status

    def _answer(self, status: int, failure: str | None) -> tuple[dict[str, Any], bytes]:
        self._tree.look()  # nothing is left: what remains is the sum of all that was
        cpu = max(0.0, self._tree.cpu_seconds() - self._setup_cpu)
        out, err = (capture.content() for capture in self._captures)
        said = _checked(bytes(self._report))
        if failure is None:
            self._settle(status, cpu, said, err)
        header = {
            "failure": failure,
            "fired": self._fired,
            "exit_code": status,
            "seconds": self._wall if self._fired == "wall" else cpu,
            "said": {"type": said["type"], "line": said["line"]},
            "stdout_bytes": len(out),
        }
        return header, out + err

    def _settle(self, status: int, cpu: float, said: dict[str, Any], err: bytes) -> None:
        """Find the limit that ended the solution where it was not the watchdog that noticed.

        The rules do not depend on when the watchdog looked: a program that ends between two looks with more CPU
        seconds than it may use is over its limit all the same.
        """
        if self._fired is not None:
            return
        if self._wall > self._limits["wall_seconds"]:
            self._fired = "wall"
        elif cpu > self._limits["seconds"] or status == -signal.SIGXCPU:
            self._fired = "cpu"
        elif self._disk_full([]) or status == -signal.SIGXFSZ:
            self._fired = "disk"
        elif status == 0:
            return
        elif said["disk"]:
            self._fired = "disk"
        elif said["memory"] or (status == -signal.SIGABRT and b"bad_alloc" in err[-4096:]):
            self._fired = "memory"
