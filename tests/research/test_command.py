"""Tasks that a command grades: what the command is given, what counts as its word, and what a folder must hold."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from wmrl_envs.errors import ConfigurationError, SandboxError, TaskError
from wmrl_envs.research.board import task_without_board
from wmrl_envs.research.execution import outcome_from_run
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.leaderboard import Leaderboard
from wmrl_envs.research.outcome import Outcome, Status
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.task import ResearchTask, load_task

GOOD = 'open("answer.txt", "w").write("0.8")\n'
FAILS = "the command that grades the task fails on what was left"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ProcessSandbox]:
    with ProcessSandbox(workers=1) as made:
        yield made


def graded(sandbox: ProcessSandbox, folder: Path, code: str = GOOD) -> Outcome:
    [outcome] = sandbox.grade([Submission(load_task(folder), code)])
    assert outcome is not None
    return outcome


def test_the_last_line_of_the_command_is_the_score(write_code_task, sandbox):
    outcome = graded(sandbox, write_code_task())
    assert (outcome.status, outcome.score, outcome.position) == (Status.VALID, 0.8, 0.8)
    assert outcome.report_reward == pytest.approx(0.5 + 0.5 * 0.4)
    assert outcome.feedback == "looked at\nanswer.txt is valid: closeness 0.8, leaderboard position 0.80"
    assert outcome.seconds > 0.0


def test_a_solution_gains_nothing_by_printing_a_verdict(write_code_task, sandbox):
    verdict = json.dumps({"score": 1.0, "report_score": 1.0})
    code = f"""
import atexit, os
atexit.register(print, {verdict!r})
print({verdict!r})
open("answer.txt", "w").write("0.3")
os.write(1, {verdict.encode()!r})
"""
    folder = write_code_task()
    assert graded(sandbox, folder, code).score == 0.3
    outcome = graded(sandbox, folder, f'open("answer.txt", "w").write({verdict!r})')
    assert outcome.status is Status.INVALID_SUBMISSION and "answer.txt holds no number" in outcome.feedback


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("pass", Status.NO_SUBMISSION, "no out/answer.txt was written"),
        ('os.symlink(os.path.realpath("input/hint.txt"), "out/answer.txt")', Status.INVALID_SUBMISSION, "no regular"),
        ('os.symlink("/etc/passwd", "out/answer.txt")', Status.INVALID_SUBMISSION, "no regular file"),
        ('os.mkfifo("out/answer.txt")', Status.INVALID_SUBMISSION, "no regular file"),
        ('os.mkdir("out/answer.txt")', Status.INVALID_SUBMISSION, "no regular file"),
        ('os.rmdir("out"); os.symlink("input", "out")', Status.INVALID_SUBMISSION, "lies behind a link"),
        ('os.rmdir("out"); open("out", "w").close()', Status.INVALID_SUBMISSION, "no regular file"),
        ('open("out/answer.txt", "wb").write(bytes(2**20 + 1))', Status.DISK, "wrote more than 1 MB"),
        (
            'open("out/answer.txt", "wb").truncate(2**20); open("more.bin", "wb").truncate(2**20)',
            Status.INVALID_SUBMISSION,
            "more.bin is too large",
        ),
        ('os.symlink("/etc/passwd", "more.bin"); open("out/answer.txt", "w").write("1")', Status.INVALID_SUBMISSION,
         "more.bin is no regular file"),
    ],
)  # fmt: skip
def test_only_regular_files_of_the_solution_are_given(code, status, said, write_code_task, sandbox):
    grade = "import json; print(json.dumps({'score': 1.0}))"
    folder = write_code_task(grade, files={}, limits={"disk_mb": 1})
    manifest = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps({**manifest, "files": ["out/answer.txt", "more.bin"]}))
    outcome = graded(sandbox, folder, f'import os; os.mkdir("out"); {code}')
    assert outcome.status is status
    assert said in outcome.feedback


def test_the_command_finds_what_it_needs_and_nothing_else(write_code_task, sandbox):
    grade = """
import json, os, sys
import helper
found = sorted(os.path.join(top, name) for top, _, names in os.walk(".") for name in names)
print(json.dumps({"score": 0.5, "feedback": json.dumps([found, sorted(os.listdir("input")), sys.argv, helper.NAME])}))
"""
    folder = write_code_task(grade, files={"private/helper.py": "NAME = 'helper'\n", "private/data/a.txt": "a"})
    manifest = json.loads((folder / "task.json").read_text())
    manifest |= {"command": ["python", "private/grade.py", "--half", "x y"]}
    (folder / "task.json").write_text(json.dumps(manifest))
    outcome = graded(sandbox, folder, GOOD + 'open("other.txt", "w").close(); print("said")')
    found, given, arguments, name = json.loads(outcome.feedback.split("\n")[1])
    found = [path for path in found if "__pycache__" not in path]
    assert found == [
        "./apart.py", "./private/data/a.txt", "./private/grade.py", "./private/helper.py", "./solution.py",
        "./submission/answer.txt",
    ]  # fmt: skip
    assert given == ["hint.txt"] and arguments == ["private/grade.py", "--half", "x y"] and name == "helper"


def test_files_of_the_solution_are_not_imported(write_code_task, sandbox):
    names = ["colorsys.py", "sitecustomize_.py"]
    grade = """
import json
import colorsys  # of the standard library, and no sandbox has it loaded
try:
    import sitecustomize_
except ImportError:
    print(json.dumps({"score": colorsys.rgb_to_hsv(0.2, 0.2, 0.2)[2]}))
"""
    folder = write_code_task(grade)
    manifest = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps({**manifest, "files": ["answer.txt", *names]}))
    forged = """import os; os.write(1, b'{"score": 1.0}\\n'); os._exit(0)"""
    code = GOOD + f'for name in {names}:\n    open(name, "w").write({forged!r})\n'
    outcome = graded(sandbox, folder, code)
    assert outcome.score == 0.2, outcome.feedback


def test_nothing_of_a_solution_lives_on(write_code_task, sandbox):
    folder = write_code_task(limits={"processes": 1, "seconds": 5})
    code = """
import os, time
with open("answer.txt", "w") as file:
    file.write("0.2")
if os.fork() == 0:
    while True:
        with open("answer.txt", "w") as file:
            file.write("0.2")
        time.sleep(0.001)
"""
    start = time.monotonic()
    outcome = graded(sandbox, folder, code)
    assert outcome.score in (None, 0.2) and time.monotonic() - start < 60.0


SECRET = "the answer is 42"


@pytest.mark.parametrize(
    "said",
    [
        "",
        "0.9",
        "[0.9]",
        '{"score": NaN}',
        '{"score": Infinity}',
        '{"score": 1e400}',
        '{"score": true}',
        '{"score": "0.8"}',
        '{"score": null}',
        '{"score": [0.8]}',
        '{"score": ' + "9" * 400 + "}",
        '{"score": ' + "9" * 5000 + "}",
        '{"score": 0.8, "report_score": null}',
        '{"score": 0.8, "report_score": NaN}',
        '{"score": 0.8, "feedback": 3}',
        '{"invalid": 3}',
        '{"position": 1.0}',
        '{"score": 0.8}\\nDone.',
        '{"score": 0.8, "feedback": "cut',
        "[" * 5000,
        '{"score":' * 5000,
    ],
)
def test_what_is_no_verdict_makes_nothing_valid(said, write_code_task, sandbox, caplog):
    with caplog.at_level(logging.WARNING, logger="wmrl_envs.research.command"):
        outcome = graded(sandbox, write_code_task(f"print({SECRET!r})\nprint('{said}')\n"))
    assert (outcome.status, outcome.feedback, outcome.score) == (Status.INVALID_SUBMISSION, FAILS, None)
    [record] = caplog.records
    assert "no verdict" in record.message
    assert SECRET in record.message or len(said) > 1000, "the task's author reads what was printed, its end"


@pytest.mark.parametrize(
    ("grade", "why"),
    [
        ("import sys; print('{\"score\": 1.0}'); sys.exit(3)", "exit code 3"),
        ("import os; print('{\"score\": 1.0}', flush=True); os.kill(os.getpid(), 9)", "exit code -9"),
        ("print('{\"score\": 1.0}'); raise ValueError('the answer is 42')", "exit code 1"),
        ("def f(:", "exit code 1"),
        ("while True: pass", "more than 1 CPU seconds"),
        ("import time; print('{\"score\": 1.0}', flush=True); time.sleep(60)", "longer than 2 seconds"),
        ("x = bytearray(400 * 2**20); x[::4096] = bytes([1]) * len(x[::4096])", "memory"),
        ("import os; os.fork()", "exit code 1"),
        ("open('private/x', 'wb').write(bytes(9 * 2**20))", "disk|MB to its folder"),
    ],
)
def test_a_command_that_fails_makes_a_submission_invalid(grade, why, write_code_task, sandbox, caplog):
    limits = {"seconds": 1, "wall_seconds": 2, "memory_mb": 256, "disk_mb": 4}
    with caplog.at_level(logging.WARNING, logger="wmrl_envs.research.command"):
        outcome = graded(sandbox, write_code_task(f"print({SECRET!r})\n{grade}\n", grader_limits=limits))
    assert (outcome.status, outcome.feedback) == (Status.INVALID_SUBMISSION, FAILS)
    [record] = caplog.records
    assert any(part in record.message for part in why.split("|")), record.message


def test_much_output_before_the_verdict_does_no_harm(write_code_task, sandbox):
    grade = 'for _ in range(10_000): print(\'x\' * 1000)\nprint(\'{"score": 0.6, "feedback": "ok"}\')\nprint()\n'
    outcome = graded(sandbox, write_code_task(grade))
    assert outcome.score == 0.6 and outcome.feedback.startswith("ok\n")


def test_words_of_the_command_are_made_fit_to_read(write_code_task, sandbox):
    grade = r"""
import json, os
data = os.path.realpath("input")
words = f"\ud800\x1b[31m\x00 {os.getcwd()}/private {data} {os.path.dirname(data)}/private"
print(json.dumps({"invalid": words + "x" * 5000}))
"""
    folder = write_code_task(grade)
    outcome = graded(sandbox, folder)
    assert outcome.status is Status.INVALID_SUBMISSION and len(outcome.feedback) == 1000
    assert outcome.feedback.startswith("?\ufffd[31m\ufffd private input private")
    assert str(folder) not in outcome.feedback


def test_private_files_do_not_count_against_the_commands_disk(write_code_task, sandbox):
    folder = write_code_task(grader_limits={"disk_mb": 1})
    (folder / "private" / "weights.bin").write_bytes(bytes(3 * 2**20))
    assert graded(sandbox, folder).score == 0.8


def test_a_command_may_be_any_program(write_code_task, sandbox):
    manifest = {"command": ["sh", "-c", "read x < submission/answer.txt; echo '{\"score\":' $x '}'"]}
    folder = write_code_task(grader_limits={"processes": 1}, **{})
    fields = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps(fields | manifest))
    assert graded(sandbox, folder, 'open("answer.txt", "w").write("0.7\\n")').score == 0.7
    module = {"command": ["python", "-m", "private.grade"], "grader_limits": {"processes": 1}}
    (folder / "task.json").write_text(json.dumps(fields | module))
    assert graded(sandbox, folder).score == 0.8


def test_grading_needs_something_to_run_the_command_in(write_code_task, sandbox):
    task = load_task(write_code_task())
    result = sandbox.run(GOOD, task.public, collect=["answer.txt"])
    with pytest.raises(SandboxError, match="no sandbox was given"):
        outcome_from_run(task, result)
    assert outcome_from_run(task, result, sandbox).score == 0.8


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"command": "python private/grade.py"}, "command must be a list of texts"),
        ({"command": []}, "command must be a list of texts, at least one"),
        ({"command": ["python", "grade.py"]}, "script must lie in private/, got 'grade.py'"),
        ({"command": ["python", "submission/grade.py"]}, "script must lie in private/"),
        ({"command": ["python", "private/../submission/x.py"]}, "script must lie in private/"),
        ({"command": ["pytest", "private"]}, "starts a program, which grader_limits must allow"),
        ({"command": ["python", "private/other.py"]}, r"lacks private/other.py \(the script that grades\)"),
        ({"files": []}, "files must be a list of texts"),
        ({"files": ["/etc/passwd"]}, "must be a plain path inside"),
        ({"files": ["../answer.txt"]}, "must be a plain path inside"),
        ({"files": ["input/answer.txt"]}, "none of apart.py, input, private, solution.py, submission"),
        ({"files": ["./answer.txt"]}, "must be a plain path"),
        ({"files": ["answer\n.txt"]}, "must be a plain path"),
        ({"files": ["\ud800.txt"]}, "must be a plain path"),
        ({"files": ["a/" + "x" * 256]}, "must be a plain path"),
        ({"files": ["a", "a/b"]}, "'a/b' twice, or a path above it"),
        ({"files": ["a", "a"]}, "'a' twice"),
        ({"grader_limits": 3}, "grader_limits must be an object"),
        ({"grader_limits": {"second": 3}}, "unknown limit 'second'"),
        ({"greater_is_better": None}, "greater_is_better must be true or false"),
        ({"greater_is_better": False}, "'one' is the better of the two"),
        ({"scale": {"zero": 0}}, "scale must be"),
        ({"scale": {"zero": 0, "one": "1"}}, "a scale runs between two finite numbers"),
        ({"scale": None}, r"lacks leaderboard.json \(.*unless task.json has a scale"),
        ({"example": "../train.py"}, "example must be the path of a program inside"),
        ({"kind": "tabular"}, "unknown kind 'tabular'; the kinds are .*code"),
        ({"design": []}, "design must be an object or null"),
        ({"grader": "comand"}, "Did you mean 'command'"),
    ],
)
def test_metadata_that_cannot_work_is_named(fields, reason, write_code_task):
    folder = write_code_task()
    manifest = json.loads((folder / "task.json").read_text()) | fields
    (folder / "task.json").write_text(json.dumps({key: value for key, value in manifest.items() if value is not None}))
    with pytest.raises((TaskError, ConfigurationError), match=reason) as error:
        load_task(folder)
    assert str(folder) in str(error.value)


def test_a_leaderboard_in_the_folder_comes_before_the_scale(write_code_task):
    folder = write_code_task()
    assert load_task(folder).leaderboard.position(0.25) == 0.25
    assert isinstance(task_without_board(folder).leaderboard, Leaderboard)
    (folder / "leaderboard.json").write_text(json.dumps({"train": [0.1, 0.2], "report": [0.1, 0.2]}))
    assert load_task(folder).leaderboard.position(0.25) == 1.0


def test_prompts_say_what_to_leave(write_code_task):
    text = load_task(write_code_task()).prompt()
    assert "it must write ./answer.txt, which is graded after the program has ended. Score: closeness, higher" in text
    assert "input/hint.txt" in text and "sample_submission" not in text
    folder = write_code_task(name="two")
    fields = json.loads((folder / "task.json").read_text()) | {"files": ["answer.txt", "log.txt"]}
    (folder / "task.json").write_text(json.dumps(fields))
    assert "./answer.txt (and may write ./log.txt)" in ResearchTask.load(folder).prompt()
