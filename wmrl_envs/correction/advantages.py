"""Advantages of grouped rollouts: plain, rectified, and from the streams that a corrected environment reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wmrl_envs.correction._arrays import BoolArray, FloatArray, float_vector, known, selection
from wmrl_envs.correction._grouping import Grouping, group_ids
from wmrl_envs.errors import ConfigurationError, did_you_mean

__all__ = [
    "Scale",
    "centre",
    "check_scale",
    "group_advantages",
    "rectified_advantages",
    "standardise",
    "stream_advantages",
]

Scale: TypeAlias = Literal["standardise", "centre"]
"""How a stream is brought to a group's scale: z-score by population std + 1e-4, or deviation from the mean."""


def check_scale(scale: str) -> bool:
    """Return whether ``scale`` standardises, or raise ``ConfigurationError`` if it is no scale."""
    valid = ("standardise", "centre")
    if scale not in valid:
        raise ConfigurationError(f"scale must be one of {valid}, got {scale!r}.{did_you_mean(str(scale), valid)}")
    return scale == "standardise"


def standardise(values: ArrayLike, groups: ArrayLike, mask: ArrayLike | None = None) -> FloatArray:
    """Return (x - mean) / (std + 1e-4) within each group, with the population std.

    Args:
        values: Rewards, [n]; ``None`` and NaN are unknown and take no part.
        groups: Group id of each, [n], whole numbers or strings in any order.
        mask: Which take part, bool [n]; all by default.

    Returns:
        Float64 [n]: exactly 0 for members that take no part, and in groups whose members are all equal.

    Raises:
        ValueError: If lengths differ or a value is infinite.
    """
    return _scores(values, groups, mask, standardised=True)


def centre(values: ArrayLike, groups: ArrayLike, mask: ArrayLike | None = None) -> FloatArray:
    """Return x - mean within each group; everything else as in ``standardise``."""
    return _scores(values, groups, mask, standardised=False)


def group_advantages(rewards: ArrayLike, groups: ArrayLike, *, standardised: bool = True) -> FloatArray:
    """Return GRPO's advantages of grouped rewards.

    Args:
        rewards: Rewards, [n]; ``None`` (or NaN) is an ungraded rollout, which is left out of its group.
        groups: Group id of each, [n].
        standardised: Whether to divide by the group's population std + 1e-4 or to centre only.

    Returns:
        Float64 [n]; exactly 0 for an ungraded rollout and in groups without variance.

    Raises:
        ValueError: If lengths differ or a reward is infinite.

    Example:
        >>> group_advantages([1.0, None, 0.0, 0.5], [7, 7, 7, 7], standardised=False).tolist()
        [0.5, 0.0, -0.5, 0.0]
    """
    return _scores(rewards, groups, None, standardised)


def rectified_advantages(
    real: ArrayLike,
    calibrated: ArrayLike,
    groups: ArrayLike,
    anchor: ArrayLike,
    lambda_: ArrayLike,
    alpha: ArrayLike,
    probability: ArrayLike,
    ungraded: ArrayLike | None = None,
    *,
    scale: Scale = "standardise",
) -> FloatArray:
    """Return the advantages that combine predicted rewards of all groups with real ones of the anchor groups.

    A = lambda * z(f) + (alpha / pi) * E * (z(r) - lambda * z(f)), the doubly robust (prediction-powered, PPI++)
    estimator on the setting of arXiv 2608.12564. Each stream is brought to its group's scale on its own, *before*
    rectifying: with alpha = 1 and a lambda fixed beforehand, the expectation over the draw of the anchors is GRPO's
        own advantage on
    real rewards, whatever the predictions are. Never standardise the result again: that is not linear, and undoes it.

    Args:
        real: Real rewards r, [n]; read in anchor groups only.
        calibrated: Calibrated predictions f, [n].
        groups: Group id of each, [n].
        anchor: Whether the rollout's group is an anchor, bool [n]; the same for all members of a group.
        lambda_: Trust in the predictions, one number or [n].
        alpha: Weight of the correction in [0, 1], one number or [n].
        probability: Probability pi with which the group was drawn as an anchor, in (0, 1], one number or [n]; 0 is
            allowed outside anchors, and 1 is right for an anchor that was forced by hand.
        ungraded: Rollouts to leave out, bool [n]. Those whose needed rewards are unknown are left out as well: in an
            anchor group both, elsewhere the prediction.
        scale: ``"standardise"`` (z by population std + 1e-4) or ``"centre"``.

    Returns:
        Float64 [n]; exactly 0 for rollouts left out.

    Raises:
        ValueError: If lengths differ, a value is infinite, a group is only partly an anchor, or an anchor's probability
            is not in (0, 1].
    """
    standardised = check_scale(scale)
    f = float_vector("calibrated", calibrated)
    n = len(f)
    r = float_vector("real", real, n)
    e = selection("anchor", anchor, n)
    graded = known(f) & (known(r) | ~e)
    if ungraded is not None:
        graded &= ~selection("ungraded", ungraded, n)
    ids = group_ids(groups, n)
    trust = _spread("lambda_", lambda_, n)
    correction = _inverse_probability(e, _spread("alpha", alpha, n), _spread("probability", probability, n), graded)

    advantages = np.zeros(n)
    members = np.flatnonzero(graded)
    if len(members) == 0:
        return advantages
    grouping = Grouping(ids[members])
    members = members[grouping.order]
    e = e[members]
    if grouping.mixed(e).any():
        culprit = ids[members][grouping.starts][grouping.mixed(e)][0]
        raise ValueError(f"group {culprit} is an anchor in some members only; a group is drawn as a whole")
    z_f, z_r = grouping.scores(np.stack((f[members], np.where(e, r[members], 0.0))), standardised)
    # In this form a correction of weight 1 returns z(r) to the last bit; lambda z(f) + (z(r) - lambda z(f)) would not.
    weight = correction[members]
    advantages[members] = (1.0 - weight) * trust[members] * z_f + weight * z_r
    return advantages


def stream_advantages(
    streams: Mapping[str, NDArray[Any]], *, scale: Scale = "standardise"
) -> tuple[FloatArray, BoolArray]:
    """Return the advantages and the graded rollouts from what a corrected environment reports at the episodes' ends.

    Args:
        streams: ``info["wmrl"]`` of the last step of n rollouts, as a vector environment gives it: arrays [n] under
            ``group``, ``anchor``, ``ungraded``, ``anchor_probability``, ``lambda``, ``alpha``, ``weight``,
            ``real_reward`` and ``calibrated_reward``, each with a bool mask of its presence under the same name after
            ``_`` (a missing mask means that NaN alone is absent). Where ``weight`` is present the rewards are a
            mixture, and it multiplies the anchor groups' advantages (the denoising of arXiv 2608.12564); elsewhere
            they are rectified.
        scale: ``"standardise"`` or ``"centre"``.

    Returns:
        Advantages, float64 [n], and whether each rollout takes part in the loss, bool [n]. Every turn of a rollout has
        its advantage; one that takes no part has 0.

    Raises:
        ValueError: If lengths differ or a value is infinite.
        ConfigurationError: If a stream that is needed is missing, or only some of the rollouts have a weight.
    """
    standardised = check_scale(scale)
    missing = [key for key in ("group", "anchor") if key not in streams]
    if missing:
        raise ConfigurationError(
            f"the streams lack {missing}, got {sorted(streams)}; wrap the environment in CorrectionWrapper to have them"
        )
    n = len(streams["group"])
    anchor = np.asarray(streams["anchor"], dtype=np.bool_)
    ungraded = np.asarray(streams.get("ungraded", np.zeros(n)), dtype=np.bool_)
    real, calibrated = _stream(streams, "real_reward", n), _stream(streams, "calibrated_reward", n)
    weight = _stream(streams, "weight", n)
    weighted = known(weight)
    if not weighted.any():
        missing = [key for key in ("lambda", "alpha", "anchor_probability") if key not in streams]
        if missing and n:
            raise ConfigurationError(f"the streams lack {missing}, which rectifying needs, got {sorted(streams)}")
        graded = known(calibrated) & (known(real) | ~anchor) & ~ungraded
        trust, alpha, probability = (
            np.where(graded, _stream(streams, key, n), 0.0) for key in ("lambda", "alpha", "anchor_probability")
        )
        advantages = rectified_advantages(
            real, calibrated, streams["group"], anchor, trust, alpha, probability, ~graded, scale=scale
        )
        return advantages, graded
    if not weighted[~ungraded].all():
        raise ConfigurationError("only some rollouts have a weight; a batch must come from one reward scheme")
    mixture = np.where(anchor, real, calibrated)
    graded = known(mixture) & ~ungraded
    if known(calibrated).any():
        # Beside predictions an anchor's statistics run over the members graded by both; with execution alone there are
        # none.
        graded &= known(calibrated)
    advantages = _scores(mixture, streams["group"], graded, standardised)
    return np.where(anchor & graded, weight, 1.0) * advantages, graded


def _scores(values: ArrayLike, groups: ArrayLike, mask: ArrayLike | None, standardised: bool) -> FloatArray:
    x = float_vector("values", values)
    ids = group_ids(groups, len(x))
    members = np.flatnonzero(selection("mask", mask, len(x)) & known(x))
    scores = np.zeros(len(x))
    if len(members):
        grouping = Grouping(ids[members])
        members = members[grouping.order]
        scores[members] = grouping.scores(x[members], standardised)
    return scores


def _spread(name: str, values: ArrayLike, n: int) -> FloatArray:
    """Return one number, or one per rollout, as [n]."""
    return np.full(n, values, dtype=np.float64) if np.ndim(values) == 0 else float_vector(name, values, n)


def _inverse_probability(e: BoolArray, alpha: FloatArray, probability: FloatArray, graded: BoolArray) -> FloatArray:
    """Return (alpha / pi) * E, [n]; exactly 0 outside anchors, where pi may be 0."""
    wrong = e & graded & ~((probability > 0.0) & (probability <= 1.0))
    if wrong.any():
        raise ValueError(
            f"an anchor's probability must be in (0, 1], got {probability[wrong][0]}; forced by hand it is 1"
        )
    return np.divide(alpha, probability, out=np.zeros(len(e)), where=e & graded)


def _stream(streams: Mapping[str, NDArray[Any]], key: str, n: int) -> FloatArray:
    """Return a stream as float64 [n] with NaN where its mask (or its absence) says that there is no value."""
    if key not in streams:
        return np.full(n, np.nan)
    values = float_vector(key, streams[key], n)
    mask = streams.get("_" + key)
    return values if mask is None else np.where(selection("_" + key, mask, n), values, np.nan)
