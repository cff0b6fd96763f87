"""What a few labels tell about a progress model's errors: a Gaussian process over its own description of rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from wmrl_envs.errors import ProgressModelError
from wmrl_envs.robotics.progress import Progress

__all__ = ["LabelResidual"]

FloatArray = NDArray[np.float64]

_WIDTH = 4.0
_ACROSS = 0.3
_NOISE = 0.3
_PRIOR = np.array([0.0, 1.0])
_WINDOW = 512


class LabelResidual:
    """Posterior mean of the label, given the rollouts labelled so far.

    With p the progress model's reward and x its description of a rollout, in units of its spread over the model's own
    training data (its scores where it gives none),

        prediction(x) = a + b p + K(x, X) (K(X, X) + s2 I)^-1 (r - a - b p(X)),
        K(x, x') = exp(-|x - x'|^2 / (4 d)) * (1 where both have one instruction, else 0.3),

    where a + b p is the ridge fit of the labels, drawn towards p itself, and d the length of x. s2 = .3. The constants
    were chosen on rollouts of imitating policies, as the correlation with the label within groups of one initial state.

    The last 512 labels count.
    """

    def __init__(self) -> None:
        """Start without labels, so that predictions are the model's own."""
        self._points: list[FloatArray] = []
        self._instructions: list[str] = []
        self._raw: list[float] = []
        self._labels: list[float] = []
        self._line, self._weights = _PRIOR, np.zeros(0)

    def __len__(self) -> int:
        """Return the number of labels."""
        return len(self._labels)

    def corrected(
        self, scores: Sequence[Progress | None], instructions: Sequence[str], rewards: Sequence[float | None]
    ) -> list[float | None]:
        """Return n predictions in place of the model's rewards; ``None`` stays ``None``."""
        rows = [i for i, reward in enumerate(rewards) if reward is not None]
        if not self._labels or not rows:
            return list(rewards)
        queries = np.stack([self._described(scores[i]) for i in rows])
        kernel = self._kernel(queries, [instructions[i] for i in rows])
        predicted = _line_of([rewards[i] for i in rows]) @ self._line + kernel @ self._weights
        answer: list[float | None] = [None] * len(rewards)
        for i, value in zip(rows, predicted, strict=True):
            answer[i] = float(value)
        return answer

    def learn(
        self,
        scores: Sequence[Progress | None],
        instructions: Sequence[str],
        rewards: Sequence[float | None],
        labels: Sequence[float],
    ) -> None:
        """Take in the labels of n rollouts; those that the model could not score tell nothing."""
        for found, instruction, reward, label in zip(scores, instructions, rewards, labels, strict=True):
            if reward is not None:
                self._points.append(self._described(found))
                self._instructions.append(instruction)
                self._raw.append(float(reward))
                self._labels.append(float(label))
        for column in (self._points, self._instructions, self._raw, self._labels):
            del column[:-_WINDOW]
        self._fit()

    def state_dict(self) -> dict[str, Any]:
        """Return the labelled rollouts' descriptions, JSON-able and exact."""
        return {
            "points": [point.tolist() for point in self._points],
            "instructions": list(self._instructions),
            "raw": list(self._raw),
            "labels": list(self._labels),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned."""
        self._points = [np.array(point) for point in state["points"]]
        self._instructions, self._raw = list(state["instructions"]), list(state["raw"])
        self._labels = list(state["labels"])
        self._fit()

    def _described(self, scores: Progress | None) -> FloatArray:
        found = describe(scores)
        if self._points and found.shape != self._points[0].shape:
            raise ProgressModelError(
                f"a progress model described a rollout by {len(found)} numbers, and earlier ones by "
                f"{len(self._points[0])}; to learn from labels it must describe all of them alike"
            )
        return found

    def _fit(self) -> None:
        if not self._labels:
            self._line, self._weights = _PRIOR, np.zeros(0)
            return
        lines, labels = _line_of(self._raw), np.array(self._labels)
        self._line = np.linalg.solve(lines.T @ lines + np.eye(2), lines.T @ labels + _PRIOR)
        kernel = self._kernel(np.stack(self._points), self._instructions)
        kernel[np.diag_indices_from(kernel)] += _NOISE
        self._weights = cho_solve(cho_factor(kernel), labels - lines @ self._line)

    def _kernel(self, queries: FloatArray, instructions: Sequence[str]) -> FloatArray:
        """Return K(queries, points), [m, n]."""
        points = np.stack(self._points)
        squares = (queries**2).sum(1)[:, None] + (points**2).sum(1)[None] - 2.0 * queries @ points.T
        same = np.array(instructions)[:, None] == np.array(self._instructions)[None]
        distance = np.maximum(squares, 0.0) / (_WIDTH * points.shape[1])
        return np.asarray(np.exp(-distance) * np.where(same, 1.0, _ACROSS))


def describe(scores: Progress | None) -> FloatArray:
    """Return a model's description of a rollout, or else its scores in one row; [d]."""
    assert scores is not None
    if scores.features is not None:
        return np.asarray(scores.features, np.float64)
    parts = [scores.progress] if scores.success is None else [scores.progress, scores.success]
    return np.concatenate(parts).astype(np.float64)


def _line_of(rewards: Sequence[float | None]) -> FloatArray:
    return np.stack([np.ones(len(rewards)), np.array(rewards, np.float64)], axis=1)
