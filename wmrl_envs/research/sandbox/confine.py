"""What a solution's process does to itself before other people's code runs in it: nothing here can be undone.

This module imports nothing of the package: the zygote loads it by path.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import landlockpy
from landlockpy import AccessFS, Scope

__all__ = [
    "adopt_orphans",
    "die_with_parent",
    "drop_capabilities",
    "limit_resources",
    "memory_now",
    "prefer_as_oom_victim",
    "restrict_files",
    "spare_memory",
]

_READ = AccessFS.READ_FILE | AccessFS.READ_DIR
_SCRATCH = (
    _READ
    | AccessFS.WRITE_FILE
    | AccessFS.REMOVE_DIR
    | AccessFS.REMOVE_FILE
    | AccessFS.MAKE_DIR
    | AccessFS.MAKE_REG
    | AccessFS.MAKE_FIFO
    | AccessFS.MAKE_SYM
    | AccessFS.REFER
    | AccessFS.TRUNCATE
)
_RIGHTS = {
    "tree": _READ,
    "program": _READ | AccessFS.EXECUTE,
    "file": AccessFS.READ_FILE,
    "list": AccessFS.READ_DIR,
    "executable": AccessFS.READ_FILE | AccessFS.EXECUTE,
    "device": AccessFS.READ_FILE | AccessFS.WRITE_FILE,
    "scratch": _SCRATCH,
    "workshop": _SCRATCH | AccessFS.EXECUTE,
}
"""What each kind of path may be used for; ``list`` names a folder's entries (and its subfolders') but opens none."""

_CAP_DAC_READ_SEARCH = 2
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_SPARE_BYTES = 64 * 2**20
_RESERVED_BYTES = 512 * 2**20


def drop_capabilities(*, keep_reading: bool) -> None:
    """Give up every privilege of root.

    Args:
        keep_reading: Keep the right to read files of other users, where the process has it: without it root in a
            container could not read a mounted data folder. Only for a process that Landlock confines anyway.

    Raises:
        OSError: If the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(64):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):  # past the last one, or no right to drop: nothing to lose
            break
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
    sets = ctypes.create_string_buffer(24)
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget failed")
    permitted = struct.unpack("=6I", sets.raw[:24])[1]
    kept = permitted & (1 << _CAP_DAC_READ_SEARCH) if keep_reading else 0
    if libc.capset(header, ctypes.create_string_buffer(struct.pack("=6I", kept, kept, 0, 0, 0, 0))):
        raise OSError(ctypes.get_errno(), "capset failed")


def restrict_files(paths: Iterable[tuple[str, str]]) -> None:
    """Confine the process to some paths by Landlock, with no network and no signals to processes outside.

    Args:
        paths: (path, kind) pairs; kinds are the keys of ``_RIGHTS``. A path that does not exist is left out.

    Raises:
        OSError: If the kernel refuses.
    """
    with landlockpy.Ruleset(scoped=Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL) as ruleset:
        for path, kind in paths:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                ruleset.allow_path(path, _RIGHTS[kind])
        ruleset.restrict()


def memory_now() -> dict[str, int]:
    """Return this process's memory in bytes.

    Returns:
        ``size``: its address space; ``data``: what of it is writable and its own; ``shared``: resident pages of files;
        ``private``: other resident pages.
    """
    with open("/proc/self/statm") as file:
        size, resident, shared, _, _, data, _ = (int(pages) * resource.getpagesize() for pages in file.read().split())
    return {"size": size, "data": data, "shared": shared, "private": resident - shared}


def limit_resources(limits: Mapping[str, Any], memory: Mapping[str, int]) -> None:
    """Set the kernel's own limits, which hold between two looks of the watchdog.

    The soft limit of memory is the real one. The hard one leaves some to spare, with which an out-of-memory error is
    reported (`spare_memory`).

    Args:
        limits: The fields of ``Limits``.
        memory: What `memory_now` returned.
    """
    room = max(0, int(limits["memory_mb"]) * 2**20 - memory["private"])
    data = memory["data"] + room
    # a thread reserves 64 MiB of addresses that it does not use
    size = memory["size"] + room + _RESERVED_BYTES
    seconds = int(limits["seconds"]) + 2
    disk = int(limits["disk_mb"]) * 2**20
    for which, soft, hard in (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_CPU, seconds, seconds + 1),
        (resource.RLIMIT_FSIZE, disk, disk),
        (resource.RLIMIT_NOFILE, 256, 256),
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_MSGQUEUE, 0, 0),
        (resource.RLIMIT_RTPRIO, 0, 0),
        (resource.RLIMIT_AS, size, size + _SPARE_BYTES),
        (resource.RLIMIT_DATA, data, data + _SPARE_BYTES),
    ):
        allowed = resource.getrlimit(which)[1]
        if allowed != resource.RLIM_INFINITY:
            soft, hard = min(soft, allowed), min(hard, allowed)
        resource.setrlimit(which, (soft, hard))


def spare_memory() -> None:
    """Raise the memory limits to the hard ones, to report that the soft ones were reached."""
    for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(which, (resource.getrlimit(which)[1],) * 2)


def prefer_as_oom_victim() -> None:
    """Ask the kernel to end this process first where the machine itself runs out of memory."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent (given by process id) dies."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died in between
        os._exit(1)


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent dies, so that none escapes."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
