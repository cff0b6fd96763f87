"""The correction that the wrappers of one run share: its calibration, its trust in the predictions, its draws."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from wmrl_envs.correction import (
    AnchorSchedule,
    InverseVarianceWeighter,
    OnlineDebiaser,
    RectifiedFusion,
    ScalarFusion,
    Scale,
    get_scheme,
)
from wmrl_envs.errors import CheckpointError, ConfigurationError
from wmrl_envs.wrappers._streams import BoolArray, FloatArray

__all__ = ["CorrectionState", "Snapshot"]


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """What an episode is corrected with, frozen at its beginning."""

    knots: tuple[FloatArray, FloatArray] | None
    """The calibration f, linear between its knots; ``None`` is the identity."""
    fusion: RectifiedFusion | None
    """Lambda by the world model's spread; ``None`` where there is one for all."""

    def calibrate(self, predicted: FloatArray) -> FloatArray:
        """Return f(predicted), same shape; NaN stays NaN."""
        return predicted if self.knots is None else np.interp(predicted, *self.knots)

    def state_dict(self) -> dict[str, Any]:
        """Return the snapshot as JSON-able data."""
        return {
            "knots": None if self.knots is None else [axis.tolist() for axis in self.knots],
            "fusion": None if self.fusion is None else self.fusion.state_dict(),
        }


class CorrectionState:
    """Everything that the correction learns, and the draws of its anchors.

    Attributes:
        scheme: The reward scheme.
        debiaser: The calibration f.
        scalar: c, lambda and w for agents that see a scalar return.
        groups: Lambda for agents that use groups.
        weighter: The paper's weight of anchor groups.
        progress: How far training has come in [0, 1], ``None`` where nobody told.
        drawn: Anchor groups drawn so far, and groups that could have been.
    """

    def __init__(
        self,
        *,
        anchor_fraction: float,
        scheme: str,
        ramp: float,
        scale: Scale,
        spread_bins: int | None,
        fixed_lambda: float | None,
        calibration: Mapping[str, Any] | str | None,
        seed: int,
    ) -> None:
        """Start with the identity, lambda = 1, c = 0; the arguments are those of ``CorrectionWrapper``."""
        self.scheme = get_scheme(scheme)
        AnchorSchedule(anchor_fraction)  # is checked also where the scheme decides
        self.schedule = AnchorSchedule(self.scheme.fraction(anchor_fraction), seed)
        if not 0.0 <= ramp <= 1.0:
            raise ConfigurationError(f"ramp must be a share of training in [0, 1] (0 is no ramp), got {ramp!r}")
        self.ramp = float(ramp)
        self.debiaser = _debiaser(calibration)
        self.scalar = ScalarFusion(fixed=fixed_lambda)
        self.groups = RectifiedFusion(scale=scale, bins=spread_bins, fixed=fixed_lambda)
        self.weighter = InverseVarianceWeighter()
        self.progress: float | None = None
        self.drawn = [0, 0]
        self._snapshot: Snapshot | None = None

    @property
    def executes_everything(self) -> bool:
        """Whether the scheme needs no predictions at all."""
        return self.scheme.anchor_fraction == 1.0

    def draw(self, m: int) -> tuple[BoolArray, FloatArray]:
        """Draw the anchors among m groups that begin together: bool [m], and their probabilities, float64 [m]."""
        anchor, probability = self.schedule.draw(m)
        self.drawn[0] += int(anchor.sum())
        self.drawn[1] += m
        return anchor, probability

    def snapshot(self) -> Snapshot:
        """Return the present calibration; the same object until something was learned."""
        if self._snapshot is None:
            x, y = self.debiaser.knots
            knots = (x, y) if self.scheme.calibrate and len(x) else None
            fusion = copy.deepcopy(self.groups) if self.groups.bins is not None else None
            self._snapshot = Snapshot(knots, fusion)
        return self._snapshot

    def restored_snapshot(self, state: Mapping[str, Any]) -> Snapshot:
        """Return the snapshot that was saved."""
        fusion = None
        if state["fusion"] is not None:
            fusion = copy.deepcopy(self.groups)
            fusion.load_state_dict(state["fusion"])
        knots = None if state["knots"] is None else tuple(np.array(axis, np.float64) for axis in state["knots"])
        return Snapshot(knots, fusion)  # type: ignore[arg-type]  # two axes

    def learn_pairs(self, predicted: FloatArray, real: FloatArray) -> None:
        """Add (predicted, real) pairs ([n] each) to the calibration."""
        if self.scheme.calibrate and len(predicted):
            self.debiaser.update(predicted, real)
            self._snapshot = None

    def learn_episodes(self, calibrated: FloatArray, real: FloatArray, anchor: BoolArray) -> None:
        """Add graded episodes: f, r (NaN outside anchors) and which are anchors, [n] each."""
        if len(calibrated):
            self.scalar.update(calibrated, real, anchor)

    def learn_groups(self, real: FloatArray, calibrated: FloatArray, mask: BoolArray, spread: FloatArray) -> None:
        """Add whole anchor groups, [groups, G] each; ``mask`` is False for members that are not graded by both."""
        if self.scheme.rectified:
            self.groups.update(real, calibrated, mask=mask, spread=spread)
            if self.groups.bins is not None:
                self._snapshot = None
        else:
            self.weighter.update(real, calibrated, mask=mask)

    def state_dict(self) -> dict[str, Any]:
        """Return everything learned, JSON-able and exact."""
        return {
            "scheme": self.scheme.name,
            "ramp": self.ramp,
            "progress": self.progress,
            "drawn": list(self.drawn),
            **{name: getattr(self, name).state_dict() for name in _PARTS},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned.

        Raises:
            CheckpointError: If it belongs to other settings.
        """
        if (state["scheme"], state["ramp"]) != (self.scheme.name, self.ramp):
            raise CheckpointError(
                f"the state was saved with scheme={state['scheme']!r}, ramp={state['ramp']}, here they are "
                f"{self.scheme.name!r}, {self.ramp}; make the wrapper as it was"
            )
        for name in _PARTS:
            getattr(self, name).load_state_dict(state[name])
        self.progress, self.drawn = state["progress"], list(state["drawn"])
        self._snapshot = None


_PARTS = ("schedule", "debiaser", "scalar", "groups", "weighter")


def _debiaser(calibration: Mapping[str, Any] | str | None) -> OnlineDebiaser:
    if calibration is None or isinstance(calibration, Mapping):
        try:
            return OnlineDebiaser(**(calibration or {}))
        except TypeError as error:
            raise ConfigurationError(
                "calibration takes the arguments of OnlineDebiaser (min_pairs, window, refit_every, bins), got "
                f"{calibration!r}"
            ) from error
    if calibration == "paper":
        return OnlineDebiaser.paper()
    raise ConfigurationError(f"calibration must be None, 'paper' or arguments of OnlineDebiaser, got {calibration!r}")
