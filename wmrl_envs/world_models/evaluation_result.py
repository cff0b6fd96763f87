"""What measuring a world model yields: predictions beside executions, metrics, and their errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.research.outcome import STATUSES
from wmrl_envs.world_models.scoring import METRICS, Pairs, confusion_matrix, reliability

__all__ = ["EvaluationRow", "MeanMetric", "TaskResult", "WorldModelEvaluation", "mean_metrics"]

_RESAMPLES = 200


@dataclass(frozen=True, eq=False)
class TaskResult:
    """What a world model predicted of one task, beside what was executed."""

    task: str
    members: NDArray[np.int64]
    """Indices in the design space of the n tested solutions."""
    readable: NDArray[np.bool_]
    """Where there was a prediction, bool [n]; the others are counted and left out."""
    pairs: Pairs
    """The readable ones."""
    seconds: NDArray[np.float64]
    """What each of them took by the world model's own account."""

    def metrics(self) -> dict[str, float | None]:
        """Return every metric of this task, None where it is undefined."""
        return {name: metric(self.pairs) for name, metric in METRICS.items()}

    def predictions(self) -> Iterator[tuple[int, list[float | str]]]:
        """Yield each member with what was executed and predicted, or an empty list where nothing was predicted.

        In this order: real reward, real status, predicted reward, predicted status, probability of a valid submission,
        confidence, seconds.
        """
        pairs, place = self.pairs, 0
        for member, readable in zip(self.members.tolist(), self.readable, strict=True):
            if not readable:
                yield member, []
                continue
            yield (
                member,
                [
                    float(pairs.real_reward[place]),
                    str(STATUSES[pairs.real_status[place]]),
                    float(pairs.predicted_reward[place]),
                    str(STATUSES[pairs.predicted_status[place]]),
                    float(pairs.valid_probability[place]),
                    float(pairs.confidence[place]),
                    float(self.seconds[place]),
                ],
            )
            place += 1


@dataclass(frozen=True)
class MeanMetric:
    """A metric averaged over the tasks on which it is defined."""

    value: float | None
    solution_error: float | None
    """Standard error for these very tasks: a bootstrap over each task's solutions."""
    task_error: float | None
    """Standard error for tasks like these: over tasks, None for fewer than two."""

    @property
    def error(self) -> float | None:
        """The error over tasks where there are several, else the one over solutions."""
        return self.solution_error if self.task_error is None else self.task_error


@dataclass(frozen=True, eq=False)
class EvaluationRow:
    """A world model after it has seen a number of executions of each task."""

    executions: int
    """Executions of each task that it was given."""
    results: tuple[TaskResult, ...]
    """One for each task; empty if it could not predict from so few."""
    means: dict[str, MeanMetric]
    """By metric, the mean over tasks."""
    learn_seconds: float
    """Wall seconds that learning from the executions took."""
    wall_seconds: float
    """Wall seconds of all predictions."""
    counters: dict[str, int] = field(default_factory=dict)
    """By how much the world model's own counts rose, where it has any: ``unreadable`` replies, ``failed`` answers, and
    ``cache_hits``, which cost no time."""
    failure: str | None = None
    """Why it could not predict from so few executions."""

    @property
    def pairs(self) -> Pairs:
        """The readable predictions of all tasks."""
        return Pairs.joined([result.pairs for result in self.results])

    @property
    def solutions(self) -> int:
        """Solutions that were asked for."""
        return sum(len(result.members) for result in self.results)

    @property
    def unreadable(self) -> int:
        """Solutions without a prediction."""
        return self.solutions - sum(len(result.pairs) for result in self.results)

    @property
    def seconds(self) -> float | None:
        """Seconds per prediction by the world model's own account; None without predictions."""
        everything = np.concatenate([result.seconds for result in self.results] or [np.empty(0)])
        return float(everything.mean()) if len(everything) else None

    def pooled(self) -> dict[str, float | None]:
        """Return every metric over the solutions of all tasks together, None where it is undefined."""
        pairs = self.pairs
        return {name: metric(pairs) for name, metric in METRICS.items()}

    def as_dict(self) -> dict[str, Any]:
        """Return every number, JSON-able."""
        head = {"executions": self.executions, "failure": self.failure, "learn_seconds": self.learn_seconds}
        if self.failure is not None:
            return head
        pairs = self.pairs
        right = pairs.predicted_status == pairs.real_status
        return head | {
            "solutions": self.solutions,
            "unreadable": self.unreadable,
            "seconds_per_prediction": self.seconds,
            "wall_seconds_per_prediction": self.wall_seconds / self.solutions,
            "counters": self.counters,
            "mean_over_tasks": {name: asdict(mean) for name, mean in self.means.items()},
            "pooled": self.pooled(),
            "confusion": confusion_matrix(pairs.real_status, pairs.predicted_status).tolist(),
            "reliability": {
                "validity": reliability(pairs.valid_probability, pairs.valid).as_dict(),
                "confidence": reliability(pairs.confidence, right).as_dict(),
            },
            "tasks": {
                result.task: {"solutions": len(result.members), "unreadable": int((~result.readable).sum())}
                | {"valid_share": float(result.pairs.valid.mean()) if len(result.pairs) else None}
                | result.metrics()
                for result in self.results
            },
        }


@dataclass(frozen=True, eq=False)
class WorldModelEvaluation:
    """How good a world model is, as a function of the executions that it has seen."""

    world_model: str
    """What it is called."""
    rows: tuple[EvaluationRow, ...]
    """One for each number of executions, ascending."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What was asked for, seeds and versions included, JSON-able."""

    def as_dict(self) -> dict[str, Any]:
        """Return every number and setting, JSON-able; statuses are in the order of ``statuses``."""
        return {
            "world_model": self.world_model,
            "statuses": [str(status) for status in STATUSES],
            "settings": self.settings,
            "rows": [row.as_dict() for row in self.rows],
        }


def mean_metrics(results: Sequence[TaskResult], seed: int) -> dict[str, MeanMetric]:
    """Average every metric over tasks.

    Args:
        results: One for each task.
        seed: Seed of the resampling of solutions.
    """
    rng = np.random.default_rng([seed, 1])
    parts = [result.pairs for result in results]
    values = [_defined_means(parts)]
    for _ in range(_RESAMPLES):
        values.append(
            _defined_means([part.take(rng.integers(len(part), size=len(part))) for part in parts if len(part)])
        )
    by_task = [result.metrics() for result in results]
    return {
        name: MeanMetric(
            value=values[0][name],
            solution_error=_deviation([row[name] for row in values[1:]], at_least=_RESAMPLES // 2),
            task_error=_standard_error([metrics[name] for metrics in by_task]),
        )
        for name in METRICS
    }


def _defined_means(parts: Sequence[Pairs]) -> dict[str, float | None]:
    means: dict[str, float | None] = {}
    for name, metric in METRICS.items():
        defined = [value for value in map(metric, parts) if value is not None]
        means[name] = float(np.mean(defined)) if defined else None
    return means


def _deviation(values: Sequence[float | None], at_least: int = 2) -> float | None:
    defined = [value for value in values if value is not None]
    return float(np.std(defined, ddof=1)) if len(defined) >= at_least else None


def _standard_error(values: Sequence[float | None]) -> float | None:
    deviation = _deviation(values)
    return None if deviation is None else deviation / float(np.sqrt(sum(value is not None for value in values)))
