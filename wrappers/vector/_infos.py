"""Gymnasium's vector infos: one dictionary per slot out of them, and keys kept back in some slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wmrl_envs.wrappers._streams import BoolArray, Mask, put

__all__ = ["keep_back", "slot_infos"]


def slot_infos(infos: dict[str, Any], n: int, without: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return one info dictionary per slot, as its single environment would have given it.

    Args:
        infos: Arrays with ``_key`` masks; what has no mask is taken to hold for every slot.
        n: Number of slots.
        without: Keys to leave out.
    """
    split: list[dict[str, Any]] = [{} for _ in range(n)]
    for key, values in infos.items():
        if key in without or (key.startswith("_") and key[1:] in infos):
            continue
        mask = infos.get("_" + key, np.ones(n, np.bool_))
        parts = slot_infos(values, n) if isinstance(values, dict) else values
        for slot in np.flatnonzero(mask):
            split[slot][key] = parts[slot]
    return split


def keep_back(infos: dict[str, Any], keys: Sequence[str], shown: BoolArray) -> dict[str, Any]:
    """Return infos in which some keys are left in the slots where ``shown`` ([n] bool) alone."""
    kept = dict(infos)
    for key in keys:
        if key not in infos:
            continue
        values, mask = kept.pop(key), kept.pop("_" + key, np.ones(len(shown), np.bool_)) & shown
        if not mask.any():
            continue
        if isinstance(values, dict):
            inner = [name for name in values if not (name.startswith("_") and name[1:] in values)]
            kept[key], kept["_" + key] = keep_back(values, inner, shown), mask
        else:
            put(kept, key, np.asarray(values), Mask(mask))
    return kept
