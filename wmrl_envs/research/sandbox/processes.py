"""What a process tree uses, read from /proc; for the supervisor, which looks forty times a second.

psutil says the same at several times the cost, and has no proportional memory without reading everything.
This module imports nothing of the package: the zygote loads it by path.
"""

from __future__ import annotations

import contextlib
import os
import resource
import stat
import time

__all__ = ["ProcessTree", "children", "disk_bytes", "memory_bytes", "seconds_in_queue"]

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = resource.getpagesize()
_BLOCK = 512


def children(pid: int) -> list[int]:
    """Return the living children of a process, zombies included."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    except FileNotFoundError:
        if not os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):
            return _children_by_search(pid)
    except ProcessLookupError:
        pass
    return found


def _children_by_search(pid: int) -> list[int]:
    """Return the children of a process on a kernel without CONFIG_PROC_CHILDREN."""
    found = []
    for name in os.listdir("/proc"):
        fields = _stat(int(name)) if name.isdigit() else None
        if fields is not None and int(fields[1]) == pid:
            found.append(int(name))
    return found


class ProcessTree:
    """The processes under a supervisor (this process), as of the last look."""

    def __init__(self, main: int) -> None:
        """Watch the tree whose first process is ``main``."""
        self._main = main
        self._fields: dict[int, list[str]] = {}
        self._seen: dict[tuple[int, str], float] = {}
        self.alive: list[int] = []
        """Process ids, the main one among them."""
        self.threads = 0
        """Number of threads of all of them."""
        self.headless = False
        """Whether the main thread of one ended before its others: the kernel then hides what the process uses."""

    def look(self) -> None:
        """Find out what is alive, and reap dead children of the supervisor, save the main process."""
        self._fields, self.threads, self.headless = {}, 0, False
        waiting = children(os.getpid())
        while waiting:
            pid = waiting.pop()
            fields = _stat(pid)
            if fields is None or pid in self._fields:
                continue
            threads = int(fields[17])
            if fields[0] in "ZX" and threads <= 1:
                if pid != self._main:
                    with contextlib.suppress(ChildProcessError):  # of another parent, which may reap it
                        os.waitpid(pid, os.WNOHANG)
                continue
            self.headless |= fields[0] == "Z"
            self.threads += threads
            self._fields[pid] = fields
            self._seen[pid, fields[19]] = sum(map(int, fields[11:13])) / _TICK
            waiting += children(pid)
        self.alive = list(self._fields)

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of those alive, of the children they waited for, and of reaped orphans.

        Children that nobody waits for (their parent ignores SIGCHLD) are in no sum of the kernel's: for them, what was
        seen while they lived counts.
        """
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        total = usage.ru_utime + usage.ru_stime
        for pid, fields in self._fields.items():
            try:
                own = time.clock_gettime(~pid << 3 | 2)  # its CPU clock: finer than the ticks of /proc
            except OSError:
                own = sum(map(int, fields[11:13])) / _TICK
            total += own + sum(map(int, fields[13:15])) / _TICK
        return max(total, sum(self._seen.values()))


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third (state) on, or None if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def seconds_in_queue(pid: int) -> float:
    """Return how long a process's main thread was ready to run but had to wait for a processor, in seconds."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def memory_bytes(tree: list[int], shared: int, limit: int) -> int:
    """Return the memory of a tree in bytes, without the files of the interpreter and its libraries.

    Args:
        tree: Process ids.
        shared: Resident bytes of such files in a solution's process before it started.
        limit: Above this, memory that forked processes share is counted once (slower to read).
    """
    private = [_private(pid, shared) for pid in tree]
    if sum(private) <= limit or len(tree) < 2:
        return sum(private)
    return sum(min(most, _proportional(pid, most)) for pid, most in zip(tree, private, strict=True))


def _private(pid: int, shared: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            _, resident, of_files, *_ = map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return resident * _PAGE - min(of_files * _PAGE, shared)


def _proportional(pid: int, otherwise: int) -> int:
    """Return a process's resident bytes that belong to no file, each page divided by how many processes share it."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            kilobytes = {line.split()[0]: int(line.split()[1]) for line in file if line.startswith("Pss")}
    except PermissionError:
        return otherwise
    except (FileNotFoundError, ProcessLookupError):  # it ended a moment ago
        return 0
    if "Pss_Anon:" not in kilobytes:  # before Linux 5.9
        return 1024 * kilobytes.get("Pss:", 0)
    return 1024 * (kilobytes["Pss_Anon:"] + kilobytes["Pss_Shmem:"])


def disk_bytes(folder: str, tree: list[int], limit: int, most_files: int) -> int:
    """Return what a folder holds in bytes, with files that were deleted while a process of the tree has them open.

    Args:
        folder: The scratch folder.
        tree: Process ids whose open files count as well.
        limit: Counting stops above this.
        most_files: More files than this count as above the limit: each takes an inode and time to delete.
    """
    total = files = 0
    waiting = [folder]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except (FileNotFoundError, NotADirectoryError):  # changed meanwhile
            continue
        except OSError:  # nested deeper than a path may be long, or closed to us: it could hold anything
            return limit + 1
        files += len(entries)
        if files > most_files or total > limit:
            return max(total, limit + 1)
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError:
                return limit + 1
            total += status.st_blocks * _BLOCK
            if stat.S_ISDIR(status.st_mode):
                waiting.append(entry.path)
    device = os.stat(folder).st_dev
    for pid in tree:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    status = os.stat(f"/proc/{pid}/fd/{name}")
                    if status.st_nlink == 0 and status.st_dev == device and stat.S_ISREG(status.st_mode):
                        total += status.st_blocks * _BLOCK
    return total
