"""Replies that fit a JSON schema: outlines' automaton says which tokens may come next."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from outlines.models.transformers import TransformerTokenizer
from outlines_core import Guide, Index, Vocabulary  # type: ignore[import-untyped]
from outlines_core.json_schema import build_regex_from_schema  # type: ignore[import-untyped]

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.world_models.backends.protocol import Schema

__all__ = ["Constraint", "Constraints", "Index"]

_KEPT = 8


class Constraints:
    """Compiles schemas for one tokenizer and keeps the last few.

    Args:
        tokenizer: A transformers tokenizer.
        end: The token with which a reply ends.
    """

    def __init__(self, tokenizer: Any, end: int) -> None:
        self._tokenizer = tokenizer
        self._end = end
        self._vocabulary: Vocabulary | None = None
        self._indices: OrderedDict[str, Index] = OrderedDict()

    def compile(self, schema: Schema) -> Index:
        """Return the automaton of a schema.

        Raises:
            ConfigurationError: If the schema uses what outlines does not support.
        """
        key = json.dumps(schema)
        if key not in self._indices:
            try:
                self._indices[key] = Index(build_regex_from_schema(key), self._words())
            except Exception as error:
                raise ConfigurationError(f"this JSON schema cannot be enforced: {error}; schema: {key}") from error
        self._indices.move_to_end(key)
        if len(self._indices) > _KEPT:
            self._indices.popitem(last=False)
        return self._indices[key]

    def _words(self) -> Vocabulary:
        """The texts of all tokens but the control tokens, which would end a reply in the middle of a string."""
        if self._vocabulary is None:
            text = TransformerTokenizer(self._tokenizer).convert_token_to_string
            control = set(self._tokenizer.all_special_ids) | {self._end}
            control |= {i for i, token in self._tokenizer.added_tokens_decoder.items() if token.special}
            words: dict[str, list[int]] = {}
            for token, number in self._tokenizer.get_vocab().items():
                if number not in control and (word := text(token)):
                    words.setdefault(word, []).append(number)
            self._vocabulary = Vocabulary(self._end, words)
        return self._vocabulary


class Constraint:
    """Where each row of a batch stands in the automaton.

    Args:
        index: The compiled schema.
        rows: Rows of the batch.
    """

    def __init__(self, index: Index, rows: int) -> None:
        self._guides = [Guide(index) for _ in range(rows)]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits with -inf at every token that may not come next."""
        vocabulary = logits.shape[1]
        words = torch.zeros(len(self._guides), (vocabulary + 31) // 32, dtype=torch.int32)
        for guide, row in zip(self._guides, words, strict=True):
            guide.write_mask_into(row.data_ptr(), row.numel(), row.element_size())
        bits = (words[:, :, None] >> torch.arange(32, dtype=torch.int32)) & 1
        allowed = bits.bool().flatten(1)[:, :vocabulary].to(logits.device)
        return logits.masked_fill(~allowed, -torch.inf)

    def advance(self, tokens: Sequence[int]) -> None:
        """Move each row over the token that it took."""
        for guide, token in zip(self._guides, tokens, strict=True):
            if not guide.is_finished() or guide.accepts_tokens([token]):
                guide.advance(token, False)

    def select(self, rows: Sequence[int]) -> None:
        """Keep only some rows."""
        self._guides = [self._guides[row] for row in rows]
