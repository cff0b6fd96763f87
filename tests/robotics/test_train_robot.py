from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from wmrl_envs.cli import app
from wmrl_envs.errors import CheckpointError, ConfigurationError
from wmrl_envs.robotics.policy import SmallVLA
from wmrl_envs.robotics.video import read_video
from wmrl_envs.train_robot import RobotRunConfig, train_robot
from wmrl_envs.trajectories import read_trajectories

SMALL: dict[str, Any] = {
    "tasks": "handle-press",
    "demonstrations": "1",
    "imitation_steps": 3,
    "progress_demonstrations": 1,
    "progress_steps": 3,
    "steps": 4,
    "groups": 4,
    "group_size": 6,
    "reward": "rectified",
    "anchor_fraction": 0.5,
    "max_decisions": 6,
    "draw_arm": False,
    "goals": 2,
    "videos": 0,
    "checkpoint_every": 1,
}


def config(**changes: Any) -> RobotRunConfig:
    return RobotRunConfig.from_dict(SMALL | changes)


class Stopped(Exception):
    pass


def stop_after(step: int) -> Any:
    def on_step(row: dict[str, Any]) -> None:
        if row["step"] == step:
            raise Stopped

    return on_step


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "unbroken"
    train_robot(config(videos=1), folder)
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return SmallVLA.load(folder / "policy").state_dict()


def metrics(folder: Path) -> pd.DataFrame:
    """Return the metrics without what a clock said."""
    rows = pd.read_csv(folder / "metrics.csv")
    return rows[[name for name in rows if "seconds" not in name and "ratio" not in name]]


def test_a_run_leaves_what_a_user_looks_for(unbroken: Path) -> None:
    summary = json.loads((unbroken / "summary.json").read_text())
    assert summary["rollouts"] == 4 * 24
    assert summary["labels"] == 4 * 12
    assert set(summary["before"]["success"]) == {"handle-press"}
    assert len((unbroken / "metrics.csv").read_text().splitlines()) == 5
    assert list((unbroken / "tensorboard").glob("events*"))
    assert [path.name for path in sorted((unbroken / "checkpoints").iterdir())] == ["step-000003", "step-000004"]
    names = sorted(path.name for path in (unbroken / "videos").glob("*.mp4"))
    filmed = [f"step-{step:04d}-{number}.mp4" for step in (1, 2, 4) for number in (0, 1)]
    assert names[1:] == filmed
    assert names[0].startswith("handle-press-")
    assert {len(read_video(unbroken / "videos" / name)) for name in names} == {7}
    figures = {path.name: path.read_bytes()[:4] for path in (unbroken / "figures").iterdir()}
    assert figures == dict.fromkeys(("success.png", "calibration.png", "overview.png"), b"\x89PNG")
    head = [name for name in weights(unbroken) if name.startswith("head")]
    start = SmallVLA.load(unbroken / "imitation").state_dict()
    changed = [name for name, value in weights(unbroken).items() if not torch.equal(value, start[name])]
    assert changed == head


def test_a_run_leaves_its_rollouts_with_their_progress(unbroken: Path) -> None:
    episodes = read_trajectories(unbroken)
    assert [episode["step"] for episode in episodes] == [step for step in range(1, 5) for _ in range(16)]
    assert [episode["anchor"] for episode in episodes] == ([True] * 12 + [False] * 4) * 4
    assert len({episode["episode"] for episode in episodes}) == len(episodes)
    for episode in episodes:
        assert 24 * (episode["step"] - 1) <= episode["episode"] == 6 * episode["group"] + episode["episode"] % 6
        assert (episode["task"], episode["instruction"]) == ("handle-press", "press the handle down")
        assert len(episode["progress"]) == len(episode["success_probability"]) == 8
        assert episode.get("real_reward") in ((0.0, 1.0) if episode["anchor"] else (None,))
    filmed = [episode for episode in episodes if "video" in episode]
    assert [episode["video"] for episode in filmed] == [
        f"videos/step-{step:04d}-{number}.mp4" for step in (1, 2, 4) for number in (0, 1)
    ]
    assert [episode["anchor"] for episode in filmed] == [True, False] * 3
    calibration = json.loads((unbroken / "calibration.json").read_text())
    assert calibration["step"] == [step for step in range(1, 5) for _ in range(12)]
    first = [episode for episode in episodes if episode["anchor"] and episode["step"] == 1]
    pairs = set(zip(calibration["predicted"][:12], calibration["real"][:12], strict=True))
    assert pairs == {(episode["predicted_reward"], episode["real_reward"]) for episode in first}
    history = json.loads((unbroken / "calibration_history.json").read_text())
    assert [known["step"] for known in history] == [2, 3, 4]  # the map is fitted on 24 labels, and a step reads 12


def watched(folder: Path) -> tuple[str, ...]:
    names = ("trajectories.jsonl", "calibration.json", "calibration_history.json")
    return tuple((folder / name).read_text() for name in names)


@pytest.mark.parametrize("step", [1, 3])
def test_a_stopped_run_ends_as_the_unbroken_one(tmp_path: Path, unbroken: Path, step: int) -> None:
    folder = tmp_path / "stopped"
    with pytest.raises(Stopped):
        train_robot(config(videos=1), folder, on_step=stop_after(step))
    summary = train_robot(config(videos=1), folder, resume=True)
    assert summary == json.loads((unbroken / "summary.json").read_text())
    expected = weights(unbroken)
    assert all(torch.equal(value, expected[name]) for name, value in weights(folder).items())
    assert metrics(folder).equals(metrics(unbroken))
    assert watched(folder) == watched(unbroken)


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path: Path, unbroken: Path) -> None:
    folder = tmp_path / "damaged"
    with pytest.raises(Stopped):
        train_robot(config(videos=1), folder, on_step=stop_after(3))
    (folder / "checkpoints" / "step-000003" / "optimizer.safetensors").write_bytes(b"cut off")
    with pytest.warns(RuntimeWarning, match="falling back"):
        train_robot(config(videos=1), folder, resume=True)
    expected = weights(unbroken)
    assert all(torch.equal(value, expected[name]) for name, value in weights(folder).items())


def test_a_folder_keeps_to_its_settings(unbroken: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="already holds a run"):
        train_robot(config(videos=1), unbroken)
    with pytest.raises(CheckpointError, match="group_size was 6, now 3"):
        train_robot(config(videos=1, group_size=3), unbroken, resume=True)
    before = (unbroken / "summary.json").read_text()
    with pytest.raises(ConfigurationError, match="has taken 4 steps, more than steps=3; resume it with at least 4"):
        train_robot(config(videos=1, steps=3), unbroken, resume=True)
    assert (unbroken / "summary.json").read_text() == before
    with pytest.raises(CheckpointError, match="no run to resume"):
        train_robot(config(), tmp_path / "nothing", resume=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"goals": 0}, "goals must be a whole number of at least 1, got 0"),
        ({"demonstrations": "0"}, "demonstrations must be at least 1"),
        ({"stepz": 3}, "unknown setting 'stepz'. Did you mean 'steps'"),
        ({"reward": "rectifed"}, "Did you mean 'rectified'"),
        ({"group_size": 1}, "group_size must be at least 2"),
        ({"learning_rate": float("inf")}, "learning_rate must be positive and finite"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message.replace("?", r"\?")):
        config(**changes)


def test_the_command_trains_a_robot_and_refuses_misplaced_options(tmp_path: Path) -> None:
    options = [
        text
        for name, value in (SMALL | {"reward": "real", "steps": 1, "goals": 1}).items()
        if name != "draw_arm"
        for text in (f"--{name.replace('_', '-')}", str(value))
    ]
    result = CliRunner().invoke(app, ["train", "robot", "--no-arm", *options, "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert "24 of 24 rollouts labelled" in result.output
    misplaced = CliRunner().invoke(app, ["train", "--steps", "3", "robot"])
    assert misplaced.exit_code == 1
    assert "--steps stands in front of 'robot'" in " ".join(misplaced.output.split())
