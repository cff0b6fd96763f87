"""Forward passes of a causal language model over chats that share beginnings."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from wmrl_envs.world_models.backends._packing import Tokens, Tree, batches
from wmrl_envs.world_models.backends._prefixes import Prefix, Prefixes, reorder

__all__ = ["Rows", "Runner"]

_PASS = {"cpu": 32}
_PASS_ELSEWHERE = 1024
"""Tokens that a batch can have more or less at about the cost of one more pass: weights are read, kernels started."""
_REMEMBERED = 1.25
"""A prefix is kept for the next call if it is this many times as long as the one it goes on from."""
_DEEPEST = 200


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
        reorder(self.cache, rows)
        self.mask, self.position, self.logits = self.mask[rows], self.position[rows], self.logits[rows]

    def copy(self) -> Rows:
        """Return rows that may grow without these growing."""
        return Rows(copy.deepcopy(self.cache), self.mask, self.position, self.logits)


class Runner:
    """Reads token sequences in batches, what they share once.

    Padding stands between prefix and suffix, where full attention leaves it out exactly and the rows end together. What
    a sliding window or a recurrent layer makes of it there is another matter: for such models it stands behind the
    suffix, where a causal model cannot see it, and rows that are to grow have equal lengths.

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
        self.tokens_read = 0
        """Tokens that went through the model so far, padding included."""
        self.device = next(model.parameters()).device
        self._takes = set(inspect.signature(model.forward).parameters)
        self._pass = _PASS.get(self.device.type, _PASS_ELSEWHERE)
        self._plain = all(type(layer) is DynamicLayer for layer in self._new_cache().layers)
        self._prefixes = Prefixes(prefix_tokens, divisible=self._plain)

    def read(
        self, sequences: Sequence[Tokens], *, grow: bool, copies: int = 1, room: int = 0
    ) -> Iterator[tuple[list[int], Rows]]:
        """Read sequences, and yield those that were read together with their places.

        Args:
            sequences: Token sequences, none empty.
            grow: Whether the caller will extend the rows.
            copies: Rows that the caller will make of each, for the size of batches.
            room: Tokens that the caller will add to each, for the size of batches.
        """
        for members, prefix in self._plan(sequences):
            read = len(prefix.tokens)
            plan = batches(
                [len(sequences[i]) - read for i in members],
                prefix=read,
                rows=self.batch_size,
                tokens=self.max_batch_tokens,
                cost=self._pass,
                copies=copies,
                room=room,
                even=grow and not self._plain,
            )
            for batch in plan:
                together = [members[i] for i in batch]
                yield together, self._read_batch([sequences[i] for i in together], prefix)

    def extend(self, rows: Rows, tokens: torch.Tensor) -> None:
        """Let rows read [rows, n] more tokens each."""
        n = tokens.shape[1]
        positions = rows.position[:, None] + torch.arange(n, device=self.device)
        rows.mask = torch.cat([rows.mask, rows.mask.new_ones(len(tokens), n)], dim=1)
        rows.logits = self._forward(tokens, rows.cache, rows.mask, positions)
        rows.position = rows.position + n

    def forget(self) -> None:
        """Drop the prefixes in memory."""
        self._prefixes.clear()

    def _plan(self, sequences: Sequence[Tokens]) -> Iterator[tuple[list[int], Prefix]]:
        """Yield places of sequences and the prefix that they go on from."""
        nothing = Prefix((), self._new_cache())
        left = list(range(len(sequences)))
        if self.share_prefix and sequences:
            left = yield from self._branch(Tree(sequences), 0, len(sequences), nothing, _DEEPEST)
        if left:
            yield left, nothing

    def _branch(
        self, tree: Tree, first: int, end: int, base: Prefix, depth: int
    ) -> Generator[tuple[list[int], Prefix], None, list[int]]:
        """Do the same for a span of a tree whose sequences all begin with base; return those that go on from base."""
        prefix = self._prefix(tree.shared(first, end), base, end - first)
        left = tree.order[first:end]
        if end - first > 1 and depth:
            left = []
            for part in tree.parts(first, end):
                left += yield from self._branch(tree, *part, prefix, depth - 1)
        if prefix is base:
            return left
        if left:
            yield left, prefix
        return []

    def _prefix(self, tokens: Tokens, base: Prefix, sequences: int) -> Prefix:
        """Return what some sequences that begin with these tokens best go on from: base, or more than that.

        Reading a prefix apart costs two passes, its own and that of the sequences which no longer run with the others.
        """
        known, kept = self._prefixes.match(tokens)
        if kept is not None and (known - len(base.tokens)) * sequences > self._pass:
            self._prefixes.use(kept)
            base = kept.cut(known)
        if (len(tokens) - len(base.tokens)) * (sequences - 1) <= 2 * self._pass:
            return base
        cache = self._read_batch([tokens], base).cache
        prefix = Prefix(tokens, cache)
        if len(tokens) >= _REMEMBERED * len(base.tokens):
            self._prefixes.use(prefix)
        return prefix

    def _read_batch(self, sequences: list[Tokens], prefix: Prefix) -> Rows:
        """Read what sequences that begin with a prefix have beyond it."""
        read = len(prefix.tokens)
        suffixes = [sequence[read:] for sequence in sequences]
        cache = prefix.fork(len(sequences))
        width = max(map(len, suffixes))
        lengths = torch.tensor([len(suffix) for suffix in suffixes])
        steps = torch.arange(width)
        before = (width - lengths)[:, None] if self._plain else torch.zeros(len(suffixes), 1, dtype=torch.long)
        tokens = torch.full((len(suffixes), width), self.pad)
        for row, suffix in enumerate(suffixes):
            start = int(before[row])
            tokens[row, start : start + len(suffix)] = torch.tensor(suffix)
        mask = torch.cat([torch.ones(len(suffixes), read, dtype=torch.long), (steps >= before).long()], dim=1)
        positions = (read + steps - before).clamp(min=0)
        last = before[:, 0] + lengths - 1
        tokens, mask, positions = (part.to(self.device) for part in (tokens, mask, positions))
        logits = self._forward(tokens, cache, mask, positions, last)
        return Rows(cache, mask, (read + lengths).to(self.device), logits)

    def _new_cache(self) -> DynamicCache:
        return DynamicCache(config=self.model.config)

    def _forward(
        self,
        tokens: torch.Tensor,
        cache: DynamicCache,
        mask: torch.Tensor,
        positions: torch.Tensor,
        last: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the float32 logits after each row's last token; the cache grows."""
        self.tokens_read += tokens.numel()
        width = tokens.shape[1]
        kept, place = torch.unique(torch.full((len(tokens),), width - 1) if last is None else last, return_inverse=True)
        # Models differ in what their forward takes, and transformers renames past_key_values to cache.
        optional = {"position_ids": positions, "logits_to_keep": kept.to(self.device)}
        arguments: dict[str, Any] = {name: value for name, value in optional.items() if name in self._takes}
        arguments["cache" if "cache" in self._takes else "past_key_values"] = cache
        logits: torch.Tensor = self.model(input_ids=tokens, attention_mask=mask, use_cache=True, **arguments).logits
        if "logits_to_keep" not in self._takes:
            place = kept[place]
        return logits[torch.arange(len(tokens)), place].float()
