"""A robot policy fine-tuned on a progress model's word, a tenth of the rollouts really labelled.

A small vision-language-action policy imitates a few demonstrations. A progress model, trained from other ones, watches
its rollouts and says how likely each one solved its task; the labels of the anchors correct it. One file, top to
bottom, some ten minutes on one core:

    python examples/finetune_vla.py --tasks button-press,drawer-open,window-open
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields

import numpy as np
import torch

from wmrl_envs.robotics.demonstrations import collect
from wmrl_envs.robotics.envs import MetaWorldVectorEnv
from wmrl_envs.robotics.evaluation import success_rates
from wmrl_envs.robotics.finetune import FinetuneConfig, RobotTrainer
from wmrl_envs.robotics.policy import SmallVLA, imitate
from wmrl_envs.robotics.video_model import train_video_model


@dataclass(frozen=True)
class Args:
    """What can be set on the command line."""

    tasks: str = "button-press,drawer-open,window-open"
    """Meta-World tasks, separated by commas; one policy learns all of them."""
    reward: str = "mixed"
    """Reward scheme, such as mixed, rectified, paper, world-model or real."""
    demonstrations: int = 2
    """Expert rollouts of each task that the policy imitates."""
    imitation_steps: int = 300
    """Optimiser steps of imitation."""
    progress_demonstrations: int = 40
    """Expert rollouts of each task for the progress model, and twice as many disturbed ones."""
    progress_steps: int = 600
    """Optimiser steps of the progress model."""
    steps: int = 20
    """Steps of fine-tuning."""
    groups: int = 10
    """Groups of eight rollouts in each."""
    max_decisions: int = 12
    """Decisions per rollout."""
    goals: int = 30
    """Fresh initial states of each task, before and after."""
    seed: int = 0
    """Seeds everything."""


def parse_args() -> Args:
    """Read the arguments from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Args):
        name = "--" + field.name.replace("_", "-")
        parser.add_argument(name, type=type(field.default), default=field.default, help=f"({field.default})")
    return Args(**vars(parser.parse_args()))


def success(policy: SmallVLA, args: Args) -> float:
    """Return the share of fresh initial states from which the policy solves its task, all tasks together."""
    env = MetaWorldVectorEnv(args.goals, args.tasks.split(","), max_decisions=args.max_decisions, draw_arm=False)
    goals = np.random.default_rng(args.seed + 1_000_000).integers(2**31, size=args.goals)
    solved = success_rates(policy, env, goals.tolist())
    env.close()
    return float(np.mean(list(solved.values())))


def main() -> None:
    """Imitate, fine-tune, and print the success before and after."""
    args = parse_args()
    torch.set_num_threads(1)  # the networks are small: threads would only wait for each other
    torch.manual_seed(args.seed)
    tasks = args.tasks.split(",")
    scene = {"max_decisions": args.max_decisions, "draw_arm": False}

    policy = SmallVLA()
    imitate(policy, collect(tasks, args.demonstrations, seed=args.seed, **scene), steps=args.imitation_steps)

    experts = args.progress_demonstrations
    others = collect(tasks, experts, perturbed=2 * experts, seed=args.seed + 1, **scene)
    progress_model = train_video_model(others, steps=args.progress_steps)

    print(f"success before fine-tuning: {success(policy, args):.3f}")
    config = FinetuneConfig(
        tasks=args.tasks,
        reward=args.reward,
        steps=args.steps,
        groups=args.groups,
        max_decisions=args.max_decisions,
        draw_arm=False,
        seed=args.seed,
    )
    trainer = RobotTrainer(config, policy, progress_model)
    for _ in range(args.steps):
        row = trainer.train_step()
        print(f"step {row['step']:.0f}: predicted success {row.get('predicted_reward', float('nan')):.2f}")
    trainer.close()
    print(f"success after fine-tuning:  {success(policy, args):.3f}")
    rollouts, labels = (sum(row[name] for row in trainer.rows) for name in ("rollouts", "labels"))
    print(f"{labels:.0f} of {rollouts:.0f} rollouts labelled")


if __name__ == "__main__":
    main()
