"""Every example runs, as a user would run it, at a small size."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = "--sandbox replay --steps 2 --num-envs 8 --anchor-fraction 0.5 --warmup 40 --evaluation-episodes 8".split()


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


def test_an_environment_of_ones_own_in_under_forty_lines(run):
    text = (EXAMPLES / "wrap_any_env.py").read_text()
    assert len(text.splitlines()) < 40
    printed = run("wrap_any_env.py")
    alone, corrected = re.findall(r"(\d+) of 4000 melts .* worth (\d\.\d)", printed)
    assert alone == ("0", "0.1")  # the simulation's favourite
    assert corrected[1] == "0.9" and 300 < int(corrected[0]) < 500


@pytest.mark.parametrize("name", ["research_grpo.py", "research_ppo_sb3.py"])
def test_help_lists_the_arguments(name, run, capsys):
    with pytest.raises(SystemExit, match="0"):
        run(name, "--help")
    assert "--anchor-fraction" in capsys.readouterr().out


def test_a_robot_policy_is_fine_tuned(run):
    tiny = "--demonstrations 1 --imitation-steps 2 --progress-demonstrations 1 --progress-steps 2 --goals 2".split()
    printed = run("finetune_vla.py", *tiny, *"--tasks handle-press --steps 2 --groups 2 --max-decisions 6".split())
    found = re.findall(r"success (?:before|after) fine-tuning: +(\d\.\d+)", printed)
    assert len(found) == 2 and all(0.0 <= float(rate) <= 1.0 for rate in found)
    assert "of 32 rollouts labelled" in printed
