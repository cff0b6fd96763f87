"""The two streams of rewards of one step, as arrays over the slots, and their place in ``info``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BoolArray", "FloatArray", "IntArray", "Mask", "Streams", "batch_info", "put", "single_info"]

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Mask:
    """A bool array with its number of True: most masks of a step are all or nothing, and then need no work."""

    __slots__ = ("array", "full", "none")

    def __init__(self, array: BoolArray) -> None:
        """Count."""
        count = np.count_nonzero(array)
        self.array = array
        self.full = count == len(array)
        self.none = count == 0

    def __and__(self, other: Mask) -> Mask:
        """Return where both are True."""
        return other if self.full or other.none else self if other.full or self.none else Mask(self.array & other.array)


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

    clean: bool
    """Whether every slot took a step, was predicted, and nothing that was asked for in its episode is unknown."""
    ended: Mask
    """``done``, counted."""

    @property
    def ungraded(self) -> BoolArray:
        """[n] Whether the reward shown so far leaves out something that should have been graded."""
        if self.clean:
            return np.zeros(len(self.done), np.bool_)
        missing = self.unpredicted & ~self.executed
        missing |= self.unexecuted
        return missing

    def of_turn(self, total: FloatArray, turn: FloatArray) -> FloatArray:
        """Return what info shows of a stream: the turn's before an episode's last step, at it the episode's."""
        if self.ended.none:
            return turn
        return total if self.ended.full else np.where(self.done, total, turn)


def put(info: dict[str, Any], key: str, values: NDArray[Any], mask: Mask) -> None:
    """Add a copy of an array and its mask by Gymnasium's convention.

    Where masked out it reads 0 or ``None``, and a key that no slot has is left out.

    Args:
        info: Is added to.
        key: Name; the mask goes under ``_key``.
        values: [n].
        mask: Of n slots.
    """
    if mask.none:
        return
    chosen = values.copy()
    if not mask.full:
        chosen[~mask.array] = None if values.dtype == object else 0
    info[key] = chosen
    info["_" + key] = mask.array.copy()


def batch_info(
    streams: Streams | None, group: IntArray, anchor: BoolArray, slots: Mask, turned: Mask | None = None
) -> dict[str, Any]:
    """Return ``info["wmrl"]`` before any correction, as arrays with masks.

    Args:
        streams: The step; ``None`` after a reset.
        group: [n] ids to show. They may be those of episodes that began within the step.
        anchor: [n] whether these episodes are anchors.
        slots: Which slots to tell about.
        turned: Those among them whose turn to tell about.

    Returns:
        ``group``, ``anchor``, ``ungraded``; ``real_reward`` where executed and ``predicted_reward`` (the turn's before
        an episode's last step, at it the episode's); ``outcome``.
    """
    info: dict[str, Any] = {}
    put(info, "group", group, slots)
    put(info, "anchor", anchor, slots)
    if streams is None or turned is None or turned.none:
        put(info, "ungraded", np.zeros(len(group), np.bool_), slots)
        return info
    ungraded = streams.ungraded
    put(info, "ungraded", ungraded if streams.clean or turned.full else ungraded & turned.array, slots)
    real = streams.of_turn(streams.real_total, streams.real)
    executed = streams.executed if streams.clean else streams.executed & ~streams.unexecuted & (real == real)
    put(info, "real_reward", real, turned & Mask(executed))
    predicted = streams.of_turn(streams.predicted_total, streams.predicted)
    known = turned if streams.clean else turned & Mask(~streams.unpredicted & (predicted == predicted))
    put(info, "predicted_reward", predicted, known)
    if streams.outcome is not None:
        shown = (
            turned if streams.clean else turned & Mask(np.array([outcome is not None for outcome in streams.outcome]))
        )
        put(info, "outcome", streams.outcome, shown)
    return info


def single_info(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch of one as the dictionary of a single environment, in built-in types."""
    return {
        key: values[0] if values.dtype == object else values[0].item()
        for key, values in batch.items()
        if not key.startswith("_")
    }
