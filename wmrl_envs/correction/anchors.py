"""Which groups are executed beside being predicted, and with what probability each was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wmrl_envs.correction._arrays import BoolArray, FloatArray, check_integer, check_number, float_vector
from wmrl_envs.correction._state import State, restore

__all__ = ["AnchorSchedule"]


class AnchorSchedule:
    """Draws the anchor groups of each step: about a ``fraction`` of the groups, each with a known probability.

    Of m groups, n = max(1, round(fraction * m)) are drawn uniformly without replacement, and each has probability n /
    m. Where m < 1 / fraction that one anchor would be too many, so every group is drawn on its own with probability
    ``fraction``; one call for m groups then equals m calls for one group.

    Example:
        >>> anchor, probability = AnchorSchedule(0.1, seed=0).draw(32)
        >>> int(anchor.sum()), probability[0].item()
        (3, 0.09375)
    """

    def __init__(self, fraction: float, seed: int | np.random.Generator | None = None) -> None:
        """Start a stream of draws.

        Args:
            fraction: Share of groups to execute, in [0, 1]; 0 executes none (the world model alone), 1 all of them.
            seed: Seed of the draws, or the generator to draw from.

        Raises:
            ConfigurationError: If the fraction is no number in [0, 1].
        """
        self.fraction = check_number(
            "anchor_fraction", fraction, 0.0, 1.0, "; 0 is the world model alone, 1 executes everything"
        )
        self._rng = np.random.default_rng(seed)

    def draw(self, m: int, weights: ArrayLike | None = None) -> tuple[BoolArray, FloatArray]:
        """Draw the anchors among m groups.

        Args:
            m: Number of groups.
            weights: How much more often a group should be drawn than others, float [m], positive (a group that can
                never be drawn would stay uncorrected); ``None`` treats all alike.

        Returns:
            Whether each group is an anchor, bool [m], and the probability pi with which it was to become one, float64
            [m].

        Raises:
            ConfigurationError: If m is negative or no whole number.
            ValueError: If the weights are not m positive finite numbers.
        """
        m = check_integer("m", m, 0)
        if m == 0 or self.fraction in (0.0, 1.0):
            return np.full(m, self.fraction == 1.0), np.full(m, self.fraction)
        independent = m < 1.0 / self.fraction
        size = self.fraction * m if independent else float(max(1, round(self.fraction * m)))
        if weights is not None:
            probability = _inclusion(float_vector("weights", weights, m), size)
            if not independent:
                return self._systematic(probability), probability
        else:
            probability = np.full(m, self.fraction if independent else size / m)
        keys = self._rng.random(m)
        if independent:
            return keys < probability, probability
        anchor = np.zeros(m, dtype=np.bool_)
        anchor[np.argsort(keys, kind="stable")[: int(size)]] = True  # the n smallest of m keys: a uniform subset
        return anchor, probability

    def _systematic(self, probability: FloatArray) -> BoolArray:
        """Draw as many groups as the probabilities add up to, each with its own: one ruler laid over a random order."""
        order = self._rng.permutation(len(probability))
        edges = np.concatenate(([0.0], np.cumsum(probability[order])))
        edges[-1] = round(edges[-1])
        marks = np.ceil(edges - self._rng.random())
        anchor = np.empty(len(probability), dtype=np.bool_)
        anchor[order] = marks[1:] > marks[:-1]
        return anchor

    def state_dict(self) -> State:
        """Return the fraction and the generator's state as a dict that JSON carries exactly."""
        return {
            "kind": type(self).__name__,
            "settings": {"fraction": self.fraction},
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the draws from what ``state_dict`` returned.

        Raises:
            CheckpointError: If the state is damaged or was saved with another fraction.
        """

        def apply() -> None:
            type(self._rng.bit_generator)().state = state["rng"]  # a damaged state must not reach ours half-way
            self._rng.bit_generator.state = state["rng"]

        restore(self, state, {"fraction": self.fraction}, apply)


def _inclusion(weights: FloatArray, size: float) -> FloatArray:
    """Return probabilities proportional to the weights that add up to ``size``, none above 1."""
    if not (weights > 0.0).all():  # NaN fails this too
        raise ValueError("anchor weights must be positive: a group that is never drawn would stay uncorrected")
    probability = np.ones(len(weights))
    free = np.ones(len(weights), dtype=np.bool_)
    while True:
        share = (size - (len(weights) - free.sum())) * weights[free] / weights[free].sum()
        probability[free] = np.minimum(share, 1.0)
        free &= probability < 1.0
        if not (share > 1.0).any() or not free.any():
            return probability
