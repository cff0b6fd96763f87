"""Corrected returns for agents that see one number per step: what an episode pays, and how it is paid turn by turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wmrl_envs.correction._arrays import (
    BoolArray,
    FloatArray,
    check_integer,
    check_number,
    float_vector,
    known,
    selection,
)
from wmrl_envs.correction._state import State, restore
from wmrl_envs.correction._window import Window
from wmrl_envs.correction.denoise import NEGLIGIBLE_VARIANCE, AnchorWeight

__all__ = ["ScalarFusion", "episode_returns", "scalar_return", "turn_reward", "weighted_return"]


def scalar_return(
    calibrated: ArrayLike,
    real: ArrayLike,
    anchor: ArrayLike,
    *,
    mean: ArrayLike,
    lambda_: ArrayLike,
    alpha: ArrayLike,
    probability: ArrayLike,
) -> FloatArray:
    """Return r_out = g + (alpha / p) * E * (r - g), with g = c + lambda * (f - c).

    The doubly robust estimate of an episode's real return r on the setting of arXiv 2608.12564: its expectation over
    the anchor draw is r for alpha = 1 and any lambda and c that were fixed before the draw. All arguments broadcast.

    Args:
        calibrated: Calibrated predicted return f.
        real: Real return r; read in anchor episodes only.
        anchor: Whether the episode is an anchor (E).
        mean: c, the running mean of f over earlier episodes.
        lambda_: Trust in the prediction.
        alpha: Weight of the correction, in [0, 1].
        probability: p, with which the episode was drawn as an anchor; 1 for an anchor forced by hand. With 0 the
            correction is 0.

    Returns:
        Float64 of the broadcast shape; exactly r where alpha = p = 1 in an anchor, exactly g outside anchors.
    """
    f, r, c, trust, a, p = (
        np.asarray(x, dtype=np.float64) for x in (calibrated, real, mean, lambda_, alpha, probability)
    )
    e = np.asarray(anchor, dtype=np.bool_)
    g = c + trust * (f - c)
    applies = e & (p > 0.0)
    shape = np.broadcast_shapes(g.shape, r.shape, p.shape, e.shape, a.shape)
    weight = np.divide(a, p, out=np.zeros(shape), where=applies)
    result: FloatArray = (1.0 - weight) * g + np.where(applies, weight * r, 0.0)
    return result


def weighted_return(x: ArrayLike, *, mean: ArrayLike, weight: ArrayLike) -> FloatArray:
    """Return c + w * (x - c), what the schemes ``paper`` and ``denoise`` pay (arXiv 2608.12564, for scalar returns).

    Args:
        x: The real return in anchor episodes, the calibrated prediction elsewhere.
        mean: c, the running mean of f over earlier episodes.
        weight: w in anchor episodes, 1 elsewhere.

    Returns:
        Float64 of the broadcast shape; exactly x where w = 1.
    """
    x = np.asarray(x, dtype=np.float64)
    w = np.asarray(weight, dtype=np.float64)
    result: FloatArray = np.asarray((1.0 - w) * np.asarray(mean, dtype=np.float64) + w * x)
    return result


def episode_returns(
    calibrated: ArrayLike,
    real: ArrayLike,
    anchor: ArrayLike,
    *,
    mean: ArrayLike,
    lambda_: ArrayLike = 1.0,
    alpha: ArrayLike = 1.0,
    probability: ArrayLike = 0.0,
    weight: ArrayLike | None = None,
) -> tuple[FloatArray, BoolArray]:
    """Return what each ended episode pays in total, whatever is unknown of it.

    Args:
        calibrated: f, [n]; ``None`` or NaN where the prediction failed.
        real: r, [n]; ``None`` or NaN where the episode was not executed, or execution failed.
        anchor: Whether each episode is an anchor, bool [n].
        mean: c, one number or [n].
        lambda_: Trust in the predictions, one number or [n].
        alpha: Weight of the correction, one number or [n].
        probability: The anchors' probability p, one number or [n].
        weight: If given, mix instead of rectifying: an anchor's r counts with this w (one number or [n]), every f with
            1.

    Returns:
        The returns, float64 [n]: by ``scalar_return`` (or ``weighted_return``) where what that needs is known; r where
        only the prediction failed; c elsewhere. And which episodes are ungraded (those that pay c), bool [n].

    Raises:
        ValueError: If lengths differ or a value is infinite.
    """
    f = float_vector("calibrated", calibrated)
    r = float_vector("real", real, len(f))
    e = selection("anchor", anchor, len(f))
    if weight is None:
        paid = scalar_return(f, r, e, mean=mean, lambda_=lambda_, alpha=alpha, probability=probability)
    else:
        paid = weighted_return(np.where(e, r, f), mean=mean, weight=np.where(e, weight, 1.0))
    executed = known(r)
    usable = known(f) & (executed | ~e)
    paid = np.where(usable, paid, np.where(executed & ~known(f), r, mean))
    return paid, ~usable & ~(executed & ~known(f))


def turn_reward(potential: ArrayLike, paid: ArrayLike) -> FloatArray:
    """Return the reward of a turn after which an episode shall have paid ``potential`` in all.

    Before the last turn the potential is lambda * best_t (or w * best_t), best_t the best calibrated reward so far:
    the turn pays lambda * (best_t - best_(t-1)). At the last it is the episode's return, so the undiscounted sum of
    the turns is that return. Add the reward to ``paid`` afterwards; what was paid, not what should have been, is what
    the next turn starts from.

    Args:
        potential: Total after this turn, any shape; NaN (unknown) pays 0 for the moment.
        paid: Total before it, the same shape; 0 at reset.

    Returns:
        Float64, the same shape.
    """
    reward = np.asarray(potential, dtype=np.float64) - np.asarray(paid, dtype=np.float64)
    return np.where(np.isnan(reward), 0.0, reward)


class ScalarFusion:
    """Running statistics for corrected scalar returns: the mean c, the trust lambda and the paper's weight w.

    c is the mean of f over the most recent earlier episodes; lambda = clip(cov(r, f) / var(f), 0, 1.5) over the recent
    anchor episodes (power tuning, Angelopoulos et al. 2023); w = clip(1 + k * s2, 1, 4) by s2 = var(f - r) / var(r),
    pooled over the same anchor episodes (arXiv 2608.12564's denoising, for scalar returns). Freeze all three at an
    episode's reset.
    """

    def __init__(
        self,
        *,
        window: int = 512,
        mean_window: int = 512,
        min_anchors: int = 32,
        observations: int = 32,
        limit: float = 1.5,
        fixed: float | None = None,
    ) -> None:
        """Start with c = 0, lambda = 1 and w = 1.

        Args:
            window: Most recent anchor episodes for lambda and w.
            mean_window: Most recent episodes of any kind for c, so that it follows a policy that improves: a c that
                lags behind makes r - g large in every anchor.
            min_anchors: Anchor episodes until which lambda stays 1.
            observations: Anchor episodes after which the weight's factor k is fixed so that w = 2.
            limit: Largest lambda.
            fixed: A lambda to keep for ever, in [0, limit]; ``None`` learns it.

        Raises:
            ConfigurationError: If an argument is out of its range.
        """
        self.window = check_integer("window", window, 2)
        self.mean_window = check_integer("mean_window", mean_window, 1)
        self.min_anchors = check_integer("min_anchors", min_anchors, 2)
        self.observations = check_integer("observations", observations, 2)
        self.limit = check_number("limit", limit, 0.0, float(np.finfo(np.float64).max))
        self.fixed = None if fixed is None else check_number("fixed", fixed, 0.0, self.limit)
        self._predictions = Window(1, self.mean_window)
        self._anchors = Window(2, self.window)
        self._rule = AnchorWeight(self.observations)
        self._num_anchors = 0
        self._mean, self._lambda, self._s2 = 0.0, 1.0, 0.0

    @property
    def mean(self) -> float:
        """c, the mean calibrated return of earlier episodes; 0 before the first."""
        return self._mean

    @property
    def lambda_(self) -> float:
        """Trust in the predictions, in [0, limit]."""
        return self._lambda if self.fixed is None else self.fixed

    @property
    def weight(self) -> float:
        """Weight w of an anchor's return in the schemes ``paper`` and ``denoise``, in [1, 4]."""
        return self._rule(self._s2)

    @property
    def s2(self) -> float:
        """Variance of f - r relative to that of r; 0 while unknown."""
        return self._s2

    @property
    def num_anchors(self) -> int:
        """Anchor episodes seen."""
        return self._num_anchors

    def update(self, calibrated: ArrayLike, real: ArrayLike | None = None, anchor: ArrayLike | None = None) -> None:
        """Add episodes that ended, after their returns were paid.

        Args:
            calibrated: f of each episode, [n]; leave ungraded episodes out, or give None or NaN for them.
            real: r of each, [n]; None or NaN where unknown. ``None`` where no episode is an anchor.
            anchor: Which are anchors, bool [n]; by default those whose r is known.

        Raises:
            ValueError: If lengths differ or a value is infinite.
        """
        f = float_vector("calibrated", calibrated)
        graded = known(f)
        if graded.any():
            self._predictions.add(f[graded])
            self._mean = _mean(self._predictions.values[0])
        if real is None:
            return
        r = float_vector("real", real, len(f))
        pairs = graded & known(r) & selection("anchor", anchor, len(f))
        if pairs.any():
            self._anchors.add(r[pairs], f[pairs])
            self._num_anchors += int(pairs.sum())
            self._refit()

    def _refit(self) -> None:
        r, f = self._anchors.values
        dr, df = r - _mean(r), f - _mean(f)
        # Means of products, not dot products: BLAS may add in an order that depends on where the array lies in memory.
        var_f, var_r = _mean(df * df), _mean(dr * dr)
        if self._num_anchors >= self.min_anchors and var_f > 0.0 and f.max() > f.min():
            self._lambda = min(max(_mean(dr * df) / var_f, 0.0), self.limit)
        if var_r >= NEGLIGIBLE_VARIANCE:
            self._s2 = _mean((df - dr) ** 2) / var_r
            self._rule.fix(self._num_anchors, self._s2)

    def state_dict(self) -> State:
        """Return the settings and statistics as a dict that JSON carries exactly."""
        return {
            "kind": type(self).__name__,
            "settings": self._settings(),
            "predictions": self._predictions.tolist(),
            "anchors": self._anchors.tolist(),
            "num_anchors": self._num_anchors,
            "mean": self._mean,
            "lambda": self._lambda,
            "s2": self._s2,
            "k": self._rule.k,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` returned.

        Raises:
            CheckpointError: If the state is damaged or was saved under other settings.
        """

        def apply() -> None:
            predictions = self._predictions.restored(state["predictions"])
            anchors = self._anchors.restored(state["anchors"])
            mean, lambda_, s2 = (float(state[key]) for key in ("mean", "lambda", "s2"))
            k, num_anchors = state["k"], int(state["num_anchors"])
            self._predictions, self._anchors, self._num_anchors = predictions, anchors, num_anchors
            self._mean, self._lambda, self._s2 = mean, lambda_, s2
            self._rule.k = None if k is None else float(k)

        restore(self, state, self._settings(), apply)

    def _settings(self) -> State:
        names = ("window", "mean_window", "min_anchors", "observations", "limit", "fixed")
        return {name: getattr(self, name) for name in names}


def _mean(values: FloatArray) -> float:
    """Return what ``values.mean()`` does, to the last bit, at a fraction of its overhead."""
    return float(np.add.reduce(values) / len(values))
