"""Answers as language models give them."""

import json
import math
import random

import jsonschema
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from wmrl_envs.research.outcome import Outcome, Prediction, Status
from wmrl_envs.world_models.parsing import ANSWER_SCHEMA, Answer, parse_answer
from wmrl_envs.world_models.prompting import PromptTemplates
from wmrl_envs.world_models.verdicts import VERDICTS, prediction_from

FULL = (
    '{"reason": "Line 3 drops a column.", "status": "runtime_error", "error_type": "KeyError", "error_line": 3, '
    '"bucket": null, "feedback": "KeyError: \'age\'", "confidence": 0.9}'
)
KEY_ERROR = Answer(
    status=Status.RUNTIME_ERROR,
    error_type="KeyError",
    error_line=3,
    feedback="KeyError: 'age'",
    confidence=0.9,
    reason="Line 3 drops a column.",
)


@pytest.mark.parametrize(
    "text",
    [
        FULL,
        f"Let me see.\n```json\n{FULL}\n```\nI am fairly {{sure}} of it.",
        f'<think>first {{"status": "valid"}}, no</think>\n{FULL}',
        f'so {{"status": "valid"}}</think>{FULL}',
        f"<THINK>never closed {FULL}\n```\n",
        f'{{"status": "timeout"}} or rather {FULL}',
        f"{FULL} and e.g. {{}} or {{x: 1}} or {{",
        f'{FULL} {{"status": "valid", "reas',
        f'{{"answer": {FULL}}}',
        f"[{FULL}]",
        f"it's {{odd and {FULL}",
        FULL.replace(", ", ",\n\t").replace("}", ",}"),
        FULL.replace("runtime_error", "Runtime Error"),
        FULL.replace("runtime_error", "RuntimeError"),
        FULL.replace('"runtime_error"', '"KeyError"').replace('"KeyError", "error_line"', 'null, "error_line"'),
        FULL.replace('"KeyError"', '"builtins.KeyError"').replace("error_type", "errorType"),
        FULL.replace(" 3,", ' "line 3",').replace("0.9", '"90 %"'),
        FULL.replace(" 3,", " 3.0,").replace("0.9", "90"),
        FULL.replace("status", "Verdict").replace("null", "NaN"),
        FULL.replace('"', "'").replace("'KeyError: 'age''", "\"KeyError: 'age'\"").replace("null", "None"),
        FULL[:-1],
        FULL[1:-1].join(["{", ',\n"extra": {"a": [1, 2, {"b": "}"}]}}']),
    ],
)
def test_one_answer_in_many_wrappings(text):
    assert parse_answer(text) == KEY_ERROR


@pytest.mark.parametrize(
    ("text", "status", "bucket"),
    [
        ("valid", Status.VALID, None),
        (" Timeout.\n", Status.TIMEOUT, None),
        ("**high**", Status.VALID, "high"),
        ('{"status": ["valid"]}', Status.VALID, None),
        ("{status: valid, bucket: mid}", Status.VALID, "mid"),
        ('{"status": "success", "bucket": "Medium"}', Status.VALID, "mid"),
        ('{"status": "valid", "bucket": "great", "position": "0.8"}', Status.VALID, "high"),
        ('{"status": "valid", "percentile": 20}', Status.VALID, "fair"),
        ('{"status": "low"}', Status.VALID, "low"),
        ('{"status": "Status.OUT_OF_MEMORY"}', Status.MEMORY, None),
        ('{"status": "MemoryError"}', Status.MEMORY, None),
        ('{"status": "timeout (it fits 10,000 trees)"}', Status.TIMEOUT, None),
        ('{"status": "time limit exceeded"}', Status.TIMEOUT, None),
        ('{"status": "disk-full"}', Status.DISK, None),
        ('{"status": "nothing", "bucket": "high"}', Status.NO_SUBMISSION, None),
        ('{"status": "invalid", "error_line": 4}', Status.INVALID_SUBMISSION, None),
        ('{"status": "syntax_error"}', Status.RUNTIME_ERROR, None),  # it compiles, or nobody would have asked
        ('{"status": "valid", "alternatives": [{"status": "error"}], "x": {"status": "disk"}}', Status.VALID, None),
        ('{"reason": "prints {\\"status\\": \\"disk\\"}", "status": "valid"}', Status.VALID, None),
        ('{"reason": "over\ntwo lines", "status": "valid"}', Status.VALID, None),
        ('{"feedback": "KeyError: "age" not found", "status": "memory"}', Status.MEMORY, None),
        ("{'status': 'valid'} as in {\"x\": 1}", Status.VALID, None),
    ],
)
def test_status_and_bucket(text, status, bucket):
    answer = parse_answer(text)
    assert answer is not None and (answer.status, answer.bucket) == (status, bucket)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "}",
        "null",
        "I think that it fails.",
        '{"status": "maybe"}',
        '{"status": null}',
        '{"status": 3}',
        '{"status": "malformed"}',
        '{"reason": "cut off before the sta',
        '<think>perhaps {"status": "valid"} or',
        '<think>{"status": "valid", "reason": "cut',
        '{"confidence": 0.8}',
        "\0\ud800",
    ],
)
def test_what_cannot_be_read_is_none(text):
    assert parse_answer(text) is None


@pytest.mark.parametrize(
    ("stated", "confidence"),
    [
        ("0.8", 0.8),
        ('"0.8"', 0.8),
        ('"80%"', 0.8),
        ("80", 0.8),
        ("1", 1.0),
        ("1e-1", 0.1),
        ("0", 0.0),
        *((text, None) for text in ("NaN", "Infinity", "-Infinity", "-1", "101", "true", "null", '"high"', "[0.8]")),
        ("9" * 5_000, None),
    ],
)
def test_confidence(stated, confidence):
    answer = parse_answer(f'{{"status": "valid", "confidence": {stated}}}')
    assert answer is not None
    assert answer.confidence == (None if confidence is None else pytest.approx(confidence))


def test_the_right_object_after_thoughts():
    answer = parse_answer(
        '<think>try {"status": "valid", "confidence": 0.1}</think>{"status": "valid", "confidence": 0.7}'
    )
    assert answer is not None and answer.confidence == 0.7


@pytest.mark.parametrize("line", ["0", "-3", "true", '"none"', "1e99", "NaN", "[4]", '"9999999999999"'])
def test_lines_that_are_none(line):
    answer = parse_answer(f'{{"status": "error", "error_line": {line}}}')
    assert answer is not None and (answer.error_line is None or answer.error_line == 9_999_999)


@pytest.mark.parametrize("name", ['"none"', '"N/A"', "null", '""', "3", '"not a name"', '"' + "x" * 500 + '"'])
def test_exceptions_that_are_none(name):
    answer = parse_answer(f'{{"status": "error", "error_type": {name}}}')
    assert answer is not None and answer.error_type is None


def test_texts_can_be_shown_and_saved():
    answer = parse_answer(json.dumps({"status": "error", "feedback": "a\0\ud800\x1b[31m" + "b" * 9_000, "reason": 3}))
    assert answer is not None and len(answer.feedback) == 4_000 and answer.reason == ""
    answer = parse_answer(json.dumps({"status": "error", "feedback": "a\0\ud800\x1b"}))
    assert answer is not None and answer.feedback == "a\N{REPLACEMENT CHARACTER}?\N{REPLACEMENT CHARACTER}"
    answer.feedback.encode("utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "{" * 10**6,
        '{"a":' * 200_000,
        '[{"a":[' * 150_000,
        "{'" * 500_000,
        '{"' * 500_000,
        '{"\\' * 300_000,
        '{"a' + "\\" * 10**6,
        ("{" + " " * 999) * 1_000,
        "<think>" * 150_000,
        "<" * 10**6,
        '{"a":1}' * 150_000,
        "{a:1}" * 200_000,
        '{"status":' + "9" * 10**6,
        '{"status":"' + "valid " * 200_000,
        '[{"a":[' * 190 + "1," * 500_000,
        "`" * 10**6,
    ],
    ids=range(16),
)
def test_huge_answers(text):
    assert parse_answer(text) is None
    answer = parse_answer(text + "\n</think>" + FULL)
    assert answer == KEY_ERROR


def test_schema_is_what_ideal_answers_fit():
    jsonschema.Draft202012Validator.check_schema(dict(ANSWER_SCHEMA))
    templates = PromptTemplates.load("compact")
    for outcome in (
        Outcome(status=Status.VALID, reward=0.75, position=0.5, feedback="scored"),
        Outcome(status=Status.RUNTIME_ERROR, reward=0.1, error_type="KeyError", error_line=3),
        Outcome(status=Status.DISK, reward=0.1),
    ):
        jsonschema.validate(json.loads(templates.answer(outcome, "json")), dict(ANSWER_SCHEMA))
    assert next(iter(ANSWER_SCHEMA["properties"])) == "reason"


@pytest.mark.parametrize("status", [status for status in Status if status not in ("malformed", "syntax_error")])
def test_answers_are_distributions(status):
    probabilities = Answer(status=status).probabilities
    assert probabilities.shape == (len(VERDICTS),) and probabilities.sum() == pytest.approx(1.0)
    assert prediction_from(probabilities).status is status
    if status is Status.VALID:
        assert prediction_from(Answer(status=status, bucket="high").probabilities).position == 0.75


WHOLE = (
    FULL,
    FULL.replace('"', "'"),
    '{"status": "valid", "bucket": "high", "confidence": "80%"}',
    '{"verdict": "Out of memory", "line": "12", "output": "Killed: \\ud83d\\ude00 \\u0000"}',
    f"<think>hm {{'status': valid}}</think>\n```json\n{FULL}\n```",
    '{"answer": {"status": "timeout", "position": NaN, "confidence": -Infinity}, "n": [1, {"a": 2}]}',
    "no_submission",
)
PIECES = (
    *("{", "}", "[", "]", '"', "'", "\\", ",", ":", "\n", "\0", "\ud800", "\u2028", "é", "<think>", "</think>", "```"),
    *(
        "null",
        "NaN",
        "-1e999",
        "99999",
        "true",
        '{"status": "',
        '"status"',
        "status: ",
        "{}",
        "\\u",
        "%",
        "valid",
        "low",
    ),
)
OPERATIONS = ("cut", "drop", "double", "insert", "weave", "case", "chop")


def garbled(seed: int) -> str:
    """Return an answer after up to four accidents, which the seed chooses."""
    rng = random.Random(seed)
    text = rng.choice(WHOLE)
    for _ in range(rng.randrange(5)):
        operation = rng.choice(OPERATIONS)
        start, end = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        if operation == "cut":
            text = text[:start]
        elif operation == "chop":
            text = text[start:]
        elif operation == "drop":
            text = text[:start] + text[end:]
        elif operation == "double":
            text = text[:end] + text[start:]
        elif operation == "insert":
            text = text[:start] + rng.choice(PIECES) + text[start:]
        elif operation == "weave":
            other = rng.choice(WHOLE)
            text = "".join(a + b for a, b in zip(text[start::7], other[::5], strict=False)) + other + text
        else:
            text = text[:start] + text[start:end].swapcase() + text[end:]
    return text


# A seed, not a structure: ten thousand of them in seconds. What fails is shown by its text.
@settings(max_examples=10_000, deadline=None, database=None, derandomize=True)
@given(st.integers(0, 2**63))
def test_garbled_answers_are_an_outcome_or_none(seed):
    text = garbled(seed)
    note(text)
    answer = parse_answer(text)
    if answer is None:
        return
    prediction = prediction_from(
        answer.probabilities,
        feedback=answer.feedback,
        error_type=answer.error_type,
        error_line=answer.error_line,
        confidence=answer.confidence,
    )
    assert isinstance(prediction, Prediction) and prediction.status is answer.status
    assert math.isfinite(prediction.reward) and 0.0 <= prediction.reward <= 1.0
    assert 0.0 <= prediction.confidence <= 1.0 and math.isclose(sum(prediction.probabilities), 1.0)
    answer.feedback.encode("utf-8")


@settings(max_examples=500, deadline=None, database=None, derandomize=True)
@given(st.text())
def test_any_text_is_read_without_an_exception(text):
    assert parse_answer(text) is None or isinstance(parse_answer(text), Answer)
