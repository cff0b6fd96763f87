"""Families of solutions, one for each kind of data; a task names its family in ``task.json`` under ``design``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wmrl_envs.research.designs.common import Choice, Family, Fragment, Option
from wmrl_envs.research.designs.image import ImageFamily
from wmrl_envs.research.designs.tabular import TabularFamily
from wmrl_envs.research.designs.text import TextFamily
from wmrl_envs.research.designs.training import TrainingFamily

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = ["FAMILIES", "Choice", "Family", "Fragment", "Option"]

FAMILIES: dict[str, Callable[[ResearchTask], Family]] = {
    "tabular": TabularFamily.of,
    "text": TextFamily.of,
    "image": ImageFamily.of,
    "training": TrainingFamily.of,
}
"""Makes the solutions for a task, by the name of the family."""
