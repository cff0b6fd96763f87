"""Rendered decisions per second: our Meta-World environment against Gymnasium's default rendering of the same task.

A decision is ten simulator steps and one frame of the same camera and size. Each rival has a process of its own, with
the rasteriser's threads as that rival leaves them, and they take turns, so that a busy machine slows all; the median of
the rounds counts.

    python benchmarks/rendering.py [--tasks button-press,drawer-open,window-open] [--rounds 5]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np

import wmrl_envs  # noqa: F401  (registers the environments)
from wmrl_envs.robotics.rendering import choose_backend

HOLD = 10
MUST_SHOW = 5.0


def ours(task: str, size: int, draw_arm: bool) -> Callable[[], Any]:
    """Return a function that takes one decision in our environment."""
    env = gym.make(
        "wmrl/MetaWorld-v0",
        tasks=task,
        camera="corner2",
        image_size=size,
        hold=HOLD,
        draw_arm=draw_arm,
        max_decisions=10**6,
        disable_env_checker=True,
    ).unwrapped
    env.reset(seed=0)
    env.action_space.seed(0)
    return lambda: env.step(env.action_space.sample())


def default(task: str, size: int) -> Callable[[], Any]:
    """Return a function that takes the same decision in Meta-World's own environment, rendered by Gymnasium."""
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    env: Any = ALL_V3_ENVIRONMENTS[f"{task}-v3"](
        render_mode="rgb_array", camera_name="corner2", width=size, height=size
    )
    env._freeze_rand_vec, env._set_task_called, env.max_path_length = False, True, 10**9
    env.reset()
    env.action_space.seed(0)

    def decide() -> None:
        action = env.action_space.sample()
        for _ in range(HOLD):
            env.step(action)
        env.mujoco_renderer._get_viewer("rgb_array").make_context_current()
        np.ascontiguousarray(env.render()[::-1, ::-1])

    return decide


def probed_backend() -> str:
    """Return the backend that works here, in a process of its own: asking leaves a trace in the environment."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(choose_backend)


RIVALS: dict[str, Callable[[str, int], Callable[[], Any]]] = {
    "default": default,
    "ours": lambda task, size: ours(task, size, True),
    "without arm": lambda task, size: ours(task, size, False),
}


def serve(connection: Connection, rival: str, task: str, size: int) -> None:
    """Take as many decisions as asked for, and answer with the seconds of one, until asked for none."""
    warnings.filterwarnings("ignore")
    decide = RIVALS[rival](task, size)
    decide()
    while count := connection.recv():
        start = time.perf_counter()
        for _ in range(count):
            decide()
        connection.send((time.perf_counter() - start) / count)
    os._exit(0)  # Gymnasium's viewer complains when the interpreter frees it


def measured(task: str, size: int, rounds: int, decisions: int) -> dict[str, float]:
    """Return each rival's decisions per second."""
    context = multiprocessing.get_context("spawn")
    ends = {}
    for rival in RIVALS:
        here, there = context.Pipe()
        context.Process(target=serve, args=(there, rival, task, size), daemon=True).start()
        ends[rival] = here
    took: dict[str, list[float]] = {rival: [] for rival in RIVALS}
    for _ in range(rounds):
        for rival, end in ends.items():
            end.send(max(decisions // 5, 1) if rival == "default" else decisions)
            took[rival].append(end.recv())
    for end in ends.values():
        end.send(0)
    return {rival: 1.0 / median(seconds) for rival, seconds in took.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="button-press,drawer-open,window-open")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--decisions", type=int, default=20, help="per round; of the default's a fifth as many")
    args = parser.parse_args()
    os.environ.setdefault("MUJOCO_GL", probed_backend())
    print(f"backend {os.environ['MUJOCO_GL']}; decisions per second, medians of {args.rounds} rounds\n")
    print("| task | pixels | Gymnasium's default | ours | times | ours without the arm | times |")
    print("|---|---|---|---|---|---|---|")
    worst = float("inf")
    for task in args.tasks.split(","):
        for size in (64, 128):
            rates = measured(task, size, args.rounds, args.decisions)
            times = {rival: rate / rates["default"] for rival, rate in rates.items()}
            worst = min(worst, times["ours"])
            print(
                f"| {task} | {size} | {rates['default']:.1f} | {rates['ours']:.1f} | {times['ours']:.1f} | "
                f"{rates['without arm']:.1f} | {times['without arm']:.1f} |",
                flush=True,
            )
    print(f"\nat least {MUST_SHOW:.0f} times, with the arm: {'holds' if worst >= MUST_SHOW else 'fails'} ({worst:.1f})")


if __name__ == "__main__":
    main()
