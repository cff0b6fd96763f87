"""What executed solutions add to a fitted model: a Gaussian process on its errors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

__all__ = ["NOISES", "WIDTHS", "Executions", "KernelResidual"]

FloatArray = NDArray[np.float64]

WIDTHS = (3.0, 6.0, 12.0, 24.0, 48.0)
"""Kernel widths to choose from, in features that differ."""
NOISES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Noise variances to choose from, in units of the errors' own variance."""
_TUNING_POINTS = 300
"""The latest executed solutions alone decide width and noise: the cost grows with their number cubed."""


@dataclass(frozen=True, slots=True)
class Executions:
    """Executed solutions, as the residual takes them."""

    points: NDArray[np.float32]
    """float32 [n, d] of 0 and 1, distinct rows, the latest last."""
    counts: FloatArray
    """float64 [n]: executions behind each row, at least 1."""
    errors: FloatArray
    """float64 [n, k]: mean outcome minus the model's prediction; column 0 is the reward."""
    scatter: FloatArray
    """float64 [n]: sum of squared deviations of a row's rewards from their mean."""


class KernelResidual:
    """Posterior mean of a model's errors, given executed solutions.

    With X the executed solutions, r their mean outcomes over ``count`` executions and f the model,

        f_post(x) = f(x) + K(x, X) (K(X, X) + s2 diag(1 / count))^-1 (r - f(X)),   K(x, x') = exp(-|x - x'|^2 / width),

    on 0/1 features, where |x - x'|^2 is the number of features that differ. The outcomes may have several columns (the
    reward and the probability of each status): all share the one factorisation.

    Left to itself it chooses width and s2 by marginal likelihood, and moves by one step of either at a refit. Right
    after the warm-up the errors are mostly what no feature shows, so s2 must be large, or one execution that failed
    for an invisible reason condemns all its neighbours. As a policy narrows what is executed, the errors that remain
    are shared and s2 falls by a factor of 100: no fixed value is right at both ends.

    Args:
        width: Kernel width in differing features, above 0; None chooses.
        noise: s2, the variance of one execution's error in units of the variance of the errors, above 0; None chooses.
    """

    def __init__(self, width: float | None = None, noise: float | None = None) -> None:
        self._widths: tuple[float, ...] = WIDTHS if width is None else (width,)
        self._noises: tuple[float, ...] = NOISES if noise is None else (noise,)
        self.width = self._widths[0]
        self.noise = self._noises[0]
        self._points = np.zeros((0, 0), dtype=np.float32)
        self._sizes = np.zeros(0, dtype=np.float32)
        self._weights = np.zeros((0, 1))
        self._shrunk = np.zeros(0)

    def __len__(self) -> int:
        """Return the number of executed solutions it was fitted on."""
        return len(self._points)

    def tune(self, executed: Executions, *, everywhere: bool = False) -> None:
        """Choose width and noise by the marginal likelihood of the rewards' errors.

        Args:
            executed: What was executed; the latest 300 solutions count.
            everywhere: Try all combinations; otherwise those one step away from the present one.
        """
        widths, noises = self._widths, self._noises
        if not everywhere:
            widths, noises = _around(widths, self.width), _around(noises, self.noise)
        if len(widths) * len(noises) == 1:
            self.width, self.noise = widths[0], noises[0]
            return
        recent = slice(-_TUNING_POINTS, None)
        points = executed.points[recent]
        counts, errors = executed.counts[recent], executed.errors[recent, 0]
        scatter = float(executed.scatter[recent].sum())
        distances = _distances(points, points)
        best = -math.inf
        for width in widths:
            kernel = _kernel(distances, width)
            for noise in noises:
                likelihood = _log_likelihood(kernel.copy(), counts, errors, scatter, noise)
                if likelihood > best:
                    best, self.width, self.noise = likelihood, width, noise

    def fit(self, executed: Executions) -> None:
        """Fit the posterior with the present width and noise."""
        self._points = executed.points
        kernel = _kernel(_distances(self._points, self._points), self.width)
        kernel[np.diag_indices_from(kernel)] += self.noise / executed.counts
        factor = cho_factor(kernel, lower=True, overwrite_a=True, check_finite=False)
        self._weights = np.ascontiguousarray(cho_solve(factor, executed.errors, check_finite=False))
        self._shrunk = executed.counts / (executed.counts + self.noise)

    def similarity(self, queries: NDArray[np.float32]) -> FloatArray:
        """Return K(x, X), float64 [m, n], for 0/1 queries float32 [m, d]; d may exceed that of the fitted points."""
        return _kernel(_distances(queries, self._points), self.width)

    def correction(self, similarity: FloatArray) -> FloatArray:
        """Return what to add to the model's predictions, float64 [m, k]."""
        # One product per query, not one for all: a BLAS may round a row differently in a batch of another size, and a
        # resumed run must predict what the unbroken one did.
        return np.asarray(np.matmul(similarity[:, None, :], self._weights)[:, 0, :])

    def shrinkage(self, similarity: FloatArray) -> FloatArray:
        """Return the share of the prior standard deviation that is left, float64 [m] in [0, 1].

        Given the nearest executed solution alone, an upper bound of the exact value: exactness would cost a triangular
        solve per query.
        """
        return np.asarray(np.sqrt(1.0 - (similarity**2 * self._shrunk).max(axis=1, initial=0.0)))


def _around(values: tuple[float, ...], present: float) -> tuple[float, ...]:
    index = values.index(present)
    return values[max(index - 1, 0) : index + 2]


def _distances(queries: NDArray[np.float32], points: NDArray[np.float32]) -> NDArray[np.intp]:
    """Return how many features differ, [m, n]; features that the points lack are 0 in them."""
    # Whole numbers, exact in float32 in any order of summation.
    common = queries[:, : points.shape[1]] @ points.T
    return np.asarray(queries.sum(axis=1)[:, None] + points.sum(axis=1)[None, :] - 2.0 * common).astype(np.intp)


def _kernel(distances: NDArray[np.intp], width: float) -> FloatArray:
    # From a table: faster than np.exp of the matrix, and equal for equal distances.
    return np.asarray(np.exp(-np.arange(int(distances.max(initial=0)) + 1) / width)[distances])


def _log_likelihood(kernel: FloatArray, counts: FloatArray, errors: FloatArray, scatter: float, noise: float) -> float:
    """Return the log marginal likelihood of all single executions, up to a constant; ``kernel`` is overwritten.

    The errors' variance is profiled out. Executions of one row enter by their mean and by their scatter around it,
    which tells the noise most directly.
    """
    n, total = len(counts), float(counts.sum())
    kernel[np.diag_indices_from(kernel)] += noise / counts
    factor = cho_factor(kernel, lower=True, overwrite_a=True, check_finite=False)
    fit = float(errors @ cho_solve(factor, errors, check_finite=False)) + scatter / noise
    halved_determinant = float(np.log(np.diagonal(factor[0])).sum())
    return -0.5 * total * math.log(max(fit, 1e-12)) - halved_determinant - 0.5 * (total - n) * math.log(noise)
