"""A run that was stopped at any moment goes on to the same result as one that never was."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from pandas.testing import assert_frame_equal
from typer.testing import CliRunner, Result

from runs import arguments, metrics, small_config, start_wmrl, steps_done, stop_when, watched
from wmrl_envs.checkpoint import checkpoints
from wmrl_envs.cli import app
from wmrl_envs.errors import CheckpointError
from wmrl_envs.research.task import TASKS_DIR
from wmrl_envs.train import train


@pytest.fixture(autouse=True)
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes most of a small run's time and is no part of these tests."""
    monkeypatch.setattr("wmrl_envs.train.draw_figures", lambda folder: [])


def command(*args: str) -> Result:
    return CliRunner().invoke(app, args)


@pytest.mark.parametrize("agent", ["grpo", "ppo"])
def test_killed_run_resumes_to_the_same_metrics(tmp_path: Path, agent: str) -> None:
    settings = {"agent": agent, "anchor_fraction": 0.75}
    train(small_config(**settings), tmp_path / "unbroken")
    killed = tmp_path / "killed"
    after = int(np.random.default_rng().integers(2, 8))
    process = start_wmrl("train", *arguments(**settings), "--out", str(killed), folder=tmp_path)
    code, _ = stop_when(process, lambda: steps_done(killed) >= after, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert 0 < steps_done(killed) < 10
    resumed = command("train", "--resume", str(killed))
    assert resumed.exit_code == 0, resumed.output
    assert_frame_equal(metrics(killed), metrics(tmp_path / "unbroken"))
    assert watched(killed) == watched(tmp_path / "unbroken")
    assert watched(killed)[1]
    assert (killed / "summary.json").exists()
    assert not list(killed.rglob(".writing-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_run_with_a_message_and_it_can_be_resumed(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "run"
    process = start_wmrl("train", *arguments(steps=500), "--out", str(folder), folder=tmp_path)
    code, err = stop_when(process, lambda: steps_done(folder) >= 3, number)
    assert code == 128 + number
    assert "Traceback" not in err
    assert f"wmrl train --resume {folder}" in err
    done = steps_done(folder)
    resumed = command("train", "--resume", str(folder), "--steps", str(done + 2))
    assert resumed.exit_code == 0, resumed.output
    assert steps_done(folder) == done + 2


def test_run_without_a_checkpoint_starts_over(tmp_path: Path) -> None:
    train(small_config(steps=3), tmp_path / "unbroken")
    broken_off = tmp_path / "broken_off"
    train(small_config(steps=3), broken_off)
    for path in checkpoints(broken_off / "checkpoints"):
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    train(small_config(steps=3), broken_off, resume=True)
    assert_frame_equal(metrics(broken_off), metrics(tmp_path / "unbroken"))
    assert watched(broken_off) == watched(tmp_path / "unbroken")


def test_broken_newest_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    train(small_config(ramp=0.0), tmp_path / "unbroken")
    run = tmp_path / "run"
    train(small_config(steps=8, ramp=0.0), run)
    newest, before = checkpoints(run / "checkpoints")
    assert [newest.name, before.name] == ["step-000008", "step-000006"]
    agent = newest / "agent.zip"
    agent.write_bytes(agent.read_bytes()[:1000])
    with pytest.warns(RuntimeWarning, match="step-000008 cannot be read"):
        train(small_config(ramp=0.0), run, resume=True)
    assert_frame_equal(metrics(run), metrics(tmp_path / "unbroken"))
    assert watched(run) == watched(tmp_path / "unbroken")
    assert [path.name for path in checkpoints(run / "checkpoints")] == ["step-000010", "step-000008"]


def test_episodes_that_reach_over_a_checkpoint_are_whole(tmp_path: Path) -> None:
    # Of three turns an agent that learns after every two begins and ends its episodes in the middle of steps.
    settings = {"agent": "ppo", "turns": 3, "options": {"n_steps": 2, "batch_size": 32}, "ramp": 0.0}
    train(small_config(steps=9, **settings), tmp_path / "unbroken")
    run = tmp_path / "run"
    for steps in (2, 4, 9):
        train(small_config(steps=steps, **settings), run, resume=run.exists())
    assert_frame_equal(metrics(run), metrics(tmp_path / "unbroken"))
    episodes, history = watched(run)
    assert (episodes, history) == watched(tmp_path / "unbroken")
    assert {len(episode["turns"]) for episode in episodes} == {3}
    assert [*dict.fromkeys(episode["step"] for episode in episodes)] == [2, 3, 5, 6, 8, 9]
    assert len(episodes) == 6 * 16


def test_unreadable_checkpoints_are_a_clear_error(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(small_config(steps=4), run)
    for path in checkpoints(run / "checkpoints"):
        (path / "state.json").write_text('{"step": 4')
    with pytest.warns(RuntimeWarning), pytest.raises(CheckpointError, match="none of the 2 checkpoints"):
        train(small_config(steps=8), run, resume=True)


def test_other_settings_are_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(small_config(steps=2), run)
    with pytest.raises(CheckpointError, match=r"seed was 0, now 1"):
        train(small_config(steps=4, seed=1), run, resume=True)
    for changed in (["--seed", "1"], ["--out", "elsewhere"], ["--option", "ent_coef=0.1"]):
        refused = command("train", "--resume", str(run), *changed)
        assert refused.exit_code == 1
        assert "only steps and budget_seconds may change" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_finished_run_is_evaluated_again_without_training(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = train(small_config(steps=2), run)
    again = train(small_config(steps=2), run, resume=True)
    assert again["after"] == first["after"]
    assert again["ledger"]["executions"] == first["ledger"]["executions"]
    assert steps_done(run) == 2


def test_fewer_steps_than_taken_are_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(small_config(steps=3, evaluation_rollouts=0), run)
    before = (run / "config.json").read_text()
    refused = command("train", "--resume", str(run), "--steps", "2")
    assert refused.exit_code == 1
    assert "has taken 3 steps, more than steps=2; resume it with at least 3" in " ".join(refused.stderr.split())
    assert (run / "config.json").read_text() == before


def test_a_run_on_a_relative_path_is_resumed_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(TASKS_DIR / "titanic", tmp_path / "here" / "ship")
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    settings = {"steps": 1, "sandbox": "process", "warmup_source": "execution", "warmup": 8, "groups": 1}
    made = command("train", *arguments(**settings, task="./ship", evaluation_rollouts=0), "--out", "run")
    assert made.exit_code == 0, made.output
    monkeypatch.chdir(tmp_path / "there")
    resumed = command("train", "--resume", "../here/run", "--steps", "2")
    assert resumed.exit_code == 0, resumed.output
    assert steps_done(tmp_path / "here" / "run") == 2


def test_a_folder_whose_run_never_came_to_a_checkpoint_says_how_to_go_on(tmp_path: Path) -> None:
    run = tmp_path / "run"

    def fail(words: str) -> None:
        if words == "training":
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        train(small_config(steps=1, evaluation_rollouts=0), run, on_phase=fail)
    with pytest.raises(CheckpointError, match=r"before its first checkpoint: begin it again by --resume, or for other"):
        train(small_config(steps=1), run)
    train(small_config(steps=1, evaluation_rollouts=0), run, resume=True)
    assert steps_done(run) == 1


def test_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(small_config(steps=1, evaluation_rollouts=0), run)
    with pytest.raises(CheckpointError, match="already holds a run"):
        train(small_config(steps=1), run)


def test_nothing_to_resume() -> None:
    missing = command("train", "--resume", "nowhere")
    assert missing.exit_code == 1
    assert "nowhere holds no run" in missing.stderr
