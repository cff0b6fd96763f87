"""Folders that hold a benchmark's tasks: whose layout they have, which tasks are in them, and whether they are fit."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import NamedTuple

from wmrl_envs.errors import ConfigurationError, MissingExtraError, SandboxError, TaskError, did_you_mean
from wmrl_envs.research.benchmarks.place import is_path, refuse_links, refuse_pointers
from wmrl_envs.research.benchmarks.process import check as check_grader
from wmrl_envs.research.benchmarks.process import grade
from wmrl_envs.research.benchmarks.scorer import BenchmarkScorer
from wmrl_envs.research.scoring import InvalidSubmission
from wmrl_envs.research.task import BENCHMARKS, ResearchTask, load_task

__all__ = ["Checked", "check_competition", "competition_names", "is_competition"]


class Checked(NamedTuple):
    """What a check of one competition found."""

    name: str
    """As `load_task` takes it."""
    problem: str | None
    """What is wrong with it; None where nothing is."""
    facts: str
    """One line about it; empty where it could not be opened."""


def is_competition(name: str) -> bool:
    """Return whether a name has the prefix of a benchmark."""
    prefix, colon, _ = name.partition(":")
    return bool(colon) and prefix in BENCHMARKS


def competition_names(text: str) -> list[str]:
    """Return the names of the competitions that a text means.

    Args:
        text: ``prefix:DIR/ID``, ``prefix:DIR`` for all in a folder, or the path of either without the prefix, which is
            then found by the layout. Options after ``?`` go to every name.

    Returns:
        Names as `load_task` takes them; none where the text is no folder of a benchmark.

    Raises:
        ConfigurationError: If the text has a prefix that no benchmark has, before something that is no path.
    """
    prefix, colon, place = text.partition(":")
    if colon and prefix not in BENCHMARKS and is_path(text) and not Path(text).exists():
        raise ConfigurationError(
            f"unknown benchmark {prefix!r} in {text!r}; known are {', '.join(BENCHMARKS)}."
            f"{did_you_mean(prefix, BENCHMARKS)}"
        )
    prefixes = [prefix] if is_competition(text) else list(BENCHMARKS)
    path, mark, options = (place if is_competition(text) else text).partition("?")
    if not path or not is_path(path):
        return [text] if is_competition(text) else []
    path = str(Path(path).expanduser())
    for known in prefixes:
        module = importlib.import_module(BENCHMARKS[known])
        if module.is_benchmark(Path(path)):
            return [f"{known}:{path}/{name}{mark}{options}" for name in module.competitions(Path(path))]
    if is_competition(text):
        return [text]
    return [f"{known}:{path}{mark}{options}" for known in prefixes if _is_one(known, path)]


def _is_one(prefix: str, path: str) -> bool:
    whole = Path(os.path.abspath(path))
    module = importlib.import_module(BENCHMARKS[prefix])
    return bool(module.is_benchmark(whole.parent)) and whole.name in module.competitions(whole.parent)


def check_competition(name: str) -> Checked:
    """Open a competition, start its grader, and grade its sample submission.

    The problem names the file that is missing, a Git-LFS pointer, or unusable. A sample submission that is not valid is
    no problem, since some benchmarks' are not: it is said among the facts.
    """
    try:
        task = load_task(name)
        scorer = task.scorer
        assert isinstance(scorer, BenchmarkScorer)
        refuse_pointers(task.public)
        refuse_links(task.public)
        inventory = task.inventory
        check_grader(scorer.order)
        sample = _sample(task, scorer)
    except (TaskError, ConfigurationError, SandboxError, MissingExtraError) as error:
        return Checked(name, str(error), "")
    files = f"{len(inventory.files)} {'entry' if len(inventory.files) == 1 else 'entries'} in its public folder"
    scores = len(task.leaderboard.scores())
    metric = f"{task.metric.name}, {task.metric.direction} is better"
    return Checked(name, None, f"{metric}, {scores} scores on its board, {files}, {sample}")


def _sample(task: ResearchTask, scorer: BenchmarkScorer) -> str:
    path = Path(scorer.order.sample)
    if not path.is_file():
        return f"no sample submission {path.name}"
    score = grade(scorer.order, scorer.files[0], path.read_bytes())
    if isinstance(score, InvalidSubmission):
        return f"its sample submission is not valid ({score.reason})"
    return f"its sample submission scores {score:.5g} (position {task.leaderboard.position(score):.2f})"
