"""Files are there whole or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from wmrl_envs.files import replacing, write_json, write_text


def test_writes_into_new_folders_and_over_old_files(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "file.txt"
    write_text(path, "première")
    write_text(path, "deuxième")
    assert path.read_text(encoding="utf-8") == "deuxième"
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half of the new")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_kill_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")
    code = (
        "import os, signal, sys; from pathlib import Path; from wmrl_envs.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_text('half of the new')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_text() == "old"


def test_json_has_no_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "fine.json", {"a": [1, None, 0.1]})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "wrong.json", {"a": float("nan")})
    assert not (tmp_path / "wrong.json").exists()
