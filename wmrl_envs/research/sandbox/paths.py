"""Which files a confined solution may read: the interpreter, its libraries, the system's, and the task's public data.

The package itself lies among the libraries once it is installed, and the bundled tasks' private answers with it; so
folders are opened around holes, entry by entry.
"""

from __future__ import annotations

import importlib.util
import os
import site
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

__all__ = ["around", "library_folders", "readable_paths", "unusual_folders"]

_PACKAGE = Path(__file__).resolve().parents[2]
_LIBRARIES = ("numpy", "scipy", "pandas", "sklearn", "joblib", "threadpoolctl", "dateutil", "landlockpy")
_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib64")
_SYSTEM_DATA = (
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/self/stat",
    "/proc/self/statm",
    "/proc/self/status",
    "/sys/fs/cgroup/cpu.max",
)
_SYSTEM_FOLDERS = ("/usr/share/zoneinfo", "/sys/devices/system/cpu", "/sys/fs/cgroup/cpu")
_PROGRAMS = ("/bin", "/usr/bin", "/usr/local/bin")
_DEVICES = [("/dev/null", "device"), ("/dev/zero", "file"), ("/dev/urandom", "file"), ("/dev/random", "file")]

PathKind = tuple[str, str]
"""A path and what it may be used for (a key of ``confine._RIGHTS``)."""


@lru_cache(maxsize=1)
def library_folders() -> tuple[str, ...]:
    """Return the folders that this interpreter imports libraries from, resolved, in the order of ``sys.path``."""
    found = []
    for name in _LIBRARIES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            parent = Path(spec.origin).parent
            found.append(str((parent.parent if spec.submodule_search_locations else parent).resolve()))
    known = [os.path.realpath(path) for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    return tuple(dict.fromkeys([*known, *found]))


def unusual_folders() -> tuple[str, ...]:
    """Return those of `library_folders` that a fresh interpreter would not find by itself."""
    usual = {os.path.realpath(folder) for folder in site.getsitepackages()}
    return tuple(folder for folder in library_folders() if folder not in usual)


@lru_cache(maxsize=256)
def readable_paths(public: Path, processes: bool) -> tuple[PathKind, ...]:
    """Return what a solution may read, the scratch folder aside.

    Args:
        public: The task's public folder; its parent is never opened, wherever it lies, since the answers are there.
        processes: Whether programs may be started.
    """
    public = public.resolve()
    standard = Path(os.__file__).resolve().parent
    libraries = library_folders()
    installed = [Path(folder, _PACKAGE.name) for folder in (*libraries, str(standard / "site-packages"))]
    holes = [_PACKAGE, public.parent, *(folder for folder in installed if folder.is_dir())]
    kind = "program" if processes else "tree"
    paths: list[PathKind] = [*_DEVICES, (str(public), "tree"), *_links(public)]
    for folder in (*_SYSTEM, os.path.join(sys.base_prefix, "lib")):
        paths += around(Path(folder), kind, holes)
    paths += [(str(library.resolve()), "file") for folder in _search_path() for library in folder.glob("*.so*")]
    for opened in (standard, *_installed(libraries), *map(Path, _SYSTEM_FOLDERS)):
        paths += around(opened, "tree", holes)
    paths += [(folder, "list") for folder in libraries]
    paths += [(name, "file") for name in (*_SYSTEM_DATA, os.path.join(sys.prefix, "pyvenv.cfg"))]
    if processes:
        paths += [*((folder, "program") for folder in _PROGRAMS), (os.path.realpath(sys.executable), "executable")]
    return tuple(dict.fromkeys(paths))


def _installed(libraries: Iterable[str]) -> list[Path]:
    """Return what to open of folders with libraries: all of it where packages were installed, which leaves a record.

    A library that is used from its own checkout may have anything beside it, so only the library is opened there.
    """
    opened: list[Path] = []
    for folder in map(Path, libraries):
        if any(folder.glob("*.dist-info")) or folder.name in ("site-packages", "dist-packages"):
            opened.append(folder)
        else:
            opened += [folder / name for name in _LIBRARIES]
    return opened


def around(folder: Path, kind: str, holes: Iterable[Path]) -> list[PathKind]:
    """Return paths that open a folder but not the holes in it.

    Where there is a hole, the names in the folder stay visible, the hole's included, but only its other entries open.
    """
    folder = folder.resolve()
    if not folder.is_dir() or any(folder.is_relative_to(hole) for hole in holes):
        return []
    inside = [hole for hole in holes if hole.is_relative_to(folder)]
    if not inside:
        return [(str(folder), kind)]
    paths: list[PathKind] = [(str(folder), "list")]
    for entry in os.scandir(folder):
        if entry.is_symlink():  # it leads to what is opened by itself, or to nothing that the folder would open
            continue
        if entry.is_dir():
            paths += around(Path(entry.path), kind, inside)
        elif entry.is_file():
            paths.append((entry.path, "executable" if kind == "program" else "file"))
    return paths


def _links(public: Path) -> Sequence[PathKind]:
    """Return where links in the public folder lead: large data often lies elsewhere."""
    targets = [Path(entry.path).resolve() for entry in os.scandir(public) if entry.is_symlink()]
    return [(str(target), "tree" if target.is_dir() else "file") for target in targets if target.exists()]


def _search_path() -> list[Path]:
    return [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if os.path.isabs(folder)]
