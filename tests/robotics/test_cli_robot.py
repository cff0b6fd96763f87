"""`wmrl robot collect`: a dataset of real rollouts, a table, the next command, and errors as one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from typer.testing import CliRunner, Result

import wmrl_envs  # noqa: F401  registers the environments
from wmrl_envs.cli import app
from wmrl_envs.robotics.dataset import load_rollouts, load_settings


def run(*args: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["robot", *args])


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("collected") / "my demos"
    numbers = ("--per-task", "1", "--perturbed", "2", "--seed", "4", "--image-size", "32", "--no-arm")
    return folder, run("collect", "--tasks", "drawer-open, window-open", *numbers, "--out", str(folder))


def test_dataset(collected: tuple[Path, Result]) -> None:
    folder, result = collected
    assert result.exit_code == 0, result.output
    rollouts = load_rollouts(folder)
    kinds = ["expert", "perturbed", "perturbed"]
    assert [(rollout.task, rollout.kind) for rollout in rollouts] == [
        (task, kind) for task in ("drawer-open", "window-open") for kind in kinds
    ]
    assert all(rollout.frames.shape == (16, 32, 32, 3) for rollout in rollouts)
    settings = load_settings(folder)
    assert (settings["tasks"], settings["seed"]) == (["drawer-open", "window-open"], 4)


def test_settings_make_the_environment_again(collected: tuple[Path, Result]) -> None:
    folder, _ = collected
    rollout, settings = load_rollouts(folder)[0], load_settings(folder)
    env = gym.make("wmrl/MetaWorld-v0", tasks=settings["tasks"], **settings["environment"])
    observation, _ = env.reset(options={"task": rollout.task, "initial_state": rollout.initial_state})
    np.testing.assert_array_equal(observation["image"], rollout.frames[0])
    env.close()


def test_table_and_next_command(collected: tuple[Path, Result]) -> None:
    folder, result = collected
    for words in ("collecting: 6/6", "decisions to success", "expert", "100%", f"dataset: {folder}"):
        assert words in result.output
    assert f"wmrl progress train '{folder}'" in result.output
    assert "Constant" not in result.output, "a warning about actions that are clipped on purpose"


def test_dataset_is_not_overwritten_unasked(collected: tuple[Path, Result]) -> None:
    result = run("collect", "--out", str(collected[0]))
    assert result.exit_code == 1
    assert "is not empty" in result.output and "--overwrite" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tasks", "drawer-opn"), "Did you mean 'drawer-open'?"),
        (("--tasks", ","), "tasks must name at least one task"),
        (("--per-task", "0", "--perturbed", "0"), "at least one of them above 0"),
        (("--image-size", "3"), "image_size must be a whole number of at least 16, got 3"),
        (("--camera", "cornr"), "camera must be one of workspace"),
        (("--hold", "0"), "hold must be"),
    ],
)
def test_errors_are_one_sentence(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    result = run("collect", *arguments, "--out", str(tmp_path / "demos"))
    assert result.exit_code == 1
    assert words in result.output and "Traceback" not in result.output
    assert not os.listdir(tmp_path)


def test_help_needs_no_heavy_library() -> None:
    code = (
        "import sys; from wmrl_envs.cli import app; app(['robot', 'collect', '--help'], standalone_mode=False);"
        "print([name for name in ('mujoco', 'metaworld', 'torch', 'cv2', 'pyarrow') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--per-task" in result.stdout and result.stdout.strip().endswith("[]")
