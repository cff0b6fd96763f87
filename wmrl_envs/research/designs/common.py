"""What every family of solutions is made of: named choices, and fragments of source that they select."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["Choice", "Family", "Fragment", "Option", "assignment", "literal", "source"]


@dataclass(frozen=True, slots=True)
class Option:
    """One value of a choice."""

    label: str
    """What a person reads in a table or a plot."""
    prior: float = 1.0
    """Relative weight of this option in an untrained policy, above 0."""
    bug: bool = False
    """Whether a careful person would never write it; leaderboards are made of solutions without such options."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One categorical decision about a solution."""

    name: str
    options: tuple[Option, ...]


class Family(Protocol):
    """The solutions of one kind of task: decisions, and the source that they stand for."""

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The decisions, in the order of the picks."""
        ...

    def render(self, picks: Sequence[int]) -> str:
        """Return the source of the solution that takes option ``picks[i]`` of choice ``i``."""
        ...

    def flawed(self, picks: Sequence[int]) -> bool:
        """Return whether options that are fine by themselves make a bug together."""
        ...

    def random(self, picks: Sequence[int]) -> bool:
        """Return whether the solution's score depends on the seed it runs under."""
        ...


@dataclass(frozen=True, slots=True)
class Fragment:
    """Some lines of a solution, and the imports they need."""

    lines: tuple[str, ...] = ()
    imports: tuple[str, ...] = field(default=())


def literal(values: Iterable[object]) -> str:
    """Return a list literal with double quotes, as the formatters write it."""
    return "[" + ", ".join(f'"{value}"' if isinstance(value, str) else repr(value) for value in values) + "]"


def assignment(name: str, values: Iterable[object]) -> list[str]:
    """Return the lines that assign a list literal to a name, wrapped where one line would be too long."""
    text = literal(values)
    if len(name) + len(text) <= 107:
        return [f"{name} = {text}"]
    wrapped = textwrap.wrap(text[1:-1] + ",", 106, break_long_words=False, break_on_hyphens=False)
    return [f"{name} = [", *(f"    {line}" for line in wrapped), "]"]


def source(fragments: Sequence[Fragment]) -> str:
    """Join fragments into a program: imports first, merged per module and sorted; a blank line between fragments.

    Imports are written as ``"numpy as np"`` (a plain import) or ``"sklearn.svm:SVC"`` (a name from a module).
    """
    plain: set[str] = set()
    names: dict[str, set[str]] = {}
    for fragment in fragments:
        for item in fragment.imports:
            module, _, name = item.partition(":")
            if name:
                names.setdefault(module, set()).add(name)
            else:
                plain.add(module)
    head = [f"import {module}" for module in sorted(plain)]
    head += [f"from {module} import {', '.join(sorted(found))}" for module, found in sorted(names.items())]
    body = ["\n".join(fragment.lines) for fragment in fragments if fragment.lines]
    return "\n\n".join(["\n".join(head), *body]) + "\n"
