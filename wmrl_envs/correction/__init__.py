"""The correction alone: rewards of a world model, debiased and fused with a thin stream of real ones.

The method of "Scaling Automatic Research Agents via World Models" (arXiv 2608.12564) and its rectified form, on numpy
and scipy. Nothing here knows of environments: rewards, group ids and anchor draws go in, calibrated rewards and
advantages come out.
"""

from wmrl_envs.correction.advantages import (
    Scale,
    centre,
    group_advantages,
    rectified_advantages,
    standardise,
    stream_advantages,
)
from wmrl_envs.correction.anchors import AnchorSchedule
from wmrl_envs.correction.debias import OnlineDebiaser
from wmrl_envs.correction.denoise import InverseVarianceWeighter, inverse_variance
from wmrl_envs.correction.fusion import RectifiedFusion, alpha_ramp
from wmrl_envs.correction.ledger import Ledger
from wmrl_envs.correction.scalar import ScalarFusion, episode_returns, scalar_return, turn_reward, weighted_return
from wmrl_envs.correction.schemes import SCHEMES, Scheme, get_scheme

__all__ = [
    "SCHEMES",
    "AnchorSchedule",
    "InverseVarianceWeighter",
    "Ledger",
    "OnlineDebiaser",
    "RectifiedFusion",
    "Scale",
    "ScalarFusion",
    "Scheme",
    "alpha_ramp",
    "centre",
    "episode_returns",
    "get_scheme",
    "group_advantages",
    "inverse_variance",
    "rectified_advantages",
    "scalar_return",
    "standardise",
    "stream_advantages",
    "turn_reward",
    "weighted_return",
]
