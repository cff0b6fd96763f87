"""Replies that should be a JSON object, from servers that may or may not see to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from wmrl_envs.world_models.backends.protocol import Conversation, Message, Schema

__all__ = ["ask_again", "misfit", "response_format"]

_LONGEST_COMPLAINT = 300


def response_format(schema: Schema) -> dict[str, Any]:
    """Return how a request asks for an object that fits a schema.

    Not ``strict``: a server that is takes a subset of JSON schema only, and refuses the rest.
    """
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(schema)}}


def misfit(text: str, schema: Schema) -> str | None:
    """Return what is wrong with a reply, None if an object that fits the schema stands somewhere in it."""
    complaint = "it holds no JSON object"
    validator = _validator(json.dumps(schema, sort_keys=True))
    for found in _objects(text):
        error = next(iter(validator.iter_errors(found)), None)
        if error is None:
            return None
        complaint = f"at {error.json_path}: {error.message}"[:_LONGEST_COMPLAINT]
    return complaint


def ask_again(conversation: Conversation, reply: str, complaint: str, schema: Schema) -> list[Message]:
    """Return the chat that goes on by telling the model what was wrong with its reply."""
    request = (
        f"That cannot be read: {complaint}. Answer again with nothing but one JSON object that fits this JSON schema:\n"
        f"{json.dumps(schema)}"
    )
    return [*conversation, Message(role="assistant", content=reply), Message(role="user", content=request)]


def _objects(text: str) -> Iterator[Any]:
    """Yield the JSON objects that stand in a text, outermost ones only."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            found, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            yield found
        start = text.find("{", end)


@lru_cache(maxsize=16)
def _validator(schema: str) -> Any:
    from jsonschema.validators import validator_for

    loaded = json.loads(schema)
    return validator_for(loaded)(loaded)
