"""The in-process backend, on a tiny random model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from contract import BackendContract

from language_models import tiny_chat_model
from wmrl_envs.world_models.backends import Backend, resolve_backend


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_chat_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def backend(folder: str) -> Iterator[Backend]:
    backend = resolve_backend(f"transformers:{folder}", device="cpu")
    yield backend
    backend.close()


class TestTransformers(BackendContract):
    pass
