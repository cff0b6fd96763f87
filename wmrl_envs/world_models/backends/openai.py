"""Any OpenAI-compatible server: vLLM, SGLang, llama.cpp, ``transformers serve``, or a provider's."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, WorldModelError
from wmrl_envs.world_models.backends._chat_client import ChatClient, Settings
from wmrl_envs.world_models.backends._dialect import Dialect
from wmrl_envs.world_models.backends._loop import BackgroundLoop
from wmrl_envs.world_models.backends._replies import Replies, Sampling
from wmrl_envs.world_models.backends._scores import Scores
from wmrl_envs.world_models.backends._token_estimate import TokenEstimate
from wmrl_envs.world_models.backends._unanswered import Unanswered, gather
from wmrl_envs.world_models.backends.protocol import Conversation, Generation, Schema

__all__ = ["OpenAIBackend"]


class OpenAIBackend:
    """A language model behind an OpenAI-compatible server.

    Requests go out together, at most ``concurrency`` at a time, from an event loop of its own: it works in a notebook
    and below other asynchronous code as well. What fails in passing (a connection, a timeout, 429, 5xx, a reply that is
    none) is tried again with growing pauses. A member of a batch that fails for good is None, with the reason in the
    log; `WorldModelError` says so if no member is answered.

    `choose` is exact with vLLM, which gives the log-probabilities of tokens by number. Elsewhere it reads them from the
    ``top_logprobs`` most probable first tokens of a reply, and what is not among these is bounded by them (see
    `wmrl_envs.world_models.backends._first_tokens.choice_probabilities`); choices should then differ in their first
    tokens. A model that thinks before it answers must be told not to, such as by
    ``extra_body={"chat_template_kwargs": {"enable_thinking": False}}``.

    `generate` asks for a JSON schema as ``response_format``. A server that ignores it is asked again, with what was
    wrong, up to twice for each reply. A server that ignores ``n`` is asked once for each sample, with a seed for each.

    Example:
        >>> backend = OpenAIBackend("http://localhost:8000/v1#Qwen/Qwen3-4B", concurrency=64)
        >>> backend.identity
        'openai:http://localhost:8000/v1#Qwen/Qwen3-4B'
    """

    def __init__(
        self,
        place: str,
        *,
        concurrency: int = 32,
        timeout: float = 120.0,
        retries: int = 5,
        backoff: float = 0.5,
        api_key: str | None = None,
        top_logprobs: int = 20,
        tokens_per_byte: float | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        """Take note of where the server is; nothing is sent before the first question.

        Args:
            place: ``URL#MODEL``: where the API begins (``http://host:port/v1``) and the model's name there.
            concurrency: Most requests on their way at the same time.
            timeout: Longest wait for a reply, in seconds, the server's queue included.
            retries: Attempts after the first one.
            backoff: Pause before the second attempt, in seconds; it doubles with each one, up to a minute.
            api_key: None takes ``OPENAI_API_KEY`` from the environment, or ``EMPTY``.
            top_logprobs: How many of the first token's candidates `choose` asks for.
            tokens_per_byte: What `count_tokens` multiplies a chat's bytes by where the server does not count tokens;
                None learns it from the counts in the server's replies, and is 1, an upper bound, until then.
            extra_body: Fields added to every request, such as ``{"top_p": 0.9}``.

        Raises:
            ConfigurationError: If an argument cannot work.
        """
        url, model = _address(place)
        _check("concurrency", concurrency, concurrency >= 1, "1 or more requests")
        _check("timeout", timeout, 0 < timeout < math.inf, "a number of seconds above 0")
        _check("retries", retries, retries >= 0, "0 or more attempts after the first")
        _check("backoff", backoff, 0 <= backoff < math.inf, "0 or more seconds")
        _check("top_logprobs", top_logprobs, top_logprobs >= 1, "1 or more tokens (servers stop at 20)")
        _check("tokens_per_byte", tokens_per_byte, tokens_per_byte is None or 0 < tokens_per_byte <= 1, "in (0, 1]")
        self._settings = Settings(
            url=url,
            model=model,
            api_key=_key(api_key or os.environ.get("OPENAI_API_KEY") or ""),
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            extra_body=dict(extra_body or {}),
        )
        self._top_logprobs = top_logprobs
        self._dialect = Dialect()
        self._tokens = TokenEstimate(tokens_per_byte)
        self._server_counts = True
        self._session: _Session | None = None

    @property
    def identity(self) -> str:
        """The server's address, the model's name there, and a digest of ``extra_body`` where there is one."""
        name = f"openai:{self._settings.url}#{self._settings.model}"
        if not self._settings.extra_body:
            return name
        extra = json.dumps(self._settings.extra_body, sort_keys=True, default=repr)
        return f"{name}?{hashlib.sha256(extra.encode()).hexdigest()[:12]}"

    def choose(self, conversations: Sequence[Conversation], choices: Sequence[str]) -> list[NDArray[np.float64] | None]:
        """Return the model's own probabilities over some answers, as `Backend.choose` does.

        Raises:
            ConfigurationError: If the choices are not different texts.
            WorldModelError: If the server cannot be reached, lacks the model, or gives no log-probabilities.
        """
        if not choices or len(set(choices)) < len(choices) or not all(choices):
            raise ConfigurationError(f"choices are different texts that are not empty; got {list(choices)}")
        if not conversations:
            return []
        session = self._connected()
        return session.loop.run(session.choose(conversations, choices))

    def generate(
        self,
        conversations: Sequence[Conversation],
        *,
        samples: int = 1,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
        schema: Schema | None = None,
    ) -> list[list[Generation | None]]:
        """Return sampled replies, as `Backend.generate` does; the tokens of asking again are counted in.

        The seed of a reply depends on how many replies to the same chat came before it in the call.

        Raises:
            ConfigurationError: If an argument cannot work.
            WorldModelError: If the server cannot be reached, or lacks the model.
        """
        _check("samples", samples, samples >= 1, "1 or more replies")
        _check("max_tokens", max_tokens, max_tokens >= 1, "1 or more tokens")
        _check("temperature", temperature, 0 <= temperature < math.inf, "0 or more")
        sampling = Sampling(max_tokens, temperature, seed, schema)
        session = self._connected()
        answers = session.loop.run(session.generate(conversations, samples, sampling))
        return [[None] * samples if answer is None else answer for answer in answers]

    def count_tokens(self, conversation: Conversation) -> int:
        """Return the length of a chat in tokens: the server's own count (vLLM), or an estimate that is not below it."""
        if self._server_counts:
            session = self._connected()
            try:
                tokens = session.loop.run(session.client.tokens_of(conversation, patient=False))
            except Unanswered:
                return self._tokens.of(conversation)
            if tokens is not None:
                return len(tokens)
            self._server_counts = False
        return self._tokens.of(conversation)

    def close(self) -> None:
        """Close the connections; the next question opens them again."""
        if self._session is not None and self._session.loop.alive:
            self._session.loop.run(self._session.client.close())
            self._session.loop.close()
        self._session = None

    def _connected(self) -> _Session:
        if self._session is None or not self._session.loop.alive:
            loop = BackgroundLoop()
            self._session = loop.run(self._open(loop))
        return self._session

    async def _open(self, loop: BackgroundLoop) -> _Session:
        client = ChatClient(self._settings, self._dialect)
        scores = Scores(client, self._dialect, self._top_logprobs, self.identity)
        return _Session(
            loop, client, scores, Replies(client, self._dialect, self._tokens, self.identity), self.identity
        )


@dataclass(frozen=True, slots=True)
class _Session:
    """What belongs to one event loop."""

    loop: BackgroundLoop
    client: ChatClient
    scores: Scores
    replies: Replies
    server: str

    async def choose(
        self, conversations: Sequence[Conversation], choices: Sequence[str]
    ) -> list[NDArray[np.float64] | None]:
        self.client.be_patient()
        try:
            await self.scores.learn(choices)
        except Unanswered as failure:
            raise WorldModelError(f"{self.server}: {failure}. {failure.advice}") from failure
        return await gather([self.scores.probabilities(chat, choices) for chat in conversations], self.server)

    async def generate(
        self, conversations: Sequence[Conversation], samples: int, sampling: Sampling
    ) -> list[list[Generation | None] | None]:
        self.client.be_patient()
        before: Counter[str] = Counter()
        members = []
        for chat in conversations:
            name = json.dumps(list(chat))
            # A chat that stands there twice is to get two replies, not the same one.
            own = replace(sampling, seed=sampling.seed_of(before[name] * samples))
            members.append(self.replies.sample(chat, samples, own))
            before[name] += 1
        return await gather(members, self.server)


def _address(place: str) -> tuple[str, str]:
    """Return where the API begins and the model's name.

    Raises:
        ConfigurationError: If there is none of them, or the address holds a secret, which is then not shown.
    """
    url, _, model = place.partition("#")
    url = url.rstrip("/")
    if "@" in url or "?" in url:
        raise ConfigurationError(
            "the address of a server is written to logs and files, so that it may hold no user, password or query: "
            "leave out what stands before @ and after ?, and pass a key by api_key= or OPENAI_API_KEY"
        )
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        known = False
    if not known or not model:
        raise ConfigurationError(
            f"{place!r} names no model on a server; it is 'URL#MODEL', such as 'http://localhost:8000/v1#Qwen/Qwen3-4B'"
        )
    return url, model


def _key(key: str) -> str:
    """Return a key as a header can carry it.

    Raises:
        ConfigurationError: If it cannot be one; it is not shown.
    """
    key = key.strip()
    if not key.isascii() or not key.isprintable():
        raise ConfigurationError(
            "the key to the server (api_key= or OPENAI_API_KEY) holds characters that no key has, such as a line end "
            "in its middle: set it anew"
        )
    return key or "EMPTY"


def _check(name: str, value: object, fits: bool, valid: str) -> None:
    if not fits:
        raise ConfigurationError(f"{name}={value!r} is not {valid}")
