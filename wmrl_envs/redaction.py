"""Keys to servers are kept out of what is printed and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["without_keys"]

_KEYS = frozenset({"api_key", "authorization", "token", "password"})
_HIDDEN = "***"


def without_keys(value: Any) -> Any:
    """Return arguments with ``***`` for each key to a server, however deep it stands; everything else as it is."""
    if isinstance(value, Mapping):
        return {
            name: _HIDDEN if str(name).lower() in _KEYS and item is not None else without_keys(item)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_keys(item) for item in value]
    return value
