"""Files are written whole.

Beside their place first, then renamed over it, so that a kill leaves the old or the new one.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wmrl_envs.errors import ConfigurationError

__all__ = ["LFS_START", "check_file", "check_folder", "replacing", "write_json", "write_text"]

LFS_START = "version https://git-lfs"
"""How the pointer begins that git leaves in place of a large file which was not fetched."""


def check_folder(folder: Path) -> None:
    """Refuse a folder in which nothing can be written, before hours of work are to be written there.

    Raises:
        ConfigurationError: If something else lies there or on the way, or it may not be written to.
    """
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.exists(path))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        problem = "may not be written to" if there.is_dir() else "is a file, not a folder"
        raise ConfigurationError(f"nothing can be written to the folder {folder}: {there} {problem}; name another one")


def check_file(path: Path) -> None:
    """Refuse a file that cannot be written; otherwise as `check_folder`.

    Raises:
        ConfigurationError: If a folder lies there, or its own cannot be written to.
    """
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder; name a file in it, such as {path / 'numbers.json'}")
    check_folder(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that takes the place of ``path`` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a whole UTF-8 text file."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a whole JSON file; NaN is an error, since JSON has none."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")
