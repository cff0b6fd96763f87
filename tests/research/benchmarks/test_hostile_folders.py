"""Submissions that stall a reader, graders that misbehave, and folders that are not what they should be."""

import os
import zipfile

import pytest

from wmrl_envs.errors import TaskError, UnknownTaskError
from wmrl_envs.research.benchmarks import process
from wmrl_envs.research.benchmarks.folders import check_competition, competition_names
from wmrl_envs.research.benchmarks.importing import import_competition
from wmrl_envs.research.outcome import Status
from wmrl_envs.research.scoring import grade_left
from wmrl_envs.research.task import load_task

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
GOOD = b"id,y\n1,10\n2,20\n3,30\n"


def name_of(benchmarks, competition="toy-rmse"):
    return f"mle-bench:{benchmarks.data}/{competition}"


def grade(benchmarks, content=GOOD):
    return grade_left(load_task(name_of(benchmarks)), {"submission.csv": content})


# Submissions


def test_submissions_that_would_stall_a_reader_of_tables(benchmarks):
    benchmarks.competition()
    for content in (b"a," * 10**6, b"id,y\n" + b"1," * 10**6, b"," * 10**6):
        feedback = grade(benchmarks, content).feedback
        assert "columns, more than 104" in feedback  # twice those of the sample submission, and a hundred
    assert grade(benchmarks, b"id,y\n1," + b"9" * 200_000 + b"\n").status is Status.INVALID_SUBMISSION
    assert grade(benchmarks).train_score == 0.0


@pytest.mark.parametrize(
    ("content", "score"),
    [
        (b"\xef\xbb\xbf" + GOOD, 0.0),
        (GOOD.replace(b"\n", b"\r\n"), 0.0),
        (GOOD.decode().encode("utf-16"), None),
        (b"id,y\n1,1e400\n2,20\n3,30\n", None),
        (b"id,y\n1,=1+1\n2,20\n3,30\n", None),
        (b"id,y\n1,\0\n2,20\n3,30\n", None),
        (b"id,y\n1,10\n1,10\n3,30\n", None),
        (b"\x1f\x8b\x08\x00", None),
    ],
)
def test_submissions_in_other_forms(benchmarks, content, score):
    benchmarks.competition()
    result = grade(benchmarks, content)
    assert (result.train_score, result.status is Status.VALID) == (score, score is not None)


# Graders


def test_a_grader_whose_fork_comes_back_answers_once(benchmarks):
    code = """
        import os
        def grade(submission, answers):
            return float(submission["y"].sum()) if os.fork() else -1.0
    """
    benchmarks.competition(code=code)
    scores = [grade(benchmarks, f"id,y\n1,{number}\n".encode()).train_score for number in (1, 2, 3)]
    assert scores == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("value", "reason"), [("10**400", "its score is too large for a number"), ("float('inf')", "its score is inf")]
)
def test_scores_beyond_all_numbers(benchmarks, value, reason):
    benchmarks.competition(code=f"def grade(a, b):\n    return {value}\n")
    assert reason in grade(benchmarks).feedback


def test_what_a_grader_prints_is_not_kept(benchmarks):
    benchmarks.competition(code="import os\ndef grade(a, b):\n    os.write(2, b'x' * 10**6)\n    return 1.0\n")
    for _ in range(3):
        grade(benchmarks)
    order = load_task(name_of(benchmarks)).scorer.order
    pid = process.pid_of(order)
    assert os.stat(f"/proc/{pid}/fd/2").st_size == 10**6


# Folders


BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n" for old, new in zip("abcdefghi", "bcdefghij", strict=True)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{new}: &{new}\n  <<: [{', '.join(['*' + old] * 9)}]\n" for old, new in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.mark.parametrize(
    ("before", "change", "reason"),
    [
        (BOMB, ("metric", "*j"), "grader.name must be a text, got a list"),
        ("z: " + "[" * 5000 + "\n", None, "cannot read"),
        ("z: !!python/object/apply:os.abort []\n", None, None),
        (MERGES, None, None),
        ("z: 2020-13-45\n", None, None),
        (POINTER, None, "is a Git-LFS pointer"),
    ],
)
def test_configurations_that_would_stall_or_harm(benchmarks, before, change, reason):
    folder = benchmarks.competition(metric=change[1] if change else "rmse")
    config = folder / "config.yaml"
    config.write_text(before + config.read_text())
    if reason is None:
        assert load_task(name_of(benchmarks)).title == "A toy: toy-rmse"
        return
    with pytest.raises(TaskError, match=reason) as error:
        load_task(name_of(benchmarks))
    assert str(config) in str(error.value)


@pytest.mark.parametrize("name", ["train.csv", "sample_submission.csv"])
def test_pointers_among_the_data_are_named(benchmarks, tmp_path, name):
    benchmarks.competition()
    path = benchmarks.data / "toy-rmse/prepared/public" / name
    path.write_text(POINTER)
    assert f"{path} is a Git-LFS pointer" in check_competition(name_of(benchmarks)).problem
    with pytest.raises(TaskError, match="is a Git-LFS pointer"):
        import_competition(name_of(benchmarks), tmp_path / "mine")


def test_a_pointer_in_place_of_a_description(benchmarks):
    path = benchmarks.competition() / "description.md"
    path.write_text(POINTER)
    with pytest.raises(TaskError, match="in place of the description") as error:
        load_task(name_of(benchmarks))
    assert str(path) in str(error.value)


def test_a_link_that_no_solution_can_follow_is_named(benchmarks):
    benchmarks.competition()
    prepared = benchmarks.data / "toy-rmse/prepared"
    (prepared / "public/more.csv").symlink_to(prepared / "private/answers.csv")
    assert "more.csv is a link out of its folder" in check_competition(name_of(benchmarks)).problem


def test_a_competition_may_be_a_link(benchmarks, tmp_path):
    benchmarks.competition()
    (benchmarks.data / "toy-rmse").rename(tmp_path / "on-another-disk")
    (benchmarks.data / "toy-rmse").symlink_to(tmp_path / "on-another-disk")
    task = load_task(name_of(benchmarks))
    assert (task.id, task.public) == ("toy-rmse", tmp_path / "on-another-disk/prepared/public")
    assert competition_names(str(benchmarks.data / "toy-rmse")) == [name_of(benchmarks)]
    assert grade(benchmarks).train_score == 0.0


def test_a_sample_submission_that_is_out_of_sight_by_its_path(benchmarks):
    benchmarks.competition(sample="public/../private/answers.csv")
    assert load_task(name_of(benchmarks)).scorer.sample_in_public is None


def test_the_home_folder_is_known(benchmarks, monkeypatch):
    benchmarks.competition()
    monkeypatch.setenv("HOME", str(benchmarks.root))
    assert load_task("mle-bench:~/data/toy-rmse").id == "toy-rmse"
    assert competition_names("mle-bench:~/data") == [name_of(benchmarks)]


@pytest.mark.parametrize("path", ["a" * 5000, "a\0b", "~no-such-user/x"])
def test_what_is_no_path_is_no_competition(path):
    with pytest.raises(UnknownTaskError, match="is no path of a competition"):
        load_task(f"mle-bench:{path}")
    assert competition_names(f"mle-bench:{path}") == [f"mle-bench:{path}"]
    assert competition_names(path) == []


def test_the_base_class_is_no_metric(benchmarks):
    folder = benchmarks.dojo_competition()
    path = folder / "utils/metric.py"
    path.write_text("class CompetitionMetrics:\n    pass\n\n\n" + path.read_text())
    assert load_task(f"mle-dojo:{benchmarks.dojo}/toy-dojo").scorer.order.function == "ToyMetrics"


def test_the_clone_around_the_tasks_of_dsbench_works_as_well(benchmarks, tmp_path):
    benchmarks.ds_task()
    clone = tmp_path / "clone"
    clone.mkdir()
    benchmarks.dsbench.rename(clone / "data_modeling")
    assert competition_names(str(clone)) == [f"dsbench:{clone}/toy-ds"]
    result = clone / "data_modeling/save_performance/GT/toy-ds/result.txt"
    result.write_text(POINTER)
    with pytest.raises(TaskError, match="pointer in place of GT's result") as error:
        load_task(f"dsbench:{clone}/toy-ds")
    assert str(result) in str(error.value)


@pytest.mark.parametrize("content", ["", None])
def test_tables_that_cannot_be_read_are_not_imported(benchmarks, tmp_path, content):
    benchmarks.tabular_competition()
    public = benchmarks.data / "toy-auc/prepared/public"
    if content is None:  # an archive with a password, as by the flag in its directory
        with zipfile.ZipFile(public / "train.csv.zip", "w") as archive:
            archive.write(public / "train.csv", "train.csv")
        packed = bytearray((public / "train.csv.zip").read_bytes())
        for start, flag in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            packed[packed.index(start) + flag] |= 1
        (public / "train.csv.zip").write_bytes(packed)
        (public / "train.csv").unlink()
    else:
        (public / "train.csv").write_text(content)
    with pytest.raises(TaskError, match=r"train\.csv"):
        import_competition(name_of(benchmarks, "toy-auc"), tmp_path / "made/mine")
    assert not list((tmp_path / "made").iterdir())
