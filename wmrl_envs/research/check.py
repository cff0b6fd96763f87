"""Whether a task folder is fit for use: more than what loading it needs."""

from __future__ import annotations

import json
from pathlib import Path

from wmrl_envs.errors import TaskError, did_you_mean
from wmrl_envs.research.check_command import check_command
from wmrl_envs.research.command import CommandScorer
from wmrl_envs.research.leaderboard import HALVES, Leaderboard
from wmrl_envs.research.manifest import fields_of
from wmrl_envs.research.scoring import InvalidSubmission, Runner
from wmrl_envs.research.submission import AnswersScorer, score_submission
from wmrl_envs.research.table import TableError, read_table, shown
from wmrl_envs.research.task import ResearchTask

__all__ = ["check_task"]

MIN_BOARD = 10
"""Fewest scores of a board on which a position still tells solutions apart."""


def check_task(path: Path | str, sandbox: Runner | None = None) -> list[str]:
    """Return what is wrong with a task folder, one sentence each; an empty list if nothing is.

    A folder that cannot be loaded, or whose answers cannot be scored, gives the one problem that stops it. Otherwise
    every problem is listed: ids that differ between files, a sample submission that is not valid, answers that can be
    read from the public folder, boards that tell nothing apart, a missing licence, fields that nothing reads. Where a
    command grades, it is tried on what the example solution leaves; both run in the sandbox.

    Args:
        path: The folder.
        sandbox: Runs them; None means a ``ProcessSandbox`` of its own.

    Raises:
        SandboxError: If a command grades, and programs cannot be run here.
    """
    try:
        task = ResearchTask.load(path)
        inventory = task.inventory
        if isinstance(task.scorer, AnswersScorer):
            task.answers()
    except TaskError as error:
        return [str(error)]
    problems = _check_manifest(task) + _check_links(task)
    if isinstance(task.scorer, AnswersScorer):
        problems += _check_public(task)
    if isinstance(task.scorer, CommandScorer):
        problems += check_command(task, task.scorer, sandbox)
    if task.label_column is not None and task.label_column not in {column.name for column in inventory.columns}:
        problems.append(f"public/train.csv lacks the label column {task.label_column!r}")
    return problems + (_check_boards(task.leaderboard) if isinstance(task.leaderboard, Leaderboard) else [])


def _check_boards(board: Leaderboard) -> list[str]:
    problems = []
    for half in HALVES:
        scores = board.scores(half)
        if len(scores) < MIN_BOARD or len(set(scores)) == 1:
            problems.append(
                f"leaderboard.json: the {half} board has {len(scores)} scores, {len(set(scores))} of them different; "
                f"it needs {MIN_BOARD} or more that are not all equal"
            )
    return problems


def _check_manifest(task: ResearchTask) -> list[str]:
    problems = []
    if task.id != task.folder.name:
        problems.append(f"task.json: the id {task.id!r} differs from the name of its folder, {task.folder.name!r}")
    manifest = json.loads((task.folder / "task.json").read_text(encoding="utf-8"))
    known = fields_of(manifest.get("grader"))
    for name in manifest:
        if name not in known:
            problems.append(f"task.json: nothing reads the field {name!r}.{did_you_mean(name, known)}")
    if not task.description.strip():
        problems.append("description.md is empty")
    licence = task.folder / "LICENSE-data.txt"
    if not licence.is_file() or not licence.read_bytes().strip():
        problems.append("LICENSE-data.txt is missing or empty; it should hold the licence and the source of the data")
    return problems


def _check_public(task: ResearchTask) -> list[str]:
    problems = []
    tables = {}
    for name in ("train.csv", "test.csv", "sample_submission.csv"):
        try:
            tables[name] = read_table((task.public / name).read_bytes())
        except TableError as error:
            problems.append(f"public/{name} cannot be read: {error}")
            continue
        if task.id_column not in tables[name]:
            problems.append(f"public/{name} lacks the id column {task.id_column!r}")
    answers = task.answers()
    test = tables.get("test.csv", {})
    if task.id_column in test and sorted(test[task.id_column]) != sorted(answers.ids):
        problems.append("public/test.csv and private/answers.csv do not hold the same ids, each once")
    shared = set(tables.get("train.csv", {}).get(task.id_column, ())) & set(answers.ids)
    if shared:
        problems.append(f"public/train.csv holds {len(shared)} ids of the test set, such as {shown(min(shared))}")
    problems += [
        f"public/test.csv holds the target {name!r}"
        for name in dict.fromkeys((task.label_column, *task.target_columns))
        if name in test
    ]
    scored = score_submission(task, (task.public / "sample_submission.csv").read_bytes())
    if isinstance(scored, InvalidSubmission):
        problems.append(f"public/sample_submission.csv is no valid submission: {scored.reason}")
    return problems


def _check_links(task: ResearchTask) -> list[str]:
    return [
        f"{file.relative_to(task.folder)} is a link that leads out of the task folder"
        for file in task.folder.rglob("*")
        if not file.resolve().is_relative_to(task.folder)
    ]
