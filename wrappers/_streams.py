"""The two streams of rewards of one step, as arrays over the slots, and their place in ``info``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BoolArray", "FloatArray", "IntArray", "Streams", "batch_info", "put", "single_info"]

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(slots=True)
class Streams:
    """What one step yielded in every slot, and in the slot's episode so far (n slots; NaN is unknown).

    All arrays belong to the episode that took the step, also where a new one has begun within the same step.
    """

    active: BoolArray
    """[n] Whether the slot took a step; False for the dummy step of next-step autoreset and for frozen slots."""
    done: BoolArray
    """[n] Whether the episode ended with this step."""
    group: IntArray
    """[n] Id of the episode's group."""
    anchor: BoolArray
    """[n] Whether the episode is an anchor: both streams are known."""
    executed: BoolArray
    """[n] Whether the real reward is known: anchors, and episodes that are executed since a prediction failed."""
    unpredicted: BoolArray
    """[n] Whether a prediction of the episode failed."""
    unexecuted: BoolArray
    """[n] Whether a real reward that was asked for in the episode is unknown."""
    real: FloatArray
    """[n] Real reward of this turn."""
    predicted: FloatArray
    """[n] Predicted reward of this turn."""
    real_total: FloatArray
    """[n] Real reward of the episode so far: its best turn, or the sum of its turns."""
    predicted_total: FloatArray
    """[n] Predicted reward of the episode so far: the best turn's prediction, or the sum of the predictions."""
    spread: FloatArray
    """[n] The world model's own spread at the turn that ``predicted_total`` stands for; 0 where it states none."""
    outcome: NDArray[np.object_] | None
    """[n] The outcomes shown to the agent, ``None`` where unknown; ``None`` as a whole where there are none."""

    @property
    def ungraded(self) -> BoolArray:
        """[n] Whether the reward shown so far leaves out something that should have been graded."""
        missing = self.unpredicted & ~self.executed
        missing |= self.unexecuted
        return missing


def put(info: dict[str, Any], key: str, values: NDArray[Any], mask: BoolArray, *, copy: bool = True) -> None:
    """Add an array and its mask by Gymnasium's convention: 0 or ``None`` where masked out, no key where no slot has it.

    Args:
        info: Is added to.
        key: Name; the mask goes under ``_key``.
        values: [n].
        mask: [n].
        copy: Whether ``values`` may change later, or must not be changed here.
    """
    if mask.all():
        info[key] = values.copy() if copy else values
    elif mask.any():
        info[key] = chosen = (
            np.zeros(values.shape, values.dtype) if values.dtype != object else np.full(len(values), None)
        )
        chosen[mask] = values[mask]
    else:
        return
    info["_" + key] = mask.copy()


def batch_info(
    streams: Streams | None, group: IntArray, anchor: BoolArray, slots: BoolArray, turned: BoolArray
) -> dict[str, Any]:
    """Return ``info["wmrl"]`` before any correction, as arrays with masks.

    Args:
        streams: The step; ``None`` after a reset.
        group: [n] ids to show. They may be those of episodes that began within the step.
        anchor: [n] whether these episodes are anchors.
        slots: [n] bool, which slots to tell about.
        turned: [n] bool, those among them whose turn to tell about.

    Returns:
        ``group``, ``anchor``, ``ungraded``; ``real_reward`` where executed and ``predicted_reward`` (the turn's before
        an episode's last step, at it the episode's); ``outcome``.
    """
    info: dict[str, Any] = {}
    put(info, "group", group, slots)
    put(info, "anchor", anchor, slots)
    if streams is None:
        put(info, "ungraded", np.zeros(len(slots), np.bool_), slots, copy=False)
        return info
    put(info, "ungraded", streams.ungraded & turned, slots, copy=False)
    real = np.where(streams.done, streams.real_total, streams.real)
    put(info, "real_reward", real, turned & streams.executed & ~streams.unexecuted & (real == real), copy=False)
    predicted = np.where(streams.done, streams.predicted_total, streams.predicted)
    put(info, "predicted_reward", predicted, turned & ~streams.unpredicted & (predicted == predicted), copy=False)
    if streams.outcome is not None:
        put(info, "outcome", streams.outcome, turned & (streams.outcome != None))  # noqa: E711 - elementwise
    return info


def single_info(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch of one as the dictionary of a single environment, in built-in types."""
    return {
        key: values[0] if values.dtype == object else values[0].item()
        for key, values in batch.items()
        if not key.startswith("_")
    }
