"""Any world model, measured against recorded real executions."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from wmrl_envs.errors import ConfigurationError, WorldModelError
from wmrl_envs.redaction import without_keys
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import Outcome
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import ResearchTask, load_task
from wmrl_envs.world_models.evaluation_result import EvaluationRow, TaskResult, WorldModelEvaluation, mean_metrics
from wmrl_envs.world_models.protocol import WorldModel, check_predictions
from wmrl_envs.world_models.recorded import RecordedSplit, split_recording
from wmrl_envs.world_models.registry import resolve_world_model
from wmrl_envs.world_models.scoring import pairs_of

__all__ = ["evaluate_world_model"]

_BATCH = 64
"""Solutions per call of ``grade``, as many as a training step might ask for."""
_COUNTERS = ("unreadable", "failed", "cache_hits")
_LIBRARIES = ("numpy", "scikit-learn", "torch", "transformers", "peft", "vllm", "openai")
_Executed = tuple[Submission, Outcome]
_Progress = Callable[[int, int], None]


def evaluate_world_model(
    world_model: str | WorldModel,
    tasks: Sequence[str | ResearchTask],
    *,
    solutions: int = 300,
    executions: Sequence[int] = (0,),
    draw: str = "prior",
    seed: int = 0,
    train_tasks: Sequence[str | ResearchTask] = (),
    model_kwargs: Mapping[str, Any] | None = None,
    recordings: ReplaySandbox | None = None,
    progress: _Progress | None = None,
) -> WorldModelEvaluation:
    """Hold a world model's predictions against recorded executions of solutions that it has not seen.

    It learns from other solutions of the same tasks, through ``fit(submissions, outcomes)`` (anew for each number of
    executions) or else through ``observe``; one that has neither is measured once. What it cannot answer is None:
    counted, and in no metric.

    Args:
        world_model: A world model or its name (see `wmrl_envs.world_models.registry.resolve_world_model`).
        tasks: Recorded tasks, or the names or folders of some.
        solutions: Solutions of each task that are predicted; at most half of those recorded.
        executions: Numbers of executed solutions of each task to learn from. The first 30 of 180 are those of 30.
        draw: ``"prior"`` draws solutions as an untrained policy would, ``"uniform"`` each alike.
        seed: Seed of the draw and of the resampling behind standard errors.
        train_tasks: Other tasks, as many executed ``solutions`` of which are given to a world model whose attribute
            ``learns_across_tasks`` is true (the base rate), so that ``tasks`` can be held out of everything.
        model_kwargs: Arguments of the world model's constructor, where it is named.
        recordings: Recorded executions; None means those in the tasks' folders.
        progress: Called with (solutions predicted, all).

    Raises:
        ConfigurationError: If an argument cannot be, or a task is both evaluated and trained on.
        RecordingError: If a task has no recorded executions.
        WorldModelError: If the world model fails, or returns something that is no prediction. One that cannot predict
            from few executions yet says so in that row, as long as it can with the most.
    """
    counts = _counts(solutions, executions, seed)
    loaded, trained = _tasks(tasks), _tasks(train_tasks)
    both = {task.id for task in loaded} & {task.id for task in trained}
    if both or not loaded:
        problem = f"{', '.join(sorted(both))} cannot be both evaluated and trained on" if both else "name some tasks"
        raise ConfigurationError(f"a world model is evaluated on one or several tasks: {problem}")
    replay = ReplaySandbox() if recordings is None else recordings
    split = partial(split_recording, recordings=replay, solutions=solutions, draw=draw, seed=seed)
    splits = [split(task, executions=counts[-1]) for task in loaded]
    elsewhere = [split(task, executions=0) for task in trained]
    model = resolve_world_model(world_model, **(model_kwargs or {}))
    pooled = _executed(elsewhere, replay) if getattr(model, "learns_across_tasks", False) else []
    learner = _Learner(model, splits, pooled)
    counts = counts if learner.learns else [0]
    total = len(counts) * sum(len(split.tested) for split in splits)
    rows: list[EvaluationRow] = []
    try:
        for place, count in enumerate(counts):
            start = total // len(counts) * place
            told = None if progress is None else (lambda n, start=start: progress(start + n, total))
            rows.append(_row(learner, splits, count, seed, told, may_fail=place < len(counts) - 1))
    finally:
        if isinstance(world_model, str) and callable(close := getattr(model, "close", None)):
            close()
    name = world_model if isinstance(world_model, str) else type(world_model).__name__
    settings = {
        "world_model": name,
        "model_kwargs": without_keys(model_kwargs or {}),
        "tasks": [task.id for task in loaded],
        "train_tasks": [task.id for task in trained],
        "executions": counts,
        "learns": learner.learns,
        "solutions": solutions,
        "draw": draw,
        "seed": seed,
        "versions": _versions(),
    }
    return WorldModelEvaluation(name, tuple(rows), settings)


class _Learner:
    """Gives a world model the first so many executions of each task, however it learns."""

    def __init__(self, model: WorldModel, splits: Sequence[RecordedSplit], pooled: list[_Executed]) -> None:
        self.model = model
        self._splits, self._pooled, self._given = splits, pooled, 0
        self._fit, self._observe = (getattr(model, name, None) for name in ("fit", "observe"))

    @property
    def learns(self) -> bool:
        return callable(self._fit) or callable(self._observe)

    def learn(self, count: int) -> None:
        if callable(self._fit):
            self._teach(self._fit, [pair for split in self._splits for pair in split.executed[:count]] + self._pooled)
        elif callable(self._observe):
            self._teach(self._observe, [pair for s in self._splits for pair in s.executed[self._given : count]])
            self._given = count

    @staticmethod
    def _teach(method: Callable[..., object], pairs: Sequence[_Executed]) -> None:
        if pairs:
            method([submission for submission, _ in pairs], [outcome for _, outcome in pairs])


def _row(
    learner: _Learner,
    splits: Sequence[RecordedSplit],
    count: int,
    seed: int,
    progress: Callable[[int], None] | None,
    may_fail: bool,
) -> EvaluationRow:
    start = time.perf_counter()
    learned = start
    results: list[TaskResult] = []
    before = _counters(learner.model)
    try:
        learner.learn(count)
        learned = time.perf_counter()
        done = 0
        for split in splits:
            predictions: list[Outcome | None] = []
            for first in range(0, len(split.tested), _BATCH):
                batch = split.tested[first : first + _BATCH]
                answers = learner.model.grade(batch)
                check_predictions(learner.model, batch, answers)
                predictions += answers
                done += len(batch)
                if progress is not None:
                    progress(done)
            results.append(_result(split, predictions))
    except WorldModelError as error:
        if not may_fail:
            raise
        return EvaluationRow(count, (), {}, time.perf_counter() - start, 0.0, failure=str(error))
    wall = time.perf_counter() - learned
    counters = {name: value - before[name] for name, value in _counters(learner.model).items()}
    return EvaluationRow(count, tuple(results), mean_metrics(results, seed), learned - start, wall, counters)


def _counters(model: WorldModel) -> dict[str, int]:
    found = {name: getattr(model, name, None) for name in _COUNTERS}
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _result(split: RecordedSplit, predictions: Sequence[Outcome | None]) -> TaskResult:
    readable = np.array([prediction is not None for prediction in predictions], dtype=np.bool_)
    known = [prediction for prediction in predictions if prediction is not None]
    return TaskResult(
        task=split.task.id,
        members=split.members,
        readable=readable,
        pairs=pairs_of(known, split.rewards[readable], split.statuses[readable]),
        seconds=np.array([prediction.seconds for prediction in known], dtype=np.float64),
    )


def _executed(splits: Sequence[RecordedSplit], replay: ReplaySandbox) -> list[_Executed]:
    submissions = [submission for split in splits for submission in split.tested]
    return [(s, o) for s, o in zip(submissions, replay.grade(submissions), strict=True) if o is not None]


def _counts(solutions: int, executions: Sequence[int], seed: int) -> list[int]:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigurationError(f"seed must be a whole number of at least 0, got {seed!r}")
    if isinstance(solutions, bool) or not isinstance(solutions, int) or solutions < 1:
        raise ConfigurationError(f"solutions must be a whole number of at least 1, got {solutions!r}")
    counts = list(executions)
    if not counts or len(set(counts)) < len(counts) or not all(type(n) is int and n >= 0 for n in counts):
        raise ConfigurationError(
            f"executions must be different whole numbers of at least 0, such as (0, 30, 180); got {executions!r}"
        )
    return sorted(counts)


def _tasks(tasks: Sequence[str | ResearchTask]) -> list[ResearchTask]:
    loaded = [task if isinstance(task, ResearchTask) else load_task(task) for task in tasks]
    names = [task.id for task in loaded]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"each task is evaluated once, got {', '.join(names)}")
    return loaded


def _versions() -> dict[str, str]:
    """Return the versions of what is in use; libraries that nobody imported are left out."""
    found = {"python": platform.python_version()}
    for name in ("wmrl-envs", *_LIBRARIES):
        module = {"wmrl-envs": "wmrl_envs", "scikit-learn": "sklearn"}.get(name, name)
        if module in sys.modules:
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                found[name] = "unknown"
    return found
