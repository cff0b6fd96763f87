"""Registers the environments with Gymnasium; nothing that they need is imported before one is made."""

from __future__ import annotations

import gymnasium as gym

__all__ = ["register_environments"]

_RESEARCH = "wmrl_envs.research"

ENVIRONMENTS = {
    "wmrl/Research-v0": (f"{_RESEARCH}.env:ResearchEnv", f"{_RESEARCH}.vector_env:ResearchVectorEnv"),
    "wmrl/ResearchDesign-v0": (f"{_RESEARCH}.env:ResearchDesignEnv", f"{_RESEARCH}.vector_env:ResearchDesignVectorEnv"),
    "wmrl/MetaWorld-v0": ("wmrl_envs.robotics.envs:MetaWorldEnv", "wmrl_envs.robotics.envs:MetaWorldVectorEnv"),
    "wmrl/Libero-v0": ("wmrl_envs.robotics.libero:LiberoEnv", "wmrl_envs.robotics.libero:LiberoVectorEnv"),
    "wmrl/ResearchWMRL-v0": ("wmrl_envs.wrappers.make:research_wmrl", "wmrl_envs.wrappers.make:research_wmrl_vector"),
    "wmrl/ResearchDesignWMRL-v0": (
        "wmrl_envs.wrappers.make:research_design_wmrl",
        "wmrl_envs.wrappers.make:research_design_wmrl_vector",
    ),
}
"""Id -> entry points of the single and the vector environment."""


def register_environments() -> None:
    """Register every environment that is not registered yet, so that importing twice is harmless."""
    for name, (single, vector) in ENVIRONMENTS.items():
        if name not in gym.registry:
            gym.register(id=name, entry_point=single, vector_entry_point=vector)
