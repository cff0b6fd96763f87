"""What a predicted execution shows in the terminal."""

import pytest

from wmrl_envs.research.outcome import Status
from wmrl_envs.research.task import bundled_tasks, load_task
from wmrl_envs.world_models.terminal import plain_feedback, read_terminal

SHOWN = "Traceback (most recent call last):\n  File \"solution.py\", line 2, in <module>\nKeyError: 'age'"
CODE = "a = {}\nb = a['age']\n"


@pytest.mark.parametrize(
    "reply",
    [
        SHOWN,
        f"```\n{SHOWN}\n```",
        f"```text\n{SHOWN}\n```\n",
        f"<think>maybe a ValueError: x</think>\n\n{SHOWN}",
        f"{SHOWN}<think>or not",
    ],
)
def test_the_terminal_without_what_surrounds_it(reply):
    assert read_terminal(reply, CODE) == (SHOWN, "KeyError", 2)


@pytest.mark.parametrize(
    ("reply", "error_type", "line"),
    [
        ("", None, None),
        ("It runs well.", None, None),
        ('  File "solution.py", line 9, in <module>\nValueError', "ValueError", None),  # the code has no line 9
        ('  File "solution.py", line 0\npandas.errors.IntCastingNaNError: no', "IntCastingNaNError", None),
        ('File "solution.py", line 1\n  File "base.py", line 2\nTypeError: a\nKeyError: b', "KeyError", 1),
        ("The ValueError: of a sentence", None, None),
        ("<think>never closed ValueError: x", None, None),
    ],
)
def test_exception_and_line(reply, error_type, line):
    terminal = read_terminal(reply, CODE)
    assert (terminal.error_type, terminal.error_line) == (error_type, line)


def test_terminals_can_be_shown():
    terminal = read_terminal("a\0\ud800" + "b" * 10_000, CODE)
    assert len(terminal.text) == 2_000 and read_terminal("a\0\ud800", CODE).text == "a\N{REPLACEMENT CHARACTER}?"
    assert read_terminal("`" * 100_000 + " \n" * 100_000, CODE).error_type is None


@pytest.mark.parametrize("name", bundled_tasks())
@pytest.mark.parametrize("position", [0.0, 0.05, 0.5, 0.99, 1.0])
def test_the_score_of_a_valid_submission_stands_where_it_is_said_to(name, position):
    task = load_task(name)
    words = plain_feedback(task, Status.VALID, position).split()
    assert words[-1] == f"{position:.2f}" and task.metric.name in words
    place = task.leaderboard.position(float(words[words.index(task.metric.name) + 1].rstrip(",")))
    assert abs(place - position) < 0.1  # the score is rounded, and boards have ties


def test_failures_are_told_plainly():
    task = load_task("titanic")
    assert plain_feedback(task, Status.RUNTIME_ERROR, None, "KeyError", 3).endswith("line 3, in <module>\nKeyError")
    assert plain_feedback(task, Status.RUNTIME_ERROR, None).startswith("Traceback")
    assert plain_feedback(task, Status.INVALID_SUBMISSION, None) == "submission.csv is invalid"


def test_no_control_character_of_a_terminal_is_left():
    assert read_terminal("a\x1b[31mb\x9b2Jc\x85d\te", "x").text == "a\ufffd[31mb\ufffd2Jc\ufffdd\te"
