import copy
import dataclasses
import json
import pickle
import shutil
from pathlib import Path

import pytest

from wmrl_envs.errors import ConfigurationError, TaskError, UnknownTaskError
from wmrl_envs.research.leaderboard import Leaderboard
from wmrl_envs.research.limits import Limits
from wmrl_envs.research.task import TASKS_DIR, ResearchTask, bundled_tasks, load_task


def change(folder, **fields):
    manifest = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps({**manifest, **fields}))


def test_a_folder_becomes_a_task(write_task):
    folder = write_task(design={"family": "tabular"})
    task = load_task(folder)
    assert (task.id, task.title, task.kind, task.metric.name) == ("toy", "A toy", "tabular-classification", "auc")
    assert (task.id_column, task.target_columns, task.label_column) == ("id", ("target",), "target")
    assert (task.design, task.license, task.source) == ({"family": "tabular"}, "CC0-1.0", "made up")
    assert task.limits == Limits(seconds=3)
    assert task.public == folder.resolve() / "public"
    assert len(task.answers()) == 8
    assert task.leaderboard.position(0.55) == 0.5


def test_loading_is_cached_until_a_file_changes(write_task):
    folder = write_task()
    task = load_task(folder)
    assert load_task(str(folder)) is load_task(folder / ".." / folder.name) is task
    change(folder, title="Another")
    assert load_task(folder).title == "Another"
    assert load_task(folder) == task  # the same folder


def test_tasks_compare_by_folder(write_task, tmp_path):
    one, other = ResearchTask.load(write_task("one")), ResearchTask.load(write_task("other"))
    link = tmp_path / "link"
    link.symlink_to(one.folder)
    assert one == ResearchTask.load(link) == dataclasses.replace(one, limits=Limits(seconds=1))
    assert one != other
    assert one != "one"
    assert len({one, other, ResearchTask.load(link)}) == 2


def test_answers_and_inventory_are_lazy_and_do_not_travel(write_task):
    task = ResearchTask.load(write_task())
    untouched = pickle.dumps(task)
    assert "_answers" not in vars(task) and "inventory" not in vars(task)
    assert task.answers() is task.answers()
    assert task.inventory is task.inventory
    assert pickle.dumps(task) == untouched
    for twin in (pickle.loads(pickle.dumps(task)), copy.deepcopy(task)):
        assert twin == task and hash(twin) == hash(task)
        assert "_answers" not in vars(twin)
        assert twin.leaderboard.scores() == task.leaderboard.scores()
        assert len(twin.answers()) == 8


@pytest.mark.parametrize(
    "name",
    [
        "task.json",
        "description.md",
        "public/train.csv",
        "public/test.csv",
        "public/sample_submission.csv",
        "private/answers.csv",
        "leaderboard.json",
    ],
)
def test_a_missing_file_is_named_with_what_it_should_hold(name, write_task):
    folder = write_task()
    (folder / name).unlink()
    with pytest.raises(TaskError, match=rf"lacks {name} \(") as error:
        load_task(folder)
    assert str(folder) in str(error.value)


def test_a_board_can_be_given_before_there_is_one(write_task):
    folder = write_task()
    (folder / "leaderboard.json").unlink()
    task = ResearchTask.load(folder, leaderboard=Leaderboard([0.5], [0.5], greater_is_better=True))
    assert task.leaderboard.position(0.6) == 1.0


def test_a_pointer_in_place_of_a_board_is_refused(write_task):
    folder = write_task()
    (folder / "leaderboard.json").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(TaskError, match=r"leaderboard\.json is a Git-LFS pointer"):
        load_task(folder)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"format": 2}, "format 2 is unknown"),
        ({"id": ""}, "'id' must be a text"),
        ({"title": None}, "'title' must be a text, got None"),
        ({"license": 3}, "'license' must be a text"),
        ({"kind": "tabular-clasification"}, "Did you mean 'tabular-classification'"),
        ({"metric": "AUC"}, "unknown metric 'AUC'; the metrics are auc"),
        ({"target_columns": "target"}, "must be a list of column names, got 'target'"),
        ({"target_columns": []}, "must be a list of column names"),
        ({"target_columns": ["half"]}, "must all be different names"),
        ({"target_columns": ["id"]}, "must all be different names"),
        ({"target_columns": ["a", "b"]}, "auc scores one target column, target_columns names 2"),
        ({"label_column": 3}, "label_column must be"),
        ({"design": []}, "design must be an object or null"),
        ({"limits": {"second": 3}}, "unknown limit 'second'.*Did you mean 'seconds'"),
        ({"limits": {"seconds": "3"}}, "limit 'seconds' must be a number"),
        ({"limits": None}, "limits must be an object"),
    ],
)
def test_metadata_that_contradicts_the_format_is_named(fields, reason, write_task):
    folder = write_task()
    change(folder, **fields)
    with pytest.raises(TaskError, match=reason) as error:
        load_task(folder)
    assert str(folder / "task.json") in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"[" * 100_000, b"\xff"])
def test_metadata_that_is_no_json_object(content, write_task):
    folder = write_task()
    (folder / "task.json").write_bytes(content)
    with pytest.raises(TaskError, match=r"task\.json"):
        load_task(folder)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"id,target\n1,0\n", "lacks the columns.*half"),
        (b"", "it is empty"),
        (b"\xff\xfe", "not UTF-8"),
        (b"id,target,half\n1,0,train\n1,1,train\n", "the id '1' appears twice"),
        (b"id,target,half\n1,0,train\n2,x,train\n", "'x' is not a number"),
        (b"id,target,half\n1,0,train\n2,1,test\n", "'test'"),
        (b"id,target,half\n", "auc cannot be computed on the train half of the answers: it is empty"),
        (b"id,target,half\n1,0,train\n2,1,train\n3,0,report\n", "auc cannot be computed on the report half"),
    ],
)
def test_answers_that_cannot_be_used_are_named(content, reason, write_task):
    folder = write_task()
    (folder / "private/answers.csv").write_bytes(content)
    task = load_task(folder)
    with pytest.raises(TaskError, match=reason) as error:
        task.answers()
    assert "answers.csv cannot be used" in str(error.value)


@pytest.mark.parametrize("name", ["no-such-task", "", "/nowhere/at/all", Path("titanic-not-here"), "a\0b", "x" * 5000])
def test_unknown_names_list_what_there_is(name):
    with pytest.raises(UnknownTaskError, match="the bundled tasks are") as error:
        load_task(name)
    for bundled in bundled_tasks():
        assert bundled in str(error.value)


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownTaskError, match="unknown task 'titanik'.*Did you mean 'titanic'"):
        load_task("titanik")


def test_a_file_is_no_task(tmp_path):
    path = tmp_path / "task.csv"
    path.write_text("x")
    with pytest.raises(UnknownTaskError):
        load_task(path)
    with pytest.raises(TaskError, match="is no task folder"):
        ResearchTask.load(path)


def test_a_bundled_name_wins_over_a_folder_of_that_name(tmp_path, monkeypatch, write_task):
    write_task("titanic")
    monkeypatch.chdir(tmp_path)
    assert load_task("titanic").folder == TASKS_DIR / "titanic"
    assert load_task("./titanic").folder == tmp_path.resolve() / "titanic"


def test_prompt_says_what_an_agent_must_know(write_task):
    text = load_task(write_task()).prompt()
    for part in (
        "Predict the target.",
        "input/train.csv",
        "- size: int, 8 distinct, 0 missing",
        "- target: int, 2 distinct, 0 missing, target",
        "./submission.csv",
        "(id, target)",
        "auc on hidden answers, higher is better",
        "3 CPU seconds, 1024 MB of memory",
        "```python",
    ):
        assert part in text


def test_a_folder_can_be_moved(write_task, tmp_path):
    folder = write_task()
    shutil.copytree(folder, tmp_path / "moved")
    assert load_task(tmp_path / "moved") != load_task(folder)


def test_limits_have_a_wall_and_can_be_changed():
    limits = Limits(seconds=3)
    assert limits.wall_limit == 17.0
    assert Limits(seconds=3, wall_seconds=4).wall_limit == 4.0
    assert limits.override({"memory_mb": 64, "processes": 2}) == Limits(seconds=3, memory_mb=64, processes=2)
    assert limits.override({}) == limits


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": 0},
        {"seconds": -1},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"seconds": None},
        {"seconds": True},
        {"wall_seconds": 0},
        {"memory_mb": 0},
        {"memory_mb": 1.5},
        {"disk_mb": "1"},
        {"processes": -1},
        {"cores": 2},
    ],
)
def test_limits_that_cannot_be(changes):
    with pytest.raises(ConfigurationError, match="limit"):
        Limits().override(changes)


def test_all_missing_files_are_named_at_once(tmp_path):
    with pytest.raises(TaskError) as error:
        ResearchTask.load(tmp_path)
    for name in ("task.json", "description.md", "public/train.csv", "private/answers.csv", "leaderboard.json"):
        assert f"{name} (" in str(error.value)
