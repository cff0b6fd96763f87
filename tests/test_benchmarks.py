"""The benchmarks that train or execute run at a tiny size and write their pages; their timings are no matter here."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from wmrl_envs.compare_report import Curves
from wmrl_envs.config import TrainConfig

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Return a function that runs a script as ``python SCRIPT ARGUMENTS`` would, and returns what it printed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(name, *arguments):
        monkeypatch.setattr("sys.argv", [name, *map(str, arguments)])
        runpy.run_path(str(BENCHMARKS / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_figure_one_measures_the_three_parts_live(run, tmp_path):
    printed = run("figure_one.py", "--sizes", 2, 4, "--rounds", 1, "--warmup", 8, "--docs", tmp_path)
    page = (tmp_path / "figure_one.md").read_text()
    table = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| ")]
    assert [row[0].strip() for row in table] == ["trajectories", "2", "4"]
    for row in table[1:]:
        generation, prediction, execution = (float(cell.split("/")[0]) for cell in row[1:4])
        assert generation >= 0.0 and prediction > 0.0 and execution > 0.0
    assert "8 executions" in page and "8 executions" in printed
    assert "--task titanic --sizes 2 4 --rounds 1 --docs docs" in page
    assert (tmp_path / "figure_one.png").read_bytes().startswith(b"\x89PNG")


def test_figure_one_says_when_there_are_too_few_solutions(run):
    with pytest.raises(SystemExit, match="8380 distinct solutions are needed"):
        run("figure_one.py", "--sizes", 4096, "--rounds", 2)


def test_the_bias_floor_is_drawn_from_curves_that_are_kept(run, tmp_path):
    arguments = ["--seeds", 2, "--steps", 2, "--warmup", 40, "--workers", 1, "--runs", tmp_path / "runs"]
    printed = run("bias_floor.py", *arguments, "--docs", tmp_path / "docs")
    page = (tmp_path / "docs" / "bias_floor.md").read_text()
    for arm in (
        "raw predictions",
        "debiased",
        "the paper's both corrections",
        "rectified",
        "real execution everywhere",
    ):
        assert arm in page
    assert (tmp_path / "docs" / "bias_floor.png").read_bytes().startswith(b"\x89PNG")
    arms = json.loads((tmp_path / "runs" / "titanic" / "seed-1.json").read_text())["arms"]
    assert list(map(len, arms["rectified"].values())) == [3, 3, 3, 3]
    assert len({arm["report"][0] for arm in arms.values()}) == 1  # all begin as the same untrained policy
    assert arms["world-model"]["gap"] == arms["world-model"]["calibrated_gap"]  # nothing calibrates it
    assert arms["real"]["gap"] == [None] * 3

    assert run("bias_floor.py", *arguments) == printed
    with pytest.raises(SystemExit, match="other settings"):
        run("bias_floor.py", *arguments, "--learning-rate", 0.5)


def test_an_anchor_fraction_is_held_against_its_rivals_at_its_own_cost():
    names = runpy.run_path(str(BENCHMARKS / "anchor_fraction.py"))
    arm, alone, real = names["Arm"]("learning", 0.5), names["Arm"]("anchors-only", 0.5), names["REAL"]
    base = TrainConfig(steps=2, groups=2, group_size=8, warmup=16)
    grid = names["Grid"](("titanic",), (0.5,), (0.1,), 2, 1, base)
    assert alone.config(base).steps == 7 and alone.end(base) == 2  # 1.6 times the 2 groups and the warm-up's 2

    def curves(report, seconds):
        twice = [np.array([values, values], dtype=float) for values in (report, seconds)]
        return Curves(*twice, *[twice[1]] * 3)

    runs = {
        arm: curves([0.2, 0.4, 0.8], [0, 40, 50]),
        real: curves([0.2, 0.6, 1.0], [0, 50, 100]),
        alone: curves([0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.7, 0.7], [0, 10, 20, 30, 40, 50, 60, 70]),
    }
    chosen = dict.fromkeys([(of, at) for of in runs for at in (of, arm)], 0.1)
    results = names["Results"](grid, {(of.name, "titanic", 0.1): kept for of, kept in runs.items()}, chosen)
    assert results.share(arm) == 0.5 and results.share(alone) == 0.2
    assert results.final(alone).mean == pytest.approx(0.4)
    assert results.lead(arm, real).mean == pytest.approx(0.2)
    assert results.lead(arm, alone).mean == pytest.approx(0.1)
    assert results.at_budget(real, 0.75).mean == pytest.approx(0.8)
    assert results.at_budget(arm, 0.2) is None  # still in its warm-up
    assert results.at_budget(arm, 0.9).mean == pytest.approx(0.8)  # ended before
    assert results.groups(arm) == (50 - 16) / 8 and results.groups(alone) == 20 / 8


def test_anchor_fractions_are_compared_at_their_end_and_at_equal_cost(run, tmp_path):
    small = "--tasks titanic --fractions 0.1 0.5 --rates 0.12 0.25 --seeds 2 --tuning-seeds 1 --steps 2 --warmup 40"
    arguments = [*small.split(), "--workers", 1, "--runs", tmp_path / "runs", "--docs", tmp_path / "docs"]
    printed = run("anchor_fraction.py", *arguments)
    page = (tmp_path / "docs" / "anchor_fraction.md").read_text()
    rows = [line.split(" | ") for line in page.partition("## How each row ends")[2].partition("##")[0].splitlines()]
    ends = {(row[0].strip("| "), row[1]): row for row in rows if len(row) > 5}
    assert len(ends) == 2 + 3 * 2 + 1  # headings, three kinds at two fractions, everything
    executions = {key: row[4] for key, row in ends.items()}
    assert executions["1", "everything executed"] == "256"
    assert executions["0.5", "rectified, learning world model"] == "168"  # the warm-up, 8 groups of 8 in each step
    assert executions["0.5", "the executed groups alone"] == "128"
    assert small in page and "| 0.5 | rectified, frozen world model |" in printed
    assert (tmp_path / "docs" / "anchor_fraction.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in (tmp_path / "runs" / "joint" / "titanic").iterdir()} == {
        *(f"{kind}-{fraction}" for kind in ("learning", "frozen", "anchors-only") for fraction in (0.1, 0.5)),
        "real-1",
    }
