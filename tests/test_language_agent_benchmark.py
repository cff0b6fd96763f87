"""The benchmark of a language-model agent at a tiny size: what it keeps, what it prints and what it writes."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "language_agent.py"
ARMS = ("rectified", "real")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("language_agent")


@pytest.fixture
def run(monkeypatch, folder, capsys):
    """Return a function that runs the script at its tiny size and returns what it printed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))

    def run(*arguments):
        common = ["--quick", "--seeds", 2, "--arms", *ARMS, "--workers", 1, "--runs", folder / "runs"]
        monkeypatch.setattr("sys.argv", [SCRIPT.name, *map(str, [*common, *arguments])])
        runpy.run_path(str(SCRIPT), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_a_small_model_is_warmed_up_and_trained_by_each_arm(run, folder):
    printed = run("--out", folder / "docs")
    page = (folder / "docs" / "language_agent.md").read_text()
    for text in ("WMRL: a tenth executed", "real execution everywhere", "stopped at the cost of WMRL", "from scratch"):
        assert text in page
    assert "real execution everywhere" in printed and "language_agent.py --task titanic --seeds 2" in page
    assert (folder / "docs" / "language_agent.png").read_bytes().startswith(b"\x89PNG")

    results = {
        (seed, arm): json.loads((folder / "runs" / "titanic" / f"seed-{seed}" / f"{arm}.json").read_text())
        for seed in (1, 2)
        for arm in ARMS
    }
    for (seed, arm), result in results.items():
        assert (result["seed"], result["scheme"]) == (seed, arm)
        assert [point["step"] for point in result["points"]] == [0, 1, 2]
        assert [row["step"] for row in result["log"]] == [1, 2]
        for point in result["points"]:
            assert 0.0 <= point["score"] <= 1.0 and 0.0 <= point["valid"] <= 1.0
            assert sum(point["statuses"].values()) == 16
        assert result["points"][0]["executions"] == 0  # an evaluation is charged to nobody
    # The warm-up of the world model and one of two groups; or everything that was generated.
    executed = {arm: [point["executions"] for point in results[1, arm]["points"]] for arm in ARMS}
    assert executed == {"rectified": [0, 24 + 4, 24 + 8], "real": [0, 8, 16]}
    for seed in (1, 2):  # the arms of a seed start as the same model, and write the same replies
        same = [results[seed, arm]["points"][0] for arm in ARMS]
        assert same[0]["score"] == same[1]["score"] and same[0]["statuses"] == same[1]["statuses"]
    # It has learned to write programs of the design space, valid ones among them.
    first = [result["points"][0] for result in results.values()]
    assert np.mean([point["recorded"] for point in first]) > 0.3 and sum(point["valid"] for point in first) > 0.0


def test_finished_runs_are_kept_and_only_what_is_missing_is_made(run, folder):
    printed = run()
    path = folder / "runs" / "titanic" / "seed-1" / "real.json"
    kept = {file: file.stat().st_mtime_ns for file in (folder / "runs").rglob("*.json")}
    assert path in kept
    assert run() == printed
    assert {file: file.stat().st_mtime_ns for file in kept} == kept

    path.unlink()
    run()
    assert [file for file, time in kept.items() if file.stat().st_mtime_ns != time] == [path]

    with pytest.raises(SystemExit, match="other settings"):
        run("--learning-rate", 0.5)


def test_a_number_at_a_cost_lies_between_two_evaluations():
    script = runpy.run_path(str(SCRIPT))
    points = [
        {"execution_seconds": seconds, "prediction_seconds": 1.0, "score": score}
        for seconds, score in ((0.0, 0.2), (10.0, 0.4), (30.0, 0.8))
    ]
    at_cost = script["at_cost"]
    for seconds, score in ((0.5, 0.2), (6.0, 0.3), (21.0, 0.6), (99.0, 0.8)):
        np.testing.assert_allclose(at_cost([{"points": points}], "score", np.array([seconds])), [score])


def test_one_seed_has_no_standard_error(monkeypatch):
    monkeypatch.setattr("sys.argv", [SCRIPT.name, "--seeds", "1"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(SCRIPT), run_name="__main__")
