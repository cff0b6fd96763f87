"""Every number of a page against the files that it comes from; what is unknown is never shown as a number."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from report_runs import evaluation, metrics, research_run, robot_run, write, write_lines
from wmrl_envs.errors import ConfigurationError
from wmrl_envs.report import write_report
from wmrl_envs.report.contents import Limits, contents
from wmrl_envs.report.episodes import aligned, read_episodes
from wmrl_envs.report.folder import read_run, read_runs
from wmrl_envs.report.groups import grouped
from wmrl_envs.report.headline import cards, state_words
from wmrl_envs.report.scores import tradeoff
from wmrl_envs.report.sources import Sources


def shown(*folders: Path) -> dict[str, Any]:
    found = contents(read_runs(folders, episodes=100), Limits())
    return json.loads(json.dumps(found, allow_nan=False))["sections"][0]


def figure(section: dict[str, Any], name: str) -> dict[str, Any]:
    figures = [*section["figures"], *(one for run in section["runs"] for one in run["figures"])]
    return next(one for one in figures if one["id"].endswith(name))


def trace(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in found["data"] if one.get("name", "").startswith(name))


def test_figures_of_one_run_are_those_of_its_files(tmp_path: Path) -> None:
    folder = research_run(tmp_path / "run")
    rows = pd.read_csv(folder / "metrics.csv")
    pairs = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))
    section = shown(folder)
    moving = rows["real_reward"].rolling(5, min_periods=1, center=True).mean()
    assert trace(figure(section, "curves"), "real")["x"] == rows["step"].tolist()
    points = figure(section, "curves")["data"]
    assert any(one["y"] == pytest.approx(moving, rel=1e-3) for one in points if len(one["y"]) == len(rows))
    residuals = np.array(pairs["real"]) - np.array(pairs["predicted"])
    assert trace(figure(section, "residuals"), "an executed")["y"] == pytest.approx(residuals, rel=1e-3)
    valid = rows["status_valid"].rolling(5, min_periods=1, center=True).mean()
    assert trace(figure(section, "statuses"), "valid")["y"] == pytest.approx(valid, rel=1e-3)
    assert trace(figure(section, "cost"), "executed")["y"] == pytest.approx(rows["execution_seconds"], rel=1e-3)
    assert f"{rows['cost_ratio'].iloc[-1]:.0%} of executing" in figure(section, "cost")["summary"]


def test_mean_and_spread_over_seeds_are_those_of_the_files(tmp_path: Path) -> None:
    folders = [research_run(tmp_path / str(seed), seed=seed) for seed in range(3)]
    tables = [pd.read_csv(folder / "metrics.csv")["real_reward"] for folder in folders]
    smoothed = pd.concat([table.rolling(5, min_periods=1, center=True).mean() for table in tables], axis=1)
    drawn = [one for one in figure(shown(*folders), "curves")["data"] if len(one["y"]) in (12, 24)]
    assert any(one["y"] == pytest.approx(smoothed.mean(axis=1), rel=1e-3) for one in drawn if len(one["y"]) == 12)
    upper = smoothed.mean(axis=1) + smoothed.std(axis=1, ddof=1)
    assert any(one["y"][:12] == pytest.approx(upper, rel=1e-3) for one in drawn if len(one["y"]) == 24)


def test_a_gain_is_that_of_the_runs_that_ended(tmp_path: Path) -> None:
    folders = [research_run(tmp_path / str(seed), seed=seed, finished=seed == 0) for seed in range(2)]
    write(folders[1] / "before.json", evaluation(0.1))
    row = shown(*folders)["table"]["rows"][0]
    assert row[1] == "2 (1 finished)" and row[4] == "+0.380"  # 0.80 - 0.42, whatever the other began with


def test_a_pair_with_an_unknown_half_is_no_pair(tmp_path: Path) -> None:
    assert aligned({"a": [1, None, 3, 4], "b": [5, 6, "x", 8]}, "a", "b") == [[1, 4], [5, 8]]
    assert aligned({"a": [1], "b": [1, 2]}, "a", "b") == aligned({"a": [1], "b": 3}, "a", "b") == [[], []]
    folder = research_run(tmp_path / "run")
    hostile = {"step": [1, 2, None], "predicted": [0.1, None, 0.3], "real": [None, 0.8, 0.9]}
    write(folder / "calibration.json", hostile | {"knots": {"predicted": [0.1, None], "real": [None, 1]}})
    write(folder / "calibration_history.json", [{"step": 1, "predicted": [0.9, 0.1], "real": [1, 0]}])
    run = read_run(folder)
    # The pairs that the episodes hold are left; knots out of order or in halves are no map.
    assert run.pairs.predicted.tolist() == [0.7] * 12 and run.maps == []


def test_what_is_unknown_is_not_zero(tmp_path: Path) -> None:
    folder = robot_run(tmp_path / "arm")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    write(folder / "summary.json", {name: summary[name] for name in summary if name not in ("labels", "rollouts")})
    rows = pd.read_csv(folder / "metrics.csv").assign(rollouts=np.nan)
    rows.to_csv(folder / "metrics.csv", index=False)
    assert {card["label"]: card["detail"] for card in cards(read_run(folder))}["Labels read"] == "of ? rollouts played"
    rows.assign(labels=np.nan).to_csv(folder / "metrics.csv", index=False)
    assert [card["label"] for card in cards(read_run(folder))] == ["Success on fresh states"]
    two = [read_run(folder), read_run(folder)]
    assert tradeoff(grouped(two), "robot") is None
    (folder / "metrics.csv").unlink()
    assert state_words(read_run(folder)) == "finished; its steps are unknown"


def test_an_evaluation_without_an_error_has_no_error_bar(tmp_path: Path) -> None:
    folder = research_run(tmp_path / "run", finished=False)
    write(folder / "before.json", {"score": 0.4})
    assert trace(figure(shown(folder), "curves"), "reported")["error_y"]["array"] == [None]


def test_steps_of_unknown_outcomes_have_no_shares(tmp_path: Path) -> None:
    folder = research_run(tmp_path / "run")
    rows = metrics(12)
    rows.loc[6:, [name for name in rows if name.startswith("status_")]] = np.nan
    rows.to_csv(folder / "metrics.csv", index=False)
    found = trace(figure(shown(folder), "statuses"), "valid")
    assert found["x"] == [1, 2, 3, 4, 5, 6] and min(found["y"]) > 0.5


def test_what_is_left_out_of_the_metrics_is_told(tmp_path: Path) -> None:
    folder = research_run(tmp_path / "run")
    (folder / "metrics.csv").write_text("step,real_reward\n1,0.5\n-2,0.5\nx,0.5\n3,nan\n", encoding="utf-8")
    (folder / "summary.json").write_text("[1]", encoding="utf-8")
    assert read_run(folder).problems == [
        "summary.json holds no values by name",
        "2 rows of metrics.csv have no valid step and are left out",
    ]


@pytest.mark.parametrize(
    "name", ["metrics.csv", "summary.json", "trajectories.jsonl", "calibration_history.json", "best_solution.py"]
)
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    folder = research_run(tmp_path / "run")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert read_run(folder).config["task"] == "titanic"


def test_a_folder_whose_name_is_no_text_is_watched(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/run-\xff"))
    tag, found, _ = Sources([research_run(folder)]).current()
    assert tag and found["title"] == "run-\ufffd"


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="/proc/report.html cannot be written: .*--out"):
        write_report([research_run(tmp_path / "run")], Path("/proc/report.html"))


def test_frames_of_which_one_is_unknown_have_no_curve(tmp_path: Path) -> None:
    path = tmp_path / "trajectories.jsonl"
    write_lines(path, [{"step": 1, "progress": [0.1, None, 0.3]}, {"step": 2, "progress": [0.1, 0.3]}])
    assert [one.progress for one in read_episodes(path, 10).chosen] == [[], [0.1, 0.3]]
