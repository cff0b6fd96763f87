"""Checked conversion of what callers hand in to arrays of double precision."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wmrl_envs.errors import ConfigurationError

__all__ = [
    "BoolArray",
    "FloatArray",
    "check_half_life",
    "check_integer",
    "check_number",
    "float_vector",
    "known",
    "selection",
]

FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]


def float_vector(name: str, values: ArrayLike, length: int | None = None, *, unknown: bool = True) -> FloatArray:
    """Return ``values`` as a 1-D float64 array in which ``None`` became NaN; not ``unknown`` refuses those.

    Raises:
        ValueError: If the values are no numbers, have another number of axes than one, hold an infinity, number
            otherwise than ``length``, or are unknown where that is refused.
    """
    try:
        array: FloatArray = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers or None in one row, got {_shorten(values)} ({error})") from error
    if array.ndim != 1:
        raise ValueError(f"{name} must have one axis, got shape {array.shape}; flatten it")
    if length is not None and len(array) != length:
        raise ValueError(f"{name} holds {len(array)} values where {length} are needed: one per rollout")
    if not np.isfinite(array).all():
        if np.isinf(array).any():
            raise ValueError(f"{name} holds an infinity, got {_shorten(values)}; a reward is finite or None")
        if not unknown:
            raise ValueError(f"{name} holds None or NaN, got {_shorten(values)}; leave out what is unknown")
    return array


def selection(name: str, values: ArrayLike | None, length: int) -> BoolArray:
    """Return ``values`` as a bool array of ``length``; ``None`` selects everything.

    Raises:
        ValueError: If the values are not bools, or number otherwise than ``length``.
    """
    if values is None:
        return np.ones(length, dtype=np.bool_)
    array = np.asarray(values)
    if array.dtype != np.bool_ or array.shape != (length,):
        raise ValueError(f"{name} must be {length} bools, got shape {array.shape} of {array.dtype}")
    return array


def known(array: FloatArray) -> BoolArray:
    """Return where a value is known, that is, not NaN (bool, the same shape)."""
    mask: BoolArray = array == array
    return mask


def check_number(name: str, value: float, low: float, high: float, fix: str = "") -> float:
    """Return ``value`` as a float, or raise ``ConfigurationError`` unless it lies in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise ConfigurationError(f"{name} must be a number in [{low:g}, {high:g}], got {value!r}{fix}")
    if not low <= value <= high:  # NaN fails this too
        raise ConfigurationError(f"{name} must be in [{low:g}, {high:g}], got {value}{fix}")
    if math.isinf(value):
        raise ConfigurationError(f"{name} must be finite, got {value}{fix}")
    return float(value)


def check_half_life(half_life: float) -> float:
    """Return a half-life in anchor groups as a float, or raise ``ConfigurationError``."""
    return check_number("half_life", half_life, 1e-3, 1e9, " anchor groups")


def check_integer(name: str, value: int, low: int, fix: str = "") -> int:
    """Return ``value`` as an int, or raise ``ConfigurationError`` unless it is a whole number of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise ConfigurationError(f"{name} must be a whole number of at least {low}, got {value!r}{fix}")
    return int(value)


def _shorten(values: object) -> str:
    text = repr(values)
    return text if len(text) <= 80 else text[:77] + "..."
