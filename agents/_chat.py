"""Chats as sequences of tokens that only ever grow.

A policy is trained on exactly the tokens that it read and wrote: a reply is never decoded, rendered and tokenised
again, which may cut it into other tokens, and chat templates that drop earlier thoughts cannot do so here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from wmrl_envs.agents.history import Turn, conversation, split_thinking
from wmrl_envs.errors import ConfigurationError
from wmrl_envs.research.text import clip_text
from wmrl_envs.world_models.backends.protocol import Message

__all__ = ["MIN_FEEDBACK_TOKENS", "ChatTokens"]

MIN_FEEDBACK_TOKENS = 64
"""Least number of tokens that feedback may be clipped to."""

_MIN_CHARS = 80
_REPLY = "the-reply-stands-here"


class ChatTokens:
    """Turns what an environment says into the tokens of a growing chat."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        eos_token_ids: Collection[int],
        system: str,
        feedback_tokens: int,
        template_kwargs: Mapping[str, Any],
    ) -> None:
        """Prepare a tokenizer's chat template.

        Args:
            tokenizer: A ``PreTrainedTokenizerBase`` with a chat template.
            eos_token_ids: Tokens that end a reply.
            system: System prompt; empty for none.
            feedback_tokens: Longest feedback that is shown; of a longer one the middle is left out.
            template_kwargs: Further variables of the chat template, such as ``{"enable_thinking": False}``.

        Raises:
            ConfigurationError: If there is no chat template, or it does not show replies as they are.
        """
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigurationError(
                f"the tokenizer of {getattr(tokenizer, 'name_or_path', '')!r} has no chat template, and the agent is a "
                "chat model: take an instruction-tuned model, or set processing_class.chat_template"
            )
        self._tokenizer, self._eos, self._system = tokenizer, frozenset(eos_token_ids), system
        self._limit, self._kwargs = feedback_tokens, dict(template_kwargs)
        special = (str(token) for token in tokenizer.added_tokens_decoder.values() if token.special)
        self._special = sorted({token for token in special if len(token) > 2}, key=len, reverse=True)
        if not self.between([], "x"):
            raise ConfigurationError(
                "the tokenizer's chat template does not show a reply of the assistant as it is, so that a chat cannot "
                "be continued after it; use another template (processing_class.chat_template)"
            )

    def opening(self, task: str) -> list[int]:
        """Return the chat up to the first reply.

        Args:
            task: What the agent reads as the task.
        """
        return self._ids(self._render(conversation(self._system, self._inert(task), [])))

    def between(self, reply: Sequence[int], feedback: str) -> list[int]:
        """Return what stands between a reply and the next one: the reply's end, the feedback, the next one's beginning.

        Args:
            reply: Tokens of the reply, with the one that ended it unless it was cut off.
            feedback: What the terminal showed.
        """
        turn: Turn = {
            "reply": _REPLY,
            "thinking": "",
            "feedback": self._inert(self._clipped(feedback)),
            "failed": False,
            "complete": True,
            "prompt_tokens": 0,
            "completion_tokens": 0,
        }
        _, _, tail = self._render(conversation("", "x", [turn])).partition(_REPLY)
        ids = self._ids(tail)
        # The template ends the reply once more; where it was cut off, only the template does.
        return ids[1:] if reply and ids and reply[-1] == ids[0] and ids[0] in self._eos else ids

    def text(self, reply: Sequence[int]) -> str:
        """Return a reply as the environment takes it: without special tokens, and without what was thought before."""
        return split_thinking(str(self._tokenizer.decode(list(reply), skip_special_tokens=True)))[1]

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _render(self, messages: list[Message]) -> str:
        from jinja2.exceptions import TemplateError

        try:
            return self._applied(messages)
        except TemplateError:
            if messages[0]["role"] != "system":
                raise
            # Some templates have no system role: the user then says it.
            system, first, *rest = messages
            merged: Message = {"role": "user", "content": f"{system['content']}\n\n{first['content']}"}
            return self._applied([merged, *rest])

    def _applied(self, messages: list[Message]) -> str:
        return str(
            self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **self._kwargs)
        )

    def _inert(self, text: str) -> str:
        """Keep what a program prints from ending the message that it stands in."""
        for token in self._special:
            text = text.replace(token, f"{token[0]}\u200b{token[1:]}")
        return text

    def _clipped(self, feedback: str) -> str:
        text, chars = feedback, len(feedback)
        while (length := len(self._ids(text))) > self._limit and chars > _MIN_CHARS:
            chars = max(_MIN_CHARS, min(chars - 1, chars * self._limit // length))
            text = clip_text(feedback, chars)
        return text
