"""Beginnings of chats that a model has read, kept for the chats to come."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import cast

import torch
from transformers import DynamicCache

from wmrl_envs.world_models.backends._packing import Tokens, common_prefix

__all__ = ["Prefix", "Prefixes", "reorder"]


@dataclass(frozen=True, eq=False)
class Prefix:
    """Tokens and the keys and values of one row that has read them; never changed."""

    tokens: Tokens
    cache: DynamicCache

    def fork(self, rows: int) -> DynamicCache:
        """Return the keys and values in some rows of their own."""
        own = copy.deepcopy(self.cache)
        if rows > 1:
            reorder(own, torch.zeros(rows, dtype=torch.long))
        return own

    def cut(self, length: int) -> Prefix:
        """Return the prefix of the first tokens."""
        if length == len(self.tokens):
            return self
        own = copy.deepcopy(self.cache)
        own.crop(length - len(self.tokens))
        return Prefix(self.tokens[:length], own)


class Prefixes:
    """The prefixes used last, within a number of tokens.

    Args:
        tokens: Most tokens that are kept.
        divisible: Whether the first part of a cache can be used alone. The caches of models with sliding windows or
            recurrent layers cannot be cut.
    """

    def __init__(self, tokens: int, divisible: bool) -> None:
        self._tokens = tokens
        self._divisible = divisible
        self._kept: list[Prefix] = []

    def match(self, sequence: Tokens) -> tuple[int, Prefix | None]:
        """Return how many first tokens of a sequence are at hand, and where."""
        best: tuple[int, Prefix | None] = (0, None)
        for prefix in self._kept:
            length = common_prefix(prefix.tokens, sequence)
            if length > best[0] and (self._divisible or length == len(prefix.tokens)):
                best = (length, prefix)
        return best

    def use(self, prefix: Prefix) -> None:
        """Keep a prefix as the one used last."""
        self._kept = [kept for kept in self._kept if kept is not prefix] + [prefix]
        while sum(len(kept.tokens) for kept in self._kept) > self._tokens:
            self._kept.pop(0)

    def clear(self) -> None:
        """Keep nothing."""
        self._kept.clear()


def reorder(cache: DynamicCache, rows: torch.Tensor) -> None:
    """Keep, repeat or reorder the rows of a cache in place."""
    cache.reorder_cache(cast(torch.LongTensor, rows))
