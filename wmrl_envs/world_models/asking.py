"""A language model behind a cache: what was asked before, or twice in one batch, is not asked again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import WorldModelError
from wmrl_envs.world_models.backends.protocol import Backend, Conversation, Generation, Schema
from wmrl_envs.world_models.prediction_cache import PredictionCache, content_key

__all__ = ["Asked", "CachedBackend"]

_FORMAT = 1
"""Counts changes of what is stored under a key."""

T = TypeVar("T")


class Asked(NamedTuple, Generic[T]):
    """The answer to one member of a batch."""

    answer: T
    new: bool
    """Whether it had to be computed."""


class CachedBackend:
    """Asks a backend what is not on disk yet, each question once.

    The key of an answer holds the backend's identity and the whole chat, so the task, the code, the examples, the
    templates and every setting are in it. Failures are not stored.

    Args:
        backend: The language model.
        cache: Where answers are kept; None asks each time.
    """

    def __init__(self, backend: Backend, cache: PredictionCache | None) -> None:
        self.backend = backend
        self.hits = 0
        """Answers that came from disk."""
        self._cache = cache

    def choose(
        self, conversations: Sequence[Conversation], choices: Sequence[str]
    ) -> list[Asked[NDArray[np.float64] | None]]:
        """Return the probabilities of some answers, as `Backend.choose` does."""

        def ask(wanted: list[Conversation]) -> list[Any]:
            answers = self.backend.choose(wanted, choices)
            read = [_distribution(answer, len(choices)) for answer in answers]
            return [None if answer is None else answer.tolist() for answer in read]

        found = self._ask("choose", conversations, [list(choices)], ask)
        return [Asked(_distribution(answer, len(choices)), new) for answer, new in found]

    def generate(
        self,
        conversations: Sequence[Conversation],
        *,
        samples: int,
        max_tokens: int,
        temperature: float,
        seed: int,
        schema: Schema | None = None,
    ) -> list[Asked[list[Generation | None]]]:
        """Return sampled replies, as `Backend.generate` does."""

        def ask(wanted: list[Conversation]) -> list[Any]:
            replies = self.backend.generate(
                wanted, samples=samples, max_tokens=max_tokens, temperature=temperature, seed=seed, schema=schema
            )
            listed = [[None if reply is None else dataclasses.astuple(reply) for reply in member] for member in replies]
            # One that gave fewer failed to give the rest.
            return [[*member[:samples], *[None] * (samples - len(member))] for member in listed]

        settings = [samples, max_tokens, temperature, seed, schema]
        found = self._ask("generate", conversations, settings, ask)
        return [
            Asked([None if reply is None else Generation(*reply) for reply in answer], new) for answer, new in found
        ]

    def close(self) -> None:
        """Close the cache; the backend belongs to whoever made it."""
        if self._cache is not None:
            self._cache.close()

    def _ask(
        self,
        question: str,
        conversations: Sequence[Conversation],
        settings: list[Any],
        ask: Callable[[list[Conversation]], list[Any]],
    ) -> list[tuple[Any, bool]]:
        identity = self.backend.identity
        keys = [content_key(_FORMAT, identity, question, settings, list(chat)) for chat in conversations]
        distinct = dict(zip(keys, conversations, strict=True))
        cached = self._cache.get(list(distinct)) if self._cache else [None] * len(distinct)
        answers = dict(zip(distinct, cached, strict=True))
        wanted = [key for key, answer in answers.items() if answer is None]
        if wanted:
            replies = ask([distinct[key] for key in wanted])
            if len(replies) != len(wanted):
                raise WorldModelError(
                    f"the language model {identity} returned {len(replies)} answers to {len(wanted)} chats; it must "
                    "return one each, in order, with None where it has none"
                )
            answers.update(zip(wanted, replies, strict=True))
            if self._cache:
                self._cache.put({key: answers[key] for key in wanted if _complete(answers[key])})
        self.hits += len(distinct) - len(wanted)
        new = set(wanted)
        return [(answers[key], key in new) for key in keys]


def _complete(answer: Any) -> bool:
    return answer is not None and all(part is not None for part in answer)


def _distribution(answer: Any, size: int) -> NDArray[np.float64] | None:
    """Return an answer as probabilities, None if it is no distribution."""
    if answer is None:
        return None
    probabilities = np.asarray(answer, dtype=np.float64)
    total = probabilities.sum() if probabilities.shape == (size,) else 0.0
    if not (np.isfinite(total) and total > 0.0 and (probabilities >= 0.0).all()):
        return None
    return np.asarray(probabilities / total)
