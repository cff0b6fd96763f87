"""Denoising by inverse variance, as the paper and its release do it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wmrl_envs.correction._arrays import FloatArray, check_half_life, check_integer, float_vector
from wmrl_envs.correction._grouping import Grouping, graded_pairs
from wmrl_envs.correction._state import State, restore

__all__ = ["NEGLIGIBLE_VARIANCE", "AnchorWeight", "InverseVarianceWeighter", "inverse_variance"]

NEGLIGIBLE_VARIANCE = 1e-9
"""Variance of real rewards below which a ratio to it says nothing."""
NEGLIGIBLE_RATIO = 1e-12
"""Residual variance relative to the real rewards' that is rounding: predictions without noise."""


def inverse_variance(values: ArrayLike, variances: ArrayLike) -> tuple[float, float]:
    """Fuse independent unbiased estimates of one quantity by inverse variance.

    Args:
        values: The estimates, [n], n > 0, finite.
        variances: Their variances, [n], at least 0. A variance of 0 wins outright (several share equally); an infinite
            one has no say, unless all are.

    Returns:
        The fused value, and its variance 1 / (1/V1 + ... + 1/Vn).

    Raises:
        ValueError: If the lengths differ or are 0, a value is unknown, or a variance is negative or unknown.

    Example:
        >>> [round(x, 9) for x in inverse_variance([0.4, 0.8], [0.01, 0.04])]
        [0.48, 0.008]
    """
    x = float_vector("values", values, unknown=False)
    v: FloatArray = np.asarray(variances, dtype=np.float64)
    if v.shape != x.shape or len(x) == 0:
        raise ValueError(f"values and variances must pair up, got shapes {x.shape} and {v.shape}; give one at least")
    if not (v >= 0.0).all():
        raise ValueError(f"variances must be at least 0, got {v.tolist()}")
    smallest = v.min()
    if smallest == 0.0 or np.isinf(smallest):
        weights = (v == smallest).astype(np.float64)
    else:
        weights = smallest / v  # relative to the smallest, so that no 1/v can overflow
    return float((weights * x).sum() / weights.sum()), float(smallest / weights.sum())


class AnchorWeight:
    """The paper's weight of an anchor's reward: w = clip(1 + k * s2, 1, 4) (arXiv 2608.12564, as its release does it).

    s2 is the variance of the predictions' residual relative to the real rewards'; k is fixed once, as soon as
    ``observations`` were made, so that w = 2 then. Before that, or if s2 is 0, w = 1.
    """

    def __init__(self, observations: int, k: float | None = None) -> None:
        self.observations = observations
        self.k = k

    def fix(self, count: int, s2: float) -> None:
        """Fix k if it is time to; an s2 that is 0 but for rounding gives nothing to fix it by."""
        if self.k is None and count >= self.observations and s2 > NEGLIGIBLE_RATIO:
            self.k = 1.0 / s2

    def __call__(self, s2: float) -> float:
        """Return w in [1, 4]."""
        return 1.0 if self.k is None else min(max(1.0 + self.k * s2, 1.0), 4.0)


class InverseVarianceWeighter:
    """Weight of the anchor groups' advantages by the noise of the predictions, as the paper's release has it.

    s2 is a moving average over anchor groups of mean(((f - mean f) - (r - mean r))^2) / var(r) within the group
    (arXiv 2608.12564, denoising). Groups whose real rewards hardly vary are skipped. Read ``weight`` before ``update``.
    """

    def __init__(self, *, half_life: float = 64.0, observations: int = 32) -> None:
        """Start with no observations.

        Args:
            half_life: Anchor groups after which an observation counts half.
            observations: Anchor groups after which the weight's factor k is fixed.

        Raises:
            ConfigurationError: If an argument is out of its range.
        """
        self.half_life = check_half_life(half_life)
        self.observations = check_integer("observations", observations, 1)
        self._rule = AnchorWeight(self.observations)
        self._count = 0
        self._total = self._mass = 0.0

    @property
    def s2(self) -> float:
        """The predictions' residual variance relative to the real rewards'; 0 before the first observation."""
        return self._total / self._mass if self._mass else 0.0

    @property
    def weight(self) -> float:
        """The factor of the anchor groups' advantages, in [1, 4]."""
        return self._rule(self.s2)

    def update(
        self, real: ArrayLike, calibrated: ArrayLike, groups: ArrayLike | None = None, mask: ArrayLike | None = None
    ) -> None:
        """Add the anchor groups of one step.

        Args:
            real: Real rewards of the anchor rollouts, [n], or [groups, G] with a row per group.
            calibrated: Their calibrated predictions, the same shape.
            groups: Group id of each, the same shape; ``None`` takes rows as groups, and a single axis as one group.
            mask: Which take part, bool, the same shape; unknown values (None, NaN) never do.

        Raises:
            ValueError: If the shapes differ or a value is infinite.
        """
        r, f, ids, keep = graded_pairs(real, calibrated, groups, mask)
        if not keep.any():
            return
        grouping = Grouping(ids[keep])
        x = np.stack((r[keep], f[keep] - r[keep]))[:, grouping.order]
        deviations = grouping.scores(x, standardised=False)
        variance, residual = grouping.sums(deviations * deviations) / grouping.counts
        varied = variance >= NEGLIGIBLE_VARIANCE
        decay = 0.5 ** (1.0 / self.half_life)
        for ratio in (residual[varied] / variance[varied]).tolist():
            # The mass makes this the weighted mean of what was seen: no start value has to fade out.
            self._total = decay * self._total + ratio
            self._mass = decay * self._mass + 1.0
            self._count += 1
            self._rule.fix(self._count, self.s2)

    def state_dict(self) -> State:
        """Return the settings and sums as a dict that JSON carries exactly."""
        return {
            "kind": type(self).__name__,
            "settings": self._settings(),
            "count": self._count,
            "total": self._total,
            "mass": self._mass,
            "k": self._rule.k,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` returned.

        Raises:
            CheckpointError: If the state is damaged or was saved under other settings.
        """

        def apply() -> None:
            count, total, mass = int(state["count"]), float(state["total"]), float(state["mass"])
            k = None if state["k"] is None else float(state["k"])
            self._count, self._total, self._mass, self._rule.k = count, total, mass, k

        restore(self, state, self._settings(), apply)

    def _settings(self) -> State:
        return {"half_life": self.half_life, "observations": self.observations}
