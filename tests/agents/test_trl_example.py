"""The example of a language model trained by TRL runs, and its toy learns."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from wmrl_envs.trajectories import read_trajectories

EXAMPLE = Path(__file__).parents[2] / "examples" / "research_llm_trl.py"


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Return a function that runs the example as ``python EXAMPLE ARGUMENTS`` would, and returns what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr("sys.argv", [EXAMPLE.name, *arguments])
        runpy.run_path(str(EXAMPLE), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_the_toy_is_trained_on_predictions_and_a_few_executions(run):
    printed = run(*"--sandbox replay --steps 2 --groups 4 --group-size 4 --anchor-fraction 0.25".split())
    rewards = re.findall(r"^(predicted|real) reward .*: (\d\.\d+) (\d\.\d+)$", printed, re.MULTILINE)
    assert [name for name, *_ in rewards] == ["predicted", "real"]
    assert all(0.0 <= float(value) <= 1.0 for _, *values in rewards for value in values)
    assert "64 attempts predicted" in printed and "76 attempts executed" in printed  # 60 of them to warm up


def test_it_goes_on_from_its_checkpoint(run, tmp_path):
    small = "--groups 2 --group-size 2 --turns 1 --scheme real --sandbox replay --lora 4 --out kept".split()
    assert "4 attempts executed" in run("--steps", "1", *small)
    assert (tmp_path / "kept" / "checkpoint-1" / "adapter_config.json").is_file()
    assert "8 attempts executed" in run("--steps", "2", "--resume", "kept/checkpoint-1", *small)
    assert [episode["step"] for episode in read_trajectories(tmp_path / "kept")] == [1] * 4 + [2] * 4
    assert (tmp_path / "kept" / "summary.json").is_file()


def test_help_lists_the_arguments(run, capsys):
    with pytest.raises(SystemExit, match="0"):
        run("--help")
    assert "--anchor-fraction" in capsys.readouterr().out


def test_a_configuration_is_read_below_the_command_line(run, tmp_path, capsys):
    (tmp_path / "run.yaml").write_text("steps: 1\ngroups: 9\nturns: 1\nscheme: real\nsandbox: replay\n")
    assert "4 attempts executed" in run(*"--config run.yaml --groups 2 --group-size 2".split())
    (tmp_path / "run.yaml").write_text("step: 1\n")
    with pytest.raises(SystemExit):
        run("--config", "run.yaml")
    assert "'step', which is none of" in capsys.readouterr().err


@pytest.mark.parametrize("config", sorted((EXAMPLE.parent / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_ready_configurations_are_complete(config, monkeypatch):
    monkeypatch.setattr("sys.argv", [EXAMPLE.name, "--config", str(config)])
    example = runpy.run_path(str(EXAMPLE))
    args = example["parse_args"]()
    assert args.groups * args.group_size == 256 and args.turns == 4 and args.scheme == "paper"
    configuration = example["configuration"](args, args.out)
    assert configuration.generation_batch_size == 256 and configuration.num_generations == args.group_size
