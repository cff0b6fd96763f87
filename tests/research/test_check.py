import json

import pytest

from wmrl_envs.research.check import check_task
from wmrl_envs.research.task import TASKS_DIR, bundled_tasks


def test_a_complete_folder_has_no_problems(write_task):
    assert check_task(write_task()) == []


@pytest.mark.parametrize("name", bundled_tasks())
def test_bundled_tasks_have_no_problems(name):
    assert check_task(TASKS_DIR / name) == []


def spoil(folder, name, content):
    (folder / name).write_text(content)


def replace(folder, name, old, new):
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (lambda folder: (folder / "description.md").unlink(), "lacks description.md"),
        (lambda folder: spoil(folder, "description.md", " \n"), "description.md is empty"),
        (lambda folder: (folder / "LICENSE-data.txt").unlink(), "LICENSE-data.txt is missing or empty"),
        (lambda folder: spoil(folder, "LICENSE-data.txt", "\n"), "LICENSE-data.txt is missing or empty"),
        (lambda folder: replace(folder, "task.json", '"toy"', '"other"'), "the id 'other' differs"),
        (lambda folder: replace(folder, "task.json", '"design"', '"desing"'), "nothing reads the field 'desing'"),
        (
            lambda folder: replace(folder, "private/answers.csv", "report", "train"),
            "report half of the answers: it is em",
        ),
        (lambda folder: replace(folder, "public/test.csv", "003,", "3,"), "do not hold the same ids"),
        (
            lambda folder: replace(folder, "public/train.csv", "t003,", "003,"),
            "holds 1 ids of the test set, such as '003'",
        ),
        (lambda folder: replace(folder, "public/train.csv", "target", "label"), "lacks the label column 'target'"),
        (lambda folder: replace(folder, "public/train.csv", "id,", "row,"), "train.csv lacks the id column"),
        (lambda folder: replace(folder, "public/test.csv", "size", "target"), "test.csv holds the target 'target'"),
        (lambda folder: replace(folder, "public/sample_submission.csv", "003,", "3,"), "is no valid submission"),
        (lambda folder: replace(folder, "public/sample_submission.csv", "0.5", "?"), "is no valid submission"),
        (
            lambda folder: spoil(folder, "leaderboard.json", json.dumps({"train": [1] * 20, "report": [1, 2]})),
            "20 scores",
        ),
        (lambda folder: (folder / "public/link").symlink_to("/etc/hostname"), "link that leads out of the task folder"),
    ],
)
def test_every_fault_is_found(fault, problem, write_task):
    folder = write_task()
    fault(folder)
    assert any(problem in found for found in check_task(folder))


def test_several_problems_are_all_listed(write_task):
    folder = write_task(boards={"train": [1.0], "report": [1.0]})
    (folder / "LICENSE-data.txt").unlink()
    assert len(check_task(folder)) == 3


def test_a_path_that_is_no_folder(tmp_path):
    assert check_task(tmp_path / "nothing") == [f"{(tmp_path / 'nothing').resolve()} is no task folder"]
