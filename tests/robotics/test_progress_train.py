from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wmrl_envs.cli import app
from wmrl_envs.errors import ConfigurationError
from wmrl_envs.robotics.dataset import save_rollouts
from wmrl_envs.robotics.demonstrations import Rollout, collect, hold_out
from wmrl_envs.robotics.progress import resolve_progress_model
from wmrl_envs.robotics.video_model import VideoProgressModel


@pytest.fixture(scope="module")
def rollouts() -> list[Rollout]:
    return collect("handle-press", 4, perturbed=6, seed=3, draw_arm=False, max_decisions=6)


def test_what_is_held_out_is_of_every_kind_and_nowhere_else(rollouts: list[Rollout]) -> None:
    kept, held = hold_out(rollouts, 0.25, seed=1)
    assert {id(rollout) for rollout in kept} | {id(rollout) for rollout in held} == {id(r) for r in rollouts}
    assert len(kept) + len(held) == len(rollouts)
    assert sorted(rollout.kind for rollout in held) == ["expert", "perturbed", "perturbed"]
    assert [rollout.initial_state for rollout in hold_out(rollouts, 0.25, seed=1)[1]] == [r.initial_state for r in held]
    with pytest.raises(ConfigurationError, match="'handle-press' has one expert rollout"):
        hold_out(rollouts[:1] + rollouts[4:], 0.25)


def test_the_command_trains_a_model_that_can_be_named(rollouts: list[Rollout], tmp_path: Path) -> None:
    save_rollouts(rollouts, tmp_path / "demos", fps=8.0)
    command = ["progress", "train", str(tmp_path / "demos"), "--out", str(tmp_path / "model"), "--steps", "2"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "held-out rollouts" in result.output
    assert isinstance(resolve_progress_model(f"video:{tmp_path / 'model'}"), VideoProgressModel)
    assert set(json.loads((tmp_path / "model" / "quality.json").read_text())) >= {"rank_correlation", "shaped_auc"}
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 1 and "exists already" in again.output
