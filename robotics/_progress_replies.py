"""What servers of all kinds reply, put into words: progress servers, other ones, and those of another version."""

from __future__ import annotations

import json
from typing import Any

from wmrl_envs.errors import ConfigurationError, ProgressModelError
from wmrl_envs.robotics._progress_http import Reply
from wmrl_envs.robotics._progress_wire import PROTOCOL, SERVICE

__all__ = ["said", "short", "words"]


def said(url: str, reply: Reply) -> dict[str, Any]:
    """Return what a progress server said in JSON with status 200.

    Raises:
        ConfigurationError: If it refuses the videos.
        ProgressModelError: If it refuses for another reason, or is none.
    """
    found = _json(reply)
    if found.get("service") == SERVICE and found.get("protocol") != PROTOCOL:
        raise ProgressModelError(
            f"{url} speaks version {short(str(found.get('protocol')))} of the protocol, and this client "
            f"version {PROTOCOL}: install the same version of wmrl-envs on both sides"
        )
    if reply.status == 401:
        raise ProgressModelError(
            f"{url} wants a token, and none or another one was sent: set WMRL_PROGRESS_TOKEN to the token of "
            "the server, or name the variable that holds it by token_env="
        )
    if found.get("service") != SERVICE or (reply.status != 200 and "error" not in found):
        elsewhere = f" It points to {short(reply.location)!r}, which is not followed." if reply.location else ""
        what = f"HTTP {reply.status}: {words(reply)}"
        raise ProgressModelError(f"{url} does not answer as a progress server: {what}.{elsewhere}")
    if reply.status == 422:
        raise ConfigurationError(words(reply))
    if reply.status != 200:
        raise ProgressModelError(f"{url}: {words(reply)} (HTTP {reply.status}; its log may say more)")
    return found


def _json(reply: Reply) -> dict[str, Any]:
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def words(reply: Reply) -> str:
    """Return what a reply says, if it says it in words."""
    said = _json(reply).get("error")
    return short(said if isinstance(said, str) else reply.body[:300].decode(errors="replace"), 600)


def short(text: str, length: int = 300) -> str:
    """Return a text of the other side as it may stand in a message: on one line, and not long."""
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return text if len(text) <= length else f"{text[:length]}…"
