"""Gymnasium wrappers that replace an expensive real reward by a prediction, and correct it by a few real ones.

The batched twins, for vector environments, are in ``wmrl_envs.wrappers.vector``.
"""

from wmrl_envs.wrappers.correction import CorrectionWrapper
from wmrl_envs.wrappers.world_model import WorldModelWrapper

__all__ = ["CorrectionWrapper", "WorldModelWrapper"]
