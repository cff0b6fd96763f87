"""Requests to an OpenAI-compatible server that come back in the end, or say why not."""

from __future__ import annotations

import asyncio
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import openai

from wmrl_envs.errors import WorldModelError, did_you_mean
from wmrl_envs.world_models.backends._bodies import (
    NO_SUCH_PAGE,
    WRONG_PLACE,
    Failure,
    chat_completion,
    completion,
    short,
    token_list,
)
from wmrl_envs.world_models.backends._dialect import Dialect
from wmrl_envs.world_models.backends._messages import encodable
from wmrl_envs.world_models.backends._unanswered import Unanswered
from wmrl_envs.world_models.backends.protocol import Conversation

__all__ = ["ChatClient", "Settings"]

_LONGEST_WAIT = 60.0  # s, whatever Retry-After says
_QUICK = 10.0  # s, for what takes no model
_LISTED_MODELS = 20
_TRY_LATER = frozenset({408, 409, 425, 429})
_PASSING = _TRY_LATER | {502, 503, 504}  # what a page that exists may say
_TOO_LONG = re.compile(
    r"context.{0,20}(length|size|window)|max_model_len|(prompt|input|request).{0,40}too (long|large|many)|"
    r"too many tokens|longer than the maximum|content.?filter",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Where a server is and how patient to be with it; see `OpenAIBackend`."""

    url: str
    model: str
    api_key: str = field(repr=False)
    concurrency: int
    timeout: float
    retries: int
    backoff: float
    extra_body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Request:
    path: str
    """Below the server's URL, or a URL."""
    parameters: Mapping[str, Any]
    check: Callable[[object], dict[str, Any] | Failure]
    """Returns the reply if it is one."""
    optional: bool = False
    """Many servers have no such page."""


class ChatClient:
    """One server's chat completions, with retries; belongs to one event loop.

    A connection that is refused or breaks off, a timeout, 429, 5xx and a reply that is no chat completion are tried
    again after a pause that doubles each time, is shortened at random by up to half so that many callers do not come
    back at once, and is never less than what Retry-After asks for.
    """

    def __init__(self, settings: Settings, dialect: Dialect) -> None:
        self._settings = settings
        self._dialect = dialect
        self._client = openai.AsyncOpenAI(
            base_url=settings.url, api_key=settings.api_key, max_retries=0, timeout=settings.timeout
        )
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._jitter = random.Random()
        self._answered_at = float("-inf")
        self._gone = False

    def be_patient(self) -> None:
        """Give a server that was given up all its attempts again."""
        self._gone = False

    async def complete(self, conversation: Conversation, **parameters: Any) -> dict[str, Any]:
        """Return the server's answer to a chat as it came, with at least one choice in it.

        Args:
            conversation: The chat to answer.
            **parameters: Of the request; None is left out.

        Raises:
            Unanswered: If there is no answer for good.
            WorldModelError: If no request to this server can be answered.
        """
        parameters = {"model": self._settings.model, "messages": encodable(conversation), **parameters}
        async with self._slots:
            return await self._persist(_Request("/chat/completions", parameters, chat_completion))

    async def go_on(self, tokens: Sequence[int], **parameters: Any) -> dict[str, Any]:
        """Return how the server continues a sequence of tokens; otherwise as `complete`."""
        parameters = {"model": self._settings.model, "prompt": list(tokens), **parameters}
        async with self._slots:
            return await self._persist(_Request("/completions", parameters, completion))

    async def tokens_of(self, text: str | Conversation, *, patient: bool = True) -> tuple[int, ...] | None:
        """Return the tokens of a text or of a chat up to where its reply begins, as vLLM's ``/tokenize`` gives them.

        Args:
            text: The text or chat.
            patient: Try again where that may help; wait some seconds at most if not.

        Returns:
            None where the server has no such page.

        Raises:
            Unanswered: If the server does not answer.
        """
        what: dict[str, Any] = {"prompt": text, "add_special_tokens": False}
        if not isinstance(text, str):
            what = {"messages": encodable(text)}
        url = f"{self._settings.url.removesuffix('/v1')}/tokenize"
        request = _Request(url, {"model": self._settings.model, **what}, token_list, optional=True)
        async with self._slots:
            reply = await (self._persist(request) if patient else self._attempt(request, most=_QUICK))
        if isinstance(reply, Failure):
            raise Unanswered(reply.what)
        return tuple(reply["tokens"]) or None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _persist(self, request: _Request) -> dict[str, Any]:
        began, attempt = asyncio.get_running_loop().time(), 0
        while True:
            outcome = await self._attempt(request)
            now = asyncio.get_running_loop().time()
            if isinstance(outcome, dict):
                self._answered_at, self._gone = now, False
                return outcome
            attempt += 1
            # One request that ran out of attempts while nothing else was answered speaks for all of them.
            if attempt > self._settings.retries or self._gone:
                self._gone = self._answered_at < began
                tried = f"tried {attempt} times over {now - began:.1f} s"
                raise Unanswered(f"{tried}: {outcome.what}", advice=outcome.advice)
            await asyncio.sleep(self._pause(attempt, outcome.wait))

    def _pause(self, attempt: int, asked: float | None) -> float:
        pause = self._settings.backoff * 2.0 ** (attempt - 1) * self._jitter.uniform(0.5, 1.0)
        return min(max(pause, asked or 0.0), _LONGEST_WAIT)

    async def _attempt(self, request: _Request, most: float = math.inf) -> dict[str, Any] | Failure:
        timeout = min(self._settings.timeout, most)
        body = self._dialect.body(request.parameters)
        try:
            async with asyncio.timeout(timeout):  # over all: the client's own starts again with every byte
                sent = body | dict(self._settings.extra_body)
                return request.check(await self._client.post(request.path, cast_to=object, body=sent))
        except (TimeoutError, openai.APITimeoutError):
            return Failure(f"no answer within {timeout:g} s", "If it is only slow, pass a longer timeout=.")
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            return Failure(
                f"{type(cause).__name__}: {cause}",
                "Is it running, and is the address right? It is given as 'openai:URL#MODEL'; "
                "such a server is started by, say: vllm serve MODEL --port 8000",
            )
        except openai.APIStatusError as error:
            return await self._refused(error, request, body)
        except (ValueError, openai.APIError) as error:  # among them a body that claims to be JSON and is not
            return Failure(f"the reply cannot be read: {error}", WRONG_PLACE)

    async def _refused(
        self, error: openai.APIStatusError, request: _Request, body: Mapping[str, Any]
    ) -> dict[str, Any] | Failure:
        status, message = error.status_code, _words(error)
        if self._settings.api_key != "EMPTY":  # some servers repeat the key that they refuse
            message = message.replace(self._settings.api_key, "***")
        if request.optional and status not in _PASSING:
            return NO_SUCH_PAGE
        if _out_of_quota(error):
            raise WorldModelError(f"{self._settings.url}: {message}. Its quota is used up; waiting does not help.")
        if status in _TRY_LATER or status >= 500:
            advice = "Pass a smaller concurrency= or more retries=." if status == 429 else "Its log may say why."
            return Failure(f"HTTP {status}: {message}", advice, _retry_after(error.response.headers))
        if status in (401, 403):
            raise WorldModelError(
                f"{self._settings.url}: HTTP {status}: {message}. Set OPENAI_API_KEY, or pass api_key=."
            )
        if status == 413 or error.code == "context_length_exceeded" or _TOO_LONG.search(message):
            raise Unanswered(f"HTTP {status}: {message}", own=True)
        if self._dialect.body(request.parameters) != body or self._dialect.learn(body, message, error.param):
            return await self._attempt(request)
        await self._check_model(status, message)
        raise Unanswered(f"HTTP {status}: {message}")

    async def _check_model(self, status: int, message: str) -> None:
        """Raise an error that lists the server's models if ours is not among them.

        Raises:
            WorldModelError: If the server lists its models without ours, or has no such page at all.
        """
        url, model = self._settings.url, self._settings.model
        try:
            async with asyncio.timeout(min(_QUICK, self._settings.timeout)):
                listed = await self._client.get("/models", cast_to=object)
            models = [str(entry["id"]) for entry in listed["data"]]  # type: ignore[index]
        except (TimeoutError, openai.OpenAIError, ValueError, TypeError, KeyError):
            if status != 404:
                return
            raise WorldModelError(
                f"{url} does not answer as an OpenAI-compatible server: {message}. Its URL usually ends in /v1."
            ) from None
        if model not in models:
            more = f" and {len(models) - _LISTED_MODELS} more" if len(models) > _LISTED_MODELS else ""
            raise WorldModelError(
                f"{url} has no model {model!r} (HTTP {status}: {message}); it has: "
                f"{', '.join(models[:_LISTED_MODELS]) or 'none'}{more}.{did_you_mean(model, models)}"
            )


def _words(error: openai.APIStatusError) -> str:
    """Return what a refusal says, wherever it says it."""
    body: Any = error.body
    if isinstance(body, dict):
        body = body.get("message") or body.get("detail") or body
    return short(str(body or error.message), 500)


def _out_of_quota(error: openai.APIStatusError) -> bool:
    return error.status_code == 429 and error.code == "insufficient_quota"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a Retry-After header asks for: a number, or a date (RFC 9110, 10.2.3)."""
    value = headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        then = parsedate_to_datetime(value)
        now = parsedate_to_datetime(headers["date"]) if "date" in headers else None
        return max(0.0, (then - (now or datetime.now(then.tzinfo))).total_seconds())
    except (TypeError, ValueError):
        return None
