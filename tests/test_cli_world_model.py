"""``wmrl world-model evaluate``: what it prints and writes, and its errors as one sentence."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from language_models import tiny_chat_model
from wmrl_envs.cli import app
from wmrl_envs.research.task import TASKS_DIR


def run(*args: str, command: str = "evaluate") -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, ["world-model", command, *args])


def test_several_world_models_on_several_tasks(tmp_path: Path) -> None:
    result = run(
        *("base-rate", "learned", "replay", "--task", "titanic", "--task", "weather,abalone", "--solutions", "20"),
        *("--executions", "0,30", "--train-tasks", "names", "--kwargs", "learned:trees=5", "--out", str(tmp_path)),
    )
    assert result.exit_code == 0, result.output
    for words in ("Against recorded executions", "learned", "(trees=5)", "replay", "none", "evaluation.md"):
        assert words in result.output
    numbers = json.loads((tmp_path / "evaluation.json").read_text())
    base, learned, replay = numbers["evaluations"]
    assert [row["executions"] for row in learned["rows"]] == [0, 30]
    assert learned["rows"][0]["failure"] and base["rows"][0]["failure"] is None
    assert learned["settings"]["model_kwargs"] == {"trees": 5} and base["settings"]["model_kwargs"] == {}
    assert replay["settings"]["tasks"] == ["titanic", "weather", "abalone"]
    assert "--task titanic,weather,abalone" in numbers["command"] and "learned:trees=5" in numbers["command"]


def test_its_command_repeats_the_numbers(tmp_path: Path) -> None:
    first = run("base-rate", "--solutions", "20", "--executions", "10", "--seed", "5", "--out", str(tmp_path / "a"))
    assert first.exit_code == 0, first.output
    command = json.loads((tmp_path / "a" / "evaluation.json").read_text())["command"].split()
    assert command[:3] == ["wmrl", "world-model", "evaluate"]
    again = run(*command[3:], "--out", str(tmp_path / "b"))
    assert again.exit_code == 0, again.output
    first_lines, lines = ((tmp_path / name / "predictions.csv").read_text() for name in "ab")
    assert first_lines == lines


def test_world_model_and_task_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object with nothing but grade, from the current folder; a recorded task folder; the figure's default place."""
    shutil.copytree(TASKS_DIR / "titanic", tmp_path / "mine")
    (tmp_path / "my_models.py").write_text(
        "from wmrl_envs.research.outcome import Outcome, Status\n"
        "class Optimist:\n"
        "    def __init__(self, reward): self.reward = reward\n"
        "    def grade(self, batch):\n"
        "        return [Outcome(status=Status.VALID, reward=self.reward) if 'GridSearch' not in s.code else None\n"
        "                for s in batch]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    result = run(
        *("my_models:Optimist", "my_models:Optimist", "--task", "mine", "--solutions", "50"),
        *("--kwargs", "reward=0.9", "--kwargs", "2:reward=0.6"),
    )
    assert result.exit_code == 0, result.output
    [folder] = (tmp_path / "runs").iterdir()
    high, low = json.loads((folder / "evaluation.json").read_text())["evaluations"]
    assert high["world_model"].endswith("(reward=0.9)") and low["world_model"].endswith("(reward=0.6)")
    metrics = [e["rows"][0]["mean_over_tasks"]["reward_bias"]["value"] for e in (high, low)]
    assert metrics[0] - metrics[1] == pytest.approx(0.3)


def test_language_models_by_path_and_what_the_cache_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, seed in (("one", 0), ("two", 1)):
        tiny_chat_model(tmp_path / name / "model", hidden=16, layers=1, seed=seed)
    models = [f"transformers:{tmp_path / name / 'model'}" for name in ("one", "two")]
    arguments = ["--kwargs", "transformers:templates=compact", "--solutions", "4", "--executions", "0,2"]
    result = run(*models, *arguments, "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    numbers = json.loads((tmp_path / "out" / "evaluation.json").read_text())["evaluations"]
    assert [e["world_model"].split()[0] for e in numbers] == ["transformers:one/model", "transformers:two/model"]
    for first, second in (e["rows"] for e in numbers):
        assert first["unreadable"] == 0 and first["counters"]["cache_hits"] == 0
        assert second["counters"]["cache_hits"] > 0  # without examples the model is asked the same again
        assert first["mean_over_tasks"] != second["mean_over_tasks"]  # what was executed corrects it
    page = (tmp_path / "out" / "evaluation.md").read_text()
    assert "* |" in page and "cache=false" in page


def test_what_was_measured_is_kept_when_the_next_world_model_fails(tmp_path: Path) -> None:
    result = run("base-rate", "learned", "--executions", "4", "--out", str(tmp_path))
    assert result.exit_code == 1 and "8 or more" in result.output
    assert len(json.loads((tmp_path / "evaluation.json").read_text())["evaluations"]) == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["lerned"], "Did you mean 'learned'"),
        (["base-rate", "--executions", "some"], "with commas between"),
        (["base-rate", "--executions", "500", "--task", "abalone"], "at most 200"),
        (["base-rate", "--kwargs", "nonsense"], "name=value"),
        (["base-rate", "--kwargs", "learned:trees=3"], "belong to none"),
        (["base-rate", "base-rate"], "more than once"),
        (["transformers:/no/such/model"], "/no/such/model"),
        (["base-rate", "--draw", "random"], "'prior' or 'uniform'"),
        (["base-rate", "--task", "titanc"], "Did you mean 'titanic'"),
        (["learned", "--executions", "0"], "has no model of task"),
    ],
)
def test_errors_are_one_sentence(args: list[str], words: str, tmp_path: Path) -> None:
    result = run(*args, "--solutions", "10", "--out", str(tmp_path / "out"))
    assert result.exit_code == 1, result.output
    assert words in result.output and "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


def test_fit_then_take_up_the_finished_run(tmp_path: Path) -> None:
    base, out = tiny_chat_model(tmp_path / "base"), tmp_path / "run"
    fitted = run(
        *(str(base), "--task", "titanic,abalone", "--held-out", "weather", "--out", str(out), "--max-steps", "2"),
        *("--examples-per-task", "4", "--held-out-examples", "2", "--batch-size", "2", "--lora-rank", "0"),
        command="fit",
    )
    assert fitted.exit_code == 0, fitted.output
    settings = json.loads((out / "config.json").read_text())
    assert settings["tasks"] == ["titanic", "abalone"] and settings["held_out"] == ["weather"]
    assert settings["max_steps"] == 2 and settings["lora_rank"] is None
    for words in ("Loss on held-out tasks", "8 examples, 2 steps", f"transformers:{out / 'model'}", "--task weather"):
        assert words in fitted.output.replace("\n", " ")
    assert (out / "model" / "model.safetensors").is_file()
    again = run("--resume", str(out), command="fit")
    assert again.exit_code == 0 and "8 examples, 2 steps" in again.output


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "BASE is missing"),
        (["base", "--task", "titanic"], "--out is missing"),
        (["base", "--out", "new"], "tasks must name"),
        (["base", "--task", "titanic", "--held-out", "titanic", "--out", "new"], "titanic is named again"),
        (["--resume", "nowhere"], "nowhere holds no run"),
        (["--resume", "nowhere", "--seed", "3"], "leave out seed"),
    ],
)
def test_errors_of_fit(args: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*args, command="fit")
    assert result.exit_code == 1, result.output
    assert words in result.output and "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_key_to_a_server_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keyed_models.py").write_text(
        "from wmrl_envs.world_models.base_rate import BaseRateWorldModel\n"
        "class Keyed(BaseRateWorldModel):\n"
        "    def __init__(self, model_kwargs, api_key, note):\n"
        "        super().__init__()\n"
        "        assert (model_kwargs, api_key) == ({'api_key': 'hush', 'retries': 2}, 'hush')\n"
    )
    monkeypatch.chdir(tmp_path)
    keys = ("--kwargs", 'model_kwargs={"api_key": "hush", "retries": 2}', "--kwargs", "api_key=hush")
    keys += ("--kwargs", "note=[/b]")  # no markup of the console's
    result = run("keyed_models:Keyed", "--solutions", "4", "--executions", "4", *keys, "--out", "out")
    assert result.exit_code == 0, result.output
    written = "".join(path.read_text() for path in (tmp_path / "out").iterdir() if path.suffix != ".png")
    assert "hush" not in written + result.output and "retries" in written
    result = run("keyed_models:Keyed", *keys, "--kwargs", "other=1")
    assert result.exit_code == 1 and "unexpected" in result.output and "hush" not in result.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--seed", "-1"), "seed must be a whole number of at least 0"),
        (("--out", "file"), "is a file, not a folder; name another one"),
        (("--out", "file/out"), "is a file, not a folder; name another one"),
    ],
)
def test_what_would_fail_at_the_end_is_refused_at_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], words: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    result = run("base-rate", *options)
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit)
    assert words in " ".join(result.output.split())
