"""Saved states: plain dicts that JSON carries exactly (Python writes a float so that it reads back the same)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wmrl_envs.errors import CheckpointError

__all__ = ["State", "restore"]

State = dict[str, Any]


def restore(owner: object, state: Mapping[str, Any], settings: Mapping[str, Any], apply: Callable[[], None]) -> None:
    """Check that ``state`` was saved by an object of the same class and settings, then run ``apply``.

    Args:
        owner: The object that loads; its class's name is part of the state.
        state: What ``state_dict`` returned, perhaps after a round trip through JSON.
        settings: The owner's settings, which the state has to match.
        apply: Reads the state and assigns; it must read everything before it assigns anything.

    Raises:
        CheckpointError: If the state belongs to another class or other settings, lacks a key, or is damaged.
    """
    name = type(owner).__name__
    try:
        if state["kind"] != name:
            raise CheckpointError(f"this state was saved by {state['kind']}, not by {name}")
        saved = dict(state["settings"])
        different = [key for key in {*saved, *settings} if saved.get(key) != settings.get(key)]
        if different:
            pairs = ", ".join(f"{k}: saved {saved.get(k)!r}, here {settings.get(k)!r}" for k in sorted(different))
            raise CheckpointError(
                f"this state of {name} was saved under other settings ({pairs}); make it with the saved ones"
            )
        apply()
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise CheckpointError(f"this state of {name} is damaged: {type(error).__name__}: {error}") from error
