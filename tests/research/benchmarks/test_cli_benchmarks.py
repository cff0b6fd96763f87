import json

import pytest
from typer.testing import CliRunner

from wmrl_envs.cli import app


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def test_every_competition_is_checked_and_has_one_line(benchmarks):
    benchmarks.competition("good")
    pointer = benchmarks.competition("pointer")
    (pointer / "leaderboard.csv").write_text("version https://git-lfs.github.com/spec/v1\n")
    benchmarks.competition("unanswered")
    (benchmarks.data / "unanswered/prepared/private/answers.csv").unlink()
    benchmarks.competition("broken", code="import no_such_package\n")
    for folder in (f"mle-bench:{benchmarks.data}", benchmarks.data):
        result = run("tasks", "check", folder)
        assert result.exit_code == 1
        assert (
            f"✓ mle-bench:{benchmarks.data}/good: root-mean-squared-error, lower is better, 8 scores" in result.stdout
        )
        assert "its sample submission scores 21.602 (position 0.00)" in result.stdout  # sqrt(1400 / 3)
        lines = result.stderr.splitlines()
        assert len(lines) == 3 and all(line.startswith("✗ mle-bench:") for line in lines)
        assert f"{pointer / 'leaderboard.csv'} is a Git-LFS pointer" in result.stderr
        assert f"{benchmarks.data / 'unanswered/prepared/private/answers.csv'}" in result.stderr
        assert "broken/grade.py cannot be imported: ModuleNotFoundError" in result.stderr


def test_one_competition_and_one_path(benchmarks):
    benchmarks.competition("good")
    benchmarks.competition("unclear", metric="theirs")
    assert run("tasks", "check", benchmarks.data / "good").exit_code == 0
    assert run("tasks", "check", f"mle-bench:{benchmarks.data}/good").exit_code == 0
    assert "?direction=higher" in run("tasks", "check", f"mle-bench:{benchmarks.data}/unclear").stderr
    assert run("tasks", "check", f"mle-bench:{benchmarks.data}/unclear?direction=lower").exit_code == 0
    assert "Did you mean 'good'" in run("tasks", "check", f"mle-bench:{benchmarks.data}/goood").stderr


@pytest.mark.parametrize("which", ["mle-dojo", "dsbench"])
def test_other_benchmarks_are_known_by_their_layout(benchmarks, which):
    benchmarks.dojo_competition()
    benchmarks.ds_task()
    folder = {"mle-dojo": benchmarks.dojo, "dsbench": benchmarks.dsbench}[which]
    result = run("tasks", "check", folder)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"✓ {which}:{folder}/toy-d")


def test_list_and_show_know_benchmarks(benchmarks):
    benchmarks.competition("one")
    benchmarks.competition("two")
    for folder in (benchmarks.data, f"mle-bench:{benchmarks.data}"):
        names = run("tasks", "list", folder).stdout.split()
        assert names == [f"mle-bench:{benchmarks.data}/{name}" for name in ("one", "two")]
    assert "by the benchmark's own code, lower is better" in run("tasks", "show", names[0]).stdout


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["tasks", "list", "/tmp"], "has not the layout of any benchmark"),
        (["tasks", "check", "mle-bech:/tmp"], "Did you mean 'mle-bench'?"),
        (["tasks", "check", "mle-bench:/tmp/no/such"], "it holds none"),
        (["tasks", "record", "mle-bench:DIR/ID"], "wmrl tasks import mle-bench:DIR/ID --out FOLDER"),
        (["tasks", "import", "titanic", "--out", "x"], "titanic is no benchmark's competition"),
    ],
)
def test_errors_are_one_sentence(args, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*args)
    assert result.exit_code != 0
    assert reason in result.stderr + str(result.exception)


def test_import_leads_to_training(benchmarks, tmp_path):
    benchmarks.tabular_competition()
    folder = tmp_path / "mine"
    result = run("tasks", "import", f"mle-bench:{benchmarks.data}/toy-auc?seconds=5", "--out", folder, "--seed", "3")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert f"Train on it by: wmrl train --task {folder}" in result.stdout.replace("\n", "")
    assert run("tasks", "check", folder).exit_code == 0
    out = tmp_path / "run"
    small = "--steps 2 --groups 2 --group-size 4 --warmup 12 --isolation none".split()
    result = run("train", "--task", folder, *small, "--out", out)
    assert result.exit_code == 0, result.output
    assert json.loads((out / "summary.json").read_text())


def test_import_of_what_has_no_design_says_so(benchmarks, tmp_path):
    benchmarks.ds_task(score="1.0")
    result = run("tasks", "import", f"dsbench:{benchmarks.dsbench}/toy-ds", "--out", tmp_path / "a")
    assert result.exit_code != 0 and "--metric" in result.stderr + str(result.exception)
    result = run("tasks", "import", f"dsbench:{benchmarks.dsbench}/toy-ds", "--out", tmp_path / "b", "--metric", "r2")
    assert "it needs 10 or more" in result.stderr
