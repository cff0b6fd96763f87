"""World models: graders that predict an outcome instead of executing the solution.

* `LearnedWorldModel`: the default; fitted on a few executions, learns from every further one.
* `LanguageWorldModel`: asks a language model that reads the task, the data and the code.
* `TableWorldModel`: answers with recorded outcomes; for measuring everything around a world model.
* `WorldModel`, `LearningWorldModel`: the protocols; any object with a ``grade`` method will do.
* `resolve_world_model`: a world model by name; `check_predictions`: refuses an unusable answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wmrl_envs.world_models.protocol import LearningWorldModel, WorldModel, check_predictions
from wmrl_envs.world_models.registry import WORLD_MODELS, resolve_world_model

if TYPE_CHECKING:
    from wmrl_envs.world_models.language_model import LanguageWorldModel
    from wmrl_envs.world_models.learned import LearnedWorldModel
    from wmrl_envs.world_models.table import TableWorldModel

__all__ = [
    "WORLD_MODELS",
    "LanguageWorldModel",
    "LearnedWorldModel",
    "LearningWorldModel",
    "TableWorldModel",
    "WorldModel",
    "check_predictions",
    "resolve_world_model",
]

_LAZY = {"LanguageWorldModel": "language_model", "LearnedWorldModel": "learned", "TableWorldModel": "table"}


def __getattr__(name: str) -> Any:
    """Import the world models at first use: they bring scipy.linalg and, when fitted, scikit-learn."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
