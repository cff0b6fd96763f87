"""The command line: what it prints, and errors as one sentence without a traceback."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from chat_server import chat_server
from runs import arguments, wmrl
from wmrl_envs.cli import app
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.recording import read_recording
from wmrl_envs.research.task import TASKS_DIR, bundled_tasks, load_task

AWAY = "openai:http://127.0.0.1:9/v1#none"
"""A server that is not there."""


def run(*args: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, list(args))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task folder of one's own, without a recording."""
    shutil.copytree(TASKS_DIR / "titanic", tmp_path / "titanic", ignore=shutil.ignore_patterns("recording*"))
    return tmp_path / "titanic"


def test_train_then_evaluate(tmp_path: Path) -> None:
    out = tmp_path / "run"
    trained = wmrl("train", *arguments(steps=4), "--option", "ent_coef=0.001", "--out", str(out), folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert trained.stderr == ""
    for words in (
        "before training",
        "after training",
        "best solution found",
        "Ledger of training",
        "step 4/4",
        "of executing everything",
        str(out / "figures" / "overview.png"),
        str(out / "best_solution.py"),
    ):
        assert words in trained.stdout
    assert json.loads((out / "config.json").read_text())["options"] == {"ent_coef": 0.001}
    evaluated = run("evaluate", str(out), "--episodes", "30")
    assert evaluated.exit_code == 0, evaluated.output
    assert "over 30 episodes on titanic" in evaluated.output
    assert "valid" in evaluated.output


def test_evaluate_language_model(tmp_path: Path) -> None:
    space = DesignSpace.of(load_task("titanic"))
    misspelt, linear = (space.render(np.array(choices)) for choices in ([1, 2, 1, 4, 0, 0], [1, 2, 1, 1, 0, 0]))

    def answer(chat: list[dict[str, str]]) -> str:
        return f"```python\n{linear if len(chat) > 2 else misspelt}```"

    numbers, transcripts = tmp_path / "numbers.json", tmp_path / "transcripts"
    with chat_server(answer) as server:
        result = run(
            *("evaluate", "--agent", server.model, "--task", "titanic", "--episodes", "3", "--turns", "2"),
            *("--sandbox", "replay", "--world-model", "replay", "--option", "concurrency=1", "--max-tokens", "2000"),
            *("--option", "api_key=secret"),
            *("--out", str(numbers), "--transcripts", str(transcripts)),
        )
    assert result.exit_code == 0, result.output
    for words in (
        f"reported score 0.597 ± 0.000 over 3 episodes of {server.model} on titanic",
        "score so far      │ 0.100  │ 0.597",
        "valid submissions │ 0%     │ 100%",
        "valid             │ 0      │ 3",
        "runtime error     │ 3      │ 0",
        "predicted reward │ 0.100  │ 0.558",
        "tokens read",
        "in 6 replies",
        "status right in 100% of 6 attempts",
        f"transcripts: {transcripts}",
    ):
        assert words in result.output, result.output
    written = json.loads(numbers.read_text())
    assert "secret" not in numbers.read_text()
    assert written["result"]["score"] == pytest.approx(0.597, abs=1e-3)
    assert written["settings"]["agent"] == server.model
    assert written["settings"]["model_kwargs"] == {"concurrency": 1, "api_key": "***"}
    assert written["predicted"]["status_accuracy"] == 1
    assert len(list(transcripts.iterdir())) == 3


def test_agent_of_ones_own_is_found_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agents_here.py").write_text("from stable_baselines3 import A2C\nclass Mine(A2C): pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    result = run("train", *arguments(steps=2, agent="agents_here:Mine", evaluation_rollouts=0), "--out", "run")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["train", "--reward", "rectifid"], "Did you mean 'rectified'?"),
        (["train", "--agent", "nowhere:Mine", "--sandbox", "replay"], "cannot be imported"),
        (["train", "--task", "titanc"], "Did you mean 'titanic'?"),
        (["train", "--task", "titanic,names"], "different design spaces"),
        (["train", "--sandbox", "repla"], "Did you mean 'replay'?"),
        (["train", "--isolation", "strct"], "Did you mean 'strict'?"),
        (["train", "--world-model", "lerned"], "Did you mean 'learned'?"),
        (["train", "--anchor-fraction", "2"], "must be in [0, 1], got 2.0"),
        (["train", "--ramp", "7"], "ramp"),
        (["train", "--warmup", "3"], "at least 8"),
        (["train", "--option", "ent_coef"], "name=value"),
        (["evaluate", "nowhere"], "nowhere holds no run"),
        (["evaluate"], "takes a run folder or a language model, and got neither"),
        (["evaluate", "run", "--agent", AWAY], "a language model, and got both"),
        (["evaluate", "run", "--turns", "3", "--max-tokens", "9"], "--turns, --max-tokens goes with --agent"),
        (["evaluate", "--agent", "opnai:http://127.0.0.1:9/v1#none"], "Did you mean 'openai'?"),
        (["evaluate", "--agent", AWAY, "--task", "titanc"], "Did you mean 'titanic'?"),
        (["evaluate", "--agent", AWAY, "--sandbox", "repla"], "Did you mean 'replay'?"),
        (["evaluate", "--agent", AWAY, "--isolation", "strct"], "Did you mean 'strict'?"),
        (["evaluate", "--agent", AWAY, "--world-model", "lerned"], "Did you mean 'learned'?"),
        (["evaluate", "--agent", AWAY, "--episodes", "0"], "at least 1 episode, got 0"),
        (["evaluate", "--agent", AWAY, "--turns", "0"], "at least 1, got 0"),
        (["evaluate", "--agent", AWAY, "--max-tokens", "9000"], "must be more than max_tokens=9000"),
        (["evaluate", "--agent", AWAY, "--system", "nowhere.md"], "cannot read the system prompt"),
        (["evaluate", "--agent", AWAY, "--option", "retries"], "name=value"),
        (["evaluate", "--agent", AWAY, "--out", f"{__file__}/numbers.json"], "is a file, not a folder"),
        (["evaluate", "--agent", AWAY, "--out", "."], "is a folder; name a file in it"),
        (["evaluate", "--agent", AWAY, "--transcripts", __file__], "is a file, not a folder"),
        (["evaluate", "--agent", AWAY, "--option", "other=0", "--option", "api_key=hush"], "'api_key': '***'"),
        (["evaluate", "--agent", AWAY, "--task", "titanic, weather", "--option", "retries=0"], "127.0.0.1:9"),
        (["evaluate", "--agent", AWAY, "--option", "retries=0"], "127.0.0.1:9"),
        (["tasks", "show", "titanc"], "Did you mean 'titanic'?"),
        (["tasks", "check", "titanc"], "Did you mean 'titanic'?"),
        (["tasks", "record", "titanc"], "Did you mean 'titanic'?"),
        (["tasks", "record", "titanic", "--members", "some", "--out", "x"], "whole number or 'all'"),
        (["tasks", "leaderboard", "titanc"], "Did you mean 'titanic'?"),
    ],
)
def test_errors_are_one_sentence(
    args: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*args)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.output
    assert not list(tmp_path.iterdir()), "what is refused leaves nothing behind"


def test_list_names_every_task() -> None:
    result = run("tasks", "list")
    assert result.exit_code == 0
    assert all(name in result.output for name in bundled_tasks())
    assert "all 5,400 solutions recorded" in result.output


def test_show_prints_what_an_agent_reads() -> None:
    result = run("tasks", "show", "titanic")
    assert result.exit_code == 0
    assert "submission.csv" in result.output
    assert "[0" not in result.output or "survived" in result.output


def test_check_says_everything_that_is_wrong(folder: Path) -> None:
    assert run("tasks", "check", str(folder)).exit_code == 0
    (folder / "LICENSE-data.txt").unlink()
    (folder / "description.md").write_text("")
    result = run("tasks", "check", str(folder))
    assert result.exit_code == 1
    assert "LICENSE-data.txt is missing" in result.stderr
    assert "description.md is empty" in result.stderr
    (folder / "public" / "test.csv").unlink()
    assert "lacks public/test.csv" in run("tasks", "check", str(folder)).stderr


def test_record_and_extend(folder: Path) -> None:
    (folder / "leaderboard.json").unlink()  # a recording holds raw scores
    for members in (3, 5):
        result = run("tasks", "record", str(folder), "--members", str(members), "--workers", "1")
        assert result.exit_code == 0, result.output
        assert str(folder / "recording.jsonl.gz") in result.output
        assert len(read_recording(folder / "recording.jsonl.gz")[1]) == members


def test_leaderboard(folder: Path) -> None:
    (folder / "leaderboard.json").unlink()
    result = run("tasks", "leaderboard", str(folder), "--population", "4", "--workers", "1")
    assert result.exit_code == 0, result.output
    board = json.loads((folder / "leaderboard.json").read_text())
    assert len(board["train"]) == len(board["report"]) == 4


def test_help_of_every_command() -> None:
    for command in ("train", "evaluate", "compare", "doctor", "tasks", "tasks record"):
        result = run(*command.split(), "--help")
        assert result.exit_code == 0, result.output
        assert "Usage" in result.output
