"""The world model that comes with the package: fitted on a few executions, no download.

* Exact gates first: no code, or code that does not compile, is certain.
* A forest on tokens of the syntax tree, fitted on ``warmup`` executions, predicts reward and status.
* A Gaussian process on its errors learns from every execution that follows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from wmrl_envs.errors import CheckpointError, ConfigurationError, WorldModelError, did_you_mean
from wmrl_envs.research.grading import Grader, Submission, check_graded, gate
from wmrl_envs.research.outcome import Outcome, Prediction
from wmrl_envs.world_models.features import DataNames
from wmrl_envs.world_models.gates import certain
from wmrl_envs.world_models.task_model import TaskModel
from wmrl_envs.world_models.warmup import WarmupCache, warm_up

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = ["MIN_EXECUTIONS", "LearnedWorldModel"]

MIN_EXECUTIONS = 8
"""Fewest executed solutions that a model of a task is fitted on."""

_SOURCES = ("recordings", "execution")
_SETTINGS = ("refit_every", "seed", "trees", "width", "noise", "max_points")


class LearnedWorldModel:
    """Predicts how a solution ends from its syntax tree, and learns from the solutions that are really executed.

    Each task has a model of its own: a random forest f on 0/1 features, fitted once on ``warmup`` executions, and the
    posterior of a Gaussian process on its errors, refitted as executions come in (`wmrl_envs.world_models.residual`).
    The same posterior serves the reward and the status probabilities, so that they never contradict each other. Biased
    and noisy like any world model: numeric constants are no features, and what it picks as best it over-rates.

    Args:
        warmup: Distinct solutions, drawn from the prior of the task's design space, that are executed before the first
            prediction; at least 8. They are charged like any execution.
        refit_every: `observe` calls (training steps) between refits of the residual; 0 freezes the model after its
            warm-up.
        seed: Seed of the warm-up draw and of the forest.
        trees: Trees of the forest.
        warmup_source: ``"recordings"`` takes warm-up outcomes from the task's recorded executions where there are any,
            which makes the first reset fast; ``"execution"`` executes all of them through the environment's grader.
        cache_dir: Folder that remembers executed warm-ups by content; None is ``$XDG_CACHE_HOME/wmrl-envs`` (by default
            ``~/.cache/wmrl-envs``). A cached execution is charged as if it were made.
        width: Width of the residual's kernel, in features that differ.
        noise: Variance that the residual gives one execution's error, in units of the variance of the errors.
        max_points: Distinct executed solutions that the residual keeps per task, the latest ones. A refit on n of them
            takes time in proportion to n cubed.

    Example:
        >>> from wmrl_envs.research.task import load_task
        >>> from wmrl_envs.research.grading import Submission
        >>> model = LearnedWorldModel(warmup=60)
        >>> task = load_task("titanic")
        >>> executed = model.prepare([task], grader)  # doctest: +SKIP
        >>> model.grade([Submission(task, code)])  # doctest: +SKIP
    """

    def __init__(
        self,
        warmup: int = 180,
        refit_every: int = 5,
        seed: int = 0,
        trees: int = 100,
        *,
        warmup_source: Literal["recordings", "execution"] = "recordings",
        cache_dir: str | os.PathLike[str] | None = None,
        width: float = 12.0,
        noise: float = 0.1,
        max_points: int = 1000,
    ) -> None:
        least = {"warmup": MIN_EXECUTIONS, "refit_every": 0, "seed": 0, "trees": 1, "max_points": 1}
        for name, value in (
            ("warmup", warmup),
            ("refit_every", refit_every),
            ("seed", seed),
            ("trees", trees),
            ("max_points", max_points),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least[name]:
                raise ConfigurationError(f"{name} must be a whole number of at least {least[name]}, got {value!r}")
        for name, number in (("width", width), ("noise", noise)):
            if not 0.0 < number < float("inf"):
                raise ConfigurationError(f"{name} must be a positive number, got {number!r}")
        if warmup_source not in _SOURCES:
            raise ConfigurationError(
                f"unknown warmup_source {warmup_source!r}; it is 'recordings' or 'execution'."
                f"{did_you_mean(str(warmup_source), _SOURCES)}"
            )
        self.warmup = warmup
        self.refit_every = refit_every
        self.seed = seed
        self.trees = trees
        self.warmup_source = warmup_source
        self.width = width
        self.noise = noise
        self.max_points = max_points
        self._cache = WarmupCache(cache_dir)
        self._models: dict[str, TaskModel] = {}
        self._observed = 0

    def prepare(self, tasks: Sequence[ResearchTask], grader: Grader) -> list[tuple[Submission, Outcome]]:
        """Execute a warm-up on each task that has no model yet, and fit one.

        Args:
            tasks: Tasks that predictions will be asked for.
            grader: Executes the warm-up, or the part of it of which nothing is on record.

        Returns:
            What was executed, for the ledger to charge; empty if all tasks have a model.

        Raises:
            WorldModelError: If a task has no design space to draw from (use `fit`), or too few executions came back.
        """
        executed: list[tuple[Submission, Outcome]] = []
        for task in tasks:
            if task.id not in self._models:
                pairs = warm_up(task, grader, self.warmup, self.seed, self.warmup_source, self._cache)
                self._fit_task(task, pairs)
                executed += pairs
        return executed

    def fit(self, submissions: Sequence[Submission], outcomes: Sequence[Outcome | None]) -> None:
        """Fit a fresh model of each task among executed solutions, in place of one that was there.

        Args:
            submissions: Executed solutions, of one or several tasks.
            outcomes: Their outcomes; None is left out.

        Raises:
            WorldModelError: If a task has fewer than 8 solutions that compile and have an outcome.
            GradingError: If the two differ in length.
        """
        check_graded(self, submissions, outcomes)
        by_task: dict[ResearchTask, list[tuple[Submission, Outcome]]] = {item.task: [] for item in submissions}
        for submission, outcome in zip(submissions, outcomes, strict=True):
            if outcome is not None:
                by_task[submission.task].append((submission, outcome))
        for task, pairs in by_task.items():
            self._fit_task(task, pairs)

    def grade(self, submissions: Sequence[Submission]) -> list[Prediction | None]:
        """Predict a batch.

        Returns:
            One prediction per submission, in order. ``reward`` is the expectation in [0, 1]; feedback, error type and
            error line are those of the most similar executed solution that ended as predicted; ``seconds`` is this
            call's time, shared by the predictions that had to be computed.

        Raises:
            WorldModelError: If a task has no model yet.
        """
        start = time.perf_counter()
        predictions: list[Prediction | None] = [None] * len(submissions)
        waiting: dict[str, list[int]] = {}
        for index, submission in enumerate(submissions):
            model = self._model(submission.task.id)
            if submission.code not in model and (known := certain(submission)) is not None:
                predictions[index] = known
            else:
                waiting.setdefault(submission.task.id, []).append(index)
        computed: list[int] = []
        for name, indices in waiting.items():
            codes = [submissions[index].code or "" for index in indices]
            answers, new = self._models[name].predict(codes)
            for index, answer, is_new in zip(indices, answers, new, strict=True):
                predictions[index] = answer
                if is_new:
                    computed.append(index)
        share = (time.perf_counter() - start) / max(len(computed), 1)
        for index in computed:
            prediction = predictions[index]
            assert prediction is not None
            predictions[index] = replace(prediction, seconds=share)
        return predictions

    def observe(self, submissions: Sequence[Submission], outcomes: Sequence[Outcome | None]) -> None:
        """Learn from one training step's executions; every ``refit_every``-th call refits the residual.

        Args:
            submissions: What was executed.
            outcomes: What came back; None teaches nothing.

        Raises:
            WorldModelError: If a task has no model yet.
            GradingError: If the two differ in length.
        """
        check_graded(self, submissions, outcomes)
        if not self.refit_every:
            return
        for submission, outcome in zip(submissions, outcomes, strict=True):
            model = self._model(submission.task.id)
            code = submission.code
            if outcome is None or code is None or (code not in model and gate(submission) is not None):
                continue
            model.add(code, outcome)
        self._observed += 1
        if self._observed % self.refit_every == 0:
            for model in self._models.values():
                model.refit()

    def state_dict(self) -> dict[str, Any]:
        """Return the executions behind the model, JSON-able; loading them gives equal predictions."""
        return {
            "format": 1,
            "settings": {name: getattr(self, name) for name in _SETTINGS},
            "observed": self._observed,
            "tasks": {name: model.state_dict() for name, model in self._models.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state by fitting on its executions again.

        Raises:
            CheckpointError: If it belongs to other settings, or is no state of this class.
        """
        settings = {name: getattr(self, name) for name in _SETTINGS}
        try:
            if state["format"] != 1:
                raise CheckpointError(f"unknown format {state['format']!r} of a learned world model; known is 1")
            if state["settings"] != settings:
                raise CheckpointError(
                    f"the saved world model has settings {state['settings']}, this one {settings}; "
                    "build LearnedWorldModel with the saved ones"
                )
            models = {}
            for name, saved in state["tasks"].items():
                models[name] = self._task_model(DataNames.from_state(saved["names"]))
                models[name].load_state_dict(saved)
            observed = int(state["observed"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"this is no state of a learned world model: {error!r}") from error
        self._models, self._observed = models, observed

    def _fit_task(self, task: ResearchTask, executed: Sequence[tuple[Submission, Outcome]]) -> None:
        pairs = [
            (submission.code, outcome)
            for submission, outcome in executed
            if submission.code is not None and gate(submission) is None
        ]
        if len(pairs) < MIN_EXECUTIONS:
            raise WorldModelError(
                f"{len(pairs)} executed solutions of task {task.id!r} compile and have an outcome; "
                f"{type(self).__name__} needs {MIN_EXECUTIONS} or more"
            )
        model = self._task_model(DataNames.of(task))
        model.fit(pairs)
        self._models[task.id] = model

    def _task_model(self, names: DataNames) -> TaskModel:
        return TaskModel(
            names,
            trees=self.trees,
            seed=self.seed,
            width=self.width,
            noise=self.noise,
            max_points=self.max_points,
        )

    def _model(self, task: str) -> TaskModel:
        model = self._models.get(task)
        if model is None:
            raise WorldModelError(
                f"{type(self).__name__} has no model of task {task!r} (it has {', '.join(self._models) or 'none'}): "
                "call prepare(tasks, grader), which WorldModelWrapper does at the first reset, or "
                "fit(submissions, outcomes)"
            )
        return model
