"""Forward passes of a causal language model over chats that share beginnings."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from wmrl_envs.world_models.backends._packing import Group, Tokens, batches, common_prefix, shared_prefixes

__all__ = ["Rows", "Runner"]

_NEAR_ENOUGH = 0.75
"""Part of a wanted prefix from which one at hand is used as it is: the rest is read with each suffix."""


@dataclass
class Rows:
    """Sequences that the model has read side by side: ``[prefix | padding | suffix]``.

    The keys and values belong to these rows alone, so that `Runner.extend` may add to them.
    """

    cache: DynamicCache
    mask: torch.Tensor
    """[rows, tokens read], 0 at padding."""
    position: torch.Tensor
    """[rows], position of the next token."""
    logits: torch.Tensor
    """float32 [rows, vocabulary] of the next token."""

    def select(self, rows: torch.Tensor) -> None:
        """Keep, repeat or reorder rows in place."""
        _reorder(self.cache, rows)
        self.mask, self.position, self.logits = self.mask[rows], self.position[rows], self.logits[rows]

    def copy(self) -> Rows:
        """Return rows that may grow without these growing."""
        return Rows(copy.deepcopy(self.cache), self.mask, self.position, self.logits)


class Runner:
    """Reads token sequences in batches, what they share once.

    Args:
        model: A transformers causal language model.
        pad: Any token, to fill rows with.
        share_prefix: Whether what sequences share is read once.
        batch_size: Most rows at once.
        max_batch_tokens: Most tokens at once, what is cached and padding included.
        prefix_tokens: Most tokens of prefixes that stay in memory for the next call.
    """

    def __init__(
        self, model: Any, *, pad: int, share_prefix: bool, batch_size: int, max_batch_tokens: int, prefix_tokens: int
    ) -> None:
        self.model = model
        self.pad = pad
        self.share_prefix = share_prefix
        self.batch_size = batch_size
        self.max_batch_tokens = max_batch_tokens
        self.prefix_tokens = prefix_tokens
        self.tokens_read = 0
        self.device = next(model.parameters()).device
        self._takes = set(inspect.signature(model.forward).parameters)
        self._plain = all(type(layer) is DynamicLayer for layer in self._new_cache().layers)
        self._prefixes: list[tuple[Tokens, DynamicCache]] = []

    def read(self, sequences: Sequence[Tokens], *, copies: int = 1, room: int = 0) -> Iterator[tuple[list[int], Rows]]:
        """Read sequences, and yield those that were read together with their places.

        Args:
            sequences: Token sequences, none empty.
            copies: Rows that the caller will make of each, for the size of batches.
            room: Tokens that the caller will add to each, for the size of batches.
        """
        groups = shared_prefixes(sequences) if self.share_prefix else [Group(0, tuple(range(len(sequences))))]
        for group in groups:
            yield from self._read_group([sequences[i] for i in group.members], group, copies, room)

    def extend(self, rows: Rows, tokens: torch.Tensor) -> None:
        """Let rows read [rows, n] more tokens each."""
        n = tokens.shape[1]
        steps = torch.arange(n, device=self.device)
        rows.mask = torch.cat([rows.mask, rows.mask.new_ones(len(tokens), n)], dim=1)
        rows.logits = self._forward(tokens, rows.cache, rows.mask, rows.position[:, None] + steps)
        rows.position = rows.position + n

    def forget(self) -> None:
        """Drop the prefixes in memory."""
        self._prefixes.clear()

    def _read_group(
        self, sequences: list[Tokens], group: Group, copies: int, room: int
    ) -> Iterator[tuple[list[int], Rows]]:
        prefix, cache = self._prefix(sequences, group.prefix) if self.share_prefix else (0, None)
        plan = batches(
            [len(sequence) - prefix for sequence in sequences],
            prefix=prefix,
            rows=self.batch_size,
            tokens=self.max_batch_tokens,
            copies=copies,
            room=room,
            even=not self._plain,
        )
        for batch in plan:
            rows = self._read_batch([sequences[i][prefix:] for i in batch], prefix, cache)
            yield [group.members[i] for i in batch], rows

    def _read_batch(self, suffixes: list[Tokens], prefix: int, cache: DynamicCache | None) -> Rows:
        width = max(map(len, suffixes))
        padding = [width - len(suffix) for suffix in suffixes]
        tokens = torch.tensor([[self.pad] * p + list(s) for p, s in zip(padding, suffixes, strict=True)])
        pads = torch.tensor(padding)[:, None]
        steps = torch.arange(width)
        mask = torch.cat([torch.ones(len(suffixes), prefix, dtype=torch.long), (steps >= pads).long()], dim=1)
        positions = (prefix + steps - pads).clamp(min=0).to(self.device)
        mask = mask.to(self.device)
        own = self._new_cache() if cache is None else _fork(cache, prefix, len(suffixes), self.device)
        logits = self._forward(tokens.to(self.device), own, mask, positions)
        return Rows(own, mask, positions[:, -1] + 1, logits)

    def _prefix(self, sequences: list[Tokens], wanted: int) -> tuple[int, DynamicCache | None]:
        """Return a prefix of all sequences that is in memory, reading it first where it is worth it."""
        alike = sequences[0][: wanted or min(common_prefix(sequences[0], s) for s in sequences)]
        if not wanted:
            alike = alike[: min(map(len, sequences)) - 1]
        length, place = max(((self._usable(i, alike), i) for i in range(len(self._prefixes))), default=(0, -1))
        if place >= 0 and length:
            self._prefixes.append(self._prefixes.pop(place))
            cache = self._prefixes[-1][1]
            if not wanted or length >= _NEAR_ENOUGH * wanted:
                return length, cache
        else:
            cache = None
        if not wanted:
            return 0, None
        own = self._new_cache() if cache is None else _fork(cache, length, 1, self.device)
        rest = torch.tensor([alike[length:]], device=self.device)
        positions = torch.arange(length, wanted, device=self.device)[None]
        self._forward(rest, own, torch.ones(1, wanted, dtype=torch.long, device=self.device), positions)
        self._remember(alike, own)
        return wanted, own

    def _usable(self, place: int, wanted: Tokens) -> int:
        """How many tokens of a prefix in memory serve a wanted one; caches that cannot be cut serve whole or not."""
        tokens, _ = self._prefixes[place]
        length = common_prefix(tokens, wanted)
        return length if self._plain or length == len(tokens) else 0

    def _remember(self, tokens: Tokens, cache: DynamicCache) -> None:
        self._prefixes.append((tokens, cache))
        while sum(len(kept) for kept, _ in self._prefixes) > self.prefix_tokens:
            self._prefixes.pop(0)

    def _new_cache(self) -> DynamicCache:
        return DynamicCache(config=self.model.config)

    def _forward(
        self, tokens: torch.Tensor, cache: DynamicCache, mask: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """Return the float32 logits after the last token; the cache grows."""
        self.tokens_read += tokens.numel()
        # Models differ in what their forward takes, and transformers renames past_key_values to cache.
        optional = {"position_ids": positions, "logits_to_keep": 1}
        arguments: dict[str, Any] = {name: value for name, value in optional.items() if name in self._takes}
        arguments["cache" if "cache" in self._takes else "past_key_values"] = cache
        output = self.model(input_ids=tokens, attention_mask=mask, use_cache=True, **arguments)
        logits: torch.Tensor = output.logits[:, -1].float()
        return logits


def _fork(cache: DynamicCache, length: int, rows: int, device: torch.device) -> DynamicCache:
    """Return the first tokens of a one-row cache in some rows, leaving the cache as it is."""
    own = copy.deepcopy(cache)
    surplus = own.get_seq_length() - length
    if surplus:
        own.crop(-surplus)
    if rows > 1:
        _reorder(own, torch.zeros(rows, dtype=torch.long, device=device))
    return own


def _reorder(cache: DynamicCache, rows: torch.Tensor) -> None:
    cache.reorder_cache(cast(torch.LongTensor, rows))
