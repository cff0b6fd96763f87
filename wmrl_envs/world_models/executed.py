"""Executed solutions of one task, from which a language model learns without being trained.

* The nearest ones go into the prompt, with what really came back.
* A Gaussian process on the model's errors corrects what it says about similar solutions (`KernelResidual`).

Near is what differs in few tokens of the syntax tree, numbers aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.research.outcome import STATUSES, Outcome
from wmrl_envs.world_models.features import DataNames, sorted_tokens
from wmrl_envs.world_models.pairs import Executed, pack_outcome, unpack_outcome
from wmrl_envs.world_models.residual import KernelResidual

__all__ = ["ExecutedSolutions", "Solution"]

FloatArray = NDArray[np.float64]
_WIDTH = 1 + len(STATUSES)
_MAX_KEPT = 1_000
"""Distinct solutions of a task that are kept, the latest ones: the residual's cost grows with their cube."""


@dataclass(slots=True)
class Solution:
    """One solution and its executions."""

    code: str
    outcome: Outcome
    """Of the latest execution."""
    count: int = 0
    total: FloatArray = field(default_factory=lambda: np.zeros(_WIDTH))
    """Sums over executions: the reward, then the indicator of each status."""
    base: FloatArray | None = None
    """What the model predicted without having seen this solution's outcome: the reward, then each status's probability;
    None where it could not."""

    def add(self, outcome: Outcome) -> None:
        """Count one execution."""
        self.outcome = outcome
        self.count += 1
        self.total[0] += outcome.reward
        self.total[1 + STATUSES.index(outcome.status)] += 1.0

    def state_dict(self) -> dict[str, Any]:
        """Return everything, JSON-able and exact."""
        return {
            "code": self.code,
            "outcome": pack_outcome(self.outcome),
            "count": self.count,
            "total": self.total.tolist(),
            "base": None if self.base is None else self.base.tolist(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Solution:
        """Build what `state_dict` returned."""
        base = None if state["base"] is None else np.array(state["base"], dtype=np.float64)
        total = np.array(state["total"], dtype=np.float64)
        return cls(str(state["code"]), unpack_outcome(state["outcome"]), int(state["count"]), total, base)


class ExecutedSolutions:
    """The store of one task.

    Args:
        names: What the task's data is called.
    """

    def __init__(self, names: DataNames) -> None:
        self.names = names
        self._solutions: dict[str, Solution] = {}
        self._columns: dict[str, int] = {}
        self._features = np.zeros((0, 0), dtype=np.float32)
        self._sizes = np.zeros(0, dtype=np.float32)
        self._residual = KernelResidual()
        self._fitted: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._solutions)

    def get(self, code: str) -> Solution | None:
        """Return an executed solution, None if this very code was not executed."""
        return self._solutions.get(code)

    def __iter__(self) -> Iterator[Solution]:
        return iter(self._solutions.values())

    def add(self, executed: Sequence[Executed]) -> None:
        """Note executions, in order; `refit` makes the residual know of them."""
        for code, outcome in executed:
            solution = self._solutions.pop(code, None) or Solution(code, outcome)
            solution.add(outcome)
            self._solutions[code] = solution  # last again: the order says which are the latest
        for code in list(self._solutions)[: max(0, len(self._solutions) - _MAX_KEPT)]:
            del self._solutions[code]
        self._index()

    def nearest(self, code: str, k: int, *, itself: bool) -> list[Executed]:
        """Return the k executed solutions that are most like this one, the nearest last.

        Args:
            code: A solution that compiles.
            k: How many; fewer where fewer were executed.
            itself: Whether this very code may be among them.
        """
        if not k or not self._solutions:
            return []
        query = self._query(code, self._columns)
        common = query[:-1] @ self._features.T
        distance = query.sum() + self._sizes - 2.0 * common
        kept = list(self._solutions.values())
        # Equally near: the same code first, then the one executed last.
        order = sorted(range(len(kept)), key=lambda i: (distance[i], kept[i].code != code, -i))
        chosen = [kept[i] for i in order if itself or kept[i].code != code][:k]
        return [(solution.code, solution.outcome) for solution in reversed(chosen)]

    def refit(self) -> None:
        """Fit the residual on all solutions of which the model's own prediction is known."""
        rows: dict[tuple[str, ...], list[Solution]] = {}
        for solution in self._solutions.values():
            if solution.base is not None:
                rows.setdefault(sorted_tokens(solution.code, self.names), []).append(solution)
        counts = np.array([sum(solution.count for solution in same) for same in rows.values()], dtype=np.float64)
        errors = np.zeros((len(rows), _WIDTH))
        for index, same in enumerate(rows.values()):
            for solution in same:
                assert solution.base is not None
                errors[index] += (solution.total - solution.count * solution.base) / counts[index]
        self._residual, (self._fitted, features) = KernelResidual(), _matrix(list(rows))
        if rows:
            self._residual.fit(features, counts, errors)

    @property
    def corrects(self) -> bool:
        """Whether the residual knows any error."""
        return len(self._residual) > 0

    def correct(self, codes: Sequence[str], beliefs: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Add what the model's errors on executed solutions say about these.

        Args:
            codes: m solutions that compile.
            beliefs: float64 [m, 10], what the model predicts: the reward, then each status's probability.
            spread: float64 [m], standard deviation of the reward.

        Returns:
            Both corrected; the beliefs need not be probabilities any more, and the spread is never larger.
        """
        if not self.corrects or not codes:
            return beliefs, spread
        similarity = self._residual.similarity(np.stack([self._query(code, self._fitted) for code in codes]))
        return beliefs + self._residual.correction(similarity), spread * self._residual.shrinkage(similarity)

    def state_dict(self) -> dict[str, Any]:
        """Return everything, JSON-able and exact."""
        return {
            "names": self.names.state_dict(),
            "solutions": [solution.state_dict() for solution in self._solutions.values()],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> ExecutedSolutions:
        """Build what `state_dict` returned; it corrects as the saved one did after its last `refit`."""
        found = cls(DataNames.from_state(state["names"]))
        solutions = [Solution.from_state(solution) for solution in state["solutions"]]
        found._solutions = {solution.code: solution for solution in solutions}
        found._index()
        found.refit()
        return found

    def _index(self) -> None:
        self._columns, self._features = _matrix([sorted_tokens(code, self.names) for code in self._solutions])
        self._sizes = self._features.sum(axis=1)

    def _query(self, code: str, columns: Mapping[str, int]) -> NDArray[np.float32]:
        """Return a solution as float32 [columns + 1]; the last counts its tokens that have no column."""
        tokens = sorted_tokens(code, self.names)
        known = [columns[token] for token in tokens if token in columns]
        query = np.zeros(len(columns) + 1, dtype=np.float32)
        query[known] = 1.0
        query[-1] = len(tokens) - len(known)
        return query


def _matrix(rows: list[tuple[str, ...]]) -> tuple[dict[str, int], NDArray[np.float32]]:
    """Return the column of each token, and the rows as float32 [n, columns] of 0 and 1."""
    columns = {token: index for index, token in enumerate(dict.fromkeys(token for row in rows for token in row))}
    matrix = np.zeros((len(rows), len(columns)), dtype=np.float32)
    for index, row in enumerate(rows):
        matrix[index, [columns[token] for token in row]] = 1.0
    return columns, matrix
