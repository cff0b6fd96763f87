"""GRPO on predicted rewards of real machine-learning tasks, a tenth of the groups really executed.

The agent proposes solutions to a task: Python programs out of a design space of some thousands. A world model predicts
how each would end, and the correction keeps it honest with the few that are executed. One file, top to bottom:

    python examples/research_grpo.py --task titanic --steps 60
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import wmrl_envs  # noqa: F401  (registers the environments)
from wmrl_envs.agents import GRPO, CorrectionCallback


@dataclass(frozen=True)
class Args:
    """What can be set on the command line."""

    task: str = "titanic"
    """A bundled task (wmrl tasks list), or the path of a task folder."""
    sandbox: str = "process"
    """process executes solutions; replay answers from shipped recordings of real executions."""
    steps: int = 60
    """Updates of the policy."""
    num_envs: int = 128
    """Solutions per update."""
    group_size: int = 8
    """Solutions that are compared with each other."""
    turns: int = 1
    """Attempts per episode; in later ones the agent sees how the last attempt ended."""
    anchor_fraction: float = 0.1
    """Share of the groups that is executed."""
    warmup: int = 180
    """Solutions that are executed beforehand, for the world model to learn from."""
    learning_rate: float = 0.03
    """Adam's step size."""
    evaluation_episodes: int = 64
    """Episodes that are executed before and after training for the reported score."""
    seed: int = 0
    """Seeds everything."""


def parse_args() -> Args:
    """Read the arguments from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Args):
        name = "--" + field.name.replace("_", "-")
        parser.add_argument(name, type=type(field.default), default=field.default, help=f"({field.default})")
    return Args(**vars(parser.parse_args()))


def reported_score(agent: Any, args: Args) -> float:
    """Execute the agent's solutions and return their mean score on the half of the answers that training never sees."""
    env = gym.make_vec(
        "wmrl/ResearchDesign-v0",
        num_envs=args.evaluation_episodes,
        tasks=args.task,
        sandbox=args.sandbox,
        max_turns=args.turns,
        report=True,
    )
    observations, _ = env.reset(seed=args.seed + 1_000_000)
    for _ in range(args.turns):
        actions, _ = agent.predict(observations, deterministic=False)
        observations, _, _, _, infos = env.step(actions)
    env.close()
    return float(np.mean(infos["report_score"]))


def main() -> None:
    """Train, and print the reported score before and after."""
    args = parse_args()
    torch.set_num_threads(1)  # the policy is tiny: threads would only wait for each other
    env = gym.make_vec(
        "wmrl/ResearchDesignWMRL-v0",
        num_envs=args.num_envs,
        group_size=args.group_size,
        tasks=args.task,
        sandbox=args.sandbox,
        max_turns=args.turns,
        anchor_fraction=args.anchor_fraction,
        world_model_kwargs={"warmup": args.warmup, "seed": args.seed},
        seed=args.seed,  # of the draw of what is executed
    )
    agent = GRPO("PriorPolicy", env, learning_rate=args.learning_rate, seed=args.seed)

    print(f"reported score before training: {reported_score(agent, args):.3f}")
    agent.learn(args.steps * args.num_envs * args.turns, callback=CorrectionCallback())
    print(f"reported score after training:  {reported_score(agent, args):.3f}")

    ledger = env.ledger
    print(
        f"{ledger.predictions} rewards predicted in {ledger.prediction_seconds:.1f} s, {ledger.executions} solutions "
        f"executed in {ledger.execution_seconds:.1f} CPU s (of which {ledger.warmup_executions} beforehand)"
    )
    best, _ = agent.predict(env.reset(seed=args.seed)[0][:1], deterministic=True)
    print(f"\nThe policy's most probable solution:\n\n{env.unwrapped.design_space.render(best[0])}")
    env.close()


if __name__ == "__main__":
    main()
