"""One toy task for all tests of the wrappers."""

from __future__ import annotations

import pytest
from toy import write_task

from wmrl_envs.research.task import ResearchTask, load_task


@pytest.fixture(scope="session")
def task(tmp_path_factory) -> ResearchTask:
    return load_task(write_task(tmp_path_factory.mktemp("tasks")))
