"""GGUF files are converted once, whole, whoever else is at it."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
from contract import CHOICES, conversations

from language_models import smollm2_gguf, tiny_chat_model
from wmrl_envs.errors import WorldModelError
from wmrl_envs.world_models.backends import resolve_backend
from wmrl_envs.world_models.backends.gguf import converted
from wmrl_envs.world_models.backends.transformers import TransformersBackend


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny model as a folder and as a GGUF file."""
    folder = tiny_chat_model(tmp_path_factory.mktemp("tiny"))
    return folder, write_gguf(folder, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def write_gguf(folder: Path, file: Path) -> Path:
    """Write a Llama folder as llama.cpp's converter does, in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    config = model.config
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, tokenizer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight":
            values = tensor.numpy()
            if name.endswith(("q_proj.weight", "k_proj.weight")):  # llama.cpp keeps the two halves of a rotation apart
                heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
                values = values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
            writer.add_tensor(names.get_name(name, (".weight",)), np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer) -> None:
    import json

    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    special = set(tokenizer.all_special_tokens)
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in tokens])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_chat_template(tokenizer.chat_template)


def test_the_file_answers_as_the_folder_that_it_was_made_of(tiny, tmp_path, monkeypatch):
    folder, file = tiny
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    backends = [resolve_backend(f"transformers:{place}", device="cpu") for place in (folder, file)]
    expected, answers = (backend.choose(conversations(3), CHOICES) for backend in backends)
    np.testing.assert_allclose(answers, expected, atol=1e-6)
    assert backends[1].identity.startswith("transformers:tiny.gguf:")
    assert [path.name for path in (tmp_path / "wmrl-envs" / "models").iterdir()] == [converted(file).name]


def test_a_file_is_converted_once(tiny, tmp_path):
    _, file = tiny
    folder = converted(file, tmp_path)
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert converted(file, tmp_path) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    os.utime(file)
    assert converted(file, tmp_path) == folder


def test_another_content_is_another_folder(tiny, tmp_path):
    folder, _ = tiny
    other = tiny_chat_model(tmp_path / "other", seed=1)
    first = converted(write_gguf(folder, tmp_path / "model.gguf"), tmp_path / "cache")
    second = converted(write_gguf(other, tmp_path / "model.gguf"), tmp_path / "cache")
    assert first != second


def test_two_processes_at_once_both_get_the_whole_folder(tiny, tmp_path):
    _, file = tiny
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    processes = [context.Process(target=lambda: queue.put(str(converted(file, tmp_path / "cache")))) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    first, second = queue.get(), queue.get()
    assert first == second
    assert [path.name for path in (tmp_path / "cache" / "models").iterdir()] == [Path(first).name]
    assert TransformersBackend(first, device="cpu").choose(conversations(1), CHOICES)[0] is not None


def test_what_a_killed_conversion_left_is_cleaned_up_after_a_day(tiny, tmp_path):
    _, file = tiny
    old, new = (tmp_path / "models" / name for name in (".converting-old", ".converting-new"))
    for place in (old, new):
        (place / "part").mkdir(parents=True)
    os.utime(old, (time.time() - 2 * 86400,) * 2)
    converted(file, tmp_path)
    assert not old.exists() and new.exists()


def test_a_file_that_is_no_model_is_told_of(tmp_path):
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF nonsense")
    with pytest.raises(WorldModelError, match="broken.gguf is no GGUF model that transformers can read"):
        converted(file, tmp_path / "cache")
    assert list((tmp_path / "cache" / "models").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_told_of(tiny, tmp_path):
    _, file = tiny
    (tmp_path / "models").write_text("in the way")
    with pytest.raises(WorldModelError, match="set XDG_CACHE_HOME"):
        converted(file, tmp_path)


def test_smollm2_loads_without_a_hub_and_knows_a_capital(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    backend = resolve_backend(f"transformers:{smollm2_gguf()}", device="cpu")
    chat = [{"role": "user", "content": "Name the capital of France in one word."}]
    (answer,) = backend.choose([chat], ["Paris", "London", "Berlin"])
    assert answer[0] > 0.9
    ((reply,),) = backend.generate([chat], max_tokens=2, seed=0)
    assert reply.text and reply.prompt_tokens == backend.count_tokens(chat)
