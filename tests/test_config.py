"""A configuration refuses what cannot run, and comes back from JSON as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wmrl_envs.config import TrainConfig
from wmrl_envs.errors import ConfigurationError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": "rectifid"}, "Did you mean 'rectified'"),
        ({"agent": "gpo"}, "grpo, ppo, a2c, or your own as 'module:Class'"),
        ({"task": "titanic,,weather"}, "several separated by commas"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"groups": 0}, "groups must be at least 1"),
        ({"turns": -1}, "turns must be at least 1"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        ({"group_size": 1}, "group_size must be at least 2"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"evaluation_rollouts": -1}, "evaluation_rollouts must be at least 0"),
        ({"budget_seconds": 0.0}, "budget_seconds must be positive"),
        ({"budget_seconds": float("nan")}, "budget_seconds must be positive"),
        ({"learning_rate": float("inf")}, "learning_rate must be positive and finite"),
        ({"anchor_fraction": -0.1}, r"anchor_fraction must be in \[0, 1\], got -0.1"),
        ({"anchor_fraction": 2.0}, r"anchor_fraction must be in \[0, 1\], got 2.0"),
        ({"rewards": "real"}, "unknown setting 'rewards'. Did you mean 'reward'"),
    ],
)
def test_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        TrainConfig.from_dict(changes)


def test_comes_back_from_json() -> None:
    config = TrainConfig(task="a, b", budget_seconds=1.5, options={"ent_coef": 0.01})
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert config.tasks == ("a", "b")


def test_group_of_one_is_fine_for_agents_without_groups() -> None:
    assert TrainConfig(agent="ppo", group_size=1).num_envs == 16


def test_anchors_only_generates_no_more_than_the_anchors() -> None:
    assert TrainConfig(reward="anchors-only").num_envs == 2 * 8
    assert TrainConfig(reward="anchors-only", anchor_fraction=0.0).num_envs == 8
    assert TrainConfig(reward="real").num_envs == 16 * 8
    assert TrainConfig(turns=3).steps_per_update == 16 * 8 * 3


def test_folders_are_made_absolute_and_names_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("titanic", "mine", "bench/spooky", "model"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    config = TrainConfig(task="titanic, ./mine,mle-bench:bench/spooky,nowhere", world_model="transformers:model")
    found = config.located()
    assert found.tasks == ("titanic", f"{tmp_path}/mine", f"mle-bench:{tmp_path}/bench/spooky", "nowhere")
    assert found.world_model == f"transformers:{tmp_path}/model"
    assert found.located() == found
    for name in ("learned", "openai:http://localhost:8000/v1#model", "model:Class", "replay"):
        assert TrainConfig(world_model=name).located().world_model == name


def test_a_benchmark_task_keeps_its_options_and_need_not_be_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("dsbench:data/3", "mle-bench:data/spooky?direction=lower"):
        prefix, _, place = name.partition(":")
        assert TrainConfig(task=name).located().task == f"{prefix}:{tmp_path}/{place}"
