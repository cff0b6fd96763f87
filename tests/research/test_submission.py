import os
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wmrl_envs.errors import TaskError
from wmrl_envs.research.outcome import Status
from wmrl_envs.research.submission import (
    InvalidSubmission,
    Scored,
    grade_submission_file,
    max_submission_bytes,
    read_submission_file,
    score_submission,
)
from wmrl_envs.research.task import ResearchTask

REGRESSION = {"1": [10], "2": [20], "3": [30], "007": [70], "7": [7]}


@pytest.fixture
def task(write_task):
    return ResearchTask.load(write_task(metric="rmse", kind="tabular-regression", answers=REGRESSION))


@pytest.fixture
def classification(write_task):
    return ResearchTask.load(write_task())


def rows(*lines, header="id,target", end="\n"):
    return (end.join([header, *lines]) + end).encode()


RIGHT = rows("1,10", "2,20", "3,30", "007,70", "7,7")


def reason(task, content):
    grade = grade_submission_file(task, content)
    assert grade.status is Status.INVALID_SUBMISSION
    assert grade[1:5] == (None, None, None, None)
    assert grade.feedback.startswith("submission.csv")
    assert "\n" not in grade.feedback
    assert len(grade.feedback) < 3000
    return grade.feedback


def test_rows_are_matched_by_id_and_not_by_place(task):
    assert score_submission(task, RIGHT) == Scored(0.0, 0.0)
    assert score_submission(task, rows("3,30", "7,7", "1,10", "007,70", "2,20")) == Scored(0.0, 0.0)


def test_ids_are_text(task):
    swapped = score_submission(task, rows("1,10", "2,20", "3,30", "7,70", "007,7"))
    assert swapped.train > 0 and swapped.report > 0
    for other in ("7.0", " 7", "7 ", "0007"):
        assert "compared as text" in reason(task, RIGHT.replace(b"\n7,7", f"\n{other},7".encode()))


def test_each_half_is_scored_on_its_own(task):
    # Places 0, 2 and 4 are the training half: 1, 3 and "7".
    scored = score_submission(task, rows("1,13", "2,20", "3,30", "007,70", "7,7"))
    assert scored.train == pytest.approx(3**0.5)
    assert scored.report == 0.0


def test_a_valid_submission_is_placed_on_both_boards(write_task):
    task = ResearchTask.load(write_task(boards={"train": [0.25, 0.75], "report": [0.5, 0.6, 0.7, 1.0]}))
    answers = [0, 0, 1, 1, 0, 0, 1, 1]
    content = rows(*[f"{place:03d},{value}" for place, value in enumerate(answers)])
    grade = grade_submission_file(task, content)
    assert grade == (Status.VALID, 1.0, 1.0, 1.0, 1.0, grade.feedback, 0.0)
    assert grade.feedback == "submission.csv is valid: auc 1, leaderboard position 1.00"
    grade = grade_submission_file(task, rows(*[f"{place:03d},0.5" for place in range(8)]))
    assert grade[:5] == (Status.VALID, 0.5, 0.5, 0.5, 0.25)


@pytest.mark.parametrize(
    "content",
    [
        RIGHT.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + RIGHT,
        RIGHT.rstrip(b"\n"),
        RIGHT.replace(b"\n", b"\n\n") + b"\r\n\r\n",
        RIGHT.replace(b"1,10", b'"1","10"'),
        RIGHT.replace(b"1,10", b"1, 1.0e+1 "),
        b"target,id\n10,1\n20,2\n30,3\n70,007\n7,7\n",
    ],
    ids=["crlf", "bom", "no end", "blank lines", "quoted", "spelling of numbers", "order of columns"],
)
def test_what_a_reader_of_tables_does_not_mind(task, content):
    assert score_submission(task, content) == Scored(0.0, 0.0)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "it is empty"),
        (b"\r\n \n", "it is empty"),
        (b"id,target", "5 missing (such as '1')"),
        (RIGHT.replace(b"3,30\n", b""), "1 missing (such as '3')"),
        (RIGHT + b"8,1\n", "1 unknown (such as '8')"),
        (RIGHT + b"3,30\n", "1 repeated (such as '3')"),
        (RIGHT.replace(b"3,30", b"2,30"), "1 missing (such as '3'), 1 repeated (such as '2')"),
        (RIGHT.replace(b"\n3,30", b"\n,30"), "1 missing (such as '3'), 1 unknown (such as '')"),
        (RIGHT.replace(b"target", b"Target"), "its columns are 'id', 'Target'; expected exactly 'id', 'target'"),
        (RIGHT.replace(b"id,", b" id,"), "its columns are ' id', 'target'"),
        (rows("10", "20", "30", "70", "7", header="target"), "its columns are 'target'"),
        (rows("0,1,10", "1,2,20", header=",id,target"), "its columns are '', 'id', 'target'"),
        (rows("1,10,1", header="id,target,target"), "a column is named twice"),
        (RIGHT.replace(b"3,30", b"3,30,1"), "data row 3 has 3 values, the header has 2"),
        (RIGHT.replace(b"3,30", b"3"), "data row 3 has 1 values"),
        (RIGHT.replace(b",", b";"), "its columns are 'id;target'"),
        (RIGHT.replace(b"3,30", b"3,"), "in column 'target' a value is missing"),
        (RIGHT.replace(b"3,30", b"3,nan"), "'nan' is not a finite number"),
        (RIGHT.replace(b"3,30", b"3,NaN"), "'NaN' is not a finite number"),
        (RIGHT.replace(b"3,30", b"3,-inf"), "'-inf' is not a finite number"),
        (RIGHT.replace(b"3,30", b"3,1e999"), "'1e999' is not a finite number"),
        (RIGHT.replace(b"3,30", b"3,thirty"), "'thirty' is not a number"),
        (RIGHT.replace(b"3,30", b"3,3_0"), "'3_0' is not a number"),
        (RIGHT.replace(b"3,30", "3,\uff13\uff10".encode()), "is not a number"),
        (RIGHT.replace(b"3,30", b"3,[30]"), "'[30]' is not a number"),
        (RIGHT.replace(b"3,30", b"3,1e200"), "too large to compute rmse"),
        (RIGHT.replace(b"3,30", b"3,3\x000"), "NUL bytes"),
        (RIGHT.decode().encode("utf-16"), "NUL bytes"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(1, 256)) * 4, "not UTF-8"),
        (b"PK\x03\x04" + b"\xff" * 100, "not UTF-8"),
        (RIGHT + b'8,"1', "not comma-separated text"),
        (RIGHT + b'8,"1"2\n', "not comma-separated text"),
        (RIGHT + b'8,"' + b"x" * 200_000 + b'"\n', "not comma-separated text (field larger than field limit"),
        (RIGHT + b'"' + b"x" * 100_000 + b'",1\n', "1 unknown (such as 'xxxx"),
        (rows("1", header=",".join(f"c{place}" for place in range(5000))), "data row 1 has 1 values"),
        (b"\xef\xbb\xbf\n", "it is empty"),
    ],
)
def test_invalid_submissions_say_what_was_found(task, content, expected):
    assert expected in reason(task, content)


def test_long_headers_are_cut(task):
    header = ",".join("x" * 1000 + str(place) for place in range(50))
    feedback = grade_submission_file(task, rows(header=header)).feedback
    assert len(feedback) < 400
    assert "...', and 45 more; expected exactly 'id', 'target'" in feedback


def test_a_file_beyond_the_cap_is_not_parsed(task, tmp_path):
    path = tmp_path / "submission.csv"
    with path.open("wb") as file:
        file.write(RIGHT)
        file.truncate(200 * 2**20)  # sparse: two hundred megabytes that take no room
    assert "too large: 209715200 bytes" in reason(task, path)
    limit = max_submission_bytes(task)
    assert f"at most {limit} are read" in reason(task, RIGHT + b"\n" * limit)
    assert score_submission(task, RIGHT + b"\n" * (limit - len(RIGHT))) == Scored(0.0, 0.0)


def test_no_submission(task, tmp_path):
    for source in (None, tmp_path / "submission.csv", str(tmp_path / "nowhere" / "submission.csv")):
        grade = grade_submission_file(task, source)
        assert grade.status is Status.NO_SUBMISSION
        assert grade[1:5] == (None, None, None, None)
        assert "no submission.csv" in grade.feedback


def test_a_path_is_read_and_links_and_pipes_are_not(task, tmp_path):
    path = tmp_path / "submission.csv"
    path.write_bytes(RIGHT)
    assert grade_submission_file(task, path).train_score == 0.0
    assert grade_submission_file(task, str(path)).train_score == 0.0
    link = tmp_path / "link.csv"
    link.symlink_to(task.folder / "private" / "answers.csv")
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    for other in (link, pipe, tmp_path):
        assert "no regular file" in reason(task, other)
        assert isinstance(read_submission_file(other, 100), InvalidSubmission)
    assert read_submission_file(path, len(RIGHT)) == RIGHT
    assert isinstance(read_submission_file(path, len(RIGHT) - 1), InvalidSubmission)
    assert read_submission_file(tmp_path / "none.csv", 100) is None


def test_reasons_tell_nothing_about_answers(write_task):
    secret = {str(place): [f"{place}.8675309"] for place in range(10)}
    task = ResearchTask.load(write_task(metric="rmse", answers=secret))
    good = [f"{place},1" for place in range(10)]
    for lines in (good[1:], [*good, "10,1"], [*good, "1,1"], ["0,x", *good[1:]], ["0,1e300", *good[1:]]):
        assert "8675309" not in reason(task, rows(*lines))


def test_several_target_columns(write_task):
    one_hot = {str(place): [int(place % 3 == column) for column in range(3)] for place in range(12)}
    folder = write_task(metric="log_loss", targets=("a", "b", "c"), answers=one_hot, placeholder=1)
    task = ResearchTask.load(folder)
    sample = (folder / "public/sample_submission.csv").read_bytes()
    assert score_submission(task, sample).train == pytest.approx(1.0986122886681098)
    shuffled = rows(*[f"1,1,{place},1" for place in reversed(range(12))], header="c,a,id,b")
    assert score_submission(task, shuffled) == score_submission(task, sample)
    assert "in column 'b' 'x' is not a number" in reason(task, sample.replace(b"7,1,1,1", b"7,1,x,1"))


def test_unusable_answers_are_the_tasks_error_and_no_low_grade(write_task):
    task = ResearchTask.load(write_task(answers={str(place): [1] for place in range(8)}))
    with pytest.raises(TaskError, match=r"answers\.csv cannot be used: auc cannot be computed on the train half"):
        grade_submission_file(task, rows(*[f"{place},1" for place in range(8)]))


@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda text: text.encode(errors="replace"))))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_have_a_grade(task, content):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reason(task, content)


NUMBERS = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=8, max_size=8)


@given(NUMBERS, st.permutations(range(8)))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_order_of_rows_never_matters(classification, numbers, order):
    lines = [f"{place:03d},{number!r}" for place, number in enumerate(numbers)]
    grade = grade_submission_file(classification, rows(*lines))
    assert grade.status is Status.VALID
    assert grade_submission_file(classification, rows(*[lines[place] for place in order])) == grade
