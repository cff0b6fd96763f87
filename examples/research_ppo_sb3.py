"""stable-baselines3's PPO, unchanged, on corrected rewards: on the batched environment and on single ones.

PPO sees scalar rewards and knows nothing of world models. The correction pays it returns that are right on average,
whatever the world model predicts. Two ways to get there, the first with a single call of the world model per step:

    python examples/research_ppo_sb3.py --vectorisation batched    # gym.make_vec and SB3VecEnv
    python examples/research_ppo_sb3.py --vectorisation single     # stable-baselines3's make_vec_env
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

import wmrl_envs  # noqa: F401  (registers the environments)
from wmrl_envs.agents import CorrectionCallback, SB3VecEnv
from wmrl_envs.research.sandbox import resolve_sandbox


@dataclass(frozen=True)
class Args:
    """What can be set on the command line."""

    vectorisation: str = "batched"
    """batched, or single."""
    task: str = "titanic"
    """A bundled task (wmrl tasks list), or the path of a task folder."""
    sandbox: str = "process"
    """process executes solutions; replay answers from shipped recordings of real executions."""
    steps: int = 40
    """Updates of the policy."""
    num_envs: int = 64
    """Sub-environments."""
    turns: int = 4
    """Attempts per episode; an update takes one episode of each sub-environment."""
    anchor_fraction: float = 0.1
    """Share of the episodes that is executed."""
    warmup: int = 180
    """Solutions that are executed beforehand, for the world model to learn from."""
    learning_rate: float = 0.003
    """Adam's step size."""
    evaluation_episodes: int = 32
    """Episodes that are executed before and after training for the reported score."""
    seed: int = 0
    """Seeds everything."""


def parse_args() -> Args:
    """Read the arguments from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Args):
        choices = ("batched", "single") if field.name == "vectorisation" else None
        name = "--" + field.name.replace("_", "-")
        parser.add_argument(
            name, type=type(field.default), default=field.default, choices=choices, help=f"({field.default})"
        )
    return Args(**vars(parser.parse_args()))


def make_env(args: Args, sandbox: Any) -> VecEnv:
    """Return the wrapped environment for stable-baselines3; its monitor is outermost, so it logs corrected rewards."""
    settings = {
        "tasks": args.task,
        "sandbox": sandbox,
        "max_turns": args.turns,
        "anchor_fraction": args.anchor_fraction,
        "world_model_kwargs": {"warmup": args.warmup, "seed": args.seed},
    }
    if args.vectorisation == "batched":
        return VecMonitor(SB3VecEnv(gym.make_vec("wmrl/ResearchDesignWMRL-v0", num_envs=args.num_envs, **settings)))
    # The environments of one process share the world model and the correction, and here the sandbox as well.
    return make_vec_env("wmrl/ResearchDesignWMRL-v0", n_envs=args.num_envs, seed=args.seed, env_kwargs=settings)


def reported_score(agent: PPO, args: Args, sandbox: Any) -> float:
    """Execute the agent's solutions and return their mean score on the half of the answers that training never sees."""
    env = gym.make_vec(
        "wmrl/ResearchDesign-v0",
        num_envs=args.evaluation_episodes,
        tasks=args.task,
        sandbox=sandbox,
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
    torch.set_num_threads(1)  # the networks are tiny: threads would only wait for each other
    sandbox: Any = resolve_sandbox(args.sandbox)
    env = make_env(args, sandbox)
    agent = PPO(
        "MlpPolicy",
        env,
        n_steps=args.turns,
        batch_size=args.num_envs * args.turns,
        gamma=1.0,  # an episode's undiscounted return is its score
        learning_rate=args.learning_rate,
        seed=args.seed,
        device="cpu",
    )
    print(f"reported score before training: {reported_score(agent, args, sandbox):.3f}")
    agent.learn(args.steps * args.num_envs * args.turns, callback=CorrectionCallback())
    print(f"reported score after training:  {reported_score(agent, args, sandbox):.3f}")
    ledger = env.get_attr("ledger")[0]
    print(
        f"{ledger.predictions} rewards predicted, {ledger.executions} solutions executed in "
        f"{ledger.execution_seconds:.1f} CPU s (of which {ledger.warmup_executions} beforehand)"
    )
    env.close()
    sandbox.close()


if __name__ == "__main__":
    main()
