"""Reading what chats share once gives the answers of one whole pass per chat, whatever the model's layers are."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contract import CHOICES, chat, conversations
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, Qwen3_5ForCausalLM, Qwen3_5TextConfig

from language_models import tiny_chat_model
from wmrl_envs.world_models.backends import Conversation
from wmrl_envs.world_models.backends.transformers import TransformersBackend

COMMON: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 8192,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
RECURRENT = {f"linear_{name}": n for name, n in (("num_value_heads", 4), ("num_key_heads", 2))}
RECURRENT |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8}

MODELS: dict[str, Callable[[], Any] | None] = {
    "full attention": None,
    "sliding windows": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**COMMON, sliding_window=32)),
    "recurrent layers": lambda: Qwen3_5ForCausalLM(Qwen3_5TextConfig(**COMMON, **RECURRENT)),
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_chat_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module", params=MODELS)
def folder(request: pytest.FixtureRequest, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    make = MODELS[request.param]
    if make is None:
        return str(tiny)
    place = tmp_path_factory.mktemp("other")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tiny / name, place / name)
    torch.manual_seed(0)
    model = make()
    for parameter in model.parameters():  # sharper than at the start of training, so that an error shows
        parameter.data.mul_(4 if parameter.dim() > 1 else 1)
    model.save_pretrained(place)
    return str(place)


@pytest.fixture
def both(folder: str) -> tuple[TransformersBackend, TransformersBackend]:
    plain, shared = (TransformersBackend(folder, device="cpu", share_prefix=share) for share in (False, True))
    return plain, shared


def tasks(n: int = 3) -> list[Conversation]:
    """Return chats of three tasks in turn, with solutions that share beginnings of their own."""
    text = {name: f"The task: {name}.\n" + f"{name} means {name}.\n" * 20 for name in ("ships", "snow", "fish")}
    return [
        chat(f"{text[name]}import pandas\n" + f"model = {i % 2}\n" * 20 + "fit(x)\n" * i)
        for i in range(n)
        for name in text
    ]


@pytest.mark.parametrize("choices", [CHOICES, ("low fair", "high low", "mid fair")])
def test_the_probabilities_are_the_same(both, choices):
    plain, shared = both
    chats = [*tasks(), *conversations(2)]
    expected = [plain.choose([one], choices)[0] for one in chats]
    assert np.ptp(np.array(expected), axis=0).max() > 1e-5
    for backend in (plain, shared, shared):
        np.testing.assert_allclose(backend.choose(chats, choices), expected, atol=1e-6)
    np.testing.assert_allclose([shared.choose([one], choices)[0] for one in chats], expected, atol=1e-6)
    assert shared.tokens_read < plain.tokens_read


def test_what_chats_share_is_read_once(both):
    plain, shared = both
    for backend in both:
        backend.choose(tasks(), CHOICES)
    assert shared.tokens_read < 0.6 * plain.tokens_read


def test_the_replies_are_the_same(both):
    plain, shared = both
    for arguments in ({}, {"samples": 3, "temperature": 1.0, "seed": 5}):
        expected = plain.generate(tasks(), max_tokens=10, **arguments)
        assert shared.generate(tasks(), max_tokens=10, **arguments) == expected


def test_the_next_call_on_a_task_finds_its_prefix_read(both):
    _, shared = both
    shared.choose(tasks(), CHOICES)
    seen = shared.tokens_read
    later = tasks(5)[9:]
    shared.choose(later, CHOICES)
    read = shared.tokens_read - seen
    shared._runner.forget()
    seen = shared.tokens_read
    shared.choose(later, CHOICES)
    assert read < 0.5 * (shared.tokens_read - seen)


def test_prefixes_in_memory_are_bounded(folder):
    backend = TransformersBackend(folder, device="cpu", prefix_cache_tokens=1000)
    chats = tasks()
    expected = TransformersBackend(folder, device="cpu", share_prefix=False).choose(chats, CHOICES)
    for _ in range(2):
        np.testing.assert_allclose(backend.choose(chats, CHOICES), expected, atol=1e-6)
        assert 0 < sum(len(prefix.tokens) for prefix in backend._runner._prefixes._kept) <= 1000


def test_the_benchmark_says_how_far_apart_the_two_are(tiny, monkeypatch, capsys):
    script = Path(__file__).parents[3] / "benchmarks" / "shared_prefix.py"
    monkeypatch.setattr("sys.argv", [script.name, "--model", str(tiny), "--solutions", "2", "--device", "cpu"])
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    assert "at most 0.0001 holds" in printed and "4 of 4 the same" in printed
