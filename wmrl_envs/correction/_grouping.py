"""Statistics per group, by group id and without a loop over groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wmrl_envs.correction._arrays import BoolArray, FloatArray, float_vector, known, selection

__all__ = ["EPSILON", "Grouping", "graded_pairs", "group_ids", "row_scores"]

EPSILON = 1e-4
"""Added to a group's standard deviation, as GRPO and arXiv 2608.12564 do."""


def group_ids(groups: ArrayLike, length: int) -> NDArray[Any]:
    """Return ``groups`` as a 1-D array of ids.

    Raises:
        ValueError: If the ids are neither whole numbers nor strings, or number otherwise than ``length``.
    """
    ids = np.asarray(groups)
    if ids.shape != (length,):
        raise ValueError(f"groups must hold one id per rollout, got shape {ids.shape} for {length} rollouts")
    if length and ids.dtype.kind not in "iuUSb":
        raise ValueError(f"group ids must be whole numbers or strings, got {ids.dtype}")
    return ids


class Grouping:
    """Which rollouts share a group: a group is its id, wherever its members stand."""

    def __init__(self, ids: NDArray[Any]) -> None:
        """Sort the members of [n] ids, n > 0, by group; within a group they keep their order."""
        self.order: NDArray[np.intp] = np.argsort(ids, kind="stable")
        ids = ids[self.order]
        first = np.empty(len(ids), dtype=np.bool_)
        first[0] = True
        np.not_equal(ids[1:], ids[:-1], out=first[1:])
        self.starts: NDArray[np.intp] = np.flatnonzero(first)
        self.counts: NDArray[np.intp] = np.diff(self.starts, append=len(ids))
        self.index: NDArray[np.intp] = np.cumsum(first) - 1
        """Group number (in the order of the ids) of each sorted member."""

    def sums(self, ordered: FloatArray) -> FloatArray:
        """Return the groups' sums, [..., groups], of values [..., n] that are in the grouping's order."""
        totals: FloatArray = np.add.reduceat(ordered, self.starts, axis=-1)
        return totals

    def scores(self, ordered: FloatArray, standardised: bool) -> FloatArray:
        """Return each value's z-score (or deviation from the mean) in its group, [..., n] in the grouping's order.

        Exactly 0 where the group's values are all equal, even if their float mean differs from them.
        """
        deviations: FloatArray = ordered - (self.sums(ordered) / self.counts)[..., self.index]
        if standardised:
            deviations /= (np.sqrt(self.sums(deviations * deviations) / self.counts) + EPSILON)[..., self.index]
        largest = np.maximum.reduceat(ordered, self.starts, axis=-1)
        deviations[(largest == np.minimum.reduceat(ordered, self.starts, axis=-1))[..., self.index]] = 0.0
        return deviations

    def mixed(self, flags: BoolArray) -> BoolArray:
        """Return which groups, bool [groups], have some but not all flags ([n], in the grouping's order) set."""
        both: BoolArray = np.logical_or.reduceat(flags, self.starts) != np.logical_and.reduceat(flags, self.starts)
        return both


def row_scores(rows: FloatArray, standardised: bool) -> FloatArray:
    """Return ``Grouping.scores`` where each row, [..., G], is a whole group: nothing has to be sorted."""
    size = rows.shape[-1]
    deviations: FloatArray = rows - np.add.reduce(rows, axis=-1, keepdims=True) / size
    if standardised:
        deviations /= np.sqrt(np.add.reduce(deviations * deviations, axis=-1, keepdims=True) / size) + EPSILON
    equal = np.maximum.reduce(rows, axis=-1) == np.minimum.reduce(rows, axis=-1)
    if equal.any():
        deviations[equal] = 0.0
    return deviations


def graded_pairs(
    real: ArrayLike, calibrated: ArrayLike, groups: ArrayLike | None, mask: ArrayLike | None
) -> tuple[FloatArray, FloatArray, NDArray[Any], BoolArray]:
    """Return anchor rollouts flattened: their r, f and group ids, and which of them are graded by both, each [n].

    Args:
        real: Real rewards, [n], or [groups, G] with a row per group.
        calibrated: Calibrated predictions, the same shape.
        groups: Group ids, the same shape; ``None`` takes rows as groups, and a single axis as one group.
        mask: Which to take, bool, the same shape; unknown values (None, NaN) are never graded.

    Raises:
        ValueError: If the shapes differ or a value is infinite.
    """
    r = np.asarray(real, dtype=np.float64)
    shape = r.shape
    if groups is None:
        groups = np.zeros(shape, dtype=np.int64) if r.ndim < 2 else np.arange(len(r)).repeat(r[0].size if len(r) else 0)
    others = {"calibrated": calibrated, "mask": mask}
    for name, values in others.items():
        if values is not None and np.shape(values) != shape:
            raise ValueError(f"{name} must have the shape of real, {shape}, got {np.shape(values)}")
    r = float_vector("real", r.ravel())
    f = float_vector("calibrated", np.ravel(np.asarray(calibrated, dtype=np.float64)))
    keep = known(r) & known(f)
    if mask is not None:
        keep &= selection("mask", np.ravel(np.asarray(mask)), len(r))
    return r, f, group_ids(np.ravel(np.asarray(groups)), len(r)), keep
