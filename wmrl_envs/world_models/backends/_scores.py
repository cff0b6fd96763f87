"""Probabilities over some answers, asked of an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import WorldModelError
from wmrl_envs.world_models.backends._chat_client import ChatClient
from wmrl_envs.world_models.backends._choices import Choices
from wmrl_envs.world_models.backends._dialect import Dialect
from wmrl_envs.world_models.backends._first_tokens import choice_probabilities
from wmrl_envs.world_models.backends._packing import Tokens
from wmrl_envs.world_models.backends._unanswered import Unanswered
from wmrl_envs.world_models.backends.protocol import Conversation

__all__ = ["Scores"]

_BY_TOKEN = "logprob_token_ids"
_MOST = 128  # of them in one answer of vLLM's


class Scores:
    """Scores answers: exactly where a server gives the log-probabilities of tokens by number, as vLLM does.

    Elsewhere they are read from the reply's most probable first tokens, and a server that takes ``structured_outputs``
    (vLLM before it took token numbers) is told the choices, so that the list holds nothing else.
    """

    def __init__(self, client: ChatClient, dialect: Dialect, top_logprobs: int, server: str) -> None:
        self._client = client
        self._dialect = dialect
        self._top_logprobs = top_logprobs
        self._server = server
        self._choices: dict[tuple[str, ...], Choices] = {}

    async def learn(self, words: Sequence[str]) -> None:
        """Ask for the tokens of some answers, once.

        Raises:
            Unanswered: If the server does not answer.
        """
        if tuple(words) in self._choices or not self._dialect.takes(_BY_TOKEN):
            return
        first = await self._client.tokens_of(words[0])
        if first is None:
            self._dialect.drop(_BY_TOKEN, "the server has no page that tells the tokens of a text")
            return
        rest = await asyncio.gather(*(self._client.tokens_of(word) for word in words[1:]))
        tokens = {word: found or () for word, found in zip(words, [first, *rest], strict=True)}
        choices = Choices(words, tokens.__getitem__)
        if all(len(choices.next_tokens(context)) <= _MOST for context in ((), *choices.contexts)):
            self._choices[tuple(words)] = choices

    async def probabilities(self, conversation: Conversation, words: Sequence[str]) -> NDArray[np.float64]:
        """Return float64 [k] over the answers.

        Raises:
            Unanswered: If they could not be had for this chat.
            WorldModelError: If the server gives no log-probabilities.
        """
        choices = self._choices.get(tuple(words))
        if choices is not None and self._dialect.takes(_BY_TOKEN):
            found = await self._exact(conversation, choices)
            if found is not None:
                return found
            self._dialect.drop(_BY_TOKEN, "the server leaves it out of account")
        return await self._by_first_token(conversation, words)

    async def _exact(self, conversation: Conversation, choices: Choices) -> NDArray[np.float64] | None:
        """Return float64 [k], None where the server does not give what it was asked for."""
        reply = await self._client.complete(conversation, **_by_token(choices.next_tokens(())))
        logs = _of_tokens((), _listed(reply, self._server), choices)
        if logs is None:
            return None
        if choices.contexts:
            prompt = await self._client.tokens_of(conversation) or ()
            further = [self._after(prompt, context, choices) for context in choices.contexts]
            for more in await asyncio.gather(*further):
                if more is None:
                    return None
                logs |= more
        probabilities = choices.probabilities(logs)
        if probabilities is None:
            raise Unanswered("the log-probabilities are not finite", own=True)
        return probabilities

    async def _after(self, prompt: Tokens, context: Tokens, choices: Choices) -> dict[tuple[Tokens, int], float] | None:
        if not prompt:
            return None
        asked = choices.next_tokens(context)
        reply = await self._client.go_on([*prompt, *context], **_by_token(asked) | {"logprobs": 1})
        logprobs = reply["choices"][0].get("logprobs")
        listed = logprobs.get("top_logprobs") if isinstance(logprobs, dict) else None
        return _of_tokens(context, listed[0] if listed and isinstance(listed[0], dict) else {}, choices)

    async def _by_first_token(self, conversation: Conversation, words: Sequence[str]) -> NDArray[np.float64]:
        reply = await self._client.complete(
            conversation,
            max_tokens=1,
            temperature=0.0,  # a token that was drawn by chance would head the list of the most probable ones
            logprobs=True,
            top_logprobs=self._top_logprobs,
            structured_outputs={"choice": list(words)},
        )
        listed = _listed(reply, self._server)
        probabilities = choice_probabilities({token: math.exp(log) for token, log in listed.items()}, words)
        if probabilities is None:
            raise Unanswered(f"none of {list(words)} begins with one of its tokens {list(listed)[:5]}", own=True)
        return probabilities


def _by_token(tokens: Sequence[int]) -> dict[str, Any]:
    return {
        "max_tokens": 1,
        "temperature": 0.0,
        "logprobs": True,
        _BY_TOKEN: list(tokens),
        "return_tokens_as_token_ids": True,  # their texts need not differ
    }


def _of_tokens(context: Tokens, listed: Mapping[str, Any], choices: Choices) -> dict[tuple[Tokens, int], float] | None:
    """Return the log-probabilities of the tokens after a context, None if one of them is not listed."""
    names = {token: f"token_id:{token}" for token in choices.next_tokens(context)}
    if not all(isinstance(listed.get(name), (int, float)) for name in names.values()):
        return None
    return {(context, token): float(listed[name]) for token, name in names.items()}


def _listed(reply: Mapping[str, Any], server: str) -> dict[str, float]:
    """Return the log-probabilities of a reply's most probable first tokens.

    Raises:
        WorldModelError: If the server gives none.
    """
    logprobs = reply["choices"][0].get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    first = content[0] if isinstance(content, list) and content else None
    tokens: dict[str, float] = {}
    for entry in (first.get("top_logprobs") or [first]) if isinstance(first, dict) else []:
        token, log = entry.get("token"), entry.get("logprob")
        if isinstance(token, str) and isinstance(log, (int, float)) and not math.isnan(log):
            tokens[token] = float(np.logaddexp(tokens.get(token, -math.inf), min(0.0, log)))
    if not tokens:
        raise WorldModelError(
            f"{server} gives no log-probabilities, so that it cannot score answers; read it by sampling instead "
            '(mode="sample"), or serve the model with vLLM'
        )
    return tokens
