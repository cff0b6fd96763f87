"""The state of episodes under way, as JSON-able data that loads back exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from wmrl_envs.errors import CheckpointError
from wmrl_envs.research.core import ResearchCore
from wmrl_envs.research.seeding import generator_from_state, generator_state

__all__ = ["load_core_state", "save_core_state"]

_ARRAYS = ("turn", "groups", "keys", "best", "last", "status", "ungraded")


def save_core_state(core: ResearchCore) -> dict[str, Any]:
    """Return everything that the next steps depend on, and what ``render`` shows."""
    state: dict[str, Any] = {name: getattr(core, name).tolist() for name in _ARRAYS}
    state["num_envs"], state["group_size"], state["max_turns"] = core.num_slots, core.group_size, core.max_turns
    state["tasks"] = [task.id for task in core.tasks]
    state["task"] = [core.tasks[index].id for index in core.task_index.tolist()]
    state["report"] = [None if np.isnan(value) else value for value in core.report.tolist()]
    state["feedback"] = list(core.feedback)
    state["code"] = list(core.code)
    state["generators"] = [None if g is None else generator_state(g) for g in core.generators]
    return state


def load_core_state(core: ResearchCore, state: dict[str, Any]) -> None:
    """Continue from a saved state.

    Raises:
        CheckpointError: If the state is of another configuration, or lacks something.
    """
    own = save_core_state(core)
    missing = sorted(own.keys() - state.keys())
    if missing:
        raise CheckpointError(f"the environment's state lacks {', '.join(missing)}; it was not saved by this version")
    for name in ("num_envs", "group_size", "max_turns", "tasks"):
        if state[name] != own[name]:
            raise CheckpointError(
                f"the environment's state was saved with {name}={state[name]}, this one has {name}={own[name]}; "
                "make it with the same arguments"
            )
    for name in _ARRAYS:
        getattr(core, name)[:] = state[name]
    ids = {task.id: index for index, task in enumerate(core.tasks)}
    core.task_index[:] = [ids[name] for name in state["task"]]
    core.report[:] = [np.nan if value is None else value for value in state["report"]]
    core.feedback = list(state["feedback"])
    core.code = list(state["code"])
    core.generators = [None if g is None else generator_from_state(g) for g in state["generators"]]
