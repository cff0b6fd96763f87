"""Makes a task's leaderboard: the scores of a frozen population of sound solutions, really executed."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.errors import ConfigurationError, TaskError
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.leaderboard import Leaderboard
from wmrl_envs.research.recording import Draw, data_digest, execute, versions, write_whole
from wmrl_envs.research.scoring import Runner
from wmrl_envs.research.task import ResearchTask

__all__ = ["POPULATION", "make_leaderboard", "task_without_board"]

POPULATION = 180
"""Number of solutions on a bundled leaderboard."""
_FIRST_SEED = 1_000_000
"""Boards are run under other seeds than recordings."""


def task_without_board(folder: Path | str) -> ResearchTask:
    """Load a task folder that may have no leaderboard yet; positions on its placeholder mean nothing."""
    placeholder = Leaderboard([0.0], [0.0], greater_is_better=True)
    return ResearchTask.load(folder, placeholder)


def make_leaderboard(
    folder: Path | str,
    sandbox: Runner,
    population: int = POPULATION,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Execute sound members of the task's design space, drawn at random, and write their scores as the leaderboard.

    Args:
        folder: The task folder.
        sandbox: Runs the solutions, ``sandbox.workers`` at a time.
        population: How many solutions; fewer where the space has fewer sound ones.
        seed: Draws the members.
        progress: Called with the numbers of solutions done and to do.

    Returns:
        The path of ``leaderboard.json``.

    Raises:
        ConfigurationError: If the population is no positive number.
        TaskError: If no solution of the task is valid.
        SandboxError: If solutions cannot be run.
    """
    if population < 1:
        raise ConfigurationError(f"population must be at least 1, got {population}")
    task = task_without_board(folder)
    space = DesignSpace.of(task)
    sound = space.bug_free()
    chosen = np.random.default_rng(seed).permutation(sound)[:population].tolist()

    def run(index: int) -> Draw:
        return execute(task, sandbox, space.solution(index), _FIRST_SEED + index)

    draws: list[Draw] = []
    with ThreadPoolExecutor(sandbox.workers) as pool:
        for draw in pool.map(run, chosen):
            draws.append(draw)
            if progress is not None:
                progress(len(draws), len(chosen))
    valid = [(draw.train, draw.report) for draw in draws if draw.train is not None and draw.report is not None]
    if not valid:
        raise TaskError(
            f"none of {len(draws)} sound solutions of task {task.id!r} is valid; the first one ended with "
            f"{draws[0].feedback!r}"
        )
    best_first = task.metric.greater_is_better
    board: dict[str, Any] = {
        half: sorted((scores[i] for scores in valid), reverse=best_first) for i, half in enumerate(("train", "report"))
    }
    board["made"] = {
        "population": len(chosen),
        "valid": len(valid),
        "seed": seed,
        "data": data_digest(task),
        "versions": versions(),
    }
    path = task.folder / "leaderboard.json"
    write_whole(path, (json.dumps(board, indent=1) + "\n").encode())
    return path
