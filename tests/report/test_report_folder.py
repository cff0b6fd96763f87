"""Run folders read without trust: whole, going on, killed, damaged, hostile."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from report_runs import episode, research_run, write, write_lines
from wmrl_envs.errors import ConfigurationError
from wmrl_envs.report.episodes import read_episodes
from wmrl_envs.report.folder import find_runs, read_run, read_runs
from wmrl_envs.report.groups import grouped
from wmrl_envs.report.headline import cards, state_words, table
from wmrl_envs.report.videos import choose_videos


def test_a_whole_run(tmp_path: Path) -> None:
    run = read_run(research_run(tmp_path / "run"))
    assert (run.name, run.kind, run.state, run.step, run.steps, run.problems) == (
        "run",
        "research",
        "finished",
        12,
        12,
        [],
    )
    assert len(run.episodes) == run.episodes_written == 48
    assert run.pairs.predicted.tolist() == [0.2, 0.5, 0.9]
    assert [found.step for found in run.maps] == [2, 6, 12]
    assert run.best[0]["report_reward"] == 0.88 and "raise ValueError" in run.best[0]["code"]
    shown = {card["label"]: card["value"] for card in cards(run)}
    assert shown == {
        "Reported score": "0.420 → 0.800",
        "Real execution": "32.0 s",
        "Cost ratio": "27%",
        "Executed": "220",
    }


def test_configuration_and_metrics_alone(tmp_path: Path) -> None:
    whole = research_run(tmp_path / "run", finished=False)
    for path in whole.iterdir():
        if path.name not in ("config.json", "metrics.csv"):
            path.unlink()
    run = read_run(whole)
    assert (run.state, run.step, run.problems, len(run.maps), len(run.episodes)) == ("going", 12, [], 0, 0)
    assert "still going: step 12 of 12" in state_words(run)
    assert [card["label"] for card in cards(run)][:2] == ["Real reward so far", "Real execution"]


def test_a_killed_run_is_told_from_one_that_goes_on(tmp_path: Path) -> None:
    folder = research_run(tmp_path / "run", finished=False)
    for path in folder.iterdir():
        os.utime(path, (time.time() - 3600, time.time() - 3600))
    assert read_run(folder).state == "stopped"
    with (folder / "trajectories.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 13, "episo')
    run = read_run(folder)
    assert (run.state, len(run.episodes), run.problems) == ("going", 48, [])
    # Until the run writes calibration.json, its pairs are those of the anchors that it noted down.
    assert run.pairs.real.tolist() == [0.75, 0.1] * 6


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.csv", b""),
        ("metrics.csv", b"\x00\xff\xfe garbage"),
        ("metrics.csv", b"a,b\n1,2\n"),
        ("metrics.csv", b'step,real_reward\n1,0.5\n"2,0.5\n'),
        ("summary.json", b'{"after": {"score": '),
        ("summary.json", b"[" * 100_000),
        ("summary.json", b'{"after": [1], "ledger": "much", "best_solutions": {"a": 1}}'),
        ("versions.json", b'{"python": {"a": [1, 2]}}'),
        ("before.json", b'{"score": "NaN", "standard_error": NaN}'),
        ("calibration.json", b'{"step": [1], "predicted": ["x"], "real": [1, 2], "knots": 3}'),
        ("calibration_history.json", b'[1, {"step": "x"}, {"step": 1, "predicted": [], "real": []}, {"step": 1e400}]'),
        (
            "trajectories.jsonl",
            b'[]\n{}\nnull\n{"step": "1"}\n{"step": 1e308}\n{"step": 1, "turns": 5, "progress": {}}\n',
        ),
        ("trajectories.jsonl", b'{"step": 1, "turns": [[], {"code": 5, "real": [], "predicted": {"reward": "x"}}]}\n'),
    ],
)
def test_a_damaged_file_costs_itself_alone(tmp_path: Path, name: str, content: bytes) -> None:
    folder = research_run(tmp_path / "run")
    (folder / name).write_bytes(content)
    run = read_run(folder)
    assert run.config["task"] == "titanic"
    cards(run)
    table(grouped([run]), "research")


def test_a_whole_line_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "trajectories.jsonl"
    write_lines(path, [episode(1, 0), episode(1, 1)])
    path.write_bytes(b"{damaged\n" + path.read_bytes() + b'{"torn')
    found = read_episodes(path, 10)
    assert ([one.episode for one in found.chosen], found.damaged) == ([0, 1], 1)
    long = json.dumps(episode(2, 2) | {"note": "x" * 9_000_000})
    path.write_text(long + "\n" + json.dumps(episode(3, 3)) + "\n", encoding="utf-8")
    found = read_episodes(path, 10)
    assert ([one.episode for one in found.chosen], found.damaged, found.total) == ([3], 1, 2)


def test_anchors_are_kept_first_and_evenly(tmp_path: Path) -> None:
    path = tmp_path / "trajectories.jsonl"
    write_lines(path, [episode(number // 10, number, anchor=number % 10 == 0) for number in range(1000)])
    found = read_episodes(path, 100)
    assert (len(found.chosen), found.total) == (100, 1000)
    assert sum(one.anchor for one in found.chosen) == 50
    steps = [one.step for one in found.chosen]
    assert steps == sorted(steps) and (steps[0], steps[-1]) == (0, 99)


def test_what_is_no_run_folder_is_told_by_its_name(tmp_path: Path) -> None:
    research_run(tmp_path / "runs" / "a")
    research_run(tmp_path / "runs" / "b")
    assert [path.name for path in find_runs([tmp_path / "runs", tmp_path / "runs" / "a"])] == ["a", "b"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for name, words in (("empty", "holds no config.json"), ("file", "is a file"), ("nowhere", "does not exist")):
        with pytest.raises(ConfigurationError, match=f"{name} {words}.*a run folder is what wmrl train leaves"):
            find_runs([tmp_path / name])
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="damaged/config.json is damaged"):
        read_run(tmp_path / "damaged")
    write(tmp_path / "damaged" / "config.json", [1])
    with pytest.raises(ConfigurationError, match="holds no settings by name"):
        read_run(tmp_path / "damaged")


def test_seeds_are_one_group_named_by_what_differs(tmp_path: Path) -> None:
    folders = [research_run(tmp_path / str(seed), seed=seed) for seed in range(3)]
    folders += [research_run(tmp_path / "paper", reward="paper"), research_run(tmp_path / "few", warmup=60)]
    groups = grouped(read_runs(folders, episodes=10))
    assert [(group.name, len(group.runs)) for group in groups] == [
        ("rectified, warmup 180", 3),
        ("paper, warmup 180", 1),
        ("rectified, warmup 60", 1),
    ]
    rows = table(groups, "research")["rows"]
    assert rows[0] == ["rectified, warmup 180", "3", "0.420 ± 0.000", "0.810 ± 0.006", "+0.390", "32", "27%"]


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    runs = read_runs([research_run(tmp_path / "a" / "run"), research_run(tmp_path / "b" / "run")], episodes=10)
    assert [run.name.split("/")[-2:] for run in runs] == [["a", "run"], ["b", "run"]]


def test_no_file_outside_the_run_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.mp4"
    secret.write_bytes(b"secret")
    (tmp_path / "secret.py").write_text("secret", encoding="utf-8")
    folder = research_run(tmp_path / "run", episodes=[episode(1, 0) | {"video": "../secret.mp4", "progress": [0, 1]}])
    (folder / "videos").mkdir()
    (folder / "videos" / "link.mp4").symlink_to(secret)
    (folder / "link.py").symlink_to(tmp_path / "secret.py")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    files = ("../secret.py", "link.py", str(tmp_path / "secret.py"), "config.json", 7)
    summary["best_solutions"] = [{"task": "t", "file": file} for file in files]
    write(folder / "summary.json", summary)
    run = read_run(folder)
    assert run.videos == [] and all("code" not in best for best in run.best)
    assert choose_videos([run], most_bytes=1000, most=10) == ([], 0)


def test_videos_after_training_come_first_then_last_and_first_steps(tmp_path: Path) -> None:
    names = [f"videos/step-{step:04d}-0.mp4" for step in range(1, 10)]
    episodes = [episode(step, step) | {"video": name} for step, name in enumerate(names, 1)]
    folder = research_run(tmp_path / "run", episodes=episodes)
    (folder / "videos").mkdir()
    for name in (*names, "videos/final-12.mp4"):
        (folder / name).write_bytes(b"x" * 100)
    chosen, left = choose_videos([read_run(folder)], most_bytes=450, most=10)
    assert [video.path.name[:9] for video in chosen] == ["final-12.", "step-0009", "step-0005", "step-0001"]
    assert left == 6
    assert chosen[0].caption == "after training: final"
