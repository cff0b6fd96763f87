"""The reported score: what an agent's solutions are worth on the half of the answers that training never sees."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

import wmrl_envs  # noqa: F401  (registers the environments)
from wmrl_envs.errors import SandboxError

if TYPE_CHECKING:
    from wmrl_envs.config import TrainConfig

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True)
class Evaluation:
    """The reported score of an agent over really executed episodes."""

    score: float
    """Mean ladder reward in [0, 1] on the report half, each episode by its best turn on the training half."""
    standard_error: float
    """Of the score, over episodes."""
    episodes: int
    valid: float
    """Share of turns with a valid submission."""
    statuses: dict[str, int]
    """Turns by status."""
    best_code: str
    """The solution with the highest training-half reward."""
    best_reward: float
    """Its ladder reward on the training half."""


def evaluate(agent: Any, config: TrainConfig, *, episodes: int, seed: int) -> Evaluation:
    """Execute an agent's solutions for real and score them on the report half.

    Nothing here is charged to a training run's ledger, and the global random generators are left as they were.

    Args:
        agent: Anything with stable-baselines3's ``predict``.
        config: The run whose task, turns and sandbox are used.
        episodes: Episodes to run, side by side.
        seed: Seeds the episodes and the agent's sampling.

    Raises:
        SandboxError: If not a single episode could be executed.
    """
    import torch

    env = gym.make_vec(
        "wmrl/ResearchDesign-v0",
        num_envs=episodes,
        tasks=config.task,
        max_turns=config.turns,
        sandbox=config.sandbox,
        isolation=config.isolation,
        report=True,
        autoreset_mode=AutoresetMode.DISABLED,
    )
    space = env.unwrapped.design_space  # type: ignore[attr-defined]
    statuses: Counter[str] = Counter()
    best = (-1.0, "")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        observations, _ = env.reset(seed=seed)
        for _ in range(config.turns):
            actions, _ = agent.predict(observations, deterministic=False)
            observations, _, _, _, infos = env.step(actions)
            outcomes = infos["wmrl"].get("outcome", [None] * episodes)
            for outcome, action in zip(outcomes, actions, strict=True):
                if outcome is not None:
                    statuses[outcome.status] += 1
                    if outcome.reward > best[0]:
                        best = (outcome.reward, space.render(action))
    env.close()
    graded = ~np.asarray(infos["wmrl"]["ungraded"], dtype=bool)
    if not graded.any():
        raise SandboxError(f"none of {episodes} evaluation episodes could be executed; run 'wmrl doctor'")
    scores = np.asarray(infos["report_score"], dtype=np.float64)[graded]
    return Evaluation(
        score=float(scores.mean()),
        standard_error=float(scores.std(ddof=1) / np.sqrt(len(scores))) if len(scores) > 1 else 0.0,
        episodes=len(scores),
        valid=statuses["valid"] / max(1, sum(statuses.values())),
        statuses=dict(statuses),
        best_code=best[1],
        best_reward=best[0],
    )
