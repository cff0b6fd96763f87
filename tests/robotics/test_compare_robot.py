from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from wmrl_envs.cli import app
from wmrl_envs.compare_robot_report import draw_robot_comparison, interval, robot_report
from wmrl_envs.errors import CheckpointError, ConfigurationError
from wmrl_envs.robotics.comparison import ARMS, ComparisonConfig, compare_rewards

TINY = ComparisonConfig(
    tasks="handle-press",
    seeds=1,
    tuning_seeds=1,
    learning_rates=(3e-4,),
    demonstrations=1,
    imitation_steps=2,
    steps=1,
    max_decisions=6,
    goals=3,
    model_demonstrations=1,
    model_steps=2,
    workers=1,
)
QUALITY = {"rank_correlation": 0.9, "shaped_auc": 0.8, "success_auc": 0.85}


def results(gains: dict[str, float], seeds: int = 8) -> dict[str, Any]:
    """Return made-up results in which each arm adds its gain to imitation, a little more or less by seed."""
    rng = np.random.default_rng(0)
    runs, tuning = [], []
    for seed in range(seeds):
        start = float(rng.uniform(0.4, 0.6))
        runs.append({"arm": "sft", "model": "none", "seed": seed, "mean_success": start, "success": {"t": start}})
        for name, arm in ARMS.items():
            for model in arm.models or ("none",):
                rate = start + gains[name] + float(rng.normal(0.0, 0.01))
                run = {"arm": name, "model": model, "seed": seed, "mean_success": rate, "success": {"t": rate}}
                runs.append(run)
    for name in ARMS:
        for rate, success in ((1e-4, 0.5), (3e-4, 0.6)):
            tuning.append({"arm": name, "learning_rate": rate, "mean_success": success})
    return {
        "config": asdict(ComparisonConfig(tasks="t", seeds=8)),
        "quality": {"good": QUALITY, "weak": QUALITY},
        "tuning": tuning,
        "learning_rates": dict.fromkeys(ARMS, 3e-4),
        "runs": runs,
    }


GAINS = {"anchors": 0.0, "progress": 0.02, "paper": 0.03, "ours": 0.2, "real": 0.3}


def test_the_interval_is_that_of_a_mean() -> None:
    values = np.random.default_rng(1).normal(0.1, 0.05, 400)
    low, high = interval(values.tolist())
    error = values.std(ddof=1) / 20
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.001)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.001)
    assert interval([0.2, 0.2, 0.2]) == (pytest.approx(0.2), pytest.approx(0.2))


def test_verdicts_follow_the_numbers() -> None:
    page = robot_report(results(GAINS), "wmrl compare robot", "figure.png")
    assert "good model, ours at least 10 points over imitation: holds" in page
    assert "fails" not in page
    assert "Not all of the 8 seeds" not in page
    assert "**0.600**" in page and "`wmrl compare robot`" in page
    worse = robot_report(results(GAINS | {"ours": 0.04, "paper": 0.06}), "x", "figure.png")
    assert "weak model, ours at least 10 points over imitation: fails, +4." in worse
    assert f"weak model, ours above {ARMS['paper'].title} (as many labels), interval clear of zero: fails" in worse
    assert f"weak model, ours above {ARMS['anchors'].title} (as many labels), interval clear of zero: holds" in worse


def test_an_unfinished_comparison_says_so(tmp_path: Path) -> None:
    unfinished = results(GAINS, seeds=3)
    unfinished["runs"] = [run for run in unfinished["runs"] if run["model"] != "weak"]
    page = robot_report(unfinished, "x", "figure.png")
    assert "Not all of the 8 seeds are done for anchors, progress, paper, ours, real." in page
    assert "weak model, ours" not in page
    draw_robot_comparison(unfinished, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("comparison")
    return folder, compare_rewards(TINY, folder)


def test_every_arm_starts_alike_and_reads_its_labels(compared: tuple[Path, dict[str, Any]]) -> None:
    _, found = compared
    arms = {(run["arm"], run["model"]) for run in found["runs"]}
    assert arms == {("sft", "none")} | {
        (name, model) for name, arm in ARMS.items() for model in arm.models or ("none",)
    }
    labels = {(run["arm"], run["labels"]) for run in found["runs"]}
    expected = {"sft": 0.0, "anchors": 8.0, "progress": 0.0, "paper": 8.0, "ours": 8.0, "real": 80.0}
    assert labels == set(expected.items())
    assert "# Reward schemes for robots" in robot_report(found, "x", "figure.png")


def test_what_is_done_is_not_done_again(compared: tuple[Path, dict[str, Any]]) -> None:
    folder, found = compared
    before = {path: path.stat().st_mtime_ns for path in folder.glob("r*s/*.json")}
    (folder / "runs" / "sft-none-0-0.json").unlink()
    assert compare_rewards(TINY, folder)["runs"] == found["runs"]
    assert {path for path, time in before.items() if path.stat().st_mtime_ns != time} == {
        folder / "runs" / "sft-none-0-0.json"
    }
    with pytest.raises(CheckpointError, match="steps was 1, now 2"):
        compare_rewards(ComparisonConfig(**{**asdict(TINY), "steps": 2}), folder)


def test_settings_that_cannot_work_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="goals must be a whole number of at least 1, got 0"):
        compare_rewards(ComparisonConfig(goals=0), tmp_path)
    result = CliRunner().invoke(app, ["compare", "robot", "--learning-rates", "fast", "--runs", str(tmp_path)])
    assert result.exit_code == 1
    assert "learning_rates must be numbers" in result.output
