import pytest

from wmrl_envs.errors import TaskError, UnknownTaskError
from wmrl_envs.research.outcome import Status
from wmrl_envs.research.scoring import grade_left
from wmrl_envs.research.task import load_task


def open_task(benchmarks, options=""):
    return load_task(f"mle-dojo:{benchmarks.dojo}/toy-dojo{options}")


def grade(task, labels):
    rows = "".join(f"{number},{label}\n" for number, label in reversed(list(enumerate(labels))))
    return grade_left(task, {"submission.csv": f"id,label\n{rows}".encode()})


# The answers are 0, 1, 0, 1, 0; the boards, best first, [.9, .8, .8, .5] and [.7, .6].
@pytest.mark.parametrize(
    ("labels", "score", "private", "public"),
    [
        ((0, 1, 0, 1, 0), 1.0, 4 / 4, 2 / 2),
        ((0, 1, 0, 1, 1), 0.8, 3 / 4, 2 / 2),  # a tie of two shares place 2
        ((0, 1, 0, 0, 1), 0.6, 1 / 4, 1 / 2),
        ((0, 1, 1, 0, 1), 0.4, 0 / 4, 0 / 2),  # place N + 1 on both
    ],
)
def test_the_position_is_the_mean_over_both_boards(benchmarks, labels, score, private, public):
    benchmarks.dojo_competition()
    result = grade(open_task(benchmarks), labels)
    assert (result.train_score, result.report_score) == (score, score)
    assert result.train_position == result.report_position == (private + public) / 2


@pytest.mark.parametrize(("boards", "position"), [({"private": None}, 1.0), ({"public": None}, 3 / 4)])
def test_one_board_suffices(benchmarks, boards, position):
    benchmarks.dojo_competition(**boards)
    assert grade(open_task(benchmarks), (0, 1, 0, 1, 1)).train_position == position


def test_boards_of_one_row(benchmarks):
    benchmarks.dojo_competition(private=[0.8], public=None)
    task = open_task(benchmarks)
    assert [grade(task, labels).train_position for labels in ((0, 1, 0, 1, 1), (0, 1, 0, 0, 1))] == [1.0, 0.0]


def test_lower_is_better_where_the_metric_says_so(benchmarks):
    code = """
        from mledojo.metrics.base import CompetitionMetrics


        class ToyMetrics(CompetitionMetrics):
            def __init__(self, value="label", higher_is_better=False):
                super().__init__(higher_is_better)

            def evaluate(self, y_true, y_pred):
                both = y_true.merge(y_pred, on="id")
                return (both["label_x"] - both["label_y"]).abs().sum()

            def validate_submission(self, submission, ground_truth):
                return True, "fine"
    """
    benchmarks.dojo_competition(code=code, private=[2, 15, 10, 1], public=None)
    task = open_task(benchmarks)
    assert task.metric.greater_is_better is False
    result = grade(task, (0, 1, 0, 1, 2))
    assert (result.train_score, result.train_position) == (2.0, 3 / 4)


@pytest.mark.parametrize(
    ("constructor", "greater"),
    [
        ("def __init__(self):\n        super().__init__(False)", False),
        ("def __init__(self):\n        super().__init__(higher_is_better=True)", True),
        ("def __init__(self, *, higher_is_better=False):\n        super().__init__(higher_is_better)", False),
        ("def __init__(self):\n        super().__init__(1 < 2)", None),
        ("value = 1", None),
    ],
)
def test_the_direction_is_what_the_source_states(benchmarks, constructor, greater):
    code = f"""
from mledojo.metrics.base import CompetitionMetrics


class ToyMetrics(CompetitionMetrics):
    {constructor}

    def evaluate(self, y_true, y_pred):
        return 0.7

    def validate_submission(self, submission, ground_truth):
        return "ok"
"""
    benchmarks.dojo_competition(code=code)
    if greater is None:
        with pytest.raises(TaskError, match=r"metric\.py does not say.*\?direction=higher"):
            open_task(benchmarks)
        task = open_task(benchmarks, "?direction=higher")
    else:
        task = open_task(benchmarks)
        assert task.metric.greater_is_better is greater
    assert grade(task, (0, 1, 0, 1, 0)).train_score == 0.7


def test_a_direction_that_the_metric_contradicts(benchmarks):
    benchmarks.dojo_competition()
    with pytest.raises(TaskError, match=r"metric\.py says that higher_is_better is True"):
        grade(open_task(benchmarks, "?direction=lower"), (0, 1, 0, 1, 0))


def test_invalid_submissions(benchmarks):
    benchmarks.dojo_competition()
    task = open_task(benchmarks)
    short = grade(task, (0, 1))
    assert short.status is Status.INVALID_SUBMISSION
    assert "metric.py rejected it: 2 rows, expected 5" in short.feedback
    other = grade_left(task, {"submission.csv": b"id,other\n0,0\n1,0\n2,0\n3,0\n4,0\n"})
    assert "metric.py raised KeyError on it" in other.feedback


def test_a_verdict_may_be_returned(benchmarks):
    code = """
        from mledojo.metrics.base import CompetitionMetrics


        class ToyMetrics(CompetitionMetrics):
            def __init__(self, higher_is_better=True):
                super().__init__(higher_is_better)

            def evaluate(self, y_true, y_pred):
                return 1.0

            def validate_submission(self, submission, ground_truth):
                return False, "not like this"
    """
    benchmarks.dojo_competition(code=code)
    assert "metric.py rejected it: not like this" in grade(open_task(benchmarks), (0,)).feedback


def test_the_metric_may_lie_in_the_package(benchmarks):
    folder = benchmarks.dojo_competition()
    target = benchmarks.site / "mledojo/competitions/toy-dojo/utils/metric.py"
    target.parent.mkdir(parents=True)
    (folder / "utils/metric.py").rename(target)
    task = open_task(benchmarks)
    assert task.scorer.order.code == str(target)
    assert grade(task, (0, 1, 0, 1, 1)).train_score == 0.8
    target.unlink()
    with pytest.raises(TaskError, match=r"metric\.py is missing") as error:
        open_task(benchmarks)
    assert str(target) in str(error.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("private/private_leaderboard.csv", "version https://git-lfs.github.com/spec/v1\n"),
        ("private/test_answer.csv", "version https://git-lfs.github.com/spec/v1\n"),
        ("private/test_answer.csv", None),
        ("public/description.txt", None),
    ],
)
def test_files_that_are_missing_or_pointers_are_named(benchmarks, name, content):
    path = benchmarks.dojo_competition() / "data" / name
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(TaskError) as error:
        open_task(benchmarks)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("class A:\n    pass\n", "has no class whose name ends in 'Metrics'"),
        ("class (:\n", "is no Python"),
    ],
)
def test_a_metric_that_cannot_be_read(benchmarks, code, reason):
    folder = benchmarks.dojo_competition(code=code)
    with pytest.raises(TaskError, match=reason) as error:
        open_task(benchmarks)
    assert str(folder / "utils/metric.py") in str(error.value)


def test_a_metric_that_cannot_be_imported(benchmarks):
    folder = benchmarks.dojo_competition()
    path = folder / "utils/metric.py"
    path.write_text("import no_such_package\n" + path.read_text())
    with pytest.raises(TaskError, match="cannot be imported: ModuleNotFoundError") as error:
        grade(open_task(benchmarks), (0,))
    assert str(path) in str(error.value)


def test_no_board_at_all(benchmarks):
    benchmarks.dojo_competition(private=None, public=None)
    with pytest.raises(TaskError, match=r"neither private_leaderboard\.csv nor public_leaderboard\.csv"):
        open_task(benchmarks)


def test_unknown_competitions_are_told_what_there_is(benchmarks):
    benchmarks.dojo_competition()
    with pytest.raises(UnknownTaskError, match="Did you mean 'toy-dojo'"):
        load_task(f"mle-dojo:{benchmarks.dojo}/toydojo")


def test_the_task_says_what_an_agent_must_know(benchmarks):
    benchmarks.dojo_competition()
    prompt = open_task(benchmarks).prompt()
    for part in ("Name the label.", "columns: id, label", "ToyMetrics", "higher is better", "input/train.csv"):
        assert part in prompt
