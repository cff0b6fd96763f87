"""Which token sequences begin alike, and which run together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from operator import eq
from typing import TypeAlias

__all__ = ["Tokens", "Tree", "batches", "common_prefix"]

Tokens: TypeAlias = tuple[int, ...]


def common_prefix(left: Tokens, right: Tokens) -> int:
    """Return how many first tokens two sequences share."""
    return sum(1 for _ in takewhile(bool, map(eq, left, right)))


class Tree:
    """Sequences as the tree of their shared beginnings.

    Sorted sequences that begin alike stand together: a node is a span [first, end) of the sorted ones, and the spans of
    those that go on alike where all of them part are its children.

    Args:
        sequences: Token sequences, none empty.
    """

    def __init__(self, sequences: Sequence[Tokens]) -> None:
        self.sequences = sequences
        self.order = sorted(range(len(sequences)), key=sequences.__getitem__)
        """Places of the sorted sequences."""
        pairs = zip(self.order, self.order[1:], strict=False)
        # At most all but the last token: whatever shares everything still has one token to be read.
        self._common = [min(common_prefix(sequences[a], sequences[b]), len(sequences[a]) - 1) for a, b in pairs]

    def shared(self, first: int, end: int) -> Tokens:
        """Return the beginning of all sequences in a span; all but the last token where there is one only."""
        sequence = self.sequences[self.order[first]]
        return sequence[: min(self._common[first : end - 1], default=len(sequence) - 1)]

    def parts(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the spans into which a span of several sequences falls where its shared beginning ends."""
        shortest = min(self._common[first : end - 1])
        start = first
        for i in range(first, end - 1):
            if self._common[i] == shortest:
                yield start, i + 1
                start = i + 1
        yield start, end


def batches(
    lengths: Sequence[int],
    *,
    prefix: int,
    rows: int,
    tokens: int,
    cost: int,
    copies: int = 1,
    room: int = 0,
    even: bool = False,
) -> list[list[int]]:
    """Divide sequences into batches of similar length, longest first, such that padding and passes cost the least.

    Args:
        lengths: Length of each sequence without the prefix.
        prefix: Length of the prefix that each row carries.
        rows: Most rows in a batch.
        tokens: Most tokens in a batch, padding and prefix included; a single sequence may be longer.
        cost: What a pass costs beside its tokens, in tokens.
        copies: Rows that each sequence turns into.
        room: Tokens that each row will grow by.
        even: Only sequences of equal length run together, so that nothing is padded.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    best: list[tuple[int, int]] = [(0, 0)]  # for the first n sequences: the cost, and where the last batch begins
    for end in range(1, len(order) + 1):
        found: tuple[int, int] | None = None
        for first in range(end - 1, -1, -1):
            width = lengths[order[first]]
            most = max(min(rows, tokens // (prefix + width + room)) // copies, 1)
            if end - first > most or (even and lengths[order[end - 1]] != width):
                break
            candidate = (best[first][0] + (end - first) * width + cost, first)
            found = candidate if found is None or candidate[0] <= found[0] else found
        assert found is not None
        best.append(found)
    return _unwind(order, [first for _, first in best])


def _unwind(order: list[int], begins: list[int]) -> list[list[int]]:
    """Return the batches of which ``begins[n]`` is the place where the last of the first n sequences' begins."""
    found: list[list[int]] = []
    end = len(order)
    while end:
        found.append(order[begins[end] : end])
        end = begins[end]
    return found[::-1]
