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

__all__ = ["children", "cpu_seconds", "descendants", "disk_bytes", "memory_bytes"]

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


def descendants(supervisor: int, main: int) -> list[int]:
    """Return all living processes under a supervisor, and reap the dead among its own children except the main one."""
    alive: list[int] = []
    waiting = children(supervisor)
    while waiting:
        pid = waiting.pop()
        fields = _stat(pid)
        if fields is None:
            continue
        if fields[0] in "ZX":
            if pid != main:
                with contextlib.suppress(ChildProcessError):  # of another parent, which may reap it
                    os.waitpid(pid, os.WNOHANG)
            continue
        alive.append(pid)
        waiting += children(pid)
    return alive


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third (state) on, or None if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def cpu_seconds(tree: list[int], main: int) -> float:
    """Return the CPU seconds of a tree: of those alive, of the children they waited for, and of reaped orphans."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = usage.ru_utime + usage.ru_stime
    if tree == [main]:
        with contextlib.suppress(OSError):
            total += time.clock_gettime(~main << 3 | 2)  # its CPU clock: finer than the ticks of /proc
            fields = _stat(main)
            return total + (sum(map(int, fields[13:15])) / _TICK if fields else 0.0)
    for pid in tree:
        fields = _stat(pid)
        if fields is not None:
            total += sum(map(int, fields[11:15])) / _TICK
    return total


def memory_bytes(tree: list[int], shared: int, limit: int) -> int:
    """Return the memory of a tree in bytes, without the files of the interpreter and its libraries.

    Args:
        tree: Process ids.
        shared: Resident bytes of such files in a solution's process before it started.
        limit: Above this, memory that forked processes share is counted once (slower to read).
    """
    total = 0
    for pid in tree:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/statm") as file:
            _, resident, of_files, *_ = map(int, file.read().split())
            total += resident * _PAGE - min(of_files * _PAGE, shared)
    if total <= limit or len(tree) < 2:
        return total
    return sum(_proportional(pid) for pid in tree) - shared


def _proportional(pid: int) -> int:
    """Return a process's resident bytes, each page divided by the number of processes that share it."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:")), 0)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0


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
