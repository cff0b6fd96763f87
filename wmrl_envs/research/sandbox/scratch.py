"""The folder that a solution runs in."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from wmrl_envs.research.sandbox.paths import library_folders

__all__ = ["make_scratch", "path_cleaner", "remove_folder"]


def make_scratch(folder: Path, code: str, public: Path) -> Path:
    """Make a folder with ``solution.py`` and a view of the public data at ``input``, and return it."""
    folder.mkdir(mode=0o700)
    (folder / "solution.py").write_text(code, encoding="utf-8", errors="replace")
    (folder / "input").symlink_to(public, target_is_directory=True)
    return folder


def remove_folder(folder: Path) -> None:
    """Delete a folder that other people's code filled: however deep, whatever its modes."""
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(folder)
    if not os.path.lexists(folder):
        return
    subprocess.run(["chmod", "-R", "u+rwX", str(folder)], capture_output=True, check=False)
    subprocess.run(["rm", "-rf", str(folder)], capture_output=True, check=False)


def path_cleaner(scratch: Path, public: Path) -> Callable[[str], str]:
    """Return a function that takes this machine's paths out of a text."""
    folders = {f"{scratch}/": "", str(scratch): ".", str(public): "input"}
    folders |= {f"{folder}/": "" for folder in (*library_folders(), os.path.dirname(os.path.realpath(os.__file__)))}
    pattern = re.compile("|".join(map(re.escape, sorted(folders, key=len, reverse=True))))
    return lambda text: pattern.sub(lambda found: folders[found.group()], text)
