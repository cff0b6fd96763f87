"""What the package asks of a language model, wherever it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Backend", "Conversation", "Generation", "Message", "Schema"]


class Message(TypedDict):
    """One message of a chat, as every chat template and server takes it."""

    role: Literal["system", "user", "assistant"]
    content: str


Conversation: TypeAlias = Sequence[Message]
"""A chat that ends with a user's message, which the model is to answer."""

Schema: TypeAlias = Mapping[str, Any]
"""A JSON schema."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One sampled answer."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    complete: bool = True
    """False where ``max_tokens`` cut the answer off."""


@runtime_checkable
class Backend(Protocol):
    """A chat language model: in this process, in an engine, or behind a server.

    A member of a batch that cannot be answered is ``None``; a model that cannot be reached at all raises
    `wmrl_envs.errors.WorldModelError`.
    """

    @property
    def identity(self) -> str:
        """Names the weights and whatever else decides the answers; predictions are cached under it."""
        ...

    def choose(self, conversations: Sequence[Conversation], choices: Sequence[str]) -> list[NDArray[np.float64] | None]:
        """Return the model's own probabilities over some answers.

        Args:
            conversations: n chats.
            choices: k different answers, of which the model is to give one. Fastest where each is one token.

        Returns:
            For each chat float64 [k] that sums to 1: the probability that the reply begins with each choice, among the
            choices; no sampling is involved. None where it could not be had.
        """
        ...

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
        """Return sampled replies.

        Args:
            conversations: n chats.
            samples: Replies per chat.
            max_tokens: Longest reply, in tokens.
            temperature: 0 takes the most probable token each time.
            seed: Seed of the sampling.
            schema: The reply is a JSON object that fits this schema, where the backend can enforce it. A reply that
                does not fit comes back as it is: reading it is the caller's part.

        Returns:
            For each chat a list of ``samples`` replies, None for one that could not be had.
        """
        ...

    def count_tokens(self, conversation: Conversation) -> int:
        """Return the length of a chat as the model reads it, in tokens; never less where it can only be estimated."""
        ...

    def close(self) -> None:
        """Give back memory, engines and connections."""
        ...
