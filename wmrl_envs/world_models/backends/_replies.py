"""Sampled replies, asked of an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wmrl_envs.world_models.backends._chat_client import ChatClient
from wmrl_envs.world_models.backends._dialect import Dialect
from wmrl_envs.world_models.backends._messages import whole
from wmrl_envs.world_models.backends._schema import ask_again, misfit, response_format
from wmrl_envs.world_models.backends._token_estimate import TokenEstimate, about_tokens
from wmrl_envs.world_models.backends._unanswered import Unanswered
from wmrl_envs.world_models.backends.protocol import Conversation, Generation, Schema

__all__ = ["Replies", "Sampling"]

_logger = logging.getLogger(__name__)

_ASK_AGAIN = 2
_SEEDS = 2**31
_SEED_STEP = 1_000_003  # a prime, so that the samples of neighbouring seeds do not share seeds


@dataclass(frozen=True, slots=True)
class Sampling:
    """How replies are drawn; see `Backend.generate`."""

    max_tokens: int
    temperature: float
    seed: int
    schema: Schema | None

    def seed_of(self, place: int) -> int:
        """Return the seed of the sample at a place."""
        return (self.seed + _SEED_STEP * place) % _SEEDS

    def parameters(self, place: int, n: int | None = None) -> dict[str, Any]:
        """Return a request's parameters: for the sample at a place, or for n samples together."""
        return {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed_of(place),
            "n": n,
            "response_format": None if self.schema is None else response_format(self.schema),
        }


class Replies:
    """Samples replies, and sees to it that they are as many as asked for and fit their schema."""

    def __init__(self, client: ChatClient, dialect: Dialect, tokens: TokenEstimate, server: str) -> None:
        self._client = client
        self._dialect = dialect
        self._tokens = tokens
        self._server = server

    async def sample(self, conversation: Conversation, samples: int, sampling: Sampling) -> list[Generation | None]:
        """Return the replies to one chat, None for one that could not be had.

        Args:
            conversation: The chat.
            samples: Replies to it.
            sampling: How they are drawn; the seed is the first one's, the others' follow it.

        Raises:
            Unanswered: If none could be had.
        """
        different = 1 if sampling.temperature == 0 else samples
        replies = await self._drawn(conversation, different, sampling)
        if sampling.schema is not None:
            schema = sampling.schema
            fitting = (self._fit(conversation, reply, schema, sampling, at) for at, reply in enumerate(replies))
            replies = await asyncio.gather(*fitting)
        return replies * samples if different == 1 else replies

    async def _drawn(self, conversation: Conversation, samples: int, sampling: Sampling) -> list[Generation | None]:
        together: list[Generation] = []
        if samples > 1 and self._dialect.takes("n"):
            reply = await self._client.complete(conversation, **sampling.parameters(0, n=samples))
            together = self._generations(conversation, reply, sampling)[:samples]
            if len(together) < samples:
                self._dialect.drop("n", f"{len(together)} replies came where {samples} were asked for")
        rest = [self._one(conversation, sampling, place) for place in range(len(together), samples)]
        singles = await asyncio.gather(*rest, return_exceptions=True)
        return [*together, *self._answered(singles, others=bool(together))]

    async def _one(self, conversation: Conversation, sampling: Sampling, place: int) -> Generation:
        reply = await self._client.complete(conversation, **sampling.parameters(place))
        return self._generations(conversation, reply, sampling)[0]

    def _answered(self, singles: Sequence[Generation | BaseException], *, others: bool) -> list[Generation | None]:
        failures = [single for single in singles if isinstance(single, BaseException)]
        for failure in failures:
            if not isinstance(failure, Unanswered) or (len(failures) == len(singles) and not others):
                raise failure
            _logger.warning("%s: no answer for one sample: %s", self._server, failure)
        return [None if isinstance(single, BaseException) else single for single in singles]

    async def _fit(
        self, conversation: Conversation, reply: Generation | None, schema: Schema, sampling: Sampling, place: int
    ) -> Generation | None:
        """Ask again while a reply does not fit its schema; the last one counts."""
        for _ in range(_ASK_AGAIN):
            complaint = None if reply is None else misfit(reply.text, schema)
            if reply is None or complaint is None:
                break
            try:
                better = await self._one(ask_again(conversation, reply.text, complaint, schema), sampling, place)
            except Unanswered as failure:
                _logger.info("%s: no answer to being asked again: %s", self._server, failure)
                break
            reply = replace(
                better,
                prompt_tokens=reply.prompt_tokens + better.prompt_tokens,
                completion_tokens=reply.completion_tokens + better.completion_tokens,
            )
        return reply

    def _generations(
        self, conversation: Conversation, reply: Mapping[str, Any], sampling: Sampling
    ) -> list[Generation]:
        choices = reply["choices"]
        texts = [whole(choice["message"]["content"]) for choice in choices]
        usage = reply.get("usage")
        prompt = _count(usage, "prompt_tokens")
        if prompt is None:
            prompt = about_tokens("".join(message["content"] for message in conversation))
        else:
            self._tokens.observe(conversation, prompt)
        lengths = _shared_out(_count(usage, "completion_tokens"), texts, sampling.max_tokens)
        return [
            Generation(text, prompt, length, complete=choice.get("finish_reason") != "length")
            for choice, text, length in zip(choices, texts, lengths, strict=True)
        ]


def _count(usage: object, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value > 0 else None


def _shared_out(total: int | None, texts: Sequence[str], max_tokens: int) -> list[int]:
    """Return the tokens of each reply, where a server counts those of all replies together, if at all."""
    if total is not None and len(texts) == 1:
        return [total]
    sizes = [about_tokens(text) for text in texts]
    scale = 1.0 if total is None else total / sum(sizes)
    return [min(max_tokens, max(1, round(scale * size))) for size in sizes]
