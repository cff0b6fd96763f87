"""The reward schemes by name: which parts of the correction each of them uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wmrl_envs.errors import ConfigurationError, did_you_mean

__all__ = ["SCHEMES", "Scheme", "get_scheme"]


@dataclass(frozen=True, slots=True)
class Scheme:
    """How real and predicted rewards become the reward that is trained on."""

    name: str
    description: str
    """One line for help texts and tables."""
    calibrate: bool = False
    """Whether predictions pass the fitted map f (else f is the identity)."""
    weighted: bool = False
    """Whether anchors count with the paper's weight w (else w = 1); only without ``rectified``."""
    rectified: bool = False
    """Whether predictions are rectified by the anchors; else anchors train on r and the others on f."""
    pairs: Literal["turn", "episode"] = "turn"
    """What the map f is fitted on: every graded turn, or episode scores."""
    anchor_fraction: float | None = None
    """Share of groups executed where the scheme itself says so; ``None`` leaves it to the user."""

    def fraction(self, anchor_fraction: float) -> float:
        """Return the share of groups to execute: the scheme's own, or else the one asked for."""
        return anchor_fraction if self.anchor_fraction is None else self.anchor_fraction


SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme("rectified", "calibrated predictions, rectified by the anchors", calibrate=True, rectified=True),
        Scheme(
            "paper",
            "calibrated predictions; anchors on real rewards, weighted by inverse variance",
            calibrate=True,
            weighted=True,
            pairs="episode",
        ),
        Scheme("debias", "calibrated predictions; anchors on real rewards", calibrate=True, pairs="episode"),
        Scheme(
            "denoise",
            "raw predictions; anchors on real rewards, weighted by inverse variance",
            weighted=True,
            pairs="episode",
        ),
        Scheme("mixed", "raw predictions; anchors on real rewards", pairs="episode"),
        Scheme("world-model", "raw predictions alone", pairs="episode", anchor_fraction=0.0),
        Scheme("real", "everything is executed", pairs="episode", anchor_fraction=1.0),
        Scheme("anchors-only", "only as many rollouts as anchors, all executed", pairs="episode", anchor_fraction=1.0),
    )
}
"""Every scheme by its name; the first is the default."""


def get_scheme(name: str) -> Scheme:
    """Return the scheme of that name.

    Raises:
        ConfigurationError: If there is none.
    """
    try:
        return SCHEMES[name]
    except (KeyError, TypeError):
        raise ConfigurationError(
            f"scheme must be one of {tuple(SCHEMES)}, got {name!r}.{did_you_mean(str(name), SCHEMES)}"
        ) from None
