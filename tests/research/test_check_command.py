"""What ``wmrl tasks check`` says of a task that a command grades: the command is tried for real."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from wmrl_envs.cli import app
from wmrl_envs.research.check import check_task
from wmrl_envs.research.sandbox.process import ProcessSandbox


@pytest.fixture(scope="module")
def sandbox():
    with ProcessSandbox(workers=1) as made:
        yield made


def test_a_complete_folder_has_no_problems(write_code_task, sandbox):
    assert check_task(write_code_task(), sandbox) == []


def spoil(name, content):
    return lambda folder: (folder / name).write_text(content)


def change(**fields):
    def spoiled(folder):
        manifest = json.loads((folder / "task.json").read_text())
        (folder / "task.json").write_text(json.dumps(manifest | fields))

    return spoiled


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (spoil("private/grade.py", "def f(:"), "fails on what example.py leaves: it ended with exit code 1:"),
        (spoil("private/grade.py", "open('private/cases.json')"), "No such file or directory: 'private/cases.json'"),
        (spoil("private/grade.py", "import no_such_library"), "No module named 'no_such_library'"),
        (spoil("private/grade.py", "print('fine')"), 'must be {"score": NUMBER} or {"invalid": "why"}:\nfine'),
        (spoil("private/grade.py", 'print(\'{"score": "1"}\')'), "no verdict: score is '1', no finite number"),
        (spoil("private/grade.py", "print('{\"score\": 1}')"), "an empty answer.txt scores 1, no worse than what"),
        (
            spoil("private/grade.py", 'print(\'{"invalid": "no"}\')'),
            "the command that grades refuses what example.py leaves: no",
        ),
        (spoil("example.py", "1 / 0"), "the example solution example.py fails:\nTraceback"),
        (spoil("example.py", "pass"), "example.py: no answer.txt was written"),
        (spoil("example.py", "import os; os.mkfifo('answer.txt')"), "example.py: answer.txt is no regular file"),
        (spoil("example.py", "while True: pass"), "fails:\nKilled: the program used more than 1 CPU seconds."),
        (lambda folder: (folder / "example.py").unlink(), "there is no example.py (a valid solution"),
        (change(example="public/train.py"), "there is no public/train.py"),
        (change(exmaple="a.py"), "nothing reads the field 'exmaple'. Did you mean 'example'?"),
        (change(target_columns=["x"]), "nothing reads the field 'target_columns'"),
        (change(design={"family": "trainin"}), "unknown family 'trainin' of solutions"),
        (change(design={"family": "training"}), "the training family needs public/names.txt"),
        (change(id="other"), "the id 'other' differs from the name of its folder"),
        (change(scale={"zero": 1, "one": 0}), "'one' is the better of the two"),
        (change(command=["pytest", "private"]), "grader_limits must allow"),
        (spoil("description.md", ""), "description.md is empty"),
        (lambda folder: (folder / "LICENSE-data.txt").unlink(), "LICENSE-data.txt is missing or empty"),
        (lambda folder: (folder / "private/link").symlink_to("/etc/hostname"), "link that leads out of the task"),
        (spoil("leaderboard.json", '{"train": [1, 2], "report": [1, 2]}'), "the train board has 2 scores"),
        (spoil("leaderboard.json", "{"), "leaderboard.json is no JSON"),
    ],
)
def test_every_fault_is_found(fault, problem, write_code_task, sandbox):
    folder = write_code_task(limits={"seconds": 1})
    fault(folder)
    found = check_task(folder, sandbox)
    assert any(problem in line for line in found), found


def test_a_command_that_lowers_is_compared_in_its_direction(write_code_task, sandbox):
    grade = """
import json
with open("submission/answer.txt") as file:
    print(json.dumps({"score": float(file.read() or 9)}))
"""
    fields = {"greater_is_better": False, "scale": {"zero": 10, "one": 0}}
    assert check_task(write_code_task(grade, **fields), sandbox) == []
    [found] = check_task(write_code_task(grade.replace("9", "0"), **fields), sandbox)
    assert "an empty answer.txt scores 0, no worse" in found


def test_the_command_line_says_so(write_code_task):
    folder = write_code_task()
    (folder / "private/grade.py").write_text("raise SystemExit('the tests moved')")
    result = CliRunner().invoke(app, ["tasks", "check", str(folder)])
    assert result.exit_code == 1 and "the tests moved" in result.stderr


def test_a_folder_without_a_board_gets_one_of_its_design(write_code_task):
    folder = write_code_task()
    result = CliRunner().invoke(app, ["tasks", "leaderboard", str(folder), "--population", "1"])
    assert result.exit_code == 1 and "has no design space" in result.stderr
    assert not (folder / "leaderboard.json").exists()
