"""One correction per run: wrapped environments of one process with equal id, settings and run share state."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

__all__ = ["ByReference", "environment_key", "settings_key", "share"]

T = TypeVar("T")

_REGISTRY: weakref.WeakValueDictionary[tuple[str, ...], Any] = weakref.WeakValueDictionary()

_NOT_SETTINGS = frozenset(
    {"num_envs", "vectorization_mode", "vector_kwargs", "autoreset_mode", "group_size", "render_mode", "report"}
)
"""Keyword arguments of an environment that change how it is stepped or looked at, and not what its rewards mean."""


class ByReference:
    """Carries an object through the deep copies of an environment's spec: a world model is shared, never copied."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __deepcopy__(self, memo: dict[int, Any]) -> ByReference:
        return self

    def __repr__(self) -> str:
        return repr(self.value)


def share(key: tuple[str, ...], build: Callable[[], T]) -> T:
    """Return the living state under ``key``, or build it. It is dropped with the last wrapper that holds it."""
    state: T | None = _REGISTRY.get(key)
    if state is None:
        state = _REGISTRY[key] = build()
    return state


def environment_key(env: Any) -> str:
    """Return what identifies an environment's rewards: id and keyword arguments, or its class where there is no id."""
    base = env.unwrapped
    spec = base.spec
    if spec is None:
        inner = getattr(base, "envs", None)  # a SyncVectorEnv made by hand is known by its sub-environments
        return environment_key(inner[0]) if inner else f"{type(base).__module__}.{type(base).__qualname__}"
    kwargs = {name: value for name, value in spec.kwargs.items() if name not in _NOT_SETTINGS}
    return f"{spec.id} {settings_key(kwargs)}"


def settings_key(settings: Mapping[str, Any]) -> str:
    """Return settings as text; an object counts as equal to itself alone."""
    return json.dumps(dict(settings), sort_keys=True, default=lambda value: f"{type(value).__qualname__}@{id(value)}")
