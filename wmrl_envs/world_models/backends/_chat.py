"""Chats as the tokens that a model reads."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from wmrl_envs.world_models.backends.protocol import Conversation

__all__ = ["ChatTokenizer"]

_LOG = logging.getLogger(__name__)


class ChatTokenizer:
    """Applies a chat template, up to where the assistant's reply begins.

    Control tokens that are spelt out inside a message (``<|im_end|>`` in a solution's comment, say) are broken up by a
    space, so that what is to be judged cannot end its message and speak for the model. A template that refuses a
    system message gets it in front of the user's first one. A tokenizer without a template gets ``role: content``
    paragraphs.

    Args:
        tokenizer: A transformers tokenizer.
        options: Arguments of the chat template, such as ``{"enable_thinking": False}``.
    """

    def __init__(self, tokenizer: Any, options: Mapping[str, Any]) -> None:
        self.tokenizer = tokenizer
        self.options = dict(options)
        self._control = _control_tokens(tokenizer)
        self._has_template = bool(getattr(tokenizer, "chat_template", None))
        if not self._has_template:
            _LOG.warning("the tokenizer has no chat template: chats are read as 'role: content' paragraphs")

    def encode(self, conversation: Conversation) -> tuple[int, ...]:
        """Return the tokens of a chat and of the beginning of the reply.

        Raises:
            Exception: What the template raises where it does not take such a chat.
        """
        messages = [{"role": str(m["role"]), "content": self._plain(m["content"])} for m in conversation]
        if not self._has_template:
            return self.words(_paragraphs(messages), special=True)
        try:
            text = self._render(messages)
        except Exception:
            merged = _without_system(messages)
            if merged == messages:
                raise
            text = self._render(merged)
        return self.words(text)

    def count(self, conversation: Conversation) -> int:
        """Return the length of a chat; about that where its template does not take it."""
        try:
            return len(self.encode(conversation))
        except Exception:
            messages = [{"role": str(m["role"]), "content": self._plain(m["content"])} for m in conversation]
            return len(self.words(_paragraphs(messages), special=True))

    def words(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """Return the tokens of a text, with the model's own first and last ones where ``special``."""
        return tuple(self.tokenizer(text, add_special_tokens=special)["input_ids"])

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of some tokens without control tokens."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))

    def _render(self, messages: list[dict[str, str]]) -> str:
        return str(
            self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **self.options)
        )

    def _plain(self, content: str) -> str:
        return self._control.sub(lambda match: f"{match[0][0]} {match[0][1:]}", content) if self._control else content


def _control_tokens(tokenizer: Any) -> re.Pattern[str] | None:
    added = (str(token) for token in tokenizer.added_tokens_decoder.values() if token.special)
    tokens = {token for token in (*added, *tokenizer.all_special_tokens) if len(token) > 1}
    return re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True)))) if tokens else None


def _without_system(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    if len(messages) < 2 or messages[0]["role"] != "system" or messages[1]["role"] != "user":
        return messages
    content = f"{messages[0]['content']}\n\n{messages[1]['content']}"
    return [{"role": "user", "content": content}, *messages[2:]]


def _paragraphs(messages: list[dict[str, str]]) -> str:
    return "".join(f"{message['role']}: {message['content']}\n\n" for message in messages) + "assistant:"
