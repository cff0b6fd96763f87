"""Namespaces: a root folder that holds only what a solution may use, and no network, for machines without Landlock.

This module imports nothing of the package: the zygote loads it by path.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable

__all__ = ["available", "enter", "have_own_shared_memory"]

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT = 1, 2, 4, 8, 32
_NOATIME, _NODIRATIME, _BIND, _REC, _PRIVATE, _RELATIME = 1024, 2048, 4096, 16384, 1 << 18, 1 << 21
_KEPT_FLAGS = _NOSUID | _NODEV | _NOEXEC | _NOATIME | _NODIRATIME
_ST_RELATIME = 4096
_DETACH = 2
_PR_SET_DUMPABLE = 4
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SHARED_MEMORY = "size=64m,mode=1777"
_WRITABLE = ("scratch", "workshop", "device")


def have_own_shared_memory() -> None:
    """Give the calling process a /dev/shm of its own, where programs that start processes keep their semaphores.

    Raises:
        OSError: If the kernel refuses.
    """
    _unshare(_NEWNS | _NEWIPC)
    _mount(None, "/", None, _REC | _PRIVATE)
    _mount("tmpfs", "/dev/shm", "tmpfs", _NOSUID | _NODEV | _NOEXEC, _SHARED_MEMORY)
    _show_to_supervisor()


def enter(paths: Iterable[tuple[str, str]], stage: str, *, shared_memory: bool) -> None:
    """Move the calling process into namespaces of its own, where only some paths exist.

    Args:
        paths: (path, kind) pairs as for `confine.restrict_files`; kinds other than scratch folders and devices become
            read-only, and of a ``list`` only the folder itself appears.
        stage: An empty folder, on which the new root is built; outside, it stays empty.
        shared_memory: Whether there is a /dev/shm.

    Raises:
        OSError: If the kernel refuses.
    """
    _unshare(_NEWNS | _NEWNET | _NEWIPC | _NEWUTS)
    _mount(None, "/", None, _REC | _PRIVATE)
    _mount("tmpfs", stage, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
    for link in ("/lib", "/lib32", "/lib64", "/bin", "/sbin"):
        if os.path.islink(link):
            os.symlink(os.readlink(link), stage + link)
    for path, kind in sorted(paths):  # a folder before what lies in it
        if not path.startswith("/proc/") and os.path.exists(path):
            _show(os.path.realpath(path), kind, stage)
    if shared_memory:
        os.makedirs(f"{stage}/dev/shm", exist_ok=True)
        _mount("tmpfs", f"{stage}/dev/shm", "tmpfs", _NOSUID | _NODEV | _NOEXEC, _SHARED_MEMORY)
    os.chdir(stage)
    os.mkdir("old")
    _check(_libc().syscall(_SYS_PIVOT_ROOT[os.uname().machine], b".", b"old"), "pivot_root")
    os.chdir("/")
    _check(_libc().umount2(b"/old", _DETACH), "umount")
    os.rmdir("/old")
    _mount(None, "/", None, _REMOUNT | _RDONLY | _NOSUID | _NODEV)
    _show_to_supervisor()


def _show_to_supervisor() -> None:
    """Undo what a new user namespace does: it hides the process's open files and memory from its supervisor."""
    _libc().prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def _unshare(separate: int) -> None:
    user, group = os.getuid(), os.getgid()
    if user == 0 and _libc().unshare(separate) == 0:
        return
    _check(_libc().unshare(separate | _NEWUSER), "unshare")
    with open("/proc/self/setgroups", "w") as file:
        file.write("deny")
    for name, number in (("uid_map", user), ("gid_map", group)):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(f"{number} {number} 1")


def _show(path: str, kind: str, stage: str) -> None:
    """Let a path appear under the new root."""
    target = stage + path
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
        if kind == "list":
            return
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with contextlib.suppress(OSError):  # there already, within a folder that appeared before
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    _mount(path, target, None, _BIND | _REC)
    if kind not in _WRITABLE:
        # what the mount forbids already may not be allowed again
        found = os.statvfs(target).f_flag
        flags = found & _KEPT_FLAGS | (_RELATIME if found & _ST_RELATIME else 0)
        _mount(None, target, None, _REMOUNT | _BIND | _RDONLY | _NOSUID | flags)


def available() -> str | None:
    """Return None if `enter` would work in a process like this one, else why not. Changes the calling process."""
    if os.uname().machine not in _SYS_PIVOT_ROOT:
        return f"namespaces are prepared for {' and '.join(_SYS_PIVOT_ROOT)}, not {os.uname().machine}"
    try:
        _unshare(_NEWNS | _NEWNET | _NEWIPC | _NEWUTS)
        _mount(None, "/", None, _REC | _PRIVATE)
        _mount("tmpfs", "/", "tmpfs", _NOSUID | _NODEV, "size=64k")
    except OSError as error:
        return f"namespaces are refused ({error})"
    return None


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    result = _libc().mount(*encoded[:3], ctypes.c_ulong(flags), encoded[3])
    _check(result, f"mount on {target}")


def _check(result: int, action: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{action}: {os.strerror(number)}")


if __name__ == "__main__":
    print(available() or "")
