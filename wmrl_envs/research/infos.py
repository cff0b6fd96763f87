"""The info of a step: as one dictionary for a single environment, as arrays with masks for a vector one.

Gymnasium's vector environments merge the dictionaries of their sub-environments one by one. The arrays here are built
whole, and equal what that merge gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.research.core import ResearchCore
from wmrl_envs.research.outcome import Outcome, Prediction

__all__ = ["single_info", "vector_infos"]


def single_info(core: ResearchCore, outcome: Outcome | None, *, report: bool) -> dict[str, Any]:
    """Return the info of slot 0.

    Args:
        core: The episodes.
        outcome: The outcome of the turn that was just taken; ``None`` after a reset or where it is unknown.
        report: Whether to give ``report_score``.

    Returns:
        ``task`` (id), ``turn`` (turns taken), with ``report`` the ``report_score`` of the best turn so far, and
        ``wmrl``: ``group``, ``ungraded``, ``outcome`` and ``real_reward`` (the turn's ladder reward, if it was really
        executed). What is unknown has no key, and ``wmrl`` is left to the route where one is installed.
    """
    info: dict[str, Any] = {"task": core.tasks[core.task_index[0]].id, "turn": int(core.turn[0])}
    if core.route is None:
        wmrl: dict[str, Any] = {"group": int(core.groups[0]), "ungraded": bool(core.ungraded[0])}
        info["wmrl"] = wmrl
        if outcome is not None:
            wmrl["outcome"] = outcome
            if not isinstance(outcome, Prediction):
                wmrl["real_reward"] = float(outcome.reward)
    if report and not np.isnan(core.report[0]):
        info["report_score"] = float(core.report[0])
    return info


def vector_infos(
    core: ResearchCore, slots: NDArray[np.bool_], outcomes: NDArray[np.object_], *, report: bool
) -> dict[str, Any]:
    """Return the infos of some slots, by Gymnasium's convention for vector environments.

    Args:
        core: The episodes.
        slots: bool [num_slots], which slots have an info at all; at least one.
        outcomes: object [num_slots], the outcome of the turn that was just taken, ``None`` where there is none.
        report: Whether to give ``report_score``.

    Returns:
        The keys of ``single_info``, each as an array over all slots with its ``_key`` mask.
    """
    infos: dict[str, Any] = {}
    if core.route is None:
        infos["wmrl"], infos["_wmrl"] = _wmrl(core, slots, outcomes), slots.copy()
    ids = np.array([task.id for task in core.tasks], dtype=object)
    _put(infos, "task", ids[core.task_index], slots)
    _put(infos, "turn", core.turn, slots)
    if report:
        _put(infos, "report_score", core.report, slots & ~np.isnan(core.report))
    return infos


def _wmrl(core: ResearchCore, slots: NDArray[np.bool_], outcomes: NDArray[np.object_]) -> dict[str, Any]:
    listed = outcomes.tolist()
    shown = slots & np.array([outcome is not None for outcome in listed])
    real = shown & np.array([not isinstance(outcome, Prediction) for outcome in listed])
    rewards = np.zeros(core.num_slots)
    rewards[real] = [outcome.reward for outcome in outcomes[real]]
    wmrl: dict[str, Any] = {}
    _put(wmrl, "group", core.groups, slots)
    _put(wmrl, "ungraded", core.ungraded, slots)
    _put(wmrl, "outcome", outcomes, shown)
    _put(wmrl, "real_reward", rewards, real)
    return wmrl


def _put(infos: dict[str, Any], key: str, values: NDArray[Any], mask: NDArray[np.bool_]) -> None:
    """Add an array and its mask; what is masked out reads 0 or ``None``, and a key that no slot has is left out."""
    if not mask.any():
        return
    array = values.copy()
    array[~mask] = None if array.dtype == object else 0
    infos[key], infos[f"_{key}"] = array, mask.copy()
