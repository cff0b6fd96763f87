"""Rectified fusion: how far predictions are trusted, and how much their correction by anchors counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wmrl_envs.correction._arrays import (
    BoolArray,
    FloatArray,
    check_half_life,
    check_integer,
    check_number,
    float_vector,
    known,
)
from wmrl_envs.correction._grouping import Grouping, graded_pairs, row_scores
from wmrl_envs.correction._state import State, restore
from wmrl_envs.correction.advantages import Scale, check_scale
from wmrl_envs.errors import ConfigurationError

__all__ = ["RectifiedFusion", "alpha_ramp"]

_UNDERFLOW = 1e-200
"""A decayed sum below this has lost its digits; what it last said is kept."""


def alpha_ramp(progress: float | None, pi: float, ramp: float) -> float:
    """Return the weight alpha of the correction at a point of training.

    Early in training bias costs little and noise much, so alpha may rise linearly from pi (where each anchor counts as
    often as any other group) to 1 (no bias). A long ramp lets the policy commit before the correction arrives: 0.3 is
    plenty.

    Args:
        progress: How far training has come, 0 to 1 (clipped); ``None`` is not known.
        pi: The anchors' probability, in [0, 1].
        ramp: Share of training over which alpha rises, in [0, 1].

    Returns:
        Alpha in [pi, 1]; 1 if progress is not known or there is no ramp.

    Raises:
        ConfigurationError: If an argument is out of its range.
    """
    pi = check_number("pi", pi, 0.0, 1.0)
    ramp = check_number("ramp", ramp, 0.0, 1.0, "; 0 is no ramp")
    if progress is None:
        return 1.0
    if np.isnan(progress):
        raise ConfigurationError("progress must be a number in [0, 1] or None, got NaN")
    if ramp == 0.0 or progress >= ramp:
        return 1.0
    return pi + (1.0 - pi) * max(progress, 0.0) / ramp


class _TrustRatio:
    """clip(num / den, 0, limit) over sums that halve every ``half_life`` groups, for k bins side by side."""

    def __init__(self, k: int, half_life: float, min_groups: int, limit: float) -> None:
        self.num, self.den, self.value = np.zeros(k), np.zeros(k), np.ones(k)
        self.groups = np.zeros(k, dtype=np.int64)
        self._decay = 0.5 ** (1.0 / half_life)
        self._min_groups, self._limit = min_groups, limit

    @property
    def ready(self) -> BoolArray:
        """Which bins have seen enough groups, bool [k]."""
        enough: BoolArray = self.groups >= self._min_groups
        return enough

    def update(self, num: FloatArray, den: FloatArray, seen: BoolArray) -> None:
        """Add groups in order: their sums, float64 [groups, k], and whether they hold members, bool [groups, k]."""
        age = self._decay ** np.arange(len(num) - 1, -1, -1)[:, None]
        fade = self._decay ** len(num)
        self.num = fade * self.num + (age * num).sum(axis=0)
        self.den = fade * self.den + (age * den).sum(axis=0)
        self.groups += seen.sum(axis=0)
        usable = self.ready & (self.den > _UNDERFLOW)
        ratio = np.divide(self.num, self.den, out=self.value.copy(), where=usable)
        self.value = np.where(usable, np.clip(ratio, 0.0, self._limit), self.value)

    def state(self) -> State:
        return {name: getattr(self, name).tolist() for name in ("num", "den", "value", "groups")}

    def restored(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the checked attributes of a saved state, not yet assigned."""
        arrays = {
            name: np.array(state[name], dtype=getattr(self, name).dtype) for name in ("num", "den", "value", "groups")
        }
        if any(array.shape != self.num.shape for array in arrays.values()):
            raise ValueError(f"expected sums of shape {self.num.shape}")
        return arrays


class RectifiedFusion:
    """Trust lambda in the predictions of grouped rollouts, chosen to minimise the rectified advantages' variance.

    lambda = clip(sum z(r) z(f) / sum z(f)^2, 0, 1.5) over anchor rollouts, the power tuning of PPI++ (Angelopoulos et
    al. 2023) on the setting of arXiv 2608.12564: 1 / lambda is the optimal weight of the anchor stream. The sums are
    moving averages over anchor groups. Read lambda before ``update``: it must not depend on the draw that it is used
    with.
    """

    def __init__(
        self,
        *,
        half_life: float = 64.0,
        min_groups: int = 10,
        limit: float = 1.5,
        scale: Scale = "standardise",
        bins: int | Sequence[float] | None = None,
        fixed: float | None = None,
    ) -> None:
        """Start with lambda = 1.

        Args:
            half_life: Anchor groups after which a group counts half.
            min_groups: Anchor groups until which lambda stays 1.
            limit: Largest lambda.
            scale: z is ``"standardise"`` (by the group's std + 1e-4) or ``"centre"``, as in the advantages it is used
                for.
            bins: One lambda per bin of the world model's own spread, so that a prediction is trusted less where the
                model is unsure: increasing bin edges, or a number of bins, whose edges are then fixed at the quantiles
                of the spreads in the first ``min_groups`` anchor groups. A bin uses the common lambda until it has
                itself seen ``min_groups`` groups. ``None`` is one lambda for all.
            fixed: A lambda to keep for ever, in [0, limit]; ``None`` learns it.

        Raises:
            ConfigurationError: If an argument is out of its range.
        """
        self.half_life = check_half_life(half_life)
        self.min_groups = check_integer("min_groups", min_groups, 1)
        self.limit = check_number("limit", limit, 0.0, float(np.finfo(np.float64).max))
        self._standardised = check_scale(scale)
        self.scale: Scale = scale
        self.fixed = None if fixed is None else check_number("fixed", fixed, 0.0, self.limit)
        self.bins, self._edges, num_bins = _check_bins(bins)
        self._common = _TrustRatio(1, self.half_life, self.min_groups, self.limit)
        self._binned = _TrustRatio(num_bins, self.half_life, self.min_groups, self.limit)
        self._spreads: list[float] = []

    @property
    def lambda_(self) -> float:
        """The common lambda, in [0, limit]."""
        return float(self._common.value[0]) if self.fixed is None else self.fixed

    @property
    def num_groups(self) -> int:
        """Anchor groups seen."""
        return int(self._common.groups[0])

    def lambda_for(self, spread: ArrayLike) -> FloatArray:
        """Return each prediction's lambda, [n], by the world model's spread of it, [n] (the common one for None)."""
        spreads = float_vector("spread", spread)
        common = np.full(len(spreads), self.lambda_)
        if self.bins is None or self._edges is None or self.fixed is not None:
            return common
        index = np.searchsorted(self._edges, spreads, side="right")
        own = self._binned.ready[index] & known(spreads)
        return np.where(own, self._binned.value[index], common)

    def update(
        self,
        real: ArrayLike,
        calibrated: ArrayLike,
        groups: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        spread: ArrayLike | None = None,
    ) -> None:
        """Add the anchor groups of one step, after lambda was used for it.

        Args:
            real: Real rewards of the anchor rollouts, [n], or [groups, G] with a row per group.
            calibrated: Their calibrated predictions, the same shape.
            groups: Group id of each, the same shape; ``None`` takes rows as groups, and a single axis as one group.
            mask: Which take part, bool, the same shape; unknown values (None, NaN) never do.
            spread: The world model's own standard deviation of each prediction, the same shape; needed with ``bins``.

        Raises:
            ValueError: If the shapes differ, a value is infinite, or spreads are missing.
        """
        if self.bins is None and groups is None and (rows := _whole_rows(real, calibrated, mask)) is not None:
            z_r, z_f = row_scores(rows, self._standardised)
            sums = np.add.reduce(np.stack((z_r * z_f, z_f * z_f)), axis=-1)
            self._common.update(sums[0, :, None], sums[1, :, None], np.ones((len(z_r), 1), dtype=np.bool_))
            return
        r, f, ids, keep = graded_pairs(real, calibrated, groups, mask)
        spreads = None
        if self.bins is not None:
            if spread is None:
                raise ValueError("one lambda per bin of the spread needs spread=, the world model's own, got None")
            spreads = float_vector("spread", np.ravel(np.asarray(spread, dtype=np.float64)), len(r))
        if not keep.any():
            return
        grouping = Grouping(ids[keep])
        z_r, z_f = grouping.scores(np.stack((r[keep], f[keep]))[:, grouping.order], self._standardised)
        products, squares = z_r * z_f, z_f * z_f
        everyone = np.ones((len(grouping.counts), 1), dtype=np.bool_)
        self._common.update(grouping.sums(products)[:, None], grouping.sums(squares)[:, None], everyone)
        if spreads is not None:
            self._update_bins(grouping, products, squares, spreads[keep][grouping.order])

    def _update_bins(self, grouping: Grouping, products: FloatArray, squares: FloatArray, spreads: FloatArray) -> None:
        if self._edges is None:
            self._spreads.extend(spreads[known(spreads)].tolist())
            if self.num_groups >= self.min_groups and self._spreads:
                self._edges = np.quantile(self._spreads, np.arange(1, len(self._binned.num)) / len(self._binned.num))
                self._spreads = []
            return  # the groups that place the edges are not sorted by them
        k = len(self._binned.num)
        own = known(spreads)
        cell = (grouping.index * k + np.searchsorted(self._edges, spreads, side="right"))[own]
        shape = (len(grouping.counts), k)
        tallies: list[FloatArray] = [
            np.bincount(cell, weights, minlength=shape[0] * k).reshape(shape).astype(np.float64)
            for weights in (products[own], squares[own], np.ones(len(cell)))
        ]
        num, den, members = tallies
        self._binned.update(num, den, members > 0.0)

    def state_dict(self) -> State:
        """Return the settings and sums as a dict that JSON carries exactly."""
        return {
            "kind": type(self).__name__,
            "settings": self._settings(),
            "common": self._common.state(),
            "binned": self._binned.state(),
            "edges": None if self._edges is None else self._edges.tolist(),
            "spreads": list(self._spreads),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` returned.

        Raises:
            CheckpointError: If the state is damaged or was saved under other settings.
        """

        def apply() -> None:
            common, binned = self._common.restored(state["common"]), self._binned.restored(state["binned"])
            edges = None if state["edges"] is None else float_vector("edges", state["edges"], len(self._binned.num) - 1)
            spreads = float_vector("spreads", state["spreads"]).tolist()
            vars(self._common).update(common)
            vars(self._binned).update(binned)
            self._edges, self._spreads = edges, spreads

        restore(self, state, self._settings(), apply)

    def _settings(self) -> State:
        names = ("half_life", "min_groups", "limit", "scale", "bins", "fixed")
        return {name: getattr(self, name) for name in names}


def _check_bins(bins: int | Sequence[float] | None) -> tuple[int | list[float] | None, FloatArray | None, int]:
    """Return the setting as JSON writes it, the edges if they are known, and the number of bins."""
    if bins is None:
        return None, None, 1
    if isinstance(bins, int | np.integer):
        return check_integer("bins", bins, 2, "; None is one lambda for all"), None, int(bins)
    try:
        edges = np.asarray(bins, dtype=np.float64)
    except (TypeError, ValueError):
        edges = np.empty(0)
    if edges.ndim != 1 or len(edges) == 0 or not np.isfinite(edges).all() or not (np.diff(edges) > 0.0).all():
        raise ConfigurationError(f"bins must be a number of bins or increasing edges of the spread, got {bins!r}")
    listed: list[float] = edges.tolist()
    return listed, edges, len(edges) + 1


def _whole_rows(real: ArrayLike, calibrated: ArrayLike, mask: ArrayLike | None) -> FloatArray | None:
    """Return r and f as [2, groups, G] if every row is a group of which nothing is left out; else ``None``."""
    r, f = np.asarray(real, dtype=np.float64), np.asarray(calibrated, dtype=np.float64)
    if r.ndim != 2 or r.shape != f.shape or r.size == 0 or (mask is not None and not np.all(mask)):
        return None
    rows = np.stack((r, f))
    return rows if np.isfinite(rows).all() else None
