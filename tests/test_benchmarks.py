"""The benchmarks that train or execute run at a tiny size and write their pages; their timings are no matter here."""

import json
import runpy
from pathlib import Path

import pytest

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
