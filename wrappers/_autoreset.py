"""The three ways in which a vector environment begins the next episodes, and options that concern some slots."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.wrappers._streams import BoolArray

__all__ = ["autoreset_mode", "slot_flags", "slots_to_reset"]


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """Return a vector environment's autoreset mode; one that states none is taken to reset at the next step."""
    mode = env.metadata.get("autoreset_mode")
    if mode is None:
        warnings.warn(f"{env} does not state metadata['autoreset_mode']; next-step autoreset is assumed", stacklevel=3)
        return AutoresetMode.NEXT_STEP
    if not isinstance(mode, AutoresetMode):
        raise ConfigurationError(
            f"metadata['autoreset_mode'] of {env} must be one of {list(AutoresetMode)} (the enum), got {mode!r}"
        )
    return mode


def slots_to_reset(options: Mapping[str, Any] | None, n: int) -> BoolArray:
    """Return which slots a reset concerns ([n] bool): those of ``options["reset_mask"]``, or all."""
    if options is None or "reset_mask" not in options:
        return np.ones(n, np.bool_)
    mask = options["reset_mask"]
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (n,) or not mask.any():
        raise ConfigurationError(
            f"options['reset_mask'] must be a bool array of shape ({n},) that is True somewhere, got {mask!r}"
        )
    return mask.copy()


def slot_flags(value: Any, n: int, group_size: int) -> BoolArray:
    """Return ``options["anchor"]`` as [n] bool.

    Raises:
        ConfigurationError: If it is neither a bool nor n of them, or tells members of one group apart.
    """
    flags = np.asarray(value)
    if flags.dtype != np.bool_ or flags.shape not in ((), (n,)):
        raise ConfigurationError(f"options['anchor'] must be True, False or {n} bools, got {value!r}")
    flags = np.broadcast_to(flags, n).copy()
    blocks = flags.reshape(-1, group_size)
    if (blocks.any(axis=1) != blocks.all(axis=1)).any():
        raise ConfigurationError(
            f"options['anchor'] must be equal within each group of {group_size} sub-environments, got {value!r}; "
            "a group is executed as a whole"
        )
    return flags
