"""The folder that a solution runs in."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from wmrl_envs.research.sandbox.paths import library_folders

__all__ = ["make_scratch", "path_cleaner", "remove_folder"]


def make_scratch(folder: Path, code: str, public: Path, bring: Mapping[str, bytes | Path] | None = None) -> Path:
    """Make a folder with ``solution.py`` and a view of the public data at ``input``, and return it.

    Args:
        folder: Where.
        code: The program.
        public: The public data.
        bring: By path in the folder, the content of a further file, or a folder of which it holds a copy.
    """
    folder.mkdir(mode=0o700)
    (folder / "solution.py").write_text(code, encoding="utf-8", errors="replace")
    (folder / "input").symlink_to(public, target_is_directory=True)
    for name, content in (bring or {}).items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copytree(content, place)
        else:
            place.write_bytes(content)
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
