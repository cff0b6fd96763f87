"""Agents that train on corrected rewards, and the adapters that let other libraries' agents do so."""

from wmrl_envs.agents.callbacks import CorrectionCallback
from wmrl_envs.agents.grpo import GRPO
from wmrl_envs.agents.policies import PriorPolicy, design_prior
from wmrl_envs.agents.sb3 import SB3VecEnv

__all__ = ["GRPO", "CorrectionCallback", "PriorPolicy", "SB3VecEnv", "design_prior"]
