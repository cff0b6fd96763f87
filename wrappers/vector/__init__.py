"""The batched twins of the wrappers in ``wmrl_envs.wrappers``, under the same names."""

from wmrl_envs.wrappers.vector.correction import CorrectionWrapper
from wmrl_envs.wrappers.vector.world_model import WorldModelWrapper

__all__ = ["CorrectionWrapper", "WorldModelWrapper"]
