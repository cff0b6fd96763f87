"""Environments whose real reward is expensive, trained on predicted rewards that a thin stream of real ones corrects.

Importing this package registers its environments with Gymnasium: ``gym.make("wmrl/ResearchDesignWMRL-v0")``, or from
anywhere ``gym.make("wmrl_envs:wmrl/ResearchDesignWMRL-v0")``. The names below are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from wmrl_envs.registration import register_environments

if TYPE_CHECKING:
    from wmrl_envs.errors import WMRLError
    from wmrl_envs.research.grading import Grader, Submission
    from wmrl_envs.research.outcome import Outcome, Prediction, Status
    from wmrl_envs.research.task import ResearchTask, bundled_tasks, load_task

__version__ = "0.1.0"

__all__ = [
    "Grader",
    "Outcome",
    "Prediction",
    "ResearchTask",
    "Status",
    "Submission",
    "WMRLError",
    "bundled_tasks",
    "load_task",
    "register_environments",
]

_HOMES = {
    "Grader": "research.grading",
    "Outcome": "research.outcome",
    "Prediction": "research.outcome",
    "ResearchTask": "research.task",
    "Status": "research.outcome",
    "Submission": "research.grading",
    "WMRLError": "errors",
    "bundled_tasks": "research.task",
    "load_task": "research.task",
}


def __getattr__(name: str) -> Any:
    """Import a public name at the moment of its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the lazy names too."""
    return sorted({*globals(), *__all__})


register_environments()
