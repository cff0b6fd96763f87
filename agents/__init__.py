"""Agents that train on corrected rewards, and the adapters that let other libraries' agents do so.

Each is imported when it is asked for: stable-baselines3 for the agents of small networks, transformers and TRL for
those that are language models.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wmrl_envs.agents.callbacks import CorrectionCallback
    from wmrl_envs.agents.corrected_reward import CorrectedReward
    from wmrl_envs.agents.grpo import GRPO
    from wmrl_envs.agents.language_model import LanguageModelAgent
    from wmrl_envs.agents.policies import PriorPolicy, design_prior
    from wmrl_envs.agents.sb3 import SB3VecEnv
    from wmrl_envs.agents.trl import ResearchGRPOTrainer

__all__ = [
    "GRPO",
    "CorrectedReward",
    "CorrectionCallback",
    "LanguageModelAgent",
    "PriorPolicy",
    "ResearchGRPOTrainer",
    "SB3VecEnv",
    "design_prior",
]

_MODULES = {
    "GRPO": "grpo",
    "CorrectedReward": "corrected_reward",
    "CorrectionCallback": "callbacks",
    "LanguageModelAgent": "language_model",
    "PriorPolicy": "policies",
    "ResearchGRPOTrainer": "trl",
    "SB3VecEnv": "sb3",
    "design_prior": "policies",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
