"""A training run, with every agent and reward scheme, and everything that it leaves behind."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from runs import CLOCK, small_config, steps_done
from wmrl_envs.building import agent_class
from wmrl_envs.correction import SCHEMES
from wmrl_envs.errors import ConfigurationError
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import TASKS_DIR, load_task
from wmrl_envs.train import Run, train
from wmrl_envs.trajectories import read_trajectories

OWN_AGENT = """
from stable_baselines3 import A2C

class Mine(A2C):
    def __init__(self, *args, factor=1.0, **kwargs):
        self.factor = factor
        super().__init__(*args, **kwargs)

class Unable:
    pass
"""


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes most of a small run's time; two tests below have them drawn."""
    monkeypatch.setattr("wmrl_envs.train.draw_figures", lambda folder: [])


def test_training_improves_the_reported_score_and_leaves_a_run_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"
    phases: list[str] = []
    config = small_config(steps=30, groups=16, group_size=8, warmup=120, evaluation_rollouts=200, refit_every=5)
    summary = train(config, run, on_phase=phases.append)
    before, after = summary["before"], summary["after"]
    assert after["score"] > before["score"] + 3 * (before["standard_error"] + after["standard_error"])
    assert phases[0] == "evaluating the untrained agent"

    assert json.loads((run / "summary.json").read_text())["after"] == after
    assert json.loads((run / "config.json").read_text()) == config.to_dict()
    assert set(json.loads((run / "versions.json").read_text())) >= {"python", "numpy", "torch", "wmrl-envs"}
    _check_metrics(pd.read_csv(run / "metrics.csv"), summary)
    _check_best_solution(run, summary)
    _check_events(run)
    calibration = json.loads((run / "calibration.json").read_text())
    assert [len(calibration[name]) for name in ("step", "predicted", "real")] == [30 * 16] * 3
    assert calibration["knots"]["real"] == sorted(calibration["knots"]["real"])
    _check_trajectories(run)
    names = {path.name for path in (run / "figures").iterdir()}
    assert names == {"overview.png", "score.png", "calibration.png", "weight.png", "statuses.png", "cost.png"}
    assert all((run / "figures" / name).read_bytes().startswith(b"\x89PNG") for name in names)


def _check_metrics(rows: pd.DataFrame, summary: dict) -> None:
    assert rows["step"].tolist() == list(range(1, 31))
    assert rows["executions"].tolist() == [120 + 16 * step for step in range(1, 31)]
    assert rows["predictions"].tolist() == [128 * step for step in range(1, 31)]
    assert summary["ledger"]["executions"] == rows["executions"].iloc[-1]
    shares = rows[[name for name in rows if name.startswith("status_")]].sum(axis=1)
    assert shares.tolist() == pytest.approx([1.0] * 30)
    assert (rows["anchors"] == 0.125).all()
    assert (rows["ungraded"] == 0.0).all()
    # The ramp grows from the anchors' probability to full strength over the first three tenths.
    assert rows["alpha"].iloc[0] == rows["alpha"].min() == pytest.approx(0.125)
    assert rows["alpha"].iloc[12:].tolist() == [1.0] * 18


def _check_best_solution(run: Path, summary: dict) -> None:
    [best] = summary["best_solutions"]
    code = (run / best["file"]).read_text(encoding="utf-8")
    [outcome] = ReplaySandbox().grade([Submission(load_task("titanic"), code, seed=0)])
    assert outcome is not None
    assert (best["status"], best["reward"], best["report_reward"]) == ("valid", outcome.reward, outcome.report_reward)


def _check_trajectories(run: Path) -> None:
    episodes = read_trajectories(run)
    assert [episode["step"] for episode in episodes] == [step for step in range(1, 31) for _ in range(16)]
    assert [episode["anchor"] for episode in episodes] == ([True] * 12 + [False] * 4) * 30
    assert len({episode["episode"] for episode in episodes}) == len(episodes)
    for episode in episodes:
        [turn] = episode["turns"]
        assert episode["group"] == episode["episode"] // 8
        assert 128 * (episode["step"] - 1) <= episode["episode"] < 128 * episode["step"]
        assert turn["predicted"]["reward"] == episode["predicted_reward"]
        assert ("real" in turn) == ("real_reward" in episode) == episode["anchor"]
    # Of one anchor, what the table of recorded executions says about the code that is shown.
    shown = episodes[0]
    [outcome] = ReplaySandbox().grade([Submission(load_task("titanic"), shown["turns"][0]["code"], seed=0)])
    assert outcome is not None
    real = shown["turns"][0]["real"]
    assert (real["status"], real["reward"], real["feedback"]) == (outcome.status, outcome.reward, outcome.feedback)
    assert shown["real_reward"] == outcome.reward
    history = json.loads((run / "calibration_history.json").read_text())
    assert [known["step"] for known in history] == list(range(4, 31))  # 64 pairs, 16 a step


def _check_events(run: Path) -> None:
    events = EventAccumulator(str(run / "tensorboard" / "grpo_1"))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert tags >= {"rollout/ep_rew_mean", "train/policy_loss", "wmrl/executions", "wmrl/cost_ratio", "wmrl/lambda"}
    assert len(events.Scalars("wmrl/executions")) == 30


@pytest.mark.parametrize("reward", SCHEMES)
def test_every_scheme(tmp_path: Path, reward: str) -> None:
    run = tmp_path / "run"
    summary = train(small_config(reward=reward, steps=3, evaluation_rollouts=2), run)
    ledger, rows = summary["ledger"], pd.read_csv(run / "metrics.csv")
    if reward in ("real", "anchors-only"):  # they need no world model, so they pay for none
        assert ledger["warmup_executions"] == ledger["predictions"] == 0
        assert ledger["executions"] == 3 * (4 if reward == "anchors-only" else 16)
        assert "predicted_reward" not in rows
    else:
        assert ledger["warmup_executions"] == 40
        assert ledger["predictions"] == 3 * 16
        assert (ledger["executions"] == 40) == (reward == "world-model")
    assert ("lambda" in rows) == (reward == "rectified")
    assert (run / "figures" / "overview.png").exists()


@pytest.mark.parametrize("agent", ["ppo", "a2c"])
@pytest.mark.usefixtures("without_figures")
def test_agents_of_stable_baselines3_learn_on_corrected_rewards(tmp_path: Path, agent: str) -> None:
    config = small_config(agent=agent, steps=25, groups=16, group_size=8, warmup=120, evaluation_rollouts=300)
    summary = train(config, tmp_path / "run")
    before, after = summary["before"], summary["after"]
    assert after["score"] > before["score"] + 2 * (before["standard_error"] + after["standard_error"])
    assert summary["steps"] == 25


@pytest.mark.usefixtures("without_figures")
def test_agent_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_agents.py").write_text(OWN_AGENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_agents", raising=False)
    config = small_config(agent="own_agents:Mine", options={"n_steps": 1, "factor": 2.0}, steps=4)
    train(config, tmp_path / "run")
    assert steps_done(tmp_path / "run") == 4
    train(
        small_config(agent="own_agents:Mine", options={"n_steps": 1, "factor": 2.0}, steps=6),
        tmp_path / "run",
        resume=True,
    )
    assert steps_done(tmp_path / "run") == 6
    for name, message in (
        ("own_agents:Missing", "cannot be imported"),
        ("nowhere:Mine", "cannot be imported"),
        ("own_agents:Unable", "lacks learn, predict, save, load"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            agent_class(name)
    with pytest.raises(ConfigurationError, match="nonsense"):
        Run(small_config(options={"nonsense": 1}))


@pytest.mark.usefixtures("without_figures")
def test_budget_ends_a_run_after_the_step_that_spends_it(tmp_path: Path) -> None:
    config = small_config(steps=8, anchor_fraction=0.25)  # a group in every step
    free = train(config, tmp_path / "free")
    rows = pd.read_csv(tmp_path / "free" / "metrics.csv")
    budget = float(rows["execution_seconds"].iloc[4]) - 1e-9
    bounded = train(replace(config, budget_seconds=budget), tmp_path / "bounded")
    assert bounded["steps"] == 5
    assert bounded["ledger"]["executions"] == rows["executions"].iloc[4]  # nothing is executed after it
    longer = train(replace(config, budget_seconds=1e9), tmp_path / "bounded", resume=True)
    assert longer["steps"] == 8
    assert longer["ledger"]["executions"] == free["ledger"]["executions"]


@pytest.mark.usefixtures("without_figures")
def test_turns_and_predicted_feedback(tmp_path: Path) -> None:
    train(small_config(turns=3, steps=4, anchor_feedback="predicted", anchor_fraction=0.5), tmp_path / "run")
    rows = pd.read_csv(tmp_path / "run" / "metrics.csv")
    assert rows["predictions"].tolist() == [48 * step for step in range(1, 5)]
    assert rows["executions"].tolist() == [40 + 24 * step for step in range(1, 5)]
    episodes = read_trajectories(tmp_path / "run")
    assert [len(episode["turns"]) for episode in episodes] == [3] * 64
    for episode in episodes:
        rewards = {name: [turn[name]["reward"] for turn in episode["turns"] if name in turn] for name in OUTCOMES}
        assert max(rewards["predicted"]) == episode["predicted_reward"]
        assert rewards["real"] == [] if not episode["anchor"] else max(rewards["real"]) == episode["real_reward"]


OUTCOMES = ("predicted", "real")
LIVE = {"sandbox": "process", "warmup_source": "execution", "warmup": 8, "steps": 2, "groups": 2, "group_size": 2}


@pytest.mark.usefixtures("without_figures")
def test_several_tasks_share_one_agent(tmp_path: Path) -> None:
    other = tmp_path / "liner"
    shutil.copytree(TASKS_DIR / "titanic", other)
    manifest = json.loads((other / "task.json").read_text())
    (other / "task.json").write_text(json.dumps(manifest | {"id": "liner"}))
    summary = train(small_config(**LIVE, task=f"titanic,{other}", evaluation_rollouts=8), tmp_path / "run")
    assert {best["task"]: best["file"] for best in summary["best_solutions"]} == {
        "titanic": "best_solution_titanic.py",
        "liner": "best_solution_liner.py",
    }
    assert summary["ledger"]["warmup_executions"] == 16
    assert (tmp_path / "run" / "best_solution_liner.py").exists()


@pytest.mark.usefixtures("without_figures")
def test_live_executions(tmp_path: Path) -> None:
    summary = train(small_config(**LIVE, anchor_fraction=0.5), tmp_path / "run")
    assert summary["ledger"]["executions"] == 8 + 2 * 2
    assert summary["ledger"]["execution_seconds"] > 0
    assert summary["best_solutions"][0]["report_reward"] is not None


def test_runs_repeat() -> None:
    rows = []
    for _ in range(2):
        run = Run(small_config(steps=4))
        run.learn()
        run.close()
        rows.append([{name: row.get(name) for name in row if name not in CLOCK} for row in run.recorder.rows])
    assert rows[0] == rows[1]
