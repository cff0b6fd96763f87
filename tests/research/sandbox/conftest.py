from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from wmrl_envs.research.sandbox.process import ProcessSandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[ProcessSandbox]:
    """The strongest isolation of this machine; started once, as a training run would."""
    with ProcessSandbox(workers=2) as made:
        yield made


@pytest.fixture(scope="session")
def strict() -> Iterator[ProcessSandbox]:
    """Strict isolation, started by a process whose environment holds a secret."""
    os.environ["WMRL_TEST_SECRET"] = "TRAINER-SECRET"
    with ProcessSandbox(isolation="strict", workers=2) as made:
        yield made
    del os.environ["WMRL_TEST_SECRET"]


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A public folder whose parent holds private answers, as in a task folder."""
    folder = tmp_path / "task" / "public"
    folder.mkdir(parents=True)
    (folder / "train.csv").write_text("id,x,y\n1,2,0\n2,3,1\n")
    (folder.parent / "private").mkdir()
    (folder.parent / "private" / "answers.csv").write_text("id,y\n3,SECRET-ANSWER\n")
    return folder
