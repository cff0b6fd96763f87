"""The contract, behind a real `transformers serve`, which ignores schemas, `n` and log-probabilities."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract import CHOICES, BackendContract, conversations
from servers import flaky, free_port, process

from language_models import tiny_chat_model
from wmrl_envs.errors import WorldModelError
from wmrl_envs.world_models.backends import Backend, resolve_backend


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder = tiny_chat_model(tmp_path_factory.mktemp("model") / "tiny")
    settings = folder / "generation_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"do_sample": True}))  # a temperature needs it
    port = free_port()
    command = [Path(sys.executable).with_name("transformers"), "serve", folder, "--host", "127.0.0.1"]
    arguments = [*map(str, command), "--port", str(port), "--device", "cpu"]
    with process(arguments, port, folder / "log", HF_HUB_OFFLINE="1") as url:
        yield url, str(folder)


@pytest.fixture(scope="module")
def backend(server: tuple[str, str]) -> Iterator[Backend]:
    backend = resolve_backend("openai:{}#{}".format(*server), concurrency=1, timeout=30)
    yield backend
    backend.close()


class TestTransformersServe(BackendContract):
    scores = False
    enforces_schema = False
    context = None
    """It takes chats of any length, and time for them."""


@pytest.fixture(scope="module")
def behind_a_flaky_connection(server: tuple[str, str]) -> Iterator[Backend]:
    with flaky(server[0]) as connection:
        backend = resolve_backend(f"openai:{connection.url}#{server[1]}", concurrency=1, backoff=0.001)
        yield backend
        backend.close()


class TestTransformersServeBehindAFlakyConnection(TestTransformersServe):
    @pytest.fixture
    def backend(self, behind_a_flaky_connection: Backend) -> Backend:
        return behind_a_flaky_connection


def test_scoring_names_the_way_out(backend: Backend) -> None:
    with pytest.raises(WorldModelError, match='gives no log-probabilities.*mode="sample"'):
        backend.choose(conversations(1), CHOICES)


def test_a_wrong_model_is_told_the_right_ones(server: tuple[str, str]) -> None:
    backend = resolve_backend(f"openai:{server[0]}#another")
    with pytest.raises(WorldModelError, match=f"no model 'another'.*it has: {server[1]}"):
        backend.generate(conversations(1), max_tokens=1)
    backend.close()


def test_an_address_without_the_version_is_told_so(server: tuple[str, str]) -> None:
    url, model = server
    backend = resolve_backend(f"openai:{url.removesuffix('/v1')}#{model}")
    with pytest.raises(WorldModelError, match="usually ends in /v1"):
        backend.generate(conversations(1), max_tokens=1)
    backend.close()
