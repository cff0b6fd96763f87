"""A finite space of solutions: each combination of named choices is one readable Python program."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, TaskError, did_you_mean
from wmrl_envs.research.designs import FAMILIES, Family

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = ["PARTITIONS", "Blocks", "DesignSpace"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Blocks = tuple[tuple[int, ...], ...]
"""A partition of the choices, such as ``((0, 1, 2), (3, 4, 5))``: each block becomes one larger choice."""

PARTITIONS = ("choices", "halves", "joint")
"""Partitions by name: each choice by itself; the preparation of the data and the model with its output as two large
choices; the whole solution as a single one."""


class DesignSpace:
    """The solutions of one task that a policy without a language can propose.

    Every member is a program that a person could have written: it reads the data and writes its submission, or fails
    to in one of the ways people do. Tasks of one family share names and options, so that
    one policy can serve them all; what an option renders to depends on the task's columns and metric.

    Args:
        task: The task.
        family: Its solutions.
        blocks: How choices are grouped into larger ones, or one of ``PARTITIONS``; None leaves each by itself.

    Attributes:
        names: Name of each choice, length d.
        options: Label of each option, by choice.
        nvec: int64 ``[d]``, number of options of each choice.
        size: Number of members, the product of ``nvec``.
        prior_logits: By choice, float64 ``[nvec[i]]``: log-probabilities of the documented prior, with which an
            untrained policy starts. Under it 50 to 70 % of the solutions of a bundled tabular task are valid; uniform
            choices are valid about a third of the time.

    Example:
        >>> from wmrl_envs.research.task import load_task
        >>> space = DesignSpace.of(load_task("titanic"))
        >>> "train.csv" in space.render(space.choices(0))
        True
    """

    def __init__(self, task: ResearchTask, family: Family, blocks: Blocks | str | None = None) -> None:
        self.task = task
        self.family = family
        self._base = np.array([len(choice.options) for choice in family.choices], dtype=np.int64)
        self.blocks = _checked(blocks, len(self._base))
        choices = [[family.choices[i] for i in block] for block in self.blocks]
        self.names = tuple(" + ".join(choice.name for choice in block) for block in choices)
        combined = [list(itertools.product(*(choice.options for choice in block))) for block in choices]
        self.options = tuple(tuple(" / ".join(part.label for part in parts) for parts in block) for block in combined)
        priors = [np.array([np.prod([part.prior for part in parts]) for parts in block]) for block in combined]
        self.prior_logits: tuple[FloatArray, ...] = tuple(np.log(prior / prior.sum()) for prior in priors)
        self.nvec: IntArray = np.array([len(block) for block in combined], dtype=np.int64)
        self.size = int(self.nvec.prod())
        self._codes: dict[int, str] = {}
        self._rendered: dict[tuple[int, ...], str] = {}

    @classmethod
    def of(cls, task: ResearchTask, blocks: Sequence[Sequence[int]] | str | None = None) -> DesignSpace:
        """Return the design space of a task; equal arguments give the same object.

        Raises:
            ConfigurationError: If the blocks are no partition of the choices.
            TaskError: If the task states no design, an unknown family, or one that does not suit its data.
        """
        design = task.design
        if not design and task.kind == "competition":
            raise TaskError(
                f"task {task.id!r} has no design space: it is a benchmark's. Make a task folder of it by "
                f"wmrl tasks import, or use the environment that takes programs as text"
            )
        if not design:
            raise TaskError(
                f'task {task.id!r} has no design space; add "design": {{"family": "tabular"}} to its task.json '
                f"(the families are {', '.join(FAMILIES)}), or use the environment that takes programs as text"
            )
        name = str(design.get("family"))
        if name not in FAMILIES:
            raise TaskError(
                f"task {task.id!r}: unknown family {name!r} of solutions; the families are {', '.join(FAMILIES)}."
                f"{did_you_mean(name, FAMILIES)}"
            )
        grouped: Blocks | str | None = blocks if blocks is None or isinstance(blocks, str) else _as_tuples(blocks)
        return _space(task, json.dumps(design, sort_keys=True), grouped)

    def render(self, choices: Sequence[int] | IntArray) -> str:
        """Return the source of the solution with these choices; the same string object every time.

        Args:
            choices: One option for each choice, length d.

        Raises:
            ConfigurationError: If there are too few or too many, or one is out of range.
        """
        key: tuple[int, ...] | None = None
        if isinstance(choices, np.ndarray) and choices.dtype == np.int64 and choices.ndim == 1:
            key = tuple(choices.tolist())
            code = self._rendered.get(key)
            if code is not None:
                return code
        code = self.solution(self.index(choices))
        if key is not None:
            self._rendered[key] = code
        return code

    def solution(self, index: int) -> str:
        """Return the source of a member by its index."""
        code = self._codes.get(index)
        if code is None:
            code = self._codes[index] = self.family.render(self._picks(index))
        return code

    def index(self, choices: Sequence[int] | IntArray) -> int:
        """Return the member's index in [0, size); however choices are grouped, a member's index is the same.

        Raises:
            ConfigurationError: If there are too few or too many choices, or one is out of range.
        """
        given = np.asarray(choices)
        if given.shape != self.nvec.shape or not np.issubdtype(given.dtype, np.integer):
            raise ConfigurationError(
                f"expected {len(self.nvec)} whole numbers, one option for each of {', '.join(self.names)}; "
                f"got {given.tolist()!r}"
            )
        wrong = np.flatnonzero((given < 0) | (given >= self.nvec))
        if len(wrong):
            i = int(wrong[0])
            raise ConfigurationError(
                f"option {int(given[i])} of {self.names[i]!r} is out of range; it has options 0 to {self.nvec[i] - 1}: "
                f"{', '.join(self.options[i])}"
            )
        picks = np.zeros_like(self._base)
        for block, choice in zip(self.blocks, given, strict=True):
            picks[list(block)] = np.unravel_index(int(choice), tuple(self._base[list(block)]))
        return int(np.ravel_multi_index(tuple(picks), tuple(self._base)))

    def choices(self, index: int) -> IntArray:
        """Return the choices of a member, int64 ``[d]``.

        Raises:
            ConfigurationError: If there is no such member.
        """
        picks = np.array(self._picks(index), dtype=np.int64)
        return np.array(
            [np.ravel_multi_index(tuple(picks[list(block)]), tuple(self._base[list(block)])) for block in self.blocks],
            dtype=np.int64,
        )

    def sample(self, n: int, rng: np.random.Generator) -> IntArray:
        """Draw members from the prior.

        Returns:
            Choices, int64 ``[n, d]``.
        """
        columns = [rng.choice(len(logits), size=n, p=np.exp(logits)) for logits in self.prior_logits]
        return np.stack(columns, axis=1).astype(np.int64)

    def describe(self, choices: Sequence[int] | IntArray) -> dict[str, str]:
        """Return the label of the option that was taken, by name of the choice."""
        picked = self.choices(self.index(choices))
        return {
            name: labels[pick] for name, labels, pick in zip(self.names, self.options, picked.tolist(), strict=True)
        }

    def seeded(self, index: int) -> bool:
        """Return whether the member's score depends on the seed that it runs under."""
        return self.family.random(self._picks(index))

    def bug_free(self) -> IntArray:
        """Return the indices of the members that a careful person could have written, int64, ascending."""
        bugs = [np.array([option.bug for option in choice.options]) for choice in self.family.choices]
        fine = [
            index
            for index in range(self.size)
            for picks in [self._picks(index)]
            if not any(bug[pick] for bug, pick in zip(bugs, picks, strict=True)) and not self.family.flawed(picks)
        ]
        return np.array(fine, dtype=np.int64)

    def _picks(self, index: int) -> tuple[int, ...]:
        if not 0 <= index < self.size:
            raise ConfigurationError(
                f"the design space of {self.task.id!r} has members 0 to {self.size - 1}, got {index}"
            )
        return tuple(int(pick) for pick in np.unravel_index(index, tuple(self._base)))

    def __repr__(self) -> str:
        return f"DesignSpace({self.task.id!r}, nvec={self.nvec.tolist()}, size={self.size})"


@lru_cache(maxsize=64)
def _space(task: ResearchTask, design: str, blocks: Blocks | str | None) -> DesignSpace:
    # The design is part of the key because tasks are equal if their folders are, and a folder can change.
    return DesignSpace(task, FAMILIES[str((task.design or {})["family"])](task), blocks)


def _as_tuples(blocks: Sequence[Sequence[int]]) -> Blocks:
    return tuple(tuple(int(i) for i in block) for block in blocks)


def _checked(blocks: Blocks | str | None, count: int) -> Blocks:
    everything = range(count)
    if blocks is None or blocks == "choices":
        return tuple((i,) for i in everything)
    if blocks == "halves":
        return tuple(everything[:-2]), tuple(everything[-2:])
    if blocks == "joint":
        return (tuple(everything),)
    if isinstance(blocks, str):
        raise ConfigurationError(
            f"unknown partition {blocks!r} of the choices; they are {', '.join(PARTITIONS)}, or give your own blocks."
            + did_you_mean(blocks, PARTITIONS)
        )
    if sorted(i for block in blocks for i in block) != list(range(count)) or not all(blocks):
        raise ConfigurationError(
            f"blocks must hold each of the choices 0 to {count - 1} once, such as "
            f"{(tuple(range(count // 2)), tuple(range(count // 2, count)))}; got {blocks}"
        )
    return blocks
