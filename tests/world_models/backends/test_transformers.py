"""The in-process backend, on tiny random models."""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contract import CHOICES, SCHEMA, BackendContract, chat, conversations

from language_models import tiny_chat_model
from wmrl_envs.errors import ConfigurationError, WorldModelError
from wmrl_envs.world_models.backends import Backend, Conversation, resolve_backend
from wmrl_envs.world_models.backends.transformers import TransformersBackend


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_chat_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def backend(folder: Path) -> Iterator[Backend]:
    backend = resolve_backend(f"transformers:{folder}", device="cpu")
    yield backend
    backend.close()


class TestTransformers(BackendContract):
    pass


class TestTransformersOnePassPerChat(BackendContract):
    @pytest.fixture
    def backend(self, folder: Path) -> Backend:
        return TransformersBackend(str(folder), device="cpu", share_prefix=False, batch_size=2)


def whole_pass(backend: TransformersBackend, conversation: Conversation, reply: str) -> float:
    """Return a reply's probability, from one pass over chat and reply without any cache."""
    text = backend.tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    ids = backend.tokenizer(text, add_special_tokens=False)["input_ids"]
    further = backend.tokenizer(reply, add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        logits = backend.model(torch.tensor([ids + further])).logits[0].double()
    logs = torch.log_softmax(logits, dim=-1)
    return float(sum(logs[len(ids) - 1 + i, token] for i, token in enumerate(further)).exp())


def test_probabilities_are_products_over_tokens(backend):
    words = ["low", "fair", "runtime error", "memory exceeded on line 12"]
    for conversation, answer in zip(conversations(3), backend.choose(conversations(3), words), strict=True):
        expected = np.array([whole_pass(backend, conversation, word) for word in words])
        np.testing.assert_allclose(answer, expected / expected.sum(), rtol=1e-4)


def test_a_choice_that_begins_others_has_what_they_leave_of_it(backend):
    words = ["low", "low fair", "low fair high", "high"]
    (conversation,) = conversations(1)
    (answer,) = backend.choose([conversation], words)
    p = dict(zip(words, (whole_pass(backend, conversation, word) for word in words), strict=True))
    left = [p["low"] - p["low fair"], p["low fair"] - p["low fair high"], p["low fair high"], p["high"]]
    np.testing.assert_allclose(answer, np.array(left) / sum(left), rtol=1e-4)


@pytest.mark.parametrize("choices", [[], [""], ["low", "low"]])
def test_choices_that_cannot_be_told_apart_are_refused(backend, choices):
    with pytest.raises(ConfigurationError, match="choices are different texts"):
        backend.choose(conversations(1), choices)


def test_greedy_replies_are_those_of_transformers_own_generate(backend):
    chats = conversations(3)
    for conversation, (reply,) in zip(chats, backend.generate(chats, max_tokens=12), strict=True):
        ids = backend.tokenizer.apply_chat_template(conversation, add_generation_prompt=True, return_tensors="pt")
        whole = backend.model.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1] :]
        assert reply.text == backend.tokenizer.decode(whole, skip_special_tokens=True)
        assert (reply.prompt_tokens, reply.completion_tokens) == (ids["input_ids"].shape[1], len(whole))


def test_sampling_follows_the_models_distribution(backend):
    (conversation,) = conversations(1)
    (replies,) = backend.generate([conversation], samples=2000, max_tokens=1, temperature=0.1)
    with torch.inference_mode():
        ids = backend.tokenizer.apply_chat_template(conversation, add_generation_prompt=True, return_tensors="pt")
        p = torch.softmax(backend.model(**ids).logits[0, -1].double() / 0.1, dim=-1).tolist()
    expected: Counter[str] = Counter()
    for token, probability in enumerate(p):
        expected[backend.tokenizer.decode([token], skip_special_tokens=True)] += probability
    for text, probability in expected.most_common(5):
        frequency = np.mean([reply.text == text for reply in replies])
        assert frequency == pytest.approx(probability, abs=4 * (probability / 2000) ** 0.5)


def test_a_sampled_reply_does_not_depend_on_its_batch(backend):
    chats = conversations(4)
    arguments: dict[str, Any] = {"samples": 2, "max_tokens": 10, "temperature": 1.0, "seed": 3}
    together = backend.generate(chats, **arguments)
    assert [backend.generate([one], **arguments)[0] for one in chats] == together
    assert backend.generate(chats[::-1], **arguments)[::-1] == together


def test_the_same_chat_twice_gets_different_samples(backend):
    (conversation,) = conversations(1)
    (twice,) = backend.generate([conversation], samples=2, max_tokens=10, temperature=1.0)
    apart = backend.generate([conversation] * 2, max_tokens=10, temperature=1.0)
    assert twice == [apart[0][0], apart[1][0]] and twice[0] != twice[1]


def test_sampling_leaves_the_global_random_state_alone(backend):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    backend.generate(conversations(2), samples=2, max_tokens=4, temperature=1.0)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_end_of_the_generation_config_ends_a_reply(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "ends")
    path = tmp_path / "ends" / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": list(range(3, 512))}))
    backend = TransformersBackend(str(tmp_path / "ends"), device="cpu")
    for (reply,) in backend.generate(conversations(3), max_tokens=12):
        assert reply.complete and (reply.text, reply.completion_tokens) == ("", 1)


def test_a_reply_ends_where_the_context_does(folder, tmp_path):
    backend = TransformersBackend(_with_context(folder, tmp_path, 200), device="cpu")
    (conversation,) = conversations(1)
    room = 200 - backend.count_tokens(conversation)
    ((reply,),) = backend.generate([conversation], max_tokens=500, temperature=1.0, seed=1)
    assert reply.completion_tokens == room and not reply.complete


def test_a_chat_that_is_too_long_is_told_of_once(folder, tmp_path, caplog):
    backend = TransformersBackend(_with_context(folder, tmp_path, 200), device="cpu")
    long = chat("one two three " * 200)
    with caplog.at_level(logging.WARNING):
        assert backend.choose([long, long], CHOICES) == [None, None]
        assert backend.generate([long], samples=2) == [[None, None]]
    (record,) = caplog.records
    assert "longer than the context" in record.getMessage() and "200 tokens" in record.getMessage()


def test_numbers_that_are_not_finite_are_no_answer(folder, caplog):
    backend = TransformersBackend(str(folder), device="cpu")
    backend.model.model.norm.weight.fill_(float("nan"))
    with caplog.at_level(logging.WARNING):
        assert backend.choose(conversations(2), CHOICES) == [None, None]
    assert "not finite" in caplog.text


def test_schemas_that_cannot_be_enforced_are_refused(backend):
    with pytest.raises(ConfigurationError, match="cannot be enforced"):
        backend.generate(conversations(1), schema={"type": "no type"})


def test_text_in_a_schemas_string_cannot_hold_control_tokens(backend):
    schema = {"type": "object", "properties": {"why": {"type": "string", "minLength": 30, "maxLength": 40}}}
    for replies in backend.generate(conversations(2), samples=4, max_tokens=200, temperature=2.0, schema=schema):
        for reply in replies:
            assert reply.complete and isinstance(json.loads(reply.text), dict)


@pytest.mark.parametrize(
    "arguments", [{"samples": 0}, {"max_tokens": 0}, {"temperature": -1.0}, {"temperature": float("nan")}]
)
def test_arguments_out_of_range_are_refused(backend, arguments):
    with pytest.raises(ConfigurationError, match="at least 1"):
        backend.generate(conversations(1), **arguments)


def test_memory_that_runs_out_says_what_to_make_smaller(backend):
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    hook = backend.model.register_forward_pre_hook(full)
    with pytest.raises(WorldModelError, match="batch_size=32 and max_batch_tokens=32768; make them smaller"):
        backend.choose(conversations(1), CHOICES)
    hook.remove()
    assert backend.choose(conversations(1), CHOICES)[0] is not None


def test_a_closed_backend_says_so(folder):
    backend = TransformersBackend(str(folder), device="cpu")
    backend.close()
    backend.close()
    for call in (lambda: backend.choose(conversations(1), CHOICES), lambda: backend.count_tokens(chat("x"))):
        with pytest.raises(WorldModelError, match="is closed"):
            call()
    assert backend.identity


def test_halves_of_a_batch_are_as_good_as_the_whole(folder):
    small = TransformersBackend(str(folder), device="cpu", batch_size=2, max_batch_tokens=1, prefix_cache_tokens=0)
    large = TransformersBackend(str(folder), device="cpu")
    chats = conversations(6)
    np.testing.assert_allclose(small.choose(chats, CHOICES), large.choose(chats, CHOICES), atol=1e-6)
    arguments: dict[str, Any] = {"samples": 3, "max_tokens": 20, "temperature": 1.0, "schema": SCHEMA}
    assert small.generate(chats, **arguments) == large.generate(chats, **arguments)


def _with_context(folder: Path, tmp_path: Path, tokens: int) -> str:
    place = tmp_path / "short"
    shutil.copytree(folder, place)
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, "max_position_embeddings": tokens}))
    return str(place)
