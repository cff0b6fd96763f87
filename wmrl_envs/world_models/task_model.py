"""The learned world model of one task: a forest from warm-up executions and a residual from all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.research.outcome import STATUSES, Outcome, Prediction, Status
from wmrl_envs.world_models.features import DataNames, FeatureTable
from wmrl_envs.world_models.forest import OutcomeForest
from wmrl_envs.world_models.pairs import Executed, pack, pack_outcome, unpack, unpack_outcome
from wmrl_envs.world_models.posterior import consistent
from wmrl_envs.world_models.residual import KernelResidual

__all__ = ["TaskModel"]

FloatArray = NDArray[np.float64]
_INDEX = {status: index for index, status in enumerate(STATUSES)}
_CELLS = 2**25
"""Feature cells (4 bytes each) after which solutions that were only predicted are forgotten."""
_HEARD = 0.1
"""Weight in the residual of an execution that the forest was fitted on: most of what it says, the forest has said."""
_SCALE = 4096.0
"""Importances are counted in these parts."""


@dataclass(slots=True)
class _Point:
    """Executions of the solutions that share one feature row."""

    code: str
    """One of those solutions."""
    count: int = 0
    heard: int = 0
    """How many of them the forest was fitted on."""
    total: FloatArray = field(default_factory=lambda: np.zeros(1 + len(STATUSES)))
    """Sums over executions: the reward, then the indicator of each status."""
    examples: dict[Status, Outcome] = field(default_factory=dict)
    """One execution that ended so, for its feedback: the latest."""

    def add(self, outcome: Outcome) -> None:
        self.count += 1
        self.total[0] += outcome.reward
        self.total[1 + _INDEX[outcome.status]] += 1.0
        self.examples[outcome.status] = outcome

    def state_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "count": self.count,
            "heard": self.heard,
            "total": self.total.tolist(),
            "examples": [pack_outcome(outcome) for outcome in self.examples.values()],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> _Point:
        examples = [unpack_outcome(example) for example in state["examples"]]
        by_status = {example.status: example for example in examples}
        return cls(state["code"], state["count"], state["heard"], np.array(state["total"]), by_status)


class TaskModel:
    """Predicts one task's outcomes.

    Args:
        names: What the task's data is called.
        trees: Trees of the forest.
        seed: Seed of the forest.
        width: Kernel width of the residual, in differing features.
        noise: Variance of one execution's error that the residual assumes.
        max_points: Distinct executed solutions that the residual keeps, the latest ones.
    """

    def __init__(self, names: DataNames, *, trees: int, seed: int, width: float, noise: float, max_points: int) -> None:
        self.names = names
        self._table = FeatureTable(names)
        self._forest = OutcomeForest(trees, seed)
        self._residual = KernelResidual(width, noise)
        self._max_points = max_points
        self._warmup: list[Executed] = []
        self._points: dict[int, _Point] = {}
        self._pending: list[Executed] = []
        self._width = 0
        self._honest: dict[int, FloatArray] = {}
        self._room = _CELLS
        self._base = np.zeros((0, 1 + len(STATUSES)))
        self._spread = np.zeros(0)
        self._modelled = 0
        self._memo: dict[int, Prediction] = {}
        self._kept: list[_Point] = []
        self._kept_reward, self._kept_status = np.zeros(0), np.zeros(0, dtype=np.intp)
        self._relevance, self._kept_size = np.zeros(0, dtype=np.float32), np.zeros(0, dtype=np.float32)
        self._kept_features = np.zeros((0, 0), dtype=np.float32)

    def fit(self, warmup: list[Executed]) -> None:
        """Fit the forest on warm-up executions, and the residual on its out-of-bag errors."""
        self._warmup = list(warmup)
        self._note(warmup)
        for point in self._points.values():
            point.heard = point.count
        rows = list(self._points)
        features = self._table.matrix[rows]
        self._width = features.shape[1]
        targets = np.stack([self._points[row].total / self._points[row].count for row in rows])
        # In the bag a forest repeats what it was told; out of the bag it errs as it does on new solutions.
        self._honest = dict(zip(rows, self._forest.fit(features, targets), strict=True))
        self._fit_residual()

    def add(self, code: str, outcome: Outcome) -> None:
        """Note one execution; predictions change with the next `refit`."""
        self._pending.append((code, outcome))

    def refit(self) -> None:
        """Fit the residual on everything noted so far."""
        if not self._pending:
            return
        self._note(self._pending)
        self._pending.clear()
        self._points = dict(list(self._points.items())[-self._max_points :])
        self._fit_residual()

    def _fit_residual(self) -> None:
        self._model_rows()
        rows, self._kept = list(self._points), list(self._points.values())
        counts = np.array([point.count for point in self._kept], dtype=np.float64)
        means = np.stack([point.total for point in self._kept]) / counts[:, None]
        self._kept_reward, self._kept_status = means[:, 0], means[:, 1:].argmax(axis=1)
        # Whole numbers, so that sums are exact in any order and equal distances stay equal.
        self._relevance = np.rint(self._forest.importances * _SCALE).astype(np.float32)
        self._kept_features = self._table.matrix[rows, : self._width]
        self._kept_size = self._kept_features @ self._relevance
        heard = np.array([point.heard for point in self._kept], dtype=np.float64)
        weights = counts - (1.0 - _HEARD) * heard
        self._residual.fit(self._table.matrix[rows], weights, means - self._base[rows])
        self._memo.clear()

    def _note(self, executed: list[Executed]) -> None:
        for code, outcome in executed:
            row = self._table.row(code)
            point = self._points.pop(row, None) or _Point(code)
            point.add(outcome)
            self._points[row] = point  # last again: the order says which are the latest

    def __contains__(self, code: object) -> bool:
        """Return whether this very source was predicted or executed before, so that it is known to compile."""
        return code in self._table

    def predict(self, codes: list[str]) -> tuple[list[Prediction], list[bool]]:
        """Return one prediction per code (``seconds`` 0), and which had to be computed since the last refit."""
        if self._table.cells > self._room:
            self._forget()
        rows = [self._table.row(code) for code in codes]
        new = {row: None for row in rows if row not in self._memo}
        if new:
            self._model_rows()
            self._memo.update(zip(new, self._posterior(list(new)), strict=True))
        return [self._memo[row] for row in rows], [row in new for row in rows]

    def state_dict(self) -> dict[str, Any]:
        """Return the executions behind the model, JSON-able: fitting on them again gives equal predictions."""
        return {
            "names": self.names.state_dict(),
            "warmup": pack(self._warmup),
            "points": [point.state_dict() for point in self._points.values()],
            "pending": pack(self._pending),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a freshly built model from a `state_dict`."""
        self.fit(unpack(state["warmup"]))
        points = [_Point.from_state(point) for point in state["points"]]
        self._points = {self._table.row(point.code): point for point in points}
        self._fit_residual()
        self._pending = unpack(state["pending"])

    def _model_rows(self) -> None:
        """Ask the forest about rows that it has not seen yet; it never changes its mind."""
        matrix = self._table.matrix
        if self._modelled == len(matrix):
            return
        prediction = self._forest.predict(matrix[self._modelled :, : self._width])
        for row in range(self._modelled, len(matrix)):
            if row in self._honest:
                prediction.outcomes[row - self._modelled] = self._honest[row]
        self._base = np.concatenate([self._base, prediction.outcomes])
        self._spread = np.concatenate([self._spread, prediction.spread])
        self._modelled = len(matrix)

    def _forget(self) -> None:
        """Drop what was only predicted, so that memory is bounded however many programs an agent writes."""
        points = list(self._points.values())
        self._table = FeatureTable(self.names)
        for code, _ in self._warmup:  # first, as when the forest was fitted: its columns and rows stay what they were
            self._table.row(code)
        self._points = {self._table.row(point.code): point for point in points}
        self._base, self._spread, self._modelled = self._base[:0], self._spread[:0], 0
        self._fit_residual()
        self._room = max(_CELLS, 2 * self._table.cells)

    def _posterior(self, rows: list[int]) -> list[Prediction]:
        similarity = self._residual.similarity(self._table.matrix[rows])
        outcomes = self._base[rows] + self._residual.correction(similarity)
        spread = self._spread[rows] * self._residual.shrinkage(similarity)
        reward, probabilities, status, position = consistent(outcomes)
        nearest = self._nearest(rows, reward, status)
        return [
            self._prediction(
                STATUSES[status[i]],
                float(reward[i]),
                float(position[i]),
                tuple(probabilities[i].tolist()),
                float(spread[i]),
                self._kept[nearest[i]],
            )
            for i in range(len(rows))
        ]

    def _nearest(self, rows: list[int], reward: FloatArray, status: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return which of the executed solutions tells best what a terminal would show, among those that ended so.

        Nearest by what the forest found to matter: on recorded executions it failed for the same reason in 92 % of the
        cases, against 75 % where every feature counts alike. And about as good, since feedback names the score.
        """
        queries = self._table.matrix[rows, : self._width] * self._relevance
        distance = queries.sum(axis=1)[:, None] + self._kept_size[None, :] - 2.0 * (queries @ self._kept_features.T)
        unlike = distance / _SCALE + np.abs(self._kept_reward[None, :] - reward[:, None])
        return np.asarray(np.where(self._kept_status[None, :] == status[:, None], unlike, np.inf).argmin(axis=1))

    def _prediction(
        self,
        status: Status,
        reward: float,
        position: float,
        probabilities: tuple[float, ...],
        spread: float,
        nearest: _Point,
    ) -> Prediction:
        example = nearest.examples.get(status)
        return Prediction(
            status=status,
            reward=reward,
            position=position if status is Status.VALID else None,
            feedback=example.feedback if example else "",
            error_type=example.error_type if example else None,
            error_line=example.error_line if example else None,
            probabilities=probabilities,
            spread=spread,
            confidence=max(probabilities),
        )
