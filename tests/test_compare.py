"""The comparison of reward schemes, at a size of seconds, on recorded executions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wmrl_envs.compare import ARMS, Comparison, ExpectedReport, run_jobs
from wmrl_envs.compare_report import Curves, Estimate, choose_rates, draw_comparison, load_curves, markdown_report
from wmrl_envs.config import TrainConfig
from wmrl_envs.errors import ConfigurationError
from wmrl_envs.train import Run

BASE = replace(Comparison.base, steps=3, groups=4, group_size=4, anchor_fraction=0.25, warmup=40, actions="choices")
SMALL = Comparison(
    tasks=("titanic",),
    arms=("real", "anchors-only", "rectified-learning"),
    seeds=2,
    tuning_seeds=1,
    learning_rates=(0.05, 0.1),
    base=BASE,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("curves")
    run_jobs(SMALL.tuning_jobs(), folder, workers=2)
    return folder


def test_runs_resumes_and_reports(finished: Path, tmp_path: Path) -> None:
    tuning = SMALL.tuning_jobs()
    before = {job.path(finished): job.path(finished).stat().st_mtime_ns for job in tuning}
    counted: list[tuple[int, int]] = []
    run_jobs(tuning, finished, done=lambda *counts: counted.append(counts))
    assert counted == [(6, 6)] and all(path.stat().st_mtime_ns == time for path, time in before.items())

    rates = choose_rates(SMALL, load_curves(tuning, finished))
    assert set(rates) == set(SMALL.arms) and set(rates["real"]) == {"final", "equal"}
    final = SMALL.final_jobs({arm: chosen.values() for arm, chosen in rates.items()})
    run_jobs(final, finished, workers=2)
    curves = load_curves(final, finished)
    page = markdown_report(SMALL, curves, rates, "wmrl compare", "comparison.png")
    for line in (
        "At equal cost the default scores above `real`",
        "| **rectified** | learning |",
        "With an execution cache",
    ):
        assert line in page
    assert "nan" not in page
    draw_comparison(SMALL, curves, rates, tmp_path / "comparison.png")
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_a_curve_charges_everything(finished: Path) -> None:
    job = next(job for job in SMALL.tuning_jobs() if job.arm == "rectified-learning")
    curve = json.loads(job.path(finished).read_text())["curve"]
    assert curve["executions"] == [0, 44, 48, 52]  # the warm-up, then one group of four a step
    assert len(curve["report"]) == 4 and np.all(np.diff(curve["seconds"]) > 0)
    assert np.all(np.array(curve["cached_seconds"]) <= np.array(curve["seconds"]))


def test_real_execution_pays_no_warmup(finished: Path) -> None:
    job = next(job for job in SMALL.tuning_jobs() if job.arm == "real")
    curve = json.loads(job.path(finished).read_text())["curve"]
    assert curve["executions"] == [0, 16, 32, 48] and curve["prediction_seconds"][-1] == 0.0


def test_a_file_of_other_settings_is_refused(finished: Path) -> None:
    job = SMALL.tuning_jobs()[0]
    other = replace(job, config=replace(job.config, steps=4))
    from wmrl_envs.compare import run_job

    with pytest.raises(ConfigurationError, match="other settings"):
        run_job(other, finished)


@pytest.mark.parametrize("actions", ["choices", "joint"])
def test_expected_report_is_the_mean_over_the_policy(actions: str) -> None:
    """The exact expectation agrees with the mean over really sampled solutions."""
    config = TrainConfig(sandbox="replay", evaluation_rollouts=0, reward="real", groups=2, actions=actions)
    expected = ExpectedReport(config)
    run = Run(config)
    probabilities = expected.probabilities(run.agent)
    assert probabilities.sum() == pytest.approx(1.0)
    from wmrl_envs.evaluate import evaluate

    sampled = evaluate(run.agent, config, episodes=2000, seed=0)
    assert abs(sampled.score - expected(run.agent)) < 4 * sampled.standard_error
    run.close()


def test_expected_report_needs_single_turns() -> None:
    with pytest.raises(ConfigurationError, match="turns=2"):
        ExpectedReport(TrainConfig(sandbox="replay", turns=2))


def test_scores_at_a_cost_are_interpolated() -> None:
    zeros = np.zeros((1, 3))
    curves = Curves(
        report=np.array([[0.0, 1.0, 2.0]]),
        seconds=np.array([[0.0, 10.0, 20.0]]),
        cached_seconds=np.array([[0.0, 5.0, 10.0]]),
        prediction_seconds=zeros,
        executions=zeros,
    )
    assert curves.score_at(np.array([15.0]), cached=False) == [1.5]
    assert curves.score_at(np.array([5.0]), cached=True) == [1.0]
    assert curves.score_at(np.array([99.0]), cached=False) == [2.0]


def test_an_estimate_is_a_mean_with_its_standard_error() -> None:
    estimate = Estimate.of(np.array([1.0, 2.0, 3.0]))
    assert (estimate.mean, estimate.error) == (2.0, pytest.approx(1 / np.sqrt(3)))
    assert str(estimate) == "2.000 ± 0.577" and estimate.signed == "+2.000 ± 0.577"


def test_unknown_arms_and_too_few_seeds_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'real'"):
        Comparison(arms=("reel",))
    with pytest.raises(ConfigurationError, match="at least 2 seeds"):
        Comparison(seeds=1)
    assert len({arm.name for arm in ARMS}) == len(ARMS)
