"""The page as a file: figures that Plotly takes, a size that is kept, and the command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects
import pytest

from report_runs import episode, research_run, robot_run
from runs import wmrl
from wmrl_envs.errors import ConfigurationError
from wmrl_envs.report import write_report
from wmrl_envs.report.contents import Limits, contents
from wmrl_envs.report.folder import read_run, read_runs


def without_own_keys(value: Any) -> Any:
    """Return a figure's part without the page's own keys, and with a colour of Plotly's for each of the page's."""
    if isinstance(value, dict):
        return {name: without_own_keys(inner) for name, inner in value.items() if not name.startswith("_")}
    if isinstance(value, list):
        return [without_own_keys(inner) for inner in value]
    return (
        re.sub("^@.*", "red", value)
        if isinstance(value, str) and value != "@steps"
        else "Cividis"
        if value == "@steps"
        else value
    )


def figures(shown: dict[str, Any]) -> list[dict[str, Any]]:
    found = [figure for section in shown["sections"] for figure in section["figures"]]
    return found + [figure for section in shown["sections"] for run in section["runs"] for figure in run["figures"]]


def test_every_figure_is_one_of_plotly(tmp_path: Path) -> None:
    folders = [research_run(tmp_path / str(seed), seed=seed) for seed in range(2)]
    folders += [research_run(tmp_path / "one", steps=1, reward="paper"), robot_run(tmp_path / "arm")]
    found = figures(contents(read_runs(folders, episodes=50), Limits()))
    assert len(found) > 20
    for figure in found:
        for layout in ({}, *figure["layouts"].values()):
            plotly.graph_objects.Figure(without_own_keys(figure["data"]), without_own_keys(figure["layout"] | layout))
        assert figure["title"] and len(figure["summary"]) > 20
        assert figure["layout"]["xaxis"]["title"]["text"] is not None


def test_curves_of_seeds_have_mean_and_spread(tmp_path: Path) -> None:
    folders = [research_run(tmp_path / str(seed), seed=seed) for seed in range(3)]
    shown = contents(read_runs(folders, episodes=10), Limits())
    (curves,) = [figure for figure in figures(shown) if figure["id"] == "research-curves"]
    band, mean = (trace for trace in curves["data"] if trace["_when"] == [0] and "real" in trace["name"])
    runs = [read_run(folder).rows["real_reward"].rolling(5, min_periods=1, center=True).mean() for folder in folders]
    assert mean["y"] == pytest.approx(np.mean(runs, axis=0), abs=1e-3)
    spread = np.std(runs, axis=0, ddof=1)
    assert band["y"][: len(spread)] == pytest.approx(np.mean(runs, axis=0) + spread, abs=1e-3)


def test_a_seed_that_got_less_far_shortens_no_curve(tmp_path: Path) -> None:
    folders = [research_run(tmp_path / str(seed), seed=seed) for seed in range(3)]
    for folder in folders[1:]:
        rows = read_run(folder).rows
        rows.iloc[:4].to_csv(folder / "metrics.csv", index=False)
    shown = contents(read_runs(folders, episodes=10), Limits())
    (curves,) = [figure for figure in figures(shown) if figure["id"] == "research-curves"]
    band, mean = (trace for trace in curves["data"] if trace["_when"] == [0] and "real" in trace["name"])
    alone = read_run(folders[0]).rows["real_reward"].rolling(5, min_periods=1, center=True).mean()
    assert mean["x"] == list(range(1, 13)) and mean["y"][4:] == pytest.approx(alone[4:], abs=1e-3)
    assert band["y"][4:12] == mean["y"][4:]


def test_a_page_that_is_too_large_drops_what_tells_least_and_says_so(tmp_path: Path) -> None:
    code = "x = 1\n" * 300
    episodes = [episode(step, step, anchor=step % 4 == 0) for step in range(400)]
    for number, found in enumerate(episodes):
        found["turns"][0]["code"] = f"{code}# {number}\n"
    folder = research_run(tmp_path / "run", episodes=episodes)
    out = tmp_path / "report.html"
    whole = write_report([folder], out)
    assert whole["left_out"] == [] and whole["bytes"] == out.stat().st_size
    written = write_report([folder], out, most_bytes=3_000_000)
    assert out.stat().st_size == written["bytes"] <= 3_000_000
    (told,) = written["left_out"]
    kept = int(told.split()[0])
    assert told == f"{kept} of the 400 episodes that the runs noted down are shown, anchors first."
    data = json.loads(re.search(r'id="data">(.*?)</script>', out.read_text(encoding="utf-8"))[1])  # type: ignore[index]
    assert len(data["episodes"]) == kept and {"kind": "left out", "text": told} in data["notes"]
    assert sum(found["anchor"] for found in data["episodes"]) >= min(100, kept // 2)
    with pytest.raises(
        ConfigurationError, match=r"takes 2\.\d MB of 1\.0 MB even without episodes and videos; name fewer"
    ):
        write_report([folder], out, most_bytes=1_000_000)


def test_videos_are_left_out_where_they_do_not_fit(tmp_path: Path) -> None:
    folder = robot_run(tmp_path / "arm")
    for number in range(6):
        (folder / "videos" / f"more-{number}.mp4").write_bytes(np.random.default_rng(number).bytes(400_000))
    out = tmp_path / "report.html"
    assert write_report([folder], out)["left_out"] == []
    written = write_report([folder], out, most_bytes=4_000_000)
    assert out.stat().st_size <= 4_000_000
    assert any("videos are left out" in told for told in written["left_out"])


def test_nothing_of_the_data_is_markup(tmp_path: Path) -> None:
    attack = "</script><script>alert(1)</script><!--"
    folder = research_run(tmp_path / "run", episodes=[episode(1, 0, task=attack)], task=attack)
    out = tmp_path / "report.html"
    write_report([folder], out)
    html = out.read_text(encoding="utf-8")
    assert "alert(1)" in html and attack not in html
    assert html.count("<script") == html.count("</script>") == 3
    assert "http://" not in re.sub(r"http://www\.w3\.org/[a-z0-9/]+", "", re.sub(r'id="plotly">[^<]*', "", html))


def test_the_command(tmp_path: Path) -> None:
    research_run(tmp_path / "runs" / "a")
    research_run(tmp_path / "runs" / "b", seed=1)
    done = wmrl("report", "runs/a", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"report of 1 run: runs/a/report\.html \(\d\.\d MB\)\n", done.stdout)
    done = wmrl("report", "runs/a", "runs/b", "--out", "both.html", folder=tmp_path)
    assert "report of 2 runs: both.html" in done.stdout and (tmp_path / "both.html").is_file()
    done = wmrl("report", "runs/c", folder=tmp_path)
    assert done.returncode == 1 and "runs/c does not exist; a run folder is" in done.stderr
