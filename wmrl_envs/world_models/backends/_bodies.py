"""What the body of a server's reply holds, if it holds what was asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

__all__ = ["NO_SUCH_PAGE", "WRONG_PLACE", "Failure", "chat_completion", "completion", "short", "token_list"]

WRONG_PLACE = "Does the URL end where the API begins, as in .../v1?"
NO_SUCH_PAGE: dict[str, Any] = {"tokens": []}


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that failed and may be repeated."""

    what: str
    advice: str
    wait: float | None = None
    """Seconds to wait before the next attempt, where the server says so."""


def chat_completion(body: object) -> dict[str, Any] | Failure:
    """Return a chat completion if it is one."""
    reply = completion(body)
    for choice in reply["choices"] if isinstance(reply, dict) else []:
        message = choice.get("message")
        if not isinstance(message, dict):
            return Failure(f"a choice has no message: {short(str(choice))}", WRONG_PLACE)
        if not isinstance(message.get("content"), str):
            if choice.get("finish_reason") != "length":  # a model that was cut off while it thought has said nothing
                return Failure(f"a choice has no text: {short(str(choice))}", "Its log may say why.")
            message["content"] = ""
    return reply


def completion(body: object) -> dict[str, Any] | Failure:
    """Return an answer with choices if it is one."""
    reply = _parsed(body)
    if not isinstance(reply, dict):
        return Failure(f"the reply is no completion: {short(str(body))}", WRONG_PLACE)
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
        return Failure(f"the reply has no choices: {short(str(body))}", WRONG_PLACE)
    return reply


def token_list(body: object) -> dict[str, Any] | Failure:
    """Return a list of tokens if it is one; an empty list where the page is another server's."""
    reply = _parsed(body)
    tokens = reply.get("tokens") if isinstance(reply, dict) else None
    whole_numbers = isinstance(tokens, list) and all(isinstance(token, int) for token in tokens)
    return {"tokens": tokens} if whole_numbers else NO_SUCH_PAGE


def _parsed(body: object) -> Any:
    """Return what a body holds where its header does not say that it is JSON."""
    try:
        return json.loads(body) if isinstance(body, str) else body
    except ValueError:
        return None


def short(text: str, limit: int = 160) -> str:
    """Return the beginning of a text on one line."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]}..."
