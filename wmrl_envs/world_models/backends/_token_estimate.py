"""How long a chat is in tokens, where the server alone has the tokenizer."""

from __future__ import annotations

import math

from wmrl_envs.world_models.backends.protocol import Conversation

__all__ = ["TokenEstimate", "about_tokens"]

_TEMPLATE = 64
"""Tokens that chat templates add to a chat: some bring a system message of their own."""

_TEMPLATE_PER_MESSAGE = 8
_MARGIN = 1.25
_LONG_ENOUGH = 400  # bytes, below which the template's tokens hide the ratio


class TokenEstimate:
    """Upper estimates of the length of chats.

    A token stands for at least one byte of the text, so that the bytes are an upper bound, about four times too high
    for English. The server's own counts of earlier chats sharpen it: once it has told one, the highest ratio seen of
    tokens to bytes, with a margin of a quarter, takes the place of 1.
    """

    def __init__(self, tokens_per_byte: float | None = None) -> None:
        """Start with a fixed ratio, or with None to learn it."""
        self._fixed = tokens_per_byte
        self._highest: float | None = None

    def observe(self, conversation: Conversation, tokens: int) -> None:
        """Take note of the length that the server gives for a chat."""
        size = _bytes(conversation)
        if size >= _LONG_ENOUGH and tokens > 0:
            self._highest = max(self._highest or 0.0, tokens / size)

    def of(self, conversation: Conversation) -> int:
        """Return the estimate for a chat, in tokens."""
        learnt = 1.0 if self._highest is None else min(1.0, _MARGIN * self._highest)
        ratio = learnt if self._fixed is None else self._fixed
        return math.ceil(ratio * _bytes(conversation)) + _TEMPLATE + _TEMPLATE_PER_MESSAGE * len(conversation)


def about_tokens(text: str) -> int:
    """Return about how many tokens a text has: one for four bytes, as in English."""
    return max(1, math.ceil(len(text.encode("utf-8", "replace")) / 4))


def _bytes(conversation: Conversation) -> int:
    return sum(len(message["content"].encode("utf-8", "replace")) for message in conversation)
