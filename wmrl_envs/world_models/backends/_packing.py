"""Which chats share a beginning, and which run together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import eq
from typing import TypeAlias

__all__ = ["Group", "Tokens", "batches", "common_prefix", "shared_prefixes"]

Tokens: TypeAlias = tuple[int, ...]

_WORTHWHILE = 16
"""Tokens of a prefix below which nothing is shared: the pass over it would cost more than it spares."""
_DEEPEST = 200


@dataclass(frozen=True)
class Group:
    """Sequences that begin with the same tokens."""

    prefix: int
    """Tokens that they share; fewer than the shortest of them has. 0: they share nothing worth a pass of its own."""
    members: tuple[int, ...]
    """Their places in the batch."""


def common_prefix(left: Tokens, right: Tokens) -> int:
    """Return how many first tokens two sequences share."""
    return sum(1 for _ in takewhile(bool, map(eq, left, right)))


def shared_prefixes(sequences: Sequence[Tokens]) -> list[Group]:
    """Divide sequences into groups such that sharing each group's prefix spares the most tokens.

    Sorted sequences that share a prefix stand together, so that the candidates form a tree: a group, or the groups that
    it falls into where its shortest common prefix ends. A group of m with a prefix of p tokens spares (m - 1) p.
    """
    order = sorted(range(len(sequences)), key=sequences.__getitem__)
    common = [common_prefix(sequences[a], sequences[b]) for a, b in zip(order, order[1:], strict=False)]
    shortest = [min(overlap, len(sequences[a]) - 1) for overlap, a in zip(common, order, strict=False)]
    _, spans = _divide(shortest, 0, len(order)) if order else (0, [])
    groups = []
    alone: list[int] = []
    for first, end, prefix in spans:
        members = order[first:end]
        if end - first > 1 and prefix >= _WORTHWHILE:
            groups.append(Group(prefix, tuple(members)))
        else:
            alone.extend(members)
    return [*groups, *([Group(0, tuple(alone))] if alone else [])]


def _divide(common: Sequence[int], first: int, end: int, depth: int = 0) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the tokens spared and the spans (first, end, prefix) for sorted sequences [first, end)."""
    if end - first == 1:
        return 0, [(first, end, 0)]
    inner = range(first, end - 1)
    prefix = min(common[i] for i in inner)
    whole = (end - first - 1) * prefix
    if depth >= _DEEPEST:
        return whole, [(first, end, prefix)]
    spans: list[tuple[int, int, int]] = []
    spared, start = 0, first
    for cut in [*(i + 1 for i in inner if common[i] == prefix), end]:
        gain, parts = _divide(common, start, cut, depth + 1)
        spared, spans, start = spared + gain, spans + parts, cut
    return (whole, [(first, end, prefix)]) if whole >= spared else (spared, spans)


def batches(
    lengths: Sequence[int], *, prefix: int, rows: int, tokens: int, copies: int = 1, room: int = 0, even: bool = False
) -> Iterator[list[int]]:
    """Divide sequences into batches of similar length, longest first.

    Args:
        lengths: Length of each sequence without the prefix.
        prefix: Length of the prefix that each row carries.
        rows: Most rows in a batch.
        tokens: Most tokens in a batch, padding and prefix included; a single sequence may be longer.
        copies: Rows that each sequence turns into.
        room: Tokens that each row will grow by.
        even: Only sequences of equal length run together, so that nothing is padded.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    batch: list[int] = []
    for i in order:
        width = prefix + lengths[batch[0] if batch else i] + room
        full = batch and (len(batch) + 1) * copies > max(min(rows, tokens // width), copies)
        if full or (batch and even and lengths[i] != lengths[batch[0]]):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
