"""The reported score: what an agent's solutions are worth on the half of the answers that training never sees."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode

from wmrl_envs.errors import ConfigurationError, SandboxError
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.vector_env import ResearchDesignVectorEnv

if TYPE_CHECKING:
    from wmrl_envs.config import TrainConfig
    from wmrl_envs.research.grading import Grader

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True)
class Evaluation:
    """The reported score of an agent over really executed episodes."""

    score: float
    """Mean ladder reward in [0, 1] on the report half, each episode by its best turn on the training half."""
    standard_error: float | None
    """Of the score, over episodes; ``None`` for a single one."""
    episodes: int
    valid: float
    """Share of turns with a valid submission."""
    statuses: dict[str, int]
    """Turns by status."""
    best: dict[str, dict[str, Any]]
    """By task, the solution of the highest training-half reward: its ``code`` and that ``reward``."""


def evaluate(agent: Any, config: TrainConfig, *, episodes: int, seed: int, sandbox: Grader | None = None) -> Evaluation:
    """Execute an agent's solutions for real and score them on the report half.

    Nothing here is charged to a training run's ledger, and the global random generators are left as they were.

    Args:
        agent: Anything with stable-baselines3's ``predict``.
        config: The run whose task, turns and sandbox are used.
        episodes: Episodes to run, side by side.
        seed: Seeds the episodes and the agent's sampling.
        sandbox: Executes them; ``None`` makes one as the configuration says, and closes it.

    Raises:
        ConfigurationError: If ``episodes`` is below 1.
        SandboxError: If not a single episode could be executed.
    """
    import torch

    if episodes < 1:
        raise ConfigurationError(f"an evaluation needs at least 1 episode, got {episodes}")
    env = ResearchDesignVectorEnv(
        episodes,
        config.tasks,
        blocks=config.actions,
        max_turns=config.turns,
        sandbox=config.sandbox if sandbox is None else sandbox,
        isolation=config.isolation,  # type: ignore[arg-type]  # the sandbox checks the name
        report=True,
        autoreset_mode=AutoresetMode.DISABLED,
    )
    spaces = {task.id: DesignSpace.of(task, config.actions) for task in env.tasks}
    statuses: Counter[str] = Counter()
    best: dict[str, dict[str, Any]] = {}
    with closing(env), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        observations, _ = env.reset(seed=seed)
        for _ in range(config.turns):
            actions, _ = agent.predict(observations, deterministic=False)
            observations, _, _, _, infos = env.step(actions)
            outcomes = infos["wmrl"].get("outcome", [None] * episodes)
            for outcome, action, task in zip(outcomes, actions, infos["task"], strict=True):
                if outcome is not None:
                    statuses[outcome.status] += 1
                    if task not in best or outcome.reward > best[task]["reward"]:
                        best[task] = {"reward": outcome.reward, "code": spaces[task].render(action)}
    graded = ~np.asarray(infos["wmrl"]["ungraded"], dtype=bool)
    if not graded.any():
        raise SandboxError(f"none of {episodes} evaluation episodes could be executed; run 'wmrl doctor'")
    scores = np.asarray(infos["report_score"], dtype=np.float64)[graded]
    return Evaluation(
        score=float(scores.mean()),
        standard_error=float(scores.std(ddof=1) / np.sqrt(len(scores))) if len(scores) > 1 else None,
        episodes=len(scores),
        valid=statuses["valid"] / max(1, sum(statuses.values())),
        statuses=dict(statuses),
        best=best,
    )
