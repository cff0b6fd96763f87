import random
import shutil
import zipfile

import pytest
from pytest import approx

from wmrl_envs.errors import TaskError, UnknownTaskError
from wmrl_envs.research.outcome import Status
from wmrl_envs.research.scoring import grade_left
from wmrl_envs.research.task import load_task

MEAN_ERROR = '(actual["label"] - submission["label"]).abs().mean()'


def open_task(benchmarks, name="toy-ds", folder=None):
    return load_task(f"dsbench:{folder or benchmarks.dsbench}/{name}")


def grade(task, labels, header="id,label"):
    """Grade labels of r0, r1, ..., in a shuffled order."""
    rows = [f"r{number},{label}" for number, label in enumerate(labels)]
    random.Random(0).shuffle(rows)
    return grade_left(task, {"submission.csv": "\n".join([header, *rows, ""]).encode()})


def right(count):
    return [number if number < count else 99 for number in range(10)]


# The baseline is right in half of the rows, the best known result in nine of ten.
@pytest.mark.parametrize(("count", "position"), [(10, 1.0), (9, 1.0), (7, 0.5), (6, 0.25), (5, 0.0), (3, 0.0)])
def test_the_position_is_relative_to_baseline_and_best(benchmarks, count, position):
    benchmarks.ds_task()
    result = grade(open_task(benchmarks), right(count))
    assert (result.train_score, result.report_score) == (count / 10, count / 10)
    assert result.train_position == approx(position) and result.report_position == approx(position)


@pytest.mark.parametrize(("offset", "position"), [(1, 1.0), (2, 1.0), (4, 0.75), (10, 0.0), (12, 0.0)])
def test_lower_is_better_where_the_best_is_below_the_baseline(benchmarks, offset, position):
    benchmarks.ds_task(baseline=10, best="2.0\n", score=MEAN_ERROR)
    task = open_task(benchmarks)
    assert task.metric.greater_is_better is False
    result = grade(task, [number + offset for number in range(10)])
    assert (result.train_score, result.train_position) == (offset, position)


def test_rows_are_paired_by_id_though_the_script_pairs_them_by_place(benchmarks):
    benchmarks.ds_task()
    task = open_task(benchmarks)
    answers = benchmarks.dsbench / "data/answers/toy-ds/test_answer.csv"
    header, *rows = answers.read_text().splitlines()
    answers.write_text("\n".join([header, *reversed(rows), ""]))
    assert grade(task, range(10)).train_score == 1.0


@pytest.mark.parametrize(
    ("submission", "reason"),
    [
        ("id,label\n" + "".join(f"r{n},0\n" for n in range(9)), "each id of the sample submission, exactly once"),
        ("id,label\n" + "r0,0\n" * 10, "exactly once"),
        ("id,label\n" + "".join(f"R{n},0\n" for n in range(10)), "exactly once"),
        ("name,label\n", "it has no column 'id'"),
        ("", "it is empty"),
        ("id,other\n" + "".join(f"r{n},0\n" for n in range(10)), "toy-ds_eval.py raised KeyError on it"),
        ("id,label\n" + "".join(f"r{n},x\n" for n in range(10)), None),
    ],
)
def test_invalid_submissions(benchmarks, submission, reason):
    benchmarks.ds_task()
    result = grade_left(open_task(benchmarks), {"submission.csv": submission.encode()})
    if reason is None:
        assert result.train_score == 0.0
        return
    assert result.status is Status.INVALID_SUBMISSION
    assert reason in result.feedback


def test_nan_is_no_score(benchmarks):
    benchmarks.ds_task(score="float('nan')")
    assert "its score is nan" in grade(open_task(benchmarks), right(3)).feedback


def test_without_common_ids_rows_stay_in_their_places(benchmarks):
    benchmarks.ds_task()
    answers = benchmarks.dsbench / "data/answers/toy-ds/test_answer.csv"
    answers.write_text("\n".join(["label", *map(str, range(10)), ""]))
    rows = "\n".join(["id,label", *(f"r{n},{n}" for n in range(10)), ""])
    assert grade_left(open_task(benchmarks), {"submission.csv": rows.encode()}).train_score == 1.0


def test_results_may_be_in_the_archive(benchmarks):
    root = benchmarks.ds_task()
    with zipfile.ZipFile(root / "save_performance.zip", "w") as archive:
        archive.writestr("save_performance/baseline/toy-ds/result.txt", "0.1")
        archive.writestr("save_performance/GT/toy-ds/result.txt", "0.3")
    assert open_task(benchmarks).leaderboard.scores() == [0.9, 0.5]
    shutil.rmtree(root / "save_performance")
    assert open_task(benchmarks).leaderboard.scores() == [0.3, 0.1]


def test_the_data_folder_works_as_well(benchmarks):
    root = benchmarks.ds_task()
    assert open_task(benchmarks, folder=root / "data") == open_task(benchmarks)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data/answers/toy-ds/test_answer.csv", None),
        ("data/answers/toy-ds/test_answer.csv", "version https://git-lfs.github.com/spec/v1\n"),
        ("evaluation/toy-ds_eval.py", None),
        ("data/task/toy-ds.txt", None),
        ("save_performance/GT/toy-ds/result.txt", None),
        ("save_performance/baseline/toy-ds/result.txt", "good"),
    ],
)
def test_files_that_are_missing_or_wrong_are_named(benchmarks, name, content):
    path = benchmarks.ds_task() / name
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(TaskError) as error:
        open_task(benchmarks)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(("baseline", "best"), [(0.5, 0.5), ("nan", 0.5)])
def test_results_that_define_no_scale(benchmarks, baseline, best):
    benchmarks.ds_task(baseline=baseline, best=best)
    with pytest.raises(TaskError, match="results of the baseline and GT"):
        open_task(benchmarks)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def (:\n", "cannot be imported: SyntaxError"),
        ("pass\n", "wrote no result.txt"),
        ("import sys\nsys.exit(2)\n", "wrote no result.txt"),
    ],
)
def test_a_broken_script_is_named(benchmarks, code, reason):
    path = benchmarks.ds_task() / "evaluation/toy-ds_eval.py"
    path.write_text(code)
    with pytest.raises(TaskError, match=reason) as error:
        grade(open_task(benchmarks), right(3))
    assert str(path) in str(error.value)


def test_a_direction_that_the_results_contradict(benchmarks):
    benchmarks.ds_task()
    assert open_task(benchmarks, "toy-ds?direction=higher").metric.greater_is_better is True
    with pytest.raises(TaskError, match="that states the direction"):
        open_task(benchmarks, "toy-ds?direction=lower")


def test_tasks_are_listed_as_the_benchmark_lists_them(benchmarks):
    benchmarks.ds_task("zebra")
    benchmarks.ds_task("apple")
    with pytest.raises(UnknownTaskError, match="it holds zebra, apple.*Did you mean 'apple'"):
        open_task(benchmarks, "aple")


def test_the_task_says_what_an_agent_must_know(benchmarks):
    benchmarks.ds_task()
    task = open_task(benchmarks)
    assert task.public == (benchmarks.dsbench / "data/data_resplit/toy-ds").resolve()
    for part in ("Name the label.", "columns: id, label", "higher is better", "input/train.csv"):
        assert part in task.prompt()
