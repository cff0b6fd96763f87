"""Messages as a request can carry them."""

from __future__ import annotations

import re

from wmrl_envs.world_models.backends.protocol import Conversation

__all__ = ["encodable", "whole"]

_CONTROL = re.compile(
    r"<(?:[|\uff5c][^<>\n]{1,60}[|\uff5c]>|/?(?:s|bos|eos)>|(?:start|end)_of_(?:turn|text|image)>)|\[/?INST\]"
)
"""How the tokens that part a chat's messages are spelt, by family of models."""


def encodable(conversation: Conversation) -> list[dict[str, str]]:
    """Return messages as a request can carry them, that end where they end.

    Control tokens that are spelt out in a message (``<|im_end|>`` in a comment of the code to judge, say) are broken up
    by a blank: a server reads them as what they spell, so that a solution could end its message and speak for the
    model.
    """
    return [
        {"role": message["role"], "content": _CONTROL.sub(_broken, whole(message["content"]))}
        for message in conversation
    ]


def _broken(control: re.Match[str]) -> str:
    return f"{control[0][0]} {control[0][1:]}"


def whole(text: str) -> str:
    """Return a text in which halves of surrogate pairs are joined, or replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
