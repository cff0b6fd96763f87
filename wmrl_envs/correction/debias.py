"""Online debiasing: the monotone map from predicted to real reward, fitted on recent anchor pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from wmrl_envs.correction._arrays import FloatArray, check_integer, float_vector
from wmrl_envs.correction._state import State, restore
from wmrl_envs.correction._window import Window
from wmrl_envs.errors import ConfigurationError

__all__ = ["OnlineDebiaser"]


class OnlineDebiaser:
    """Calibrates predicted rewards by isotonic regression on the most recent (predicted, real) pairs.

    This is the Online Debiasing of arXiv 2608.12564. Equal predictions are pooled by weight; between the fitted points
    the map is linear, outside them flat; it is the identity until ``min_pairs`` pairs were seen. Within a step, call
    the map first and ``update`` afterwards: a step is calibrated by *past* pairs alone.

    Example:
        >>> debias = OnlineDebiaser(min_pairs=5)
        >>> debias.update([0.0, 1.0, 1.0, 2.0, 3.0], [0.0, 0.0, 1.0, 0.0, 1.0])
        >>> debias([0.0, 1.0, 2.0, 2.5, 9.0]).round(3).tolist()
        [0.0, 0.333, 0.333, 0.667, 1.0]
    """

    def __init__(
        self, *, min_pairs: int = 64, window: int = 512, refit_every: int | None = None, bins: int | None = None
    ) -> None:
        """Start with no pairs.

        Args:
            min_pairs: Pairs needed before the first fit; from 1 to ``window``.
            window: Most recent pairs that a fit sees.
            refit_every: Number of new pairs after which to fit again; ``None`` fits at every ``update``.
            bins: Number of equal bins over [0, 1] by predicted reward into which pairs are averaged before the fit,
                each weighted by its number of pairs; the outer bins also take what lies outside. ``None`` fits the
                pairs.

        Raises:
            ConfigurationError: If an argument is no whole number in its range.
        """
        self.window = check_integer("window", window, 1)
        self.min_pairs = check_integer("min_pairs", min_pairs, 1)
        if self.min_pairs > self.window:
            raise ConfigurationError(
                f"min_pairs must be at most window={window}, got {min_pairs}: the map would stay the identity for ever"
            )
        self.refit_every = None if refit_every is None else check_integer("refit_every", refit_every, 1)
        self.bins = None if bins is None else check_integer("bins", bins, 1)
        self._pairs = Window(2, self.window)
        self._new_pairs = 0
        self._knots: tuple[FloatArray, FloatArray] | None = None

    @classmethod
    def paper(cls) -> OnlineDebiaser:
        """Return a debiaser with the settings of the paper's release (arXiv 2608.12564)."""
        return cls(min_pairs=200, window=5000, refit_every=64, bins=10)

    @property
    def num_pairs(self) -> int:
        """Pairs in the window."""
        return len(self._pairs)

    @property
    def pairs(self) -> tuple[FloatArray, FloatArray]:
        """Copies of the window's predicted and real rewards, oldest first (two float64 arrays of ``num_pairs``)."""
        predicted, real = self._pairs.values.copy()
        return predicted, real

    @property
    def knots(self) -> tuple[FloatArray, FloatArray]:
        """Copies of the fitted points: increasing predictions and their calibrated values; empty before a fit."""
        if self._knots is None:
            return np.empty(0), np.empty(0)
        return self._knots[0].copy(), self._knots[1].copy()

    def __call__(self, predicted: ArrayLike) -> FloatArray:
        """Return the calibrated rewards (float64, the shape of ``predicted``; NaN, which is unknown, stays NaN)."""
        values: FloatArray = np.array(predicted, dtype=np.float64)
        if self._knots is None:
            return values
        return np.asarray(np.interp(values, *self._knots))

    def update(self, predicted: ArrayLike, real: ArrayLike) -> None:
        """Add the pairs of one step, and fit again if it is time to.

        Args:
            predicted: Predicted (not calibrated) rewards, [n], finite.
            real: Real rewards of the same rollouts or turns, [n], finite.

        Raises:
            ValueError: If the two differ in length, or a value is unknown or infinite: leave an ungraded pair out.
        """
        x = float_vector("predicted", predicted, unknown=False)
        y = float_vector("real", real, unknown=False)
        if len(x) != len(y):
            raise ValueError(f"predicted and real must pair up, got {len(x)} and {len(y)} values")
        if len(x) == 0:
            return
        self._pairs.add(x, y)
        self._new_pairs += len(x)
        if len(self._pairs) >= self.min_pairs and (
            self._knots is None or self.refit_every is None or self._new_pairs >= self.refit_every
        ):
            x, y = self._pairs.values
            self._knots = _fit(x, y) if self.bins is None else _fit_binned(x, y, self.bins)
            self._new_pairs = 0

    def state_dict(self) -> State:
        """Return the settings, pairs and map as a dict that JSON carries exactly."""
        return {
            "kind": type(self).__name__,
            "settings": self._settings(),
            "pairs": self._pairs.tolist(),
            "new_pairs": self._new_pairs,
            "knots": None if self._knots is None else [axis.tolist() for axis in self._knots],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` returned.

        Raises:
            CheckpointError: If the state is damaged or was saved under other settings.
        """

        def apply() -> None:
            pairs = self._pairs.restored(state["pairs"])
            new_pairs = int(state["new_pairs"])
            knots = None
            if state["knots"] is not None:
                x, y = (float_vector("knots", axis) for axis in state["knots"])
                if len(x) != len(y) or len(x) == 0:
                    raise ValueError(f"{len(x)} and {len(y)} knot coordinates")
                knots = (x, y)
            self._pairs, self._new_pairs, self._knots = pairs, new_pairs, knots

        restore(self, state, self._settings(), apply)

    def _settings(self) -> State:
        return {
            "min_pairs": self.min_pairs,
            "window": self.window,
            "refit_every": self.refit_every,
            "bins": self.bins,
        }


def _fit(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the distinct x, sorted, and the isotonic fit at them."""
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    first = np.empty(len(x), dtype=np.bool_)
    first[0] = True
    np.not_equal(x[1:], x[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    if len(starts) == len(x):
        return x, isotonic_regression(y).x
    counts = np.diff(starts, append=len(x))
    return x[starts], isotonic_regression(np.add.reduceat(y, starts) / counts, weights=counts).x


def _fit_binned(x: FloatArray, y: FloatArray, bins: int) -> tuple[FloatArray, FloatArray]:
    """Return the bins' mean x and the isotonic fit of their mean y, for the bins that hold pairs."""
    index = np.clip(x * bins, 0, bins - 1).astype(np.intp)
    counts = np.bincount(index, minlength=bins)
    filled = np.flatnonzero(counts)
    counts = counts[filled]
    mean_x = np.bincount(index, x, bins)[filled] / counts
    mean_y = np.bincount(index, y, bins)[filled] / counts
    return mean_x, isotonic_regression(mean_y, weights=counts).x
