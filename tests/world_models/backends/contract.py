"""What any language model backend must do, as tests to inherit.

A backend's tests subclass `BackendContract` and give it a fixture ``backend`` (module-wide, since nothing here changes
what a backend answers). Class attributes say what a server, not the backend, is unable to do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jsonschema
import numpy as np
import pytest

from wmrl_envs.errors import WorldModelError
from wmrl_envs.world_models.backends import Backend, Conversation, Generation, Message

__all__ = ["CHOICES", "SCHEMA", "BackendContract", "chat", "conversations"]

CHOICES = ("error", "timeout", "low", "fair", "high")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"valid": {"type": "boolean"}, "bucket": {"enum": ["low", "fair", "high"]}},
    "required": ["valid", "bucket"],
    "additionalProperties": False,
}
"""Finite, so that even a model without any sense finishes it."""

_TASK = "You predict what happens when a solution runs.\nThe task: tell survivors of a shipwreck from the others."


def chat(text: str) -> Conversation:
    """Return a chat with a system message that all of them share."""
    return [Message(role="system", content=_TASK), Message(role="user", content=text)]


def conversations(n: int = 5) -> list[Conversation]:
    """Return chats of one task whose solutions differ in content and in length."""
    return [
        chat(f"{_TASK}\nSolution {i}:\n" + "\n".join(f"x{j} = {i} + {j}" for j in range(3 * i + 1)) + "\nVerdict?")
        for i in range(n)
    ]


class BackendContract:
    """Tests of a backend that the fixture ``backend`` of the subclass returns."""

    scores = True
    """False where the server reports no log-probabilities: `choose` says so then."""

    enforces_schema = True
    """False where the server ignores a schema: replies need not fit it, and still must not raise."""

    repeats = True
    """False where the server ignores the seed."""

    batch_invariant = True
    """False where greedy replies depend on what else the server is busy with."""

    tolerance = 1e-4
    """Largest difference between the probabilities of a chat alone and in a batch."""

    context: int | None = 8192
    """Longest chat that the model takes, in tokens; None where it is too long to try."""

    def test_it_is_a_backend(self, backend: Backend) -> None:
        assert isinstance(backend, Backend)
        assert backend.identity and backend.identity == backend.identity

    def test_an_empty_batch_is_an_empty_answer(self, backend: Backend) -> None:
        assert backend.choose([], CHOICES) == []
        assert backend.generate([], max_tokens=4) == []

    def test_probabilities_are_of_the_choices_and_sum_to_one(self, backend: Backend) -> None:
        answers = self._choose(backend, conversations(), CHOICES)
        assert len(answers) == 5
        if not self.scores:
            assert all(answer is None for answer in answers)
            return
        for answer in answers:
            assert answer is not None
            assert answer.shape == (len(CHOICES),) and answer.dtype == np.float64
            assert np.all(answer >= 0) and answer.sum() == pytest.approx(1.0, abs=1e-9)

    def test_one_choice_has_all_the_probability(self, backend: Backend) -> None:
        (answer,) = self._choose(backend, conversations(1), ["low"])
        assert answer is None if not self.scores else answer is not None and answer == pytest.approx([1.0])

    def test_the_order_of_chats_and_of_choices_is_kept(self, backend: Backend) -> None:
        chats = conversations()
        answers = self._choose(backend, chats, CHOICES)
        turned = self._choose(backend, chats[::-1], CHOICES[::-1])
        self._close(answers, [None if answer is None else answer[::-1] for answer in turned[::-1]])

    def test_a_chat_scores_alone_as_in_a_batch(self, backend: Backend) -> None:
        chats = conversations()
        self._close(
            self._choose(backend, chats, CHOICES),
            [answer for one in chats for answer in self._choose(backend, [one], CHOICES)],
        )

    def test_choices_of_several_tokens_count_whole(self, backend: Backend) -> None:
        words = ["runtime error", "memory exceeded on line 12", "low"]
        for answer in self._choose(backend, conversations(2), words):
            assert (answer is not None) == self.scores
            assert answer is None or answer.sum() == pytest.approx(1.0, abs=1e-9)

    def test_a_chat_of_several_turns_is_read(self, backend: Backend) -> None:
        turns = [*chat("Solve it."), Message(role="assistant", content="print(1)"), Message(role="user", content="On?")]
        (answer,) = self._choose(backend, [turns], CHOICES)
        assert (answer is not None) == self.scores
        (replies,) = backend.generate([turns], max_tokens=4)
        assert replies[0] is not None

    def test_greedy_replies_repeat_and_keep_their_order(self, backend: Backend) -> None:
        chats = conversations(3)
        first = _texts(backend.generate(chats, max_tokens=8))
        assert [len(texts) for texts in first] == [1, 1, 1]
        if self.batch_invariant:
            assert _texts(backend.generate(chats[::-1], max_tokens=8))[::-1] == first
            assert [_texts(backend.generate([one], max_tokens=8))[0] for one in chats] == first

    def test_samples_are_as_many_as_asked_for_and_repeat_under_their_seed(self, backend: Backend) -> None:
        chats = conversations(2)
        arguments: dict[str, Any] = {"samples": 3, "max_tokens": 12, "temperature": 1.0}
        first = _texts(backend.generate(chats, seed=7, **arguments))
        assert [len(texts) for texts in first] == [3, 3]
        assert len({text for texts in first for text in texts}) > 1
        if self.repeats:
            assert _texts(backend.generate(chats, seed=7, **arguments)) == first
            assert _texts(backend.generate(chats, seed=8, **arguments)) != first

    def test_a_reply_counts_its_tokens_and_says_whether_it_was_cut(self, backend: Backend) -> None:
        one = conversations(1)
        (replies,) = backend.generate(one, max_tokens=6)
        (reply,) = replies
        assert reply is not None
        assert 0 < reply.completion_tokens <= 6
        assert 0 < reply.prompt_tokens <= backend.count_tokens(one[0])
        assert reply.complete or reply.completion_tokens == 6

    def test_a_reply_fits_its_schema(self, backend: Backend) -> None:
        for temperature in (0.0, 1.0):
            for replies in backend.generate(
                conversations(2), samples=2, max_tokens=60, temperature=temperature, schema=SCHEMA
            ):
                assert len(replies) == 2
                for reply in replies:
                    assert reply is not None
                    if self.enforces_schema:
                        assert reply.complete
                        jsonschema.validate(json.loads(reply.text), SCHEMA)

    def test_a_member_that_cannot_be_answered_is_none(self, backend: Backend) -> None:
        if self.context is None:
            return
        good = conversations(2)
        mixed = [good[0], chat("one two three four " * self.context), good[1]]
        answers = self._choose(backend, mixed, CHOICES)
        assert answers[1] is None
        self._close([answers[0], answers[2]], self._choose(backend, good, CHOICES))
        replies = backend.generate(mixed, samples=2, max_tokens=4)
        assert replies[1] == [None, None]
        assert all(reply is not None for reply in (*replies[0], *replies[2]))

    def test_a_longer_chat_has_more_tokens(self, backend: Backend) -> None:
        counts = [backend.count_tokens(one) for one in conversations()]
        assert all(isinstance(count, int) and count > 0 for count in counts)
        assert counts == sorted(counts) and counts[0] < counts[-1]

    def _choose(self, backend: Backend, chats: Sequence[Conversation], choices: Sequence[str]) -> list[Any]:
        if self.scores:
            return list(backend.choose(chats, choices))
        with pytest.raises(WorldModelError, match="log-probabilities"):
            backend.choose(chats, choices)
        return [None] * len(chats)

    def _close(self, left: Sequence[Any], right: Sequence[Any]) -> None:
        assert len(left) == len(right)
        for a, b in zip(left, right, strict=True):
            assert (a is None) == (b is None) == (not self.scores)
            assert a is None or np.abs(a - b).max() <= self.tolerance


def _texts(batches: Sequence[Sequence[Generation | None]]) -> list[list[str]]:
    texts = []
    for batch in batches:
        assert all(reply is not None for reply in batch)
        texts.append([reply.text for reply in batch if reply is not None])
    return texts
