"""What a confined solution may read, above all where the package is installed beside the libraries."""

from __future__ import annotations

from pathlib import Path

import pytest
from attacking import all_failed, attack, needs_strict

from wmrl_envs.research.sandbox import paths
from wmrl_envs.research.sandbox.paths import around, library_folders, readable_paths
from wmrl_envs.research.sandbox.process import ProcessSandbox


def opened(path: Path, pairs: list[tuple[str, str]]) -> bool:
    """Whether a file could be read under these rules."""
    return any(kind != "list" and path.is_relative_to(folder) for folder, kind in pairs)


def test_a_folder_is_opened_around_its_holes(tmp_path: Path) -> None:
    for name in ("package/tasks/private", "library/deep", "other"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("package/tasks/private/answers.csv", "library/deep/module.py", "module.py", "package/code.py"):
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / "package")
    pairs = around(tmp_path, "tree", [tmp_path / "package", Path("/elsewhere")])
    assert opened(tmp_path / "library/deep/module.py", pairs) and opened(tmp_path / "module.py", pairs)
    assert not opened(tmp_path / "package/code.py", pairs) and (str(tmp_path), "list") in pairs
    deeper = around(tmp_path, "tree", [tmp_path / "package/tasks/private"])
    assert opened(tmp_path / "package/code.py", deeper)
    assert not opened(tmp_path / "package/tasks/private/answers.csv", deeper)
    assert around(tmp_path / "package", "tree", [tmp_path]) == [] == around(tmp_path / "missing", "tree", [])
    assert around(tmp_path, "tree", []) == [(str(tmp_path), "tree")]


def test_neither_the_package_nor_a_task_among_the_libraries_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Path(library_folders()[0])
    monkeypatch.setattr(paths, "_PACKAGE", site / "scipy")  # any installed package will do
    public = site / "sklearn" / "datasets"
    pairs = list(readable_paths.__wrapped__(public, False))
    assert not opened(site / "scipy" / "version.py", pairs)
    assert not opened(site / "sklearn" / "base.py", pairs) and opened(public / "_base.py", pairs)
    assert opened(site / "numpy" / "version.py", pairs)


def test_links_in_the_public_folder_are_followed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.csv").touch()
    (tmp_path / "task" / "public").mkdir(parents=True)
    (tmp_path / "task" / "public" / "train.csv").symlink_to(tmp_path / "data" / "train.csv")
    pairs = readable_paths(tmp_path / "task" / "public", False)
    assert (str(tmp_path / "data" / "train.csv"), "file") in pairs


@needs_strict
def test_installed_beside_the_libraries_the_package_stays_closed(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Path(library_folders()[0])
    monkeypatch.setattr(paths, "_PACKAGE", site / "pip")
    readable_paths.cache_clear()
    with ProcessSandbox(isolation="strict", workers=1) as sandbox:
        hidden = attack(sandbox, public, f"attempt('open', open, {str(site / 'pip' / '__init__.py')!r})")
        fine = sandbox.run("import scipy.signal, sklearn.cluster, pandas.plotting", public)
    readable_paths.cache_clear()
    all_failed(hidden, 1)
    assert fine.cause == "ok", fine.stderr
