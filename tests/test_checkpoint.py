"""Checkpoints are whole, few, and hold the random generators."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.envs import IdentityEnv

from wmrl_envs.checkpoint import (
    checkpoints,
    load_agent,
    load_newest,
    load_state,
    random_state,
    restore_random_state,
    save_checkpoint,
)
from wmrl_envs.errors import CheckpointError


@pytest.fixture
def agent() -> PPO:
    return PPO("MlpPolicy", IdentityEnv(2), n_steps=8, batch_size=8, device="cpu", seed=0)


def test_two_newest_stay_and_left_overs_go(tmp_path: Path, agent: PPO) -> None:
    (tmp_path / ".writing-step-000001").mkdir()
    (tmp_path / ".writing-step-000001" / "agent.zip").write_bytes(b"half")
    for step in (1, 2, 10, 100):
        path = save_checkpoint(tmp_path, step, lambda place: agent.save(place / "agent.zip"), {"more": [step]})
        assert load_state(path)["more"] == [step]
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000100", "step-000010"]
    assert len(list(tmp_path.iterdir())) == 2


def test_agent_comes_back(tmp_path: Path, agent: PPO) -> None:
    path = save_checkpoint(tmp_path, 1, lambda place: agent.save(place / "agent.zip"), {})
    found = load_agent(path, PPO)
    assert spaces.utils.flatdim(found.observation_space) == spaces.utils.flatdim(agent.observation_space)
    for ours, theirs in zip(found.policy.parameters(), agent.policy.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_random_generators_go_on_where_they_were() -> None:
    state = json.loads(json.dumps(random_state()))
    drawn = (torch.rand(3).tolist(), np.random.random(3).tolist(), random.random())
    restore_random_state(state)
    assert (torch.rand(3).tolist(), np.random.random(3).tolist(), random.random()) == drawn


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("state.json", b""),
        ("state.json", b"[]"),
        ("state.json", b'{"step": 2}'),
        ("state.json", b"\xff\xfe"),
        ("agent.zip", b""),
        ("agent.zip", b"PK\x03\x04 no zip at all"),
        ("agent.zip", None),
    ],
)
def test_broken_one_is_left_out_with_a_warning(tmp_path: Path, agent: PPO, file: str, content: bytes | None) -> None:
    save_checkpoint(tmp_path, 1, lambda place: agent.save(place / "agent.zip"), {})
    newest = save_checkpoint(tmp_path, 2, lambda place: agent.save(place / "agent.zip"), {})
    if content is None:
        (newest / file).unlink()
    else:
        (newest / file).write_bytes(content)

    def load(path: Path) -> int:
        step = load_state(path)["step"]
        load_agent(path, PPO)
        return int(step)

    with pytest.warns(RuntimeWarning, match="step-000002 cannot be read.*falling back"):
        assert load_newest(tmp_path, load) == 1


def test_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        load_newest(tmp_path, load_state)
