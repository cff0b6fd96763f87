"""What one OpenAI-compatible server does not take, learnt from its refusals."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["Dialect"]

_logger = logging.getLogger(__name__)

_DISPENSABLE = (
    "logprob_token_ids",
    "return_tokens_as_token_ids",
    "structured_outputs",
    "response_format",
    "seed",
    "n",
    "temperature",
)
"""Parameters without which a request still makes sense; what they ask for is then checked in the reply."""

_FEWER_TOP_LOGPROBS = 5
"""What servers allow that do not allow OpenAI's 20."""


class Dialect:
    """Rewrites requests into what a server takes."""

    def __init__(self) -> None:
        self._dropped: set[str] = set()
        self._renamed = False
        self._top_logprobs: int | None = None

    def takes(self, parameter: str) -> bool:
        """Whether a parameter has not been refused."""
        return parameter not in self._dropped

    def drop(self, parameter: str, why: str) -> None:
        """Do without a parameter from now on."""
        if parameter not in self._dropped:
            self._dropped.add(parameter)
            _logger.info("going on without %r: %s", parameter, why)

    def body(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a request, without what the server refused before."""
        body = {key: value for key, value in parameters.items() if value is not None and key not in self._dropped}
        if self._renamed and "max_tokens" in body:
            body["max_completion_tokens"] = body.pop("max_tokens")
        if self._top_logprobs is not None and "top_logprobs" in body:
            body["top_logprobs"] = min(self._top_logprobs, body["top_logprobs"])
        return body

    def learn(self, body: Mapping[str, Any], message: str, parameter: str | None) -> bool:
        """Read a refusal; True if the request is worth sending again, rewritten.

        Args:
            body: What was refused.
            message: The server's words.
            parameter: The parameter it blames, where it says so in a field.
        """
        if "max_tokens" in body and "max_completion_tokens" in message and "context" not in message:
            self._renamed = True
            return True
        if body.get("top_logprobs", 0) > _FEWER_TOP_LOGPROBS and _names("logprobs|top_logprobs", message, parameter):
            self._top_logprobs = _FEWER_TOP_LOGPROBS
            return True
        for name in _DISPENSABLE:
            if name in body and _names(name, message, parameter):
                self.drop(name, message)
                return True
        return False


def _names(parameter: str, message: str, blamed: str | None) -> bool:
    if blamed:
        return re.fullmatch(parameter, blamed.partition(".")[0]) is not None
    quoted = rf"(?<![\w.])(['\"`])(?:{parameter})\1"  # 'n' alone is a word of every message
    plain = rf"(?<!\w)(?:{parameter})(?!\w)"
    return re.search(quoted if len(parameter) == 1 else plain, message) is not None
