"""Corrected rewards of whole groups for a trainer that makes the advantages itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.agents._outcomes import status_shares
from wmrl_envs.agents._two_graders import GradedTwice
from wmrl_envs.correction import get_scheme, scalar_return, weighted_return
from wmrl_envs.correction.fusion import alpha_ramp
from wmrl_envs.errors import ConfigurationError
from wmrl_envs.wrappers._correction_state import CorrectionState

__all__ = ["Draw", "GroupCorrection", "TrainerScale", "choose_scheme"]

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
TrainerScale = Literal["group", "none"]
"""What the trainer does with a group's centred rewards: divide them by their standard deviation, or nothing."""


def choose_scheme(scheme: str | None, scale_rewards: str) -> str:
    """Return the reward scheme, ``None`` being the best that the trainer lets through.

    Raises:
        ConfigurationError: If the scheme is unknown, or does not survive what the trainer does.
    """
    if scale_rewards not in ("group", "none"):
        raise ConfigurationError(
            f"scale_rewards must be 'group' or 'none', as the trainer has it, got {scale_rewards!r}; a scale of the "
            "whole batch would shrink with every correction that an anchor brings"
        )
    if scheme is None:
        return "rectified" if scale_rewards == "none" else "debias"
    found = get_scheme(scheme)
    if scheme == "anchors-only":
        raise ConfigurationError(
            "scheme='anchors-only' generates fewer groups, which is the trainer's part: take scheme='real' and a "
            "smaller generation batch"
        )
    if scale_rewards == "group" and (found.rectified or found.weighted):
        raise ConfigurationError(
            f"scheme={scheme!r} does not survive a trainer that divides each group's rewards by their standard "
            "deviation: set scale_rewards='none' in GRPOConfig and here, or take scheme='debias'"
        )
    return scheme


@dataclass(frozen=True, slots=True)
class Draw:
    """Which of n rollouts are anchors, whole groups at a time."""

    size: int
    """Rollouts per group."""
    anchors: BoolArray
    """[n]"""
    probability: FloatArray
    """[n] With which each was to become one."""


class GroupCorrection:
    """Draws anchor groups, pays corrected rewards of one-turn episodes, and learns from the anchors.

    Attributes:
        state: Everything that the correction has learned.
        numbers: Of the last batch, for a log; what is unknown is not in it.
    """

    def __init__(self, state: CorrectionState) -> None:
        """Take a fresh state."""
        self.state = state
        self.numbers: dict[str, float] = {}

    @property
    def predicting(self) -> bool:
        """Whether the scheme needs predictions at all."""
        return not self.state.executes_everything

    def draw(self, groups: int, size: int) -> Draw:
        """Draw the anchors among so many groups of ``size`` rollouts."""
        anchor, probability = self.state.draw(groups)
        return Draw(size, np.repeat(anchor, size).astype(np.bool_), np.repeat(probability, size).astype(np.float64))

    def settle(self, graded: GradedTwice, draw: Draw, progress: float | None) -> FloatArray:
        """Return the corrected rewards of a batch, float64 [n], NaN where unknown, and learn from its anchors.

        In an anchor group what is not graded by both is unknown, so that both streams run over the same members.

        Args:
            graded: The batch.
            draw: Its anchors.
            progress: How far training has come, in [0, 1]; ``None`` is not known.
        """
        real, anchors = graded.real, draw.anchors
        calibrated = self.state.snapshot().calibrate(graded.predicted)
        known = (real == real) | ~anchors
        if self.predicting:
            known &= calibrated == calibrated
        rewards = np.where(known, self._pay(calibrated, real, draw, progress), np.nan)
        self._note(graded, calibrated, draw, known)
        if self.predicting:
            self._learn(graded, calibrated, draw, known)
        return rewards

    def totals(self) -> dict[str, float]:
        """Return what the correction has come to, for a log."""
        numbers: dict[str, float] = {"pairs": self.state.debiaser.num_pairs}
        if self.state.scheme.rectified:
            numbers["lambda"] = self.state.groups.lambda_
        elif self.state.scheme.weighted:
            numbers["weight"] = self.state.weighter.weight
        return numbers

    def state_dict(self) -> dict[str, Any]:
        """Return everything learned and the draws, JSON-able and exact."""
        return self.state.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned."""
        self.state.load_state_dict(state)

    def _pay(self, f: FloatArray, r: FloatArray, draw: Draw, progress: float | None) -> FloatArray:
        state, anchors = self.state, draw.anchors
        if not self.predicting:
            return r
        if not state.scheme.rectified:
            weight = np.where(anchors, state.weighter.weight, 1.0) if state.scheme.weighted else 1.0
            return weighted_return(np.where(anchors, r, f), mean=state.scalar.mean, weight=weight)
        return scalar_return(
            f,
            r,
            anchors,
            mean=state.scalar.mean,
            lambda_=state.groups.lambda_,
            alpha=alpha_ramp(progress, float(draw.probability[0]), state.ramp),
            probability=draw.probability,
        )

    def _learn(self, graded: GradedTwice, calibrated: FloatArray, draw: Draw, known: BoolArray) -> None:
        state, real, both = self.state, graded.real, draw.anchors & known
        state.learn_pairs(graded.predicted[both], real[both])
        state.learn_episodes(np.where(known, calibrated, np.nan), np.where(both, real, np.nan), both)
        whole = draw.anchors.reshape(-1, draw.size)[:, 0]
        if whole.any():
            rows = [values.reshape(-1, draw.size)[whole] for values in (real, calibrated, graded.spread)]
            state.learn_groups(rows[0], rows[1], known.reshape(-1, draw.size)[whole], rows[2])

    def _note(self, graded: GradedTwice, calibrated: FloatArray, draw: Draw, known: BoolArray) -> None:
        self.numbers = status_shares(graded.outcomes) | {
            "anchors": float(draw.anchors.sum() / draw.size),
            "ungraded": float(1.0 - known.mean()),
        }
        streams = {"predicted_reward": graded.predicted, "calibrated_reward": calibrated, "real_reward": graded.real}
        for name, values in streams.items():
            if (values == values).any():
                self.numbers[name] = float(np.nanmean(values))
