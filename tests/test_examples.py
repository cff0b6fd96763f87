"""Every example runs, as a user would run it, at a small size."""

import re
import runpy
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wmrl_envs.cli import app

EXAMPLES = Path(__file__).parents[1] / "examples"
FILES = sorted(str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py"))
SMALL = "--sandbox replay --steps 2 --num-envs 8 --anchor-fraction 0.5 --warmup 40 --evaluation-episodes 8".split()
SMALLER = {
    "wmrl tasks leaderboard": "--population 12",
    "wmrl train": "--groups 2 --group-size 2 --anchor-fraction 0.5 --warmup 8 --evaluation-rollouts 2 --steps 2",
}
"""What is added to the steps of a task of one's own so that they take seconds."""


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Return a function that runs an example as ``python EXAMPLE ARGUMENTS`` would, and returns what it printed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def run(name, *arguments):
        monkeypatch.setattr("sys.argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def scores(printed):
    return [float(score) for score in re.findall(r"reported score (?:before|after) training: +(\d\.\d+)", printed)]


def test_grpo_on_the_batched_environment(run):
    printed = run("research_grpo.py", *SMALL, "--group-size", "4")
    assert len(scores(printed)) == 2 and all(0.0 <= score <= 1.0 for score in scores(printed))
    assert "16 rewards predicted" in printed
    assert "48 solutions executed" in printed  # the warm-up, and one of the two groups in each step
    assert 'pd.read_csv("input/train.csv"' in printed


def test_grpo_executes_live(run):
    tiny = "--steps 1 --num-envs 4 --group-size 2 --anchor-fraction 0.5 --warmup 8 --evaluation-episodes 2".split()
    printed = run("research_grpo.py", *tiny)
    assert "10 solutions executed" in printed


def test_ppo_sees_the_same_on_the_batched_and_on_single_environments(run):
    batched, single = (run("research_ppo_sb3.py", *SMALL, "--vectorisation", name) for name in ("batched", "single"))
    assert "64 rewards predicted" in batched and "64 rewards predicted" in single
    assert scores(batched)[0] == scores(single)[0]
    assert all(0.0 <= score <= 1.0 for score in scores(batched) + scores(single))


def test_a_biased_reward_is_corrected_on_an_environment_of_ones_own(run):
    printed = run("wrap_any_env.py", "--steps", "3000")
    growth = {name: float(value) for name, value in re.findall(r"^(\w+): true growth (\d\.\d+)$", printed, re.M)}
    assert growth["raw"] < 0.6  # it heats in full on every day, which is worth a half
    assert growth["corrected"] > growth["raw"] + 0.15


def test_an_environment_of_ones_own_takes_under_forty_lines():
    text = (EXAMPLES / "wrap_any_env.py").read_text()
    assert len(text.splitlines()) < 40
    environment = text[text.index("class Greenhouse") : text.index("parser =")]
    assert not re.search("wmrl|predict|anchor|guess", environment)  # it knows nothing of the package


def wmrl(arguments):
    """Run the command, which must succeed, in the working folder."""
    ended = CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments)
    assert ended.exit_code == 0, f"{arguments}: {ended.output}"
    return ended.output


def readme_steps():
    """Return the commands of the first block in the README of a task of one's own, without comments."""
    text = (EXAMPLES / "your_own_task" / "README.md").read_text()
    block = re.search(r"```sh\n(.*?)```", text, re.DOTALL)[1]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def test_the_steps_to_a_task_of_ones_own(run, tmp_path):
    done = []
    for program, *arguments in readme_steps():
        name = " ".join([program, *arguments[: 1 + (arguments[0] == "tasks")]])
        if program == "python":
            assert "137 to predict" in run(arguments[0].removeprefix("examples/"), *arguments[1:])
        else:
            assert program == "wmrl"
            wmrl([*arguments, *SMALLER.get(name, "").split()])
        done.append(name)
    assert done[1:] == ["wmrl tasks leaderboard", "wmrl tasks check", "wmrl train", "wmrl report"]
    left = tmp_path / "runs" / "penguins"
    assert "train.csv" in (left / "best_solution.py").read_text()
    assert "penguins" in (left / "report.html").read_text()


def test_a_task_of_another_table(run, tmp_path):
    rows = [f"{i},{'ab'[i % 2]},{(i * 7) % 3 > 0:d}" for i in range(60)]
    (tmp_path / "bought.csv").write_text("\n".join(["visits,page,bought", *rows, "60,a,"]))
    printed = run(
        "your_own_task/make_task.py",
        *("--csv", "bought.csv", "--target", "bought", "--metric", "auc", "--out", "shop/bought"),
    )
    assert "36 rows to learn from, 24 to predict" in printed  # the row without a target is left out
    wmrl(["tasks", "leaderboard", "shop/bought", "--population", "12"])
    assert "complete" in wmrl(["tasks", "check", "shop/bought"])


@pytest.mark.parametrize("name", FILES)
def test_every_example_lists_the_arguments_of_its_dataclass(name, run, capsys):
    with pytest.raises(SystemExit, match="0"):
        run(name, "--help")
    printed = capsys.readouterr().out
    text = (EXAMPLES / name).read_text()
    arguments = re.findall(
        r"^    (\w+): (?:int|float|str|bool) = ", re.search(r"class Args:.*?\n\n\n", text, re.S)[0], re.M
    )
    assert len(arguments) > 2
    assert all(f"--{argument.replace('_', '-')}" in printed for argument in arguments)


def test_the_index_has_every_example():
    index = (EXAMPLES / "README.md").read_text()
    shown = re.findall(r"`python examples/(\S+?\.py)", index)
    assert sorted(shown) == FILES


def test_a_robot_policy_is_fine_tuned(run):
    tiny = "--demonstrations 1 --imitation-steps 2 --progress-demonstrations 1 --progress-steps 2 --goals 2".split()
    printed = run("finetune_vla.py", *tiny, *"--tasks handle-press --steps 2 --groups 2 --max-decisions 6".split())
    found = re.findall(r"success (?:before|after) fine-tuning: +(\d\.\d+)", printed)
    assert len(found) == 2 and all(0.0 <= float(rate) <= 1.0 for rate in found)
    assert "of 32 rollouts labelled" in printed
