"""The contract on vLLM's offline engine; not part of the default run: make test-vllm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from contract import CHOICES, BackendContract, chat, conversations
from on_vllm import ENVIRONMENT, LENGTH, WORDS, apart, smollm2

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.world_models.backends import Backend, resolve_backend
from wmrl_envs.world_models.verdicts import VERDICTS

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield smollm2()


@pytest.fixture(scope="module")
def backend(folder: Path) -> Iterator[Backend]:
    backend = resolve_backend(f"vllm:{folder}", max_model_len=LENGTH)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def in_process(folder: Path) -> Iterator[Backend]:
    backend = resolve_backend(f"transformers:{folder}", device="cpu")
    yield backend
    backend.close()


class TestOfflineEngine(BackendContract):
    context = LENGTH


@pytest.mark.parametrize("choices", [list(CHOICES), WORDS, list(VERDICTS)])
def test_it_scores_as_the_in_process_backend(backend: Backend, in_process: Backend, choices: list[str]) -> None:
    assert apart(backend, in_process, choices) < 1e-4


def test_it_reads_what_the_in_process_backend_reads(backend: Backend, in_process: Backend) -> None:
    for one in conversations():
        assert backend.count_tokens(one) == in_process.count_tokens(one)


def test_it_says_what_the_in_process_backend_says(backend: Backend, in_process: Backend) -> None:
    assert backend.generate(conversations(2), max_tokens=8) == in_process.generate(conversations(2), max_tokens=8)


def test_scores_from_prompt_logprobs_are_the_same(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """For releases that do not give log-probabilities by number."""
    expected = backend.choose(conversations(2), WORDS)
    monkeypatch.setattr("wmrl_envs.world_models.backends.vllm._takes_numbers", lambda asked: False)
    found = backend.choose(conversations(2), WORDS)
    for a, b in zip(expected, found, strict=True):
        assert a is not None and b is not None and np.abs(a - b).max() < 1e-4


def test_more_choices_than_go_into_one_question(backend: Backend, in_process: Backend) -> None:
    many = [chr(letter) for letter in range(ord("!"), ord("~"))] + [f"{i}" for i in range(100, 140)]
    (answer,), (expected,) = (b.choose([chat("Count.")], many) for b in (backend, in_process))
    assert answer is not None and expected is not None and np.abs(answer - expected).max() < 1e-4


def test_a_chat_that_stands_there_twice_gets_two_replies(backend: Backend) -> None:
    one = conversations(1)[0]
    first, second = backend.generate([one, one], max_tokens=12, temperature=1.0)
    assert first[0] is not None and second[0] is not None and first[0].text != second[0].text


def test_what_it_cannot_be_asked_is_named(backend: Backend) -> None:
    with pytest.raises(ConfigurationError, match="samples=0"):
        backend.generate(conversations(1), samples=0)
    with pytest.raises(ConfigurationError, match="choices are different"):
        backend.choose(conversations(1), ["low", "low"])


def test_the_identity_tells_the_settings(backend: Backend) -> None:
    assert backend.identity.startswith("vllm:SmolLM2-135M")
