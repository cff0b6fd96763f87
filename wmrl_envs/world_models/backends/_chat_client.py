"""Requests to an OpenAI-compatible server that come back in the end, or say why not."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import openai

from wmrl_envs.errors import WorldModelError, did_you_mean
from wmrl_envs.world_models.backends._dialect import Dialect
from wmrl_envs.world_models.backends._unanswered import Unanswered
from wmrl_envs.world_models.backends.protocol import Conversation

__all__ = ["ChatClient", "Settings", "whole"]

_LONGEST_WAIT = 60.0  # s, whatever Retry-After says
_QUICK = 10.0  # s, for what takes no model
_LISTED_MODELS = 20
_WRONG_PLACE = "Does the URL end where the API begins, as in .../v1?"
_TRY_LATER = frozenset({408, 409, 425, 429})
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
    api_key: str
    concurrency: int
    timeout: float
    retries: int
    backoff: float
    extra_body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Failure:
    """One attempt that failed and may be repeated."""

    what: str
    advice: str
    wait: float | None = None
    """Seconds to wait before the next attempt, where the server says so."""


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
        """Return the server's chat completion as it came, with at least one choice in it.

        Args:
            conversation: The chat to answer.
            **parameters: Of the request; None is left out.

        Raises:
            Unanswered: If there is no answer for good.
            WorldModelError: If no request to this server can be answered.
        """
        parameters = {"model": self._settings.model, "messages": _encodable(conversation), **parameters}
        async with self._slots:
            return await self._persist(parameters)

    async def count(self, conversation: Conversation) -> int | None:
        """Return the tokens of a chat where the server counts them (vLLM's ``/tokenize``), None where it does not."""
        root = self._settings.url.removesuffix("/v1")
        body = {"model": self._settings.model, "messages": _encodable(conversation)}
        if "chat_template_kwargs" in self._settings.extra_body:
            body["chat_template_kwargs"] = self._settings.extra_body["chat_template_kwargs"]
        try:
            async with asyncio.timeout(min(_QUICK, self._settings.timeout)):
                reply = await self._client.post(f"{root}/tokenize", cast_to=object, body=body)
        except (TimeoutError, openai.OpenAIError, ValueError):
            return None
        count = reply.get("count") if isinstance(reply, dict) else None
        return count if isinstance(count, int) and count > 0 else None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _persist(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        began, attempt = asyncio.get_running_loop().time(), 0
        while True:
            outcome = await self._attempt(parameters)
            now = asyncio.get_running_loop().time()
            if isinstance(outcome, dict):
                self._answered_at, self._gone = now, False
                return outcome
            attempt += 1
            # One request that ran out of attempts while nothing else was answered speaks for all of them.
            if attempt > self._settings.retries or self._gone:
                self._gone = self._answered_at < began
                raise Unanswered(
                    f"tried {attempt} times over {now - began:.1f} s: {outcome.what}", advice=outcome.advice
                )
            await asyncio.sleep(self._pause(attempt, outcome.wait))

    def _pause(self, attempt: int, asked: float | None) -> float:
        pause = self._settings.backoff * 2.0 ** (attempt - 1) * self._jitter.uniform(0.5, 1.0)
        return min(max(pause, asked or 0.0), _LONGEST_WAIT)

    async def _attempt(self, parameters: Mapping[str, Any]) -> dict[str, Any] | _Failure:
        timeout = self._settings.timeout
        body = self._dialect.body(parameters)
        try:
            async with asyncio.timeout(timeout):  # over all: the client's own starts again with every byte
                reply = await self._client.post(
                    "/chat/completions", cast_to=object, body=body | dict(self._settings.extra_body)
                )
            return _checked(reply)
        except (TimeoutError, openai.APITimeoutError):
            return _Failure(f"no answer within {timeout:g} s", "If it is only slow, pass a longer timeout=.")
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            return _Failure(
                f"{type(cause).__name__}: {cause}",
                "Is it running, and is the address right? It is given as 'openai:URL#MODEL'; "
                "such a server is started by, say: vllm serve MODEL --port 8000",
            )
        except openai.APIStatusError as error:
            return await self._refused(error, parameters, body)
        except (ValueError, openai.APIError) as error:  # among them a body that claims to be JSON and is not
            return _Failure(
                f"the reply cannot be read: {error}", "Does the URL end where the API begins, as in .../v1?"
            )

    async def _refused(
        self, error: openai.APIStatusError, parameters: Mapping[str, Any], body: Mapping[str, Any]
    ) -> dict[str, Any] | _Failure:
        status, message = error.status_code, _words(error)
        if _out_of_quota(error):
            raise WorldModelError(f"{self._settings.url}: {message}. Its quota is used up; waiting does not help.")
        if status in _TRY_LATER or status >= 500:
            advice = "Pass a smaller concurrency= or more retries=." if status == 429 else "Its log may say why."
            return _Failure(f"HTTP {status}: {message}", advice, _retry_after(error.response.headers))
        if status in (401, 403):
            raise WorldModelError(
                f"{self._settings.url}: HTTP {status}: {message}. Set OPENAI_API_KEY, or pass api_key=."
            )
        if status == 413 or error.code == "context_length_exceeded" or _TOO_LONG.search(message):
            raise Unanswered(f"HTTP {status}: {message}", own=True)
        if self._dialect.body(parameters) != body or self._dialect.learn(body, message, error.param):
            return await self._attempt(parameters)
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


def _checked(body: object) -> dict[str, Any] | _Failure:
    """Return a chat completion if it is one."""
    reply: Any = body
    if isinstance(body, str):  # it does not say that it is JSON
        try:
            reply = json.loads(body)
        except ValueError:
            return _Failure(f"the reply is no chat completion: {_short(body)}", _WRONG_PLACE)
    choices = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(reply, dict) or not isinstance(choices, list) or not choices:
        return _Failure(f"the reply has no choices: {_short(str(reply))}", _WRONG_PLACE)
    for choice in choices:
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            return _Failure(f"a choice has no message: {_short(str(choice))}", _WRONG_PLACE)
        if not isinstance(message.get("content"), str):
            if choice.get("finish_reason") != "length":  # a model that was cut off while it thought has said nothing
                return _Failure(f"a choice has no text: {_short(str(choice))}", "Its log may say why.")
            message["content"] = ""
    return reply


def _encodable(conversation: Conversation) -> list[dict[str, str]]:
    """Return the messages without halves of surrogate pairs, which no request can carry."""
    return [{"role": message["role"], "content": whole(message["content"])} for message in conversation]


def whole(text: str) -> str:
    """Return a text in which halves of surrogate pairs are joined, or replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _words(error: openai.APIStatusError) -> str:
    """Return what a refusal says, wherever it says it."""
    body: Any = error.body
    if isinstance(body, dict):
        body = body.get("message") or body.get("detail") or body
    return _short(str(body or error.message), 500)


def _short(text: str, limit: int = 160) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]}..."


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
