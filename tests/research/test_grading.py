import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wmrl_envs.errors import GradingError
from wmrl_envs.research.grading import MAX_CODE_CHARS, Grader, Submission, check_graded, gate
from wmrl_envs.research.outcome import Outcome, Status


def gated(code):
    return gate(Submission(task=None, code=code))


@pytest.mark.parametrize(
    ("code", "feedback"),
    [
        (None, "no code found"),
        ("", "no code found"),
        (" \n\t\n", "no code found"),
        ("x = 1\n" * MAX_CODE_CHARS, "too long"),
        ("x = '\0'", "NUL bytes"),
    ],
)
def test_malformed(code, feedback):
    outcome = gated(code)
    assert outcome.status is Status.MALFORMED
    assert outcome.reward == outcome.report_reward == 0.0
    assert feedback in outcome.feedback
    assert len(outcome.feedback) < 200


def test_syntax_error_names_type_and_line():
    outcome = gated("import numpy\n\ndef f(:\n    pass\n")
    assert outcome.status is Status.SYNTAX_ERROR
    assert outcome.reward == 0.0
    assert (outcome.error_type, outcome.error_line) == ("SyntaxError", 3)
    assert 'File "solution.py", line 3' in outcome.feedback


@pytest.mark.parametrize("code", ["if True:\npass", "\tx = 1\n        y = 2", "return 1", "x = '\ud800'"])
def test_what_does_not_compile_is_a_syntax_error(code):
    assert gated(code).status is Status.SYNTAX_ERROR


@pytest.mark.parametrize("code", ["(" * 100_000, "-" * 100_000 + "1", "a" + ".b" * 50_000, "[" * 5_000 + "]" * 5_000])
def test_code_that_overflows_the_compiler_is_a_syntax_error(code):
    assert gated(code).status is Status.SYNTAX_ERROR


def test_code_that_compiles_has_to_run():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gated("raise ValueError") is None
        assert gated("print('\\d')  # an invalid escape only warns\nx = 1 is 1") is None


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_gate_never_raises(code):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = gated(code)
    assert outcome is None or outcome.reward == 0.0


class Counting:
    """A grader that answers as many times as it is told."""

    def __init__(self, answers):
        self.answers = answers

    def grade(self, submissions):
        return [Outcome(status=Status.NO_SUBMISSION, reward=0.2)] * self.answers


@pytest.mark.parametrize("answers", [0, 1, 3])
def test_a_grader_answers_every_submission(answers):
    submissions = [Submission(task=None, code="x = 1")] * 2
    grader = Counting(answers)
    assert isinstance(grader, Grader)
    with pytest.raises(GradingError, match=f"Counting.grade returned {answers} outcomes for 2 submissions"):
        check_graded(grader, submissions, grader.grade(submissions))


def test_none_is_an_answer():
    check_graded(Counting(0), [Submission(task=None, code="x = 1")], [None])
