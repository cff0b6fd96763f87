"""What the tests on vLLM share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from contract import conversations

from language_models import smollm2_gguf
from wmrl_envs.world_models.backends import Backend

__all__ = ["ENVIRONMENT", "LENGTH", "WORDS", "apart", "smollm2"]

ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
"""A GiB for keys and values, and no questions to anyone."""

LENGTH = 4096
"""Longest chat and reply, in tokens."""

WORDS = ["runtime error", "memory exceeded on line 12", "memory", "low", "timeout"]
"""Answers of several tokens, and one that begins another."""


def smollm2() -> Path:
    """Return SmolLM2-135M-Instruct as a folder."""
    from wmrl_envs.world_models.backends.gguf import converted

    return converted(smollm2_gguf())


def apart(one: Backend, other: Backend, choices: Sequence[str]) -> float:
    """Return the largest difference between two backends' probabilities."""
    pairs = list(zip(one.choose(conversations(), choices), other.choose(conversations(), choices), strict=True))
    return max(float(np.abs(a - b).max()) for a, b in pairs if a is not None and b is not None)
