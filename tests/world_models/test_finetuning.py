"""Fine-tuning on recorded executions: what is trained on, that it learns, and that a kill loses nothing."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from language_models import tiny_chat_model
from wmrl_envs.errors import CheckpointError, ConfigurationError, RecordingError, UnknownTaskError
from wmrl_envs.research.outcome import Status
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import load_task
from wmrl_envs.world_models.backends import resolve_backend
from wmrl_envs.world_models.finetuning import FinetuneConfig, finetune
from wmrl_envs.world_models.prompting import PromptTemplates
from wmrl_envs.world_models.training_pairs import draw_pairs, tokenized
from wmrl_envs.world_models.verdicts import VERDICTS


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_chat_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def recordings() -> ReplaySandbox:
    return ReplaySandbox()


def settings(base: Path, **changes: Any) -> FinetuneConfig:
    values = {
        "base": str(base),
        "tasks": ("names",),
        "held_out": ("mnist5k",),
        "examples_per_task": 16,
        "held_out_examples": 4,
        "learning_rate": 1e-2,
        "batch_size": 2,
        "max_steps": 6,
        "checkpoint_every": 2,
    }
    return FinetuneConfig(**{**values, **changes})


def weights(out: Path) -> dict[str, np.ndarray[Any, Any]]:
    from safetensors.numpy import load_file

    return load_file(out / "model" / "model.safetensors")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tasks": ()}, "tasks must name"),
        ({"draw": "pior"}, "Did you mean 'prior'"),
        ({"answer": "words"}, "word, json, both"),
        ({"dtype": "float16"}, "float32, bfloat16"),
        ({"lora_rank": 0}, "lora_rank must be"),
        ({"max_steps": 0}, "max_steps must be"),
        ({"learning_rate": float("nan")}, "learning_rate must be positive"),
        ({"batch_size": 3, "micro_batch_size": 2}, "must divide batch_size"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_settings_that_cannot_run_are_refused_before_anything_is_loaded(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        settings(Path("nowhere"), **changes)


def test_settings_come_back_from_json() -> None:
    config = settings(Path("somewhere"), lora_rank=None)
    assert FinetuneConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    with pytest.raises(ConfigurationError, match="Did you mean 'lora_rank'"):
        FinetuneConfig.from_dict({**config.to_dict(), "lora_rnk": 8})


def test_a_task_is_trained_on_or_held_out(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="names is named again"):
        finetune(settings(base, held_out=("names",)), tmp_path / "run")
    with pytest.raises(UnknownTaskError, match="Did you mean 'titanic'"):
        finetune(settings(base, tasks=("titanc",)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_task_without_recordings_says_how_to_record_it(base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(load_task("names").folder, folder, ignore=shutil.ignore_patterns("recording*"))
    with pytest.raises(RecordingError, match=f"wmrl tasks record {folder}"):
        finetune(settings(base, tasks=(str(folder),)), tmp_path / "run")


def test_pairs_are_distinct_capped_and_repeatable(recordings: ReplaySandbox) -> None:
    task = load_task("titanic")
    pairs = draw_pairs(task, recordings, count=300, draw="prior", seed=0)
    codes = [submission.code for submission, _ in pairs]
    assert len(set(codes)) == len(codes) == 300
    assert all(recordings.grade([submission]) == [outcome] for submission, outcome in pairs[:20])
    again = draw_pairs(task, recordings, count=100, draw="prior", seed=0)
    assert again == pairs[:100]
    uniform = draw_pairs(task, recordings, count=300, draw="uniform", seed=0)
    valid = [np.mean([outcome.status is Status.VALID for _, outcome in some]) for some in (pairs, uniform)]
    assert valid[0] > valid[1] + 0.15
    assert len(draw_pairs(load_task("mnist5k"), recordings, count=300, draw="uniform", seed=0)) == 200


def test_an_example_is_the_chat_that_the_backend_reads_and_the_reply(base: Path, recordings: ReplaySandbox) -> None:
    from transformers import AutoTokenizer

    from wmrl_envs.world_models.backends._chat import ChatTokenizer

    chats = ChatTokenizer(AutoTokenizer.from_pretrained(base), {})
    templates = PromptTemplates.load("compact")
    pairs = draw_pairs(load_task("names"), recordings, count=5, draw="prior", seed=1)
    examples, too_long = tokenized(pairs, chats, templates, answer="both", max_length=10_000)
    assert len(examples) == 10 and too_long == 0
    for example, (submission, outcome) in zip(examples[::2], pairs, strict=True):
        ids, mask = example["input_ids"], example["completion_mask"]
        prompt = chats.encode(templates.conversation(submission))
        assert tuple(ids[: len(prompt)]) == prompt
        assert mask == [0] * len(prompt) + [1] * (len(ids) - len(prompt))
        reply = chats.tokenizer.decode(ids[len(prompt) :])
        assert reply == f"{templates.answer(outcome)}<|im_end|>"
    reply = chats.decode([token for token, counts in zip(*examples[1].values(), strict=True) if counts])
    assert json.loads(reply)["status"] == pairs[0][1].status
    longest = max(len(example["input_ids"]) for example in examples)
    kept, too_long = tokenized(pairs, chats, templates, answer="both", max_length=longest - 1)
    assert len(kept) + too_long == 10 and too_long >= 1


@pytest.mark.parametrize(("rank", "dtype"), [(8, "float32"), (8, "bfloat16"), (None, "bfloat16")])
def test_it_learns_and_loads_as_a_backend(base: Path, tmp_path: Path, rank: int | None, dtype: str) -> None:
    rate = 1e-2 if rank is None else 1e-1
    config = settings(base, lora_rank=rank, dtype=dtype, learning_rate=rate, max_steps=12, draw="uniform")
    steps: list[tuple[int, int]] = []
    summary = finetune(config, tmp_path / "run", progress=lambda done, total: steps.append((done, total)))
    assert steps == [(step, 12) for step in range(1, 13)]
    assert summary["examples"] == {"names": 16} and summary["held_out_examples"] == {"mnist5k": 4}
    before, after = (summary[f"held_out_loss_{when}"]["mnist5k"] for when in ("before", "after"))
    assert after < before - 0.2
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
    assert not (tmp_path / "run" / "checkpoints").exists()
    submission, _ = draw_pairs(load_task("mnist5k"), ReplaySandbox(), count=1, draw="uniform", seed=0)[0]
    chat = PromptTemplates.load("compact").conversation(submission)
    [probabilities] = resolve_backend(f"transformers:{summary['model']}").choose([chat], VERDICTS)
    assert probabilities is not None and probabilities.sum() == pytest.approx(1.0)
    assert saved_loss(summary, config) == pytest.approx(after, abs=1e-5 if dtype == "float32" else 1e-2)


def saved_loss(summary: dict[str, Any], config: FinetuneConfig) -> float:
    """Return the saved model's own loss on the held-out examples, in nats per token of an answer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from wmrl_envs.world_models.backends._chat import ChatTokenizer

    model = AutoModelForCausalLM.from_pretrained(summary["model"], dtype=torch.float32)
    chats = ChatTokenizer(AutoTokenizer.from_pretrained(summary["model"]), {})
    drawn: dict[str, Any] = {"count": 4, "draw": config.draw, "seed": config.seed + 1_000_003}
    pairs = draw_pairs(load_task("mnist5k"), ReplaySandbox(), **drawn)
    examples, _ = tokenized(pairs, chats, PromptTemplates.load("compact"), answer="word", max_length=4096)
    losses: list[torch.Tensor] = []
    for example in examples:
        ids = torch.tensor([example["input_ids"]])
        with torch.no_grad():
            chosen = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        losses.append(-chosen[torch.tensor(example["completion_mask"][1:]).bool()].mean())
    return float(torch.stack(losses).mean())


_KILLED = """
import json, os, signal, sys
from pathlib import Path
from wmrl_envs.world_models.finetuning import FinetuneConfig, finetune

def told(done, total):
    if done == 5:
        os.kill(os.getpid(), signal.SIGKILL)

finetune(FinetuneConfig.from_dict(json.loads(sys.argv[1])), Path(sys.argv[2]), progress=told)
"""


def test_a_killed_run_goes_on_and_ends_with_the_same_weights(base: Path, tmp_path: Path) -> None:
    config = settings(base)
    killed, unbroken = tmp_path / "killed", tmp_path / "unbroken"
    command = [sys.executable, "-c", _KILLED, json.dumps(config.to_dict()), str(killed)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not (killed / "model").exists()
    (killed / "checkpoints" / "checkpoint-4" / "complete").unlink()  # as if it had come while that was written
    steps: list[int] = []
    resumed = finetune(config, killed, resume=True, progress=lambda done, total: steps.append(done))
    assert steps == [3, 4, 5, 6]
    expected = finetune(config, unbroken)
    for name in ("steps", "held_out_loss_before", "held_out_loss_after"):
        assert resumed[name] == expected[name], name
    ours, theirs = weights(killed), weights(unbroken)
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    # A finished run stays as it is.
    assert finetune(config, killed, resume=True, progress=lambda done, total: steps.append(done)) == resumed
    assert steps == [3, 4, 5, 6]


@pytest.mark.parametrize("rank", [4, None])
def test_only_the_last_layers_are_trained(base: Path, tmp_path: Path, rank: int | None) -> None:
    from safetensors.numpy import load_file

    with pytest.raises(ConfigurationError, match="last_layers must be at most 2"):
        finetune(settings(base, lora_rank=rank, last_layers=3), tmp_path / "too-many")
    finetune(settings(base, lora_rank=rank, last_layers=1, max_steps=2, held_out=()), tmp_path / "run")
    before, after = load_file(base / "model.safetensors"), weights(tmp_path / "run")
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed and all(name.startswith("model.layers.1.") for name in changed)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"base": "/nowhere/at/all"}, "no language model"),
        ({"max_length": 5}, "fits into"),
        ({"last_layers": 9}, "most 2"),
    ],
)
def test_a_run_that_cannot_begin_gives_its_folder_back(
    base: Path, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        finetune(replace(settings(base), **changes), tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_a_folder_that_cannot_be_is_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(ConfigurationError, match="is a file, not a folder; name another"):
            finetune(settings(base), folder)


def test_a_folder_holds_one_run(base: Path, tmp_path: Path) -> None:
    config = settings(base, max_steps=1, held_out=())
    summary = finetune(config, tmp_path)
    assert summary["held_out_loss_before"] == summary["held_out_loss_after"] == {}
    with pytest.raises(CheckpointError, match="already holds a run"):
        finetune(config, tmp_path)
    with pytest.raises(CheckpointError, match="learning_rate was 0.01, now 0.02"):
        finetune(settings(base, max_steps=1, held_out=(), learning_rate=0.02), tmp_path, resume=True)
