"""A tiny language model that writes whole programs.

Each program is one token of its vocabulary, and so is the task: there is something to learn from rewards in a second.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.research.outcome import STATUSES, Status
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import load_task

__all__ = ["SYSTEM", "programs", "program_model", "reply_to"]


def _example() -> Any:
    """Return the example of this trainer as a module: the model is the one that users see."""
    spec = spec_from_file_location("research_llm_trl", Path(__file__).parents[2] / "examples" / "research_llm_trl.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLE = _example()
SYSTEM: str = EXAMPLE.SYSTEM


@lru_cache
def programs(task: str = "titanic") -> tuple[str, ...]:
    """Return six recorded solutions that always end alike: an error, two without a submission, and three valid ones,
    the best last."""
    table = ReplaySandbox().table(load_task(task))
    certain = np.nan_to_num(table.spreads, nan=1.0) < 1e-9
    chosen = []
    for status, count in ((Status.RUNTIME_ERROR, 1), (Status.NO_SUBMISSION, 2), (Status.VALID, 3)):
        found = np.flatnonzero(certain & (table.probabilities[:, STATUSES.index(status)] == 1.0))
        found = found[np.argsort(table.rewards[found], kind="stable")]
        chosen += found[np.linspace(0, len(found) - 1, count).astype(int)].tolist()
    return tuple(table.space.solution(index) for index in chosen)


def reply_to(program: str) -> str:
    """Return a reply that holds a program."""
    return f"```python\n{program}\n```"


def program_model(folder: Path, task: str = "titanic") -> Path:
    """Save a small Llama that was taught to answer the task with any of ``programs``, in every turn."""
    saved: Path = EXAMPLE.toy_model(folder, task, programs(task))
    return saved
