"""Steps per second of the wrapped vector environment against the bare one with the same outcomes.

Both answer from the same recorded executions: the bare environment grades every solution with a ``ReplaySandbox``; in
the wrapped one a ``TableWorldModel`` predicts every solution from the same table, and the sandbox grades a tenth of
them beside it. Nothing is executed and no model is evaluated, so what differs is the work of ``WorldModelWrapper`` and
``CorrectionWrapper``: routing, drawing, calibrating, correcting and the infos, and once per round of episodes the
refit of the calibration. Rounds of episodes alternate between the two, in CPU seconds; other processes only ever add
to them (they empty the caches), so the lower quartile counts.

Two environments are measured: ``wmrl/Research-v0``, whose actions are replies with code in them, and
``wmrl/ResearchDesign-v0``, whose actions are choices and whose bare step is little more than a table look-up.

The learned world model's own cost comes apart: seconds of one call for all sub-environments.

    python benchmarks/vector_env.py [--num-envs 128] [--rounds 400] [--task titanic]
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

import wmrl_envs  # noqa: F401 - registers the environments
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.world_models import resolve_world_model
from wmrl_envs.world_models.table import TableWorldModel
from wmrl_envs.wrappers import vector

LIMIT = 0.9


ENVIRONMENTS = ("wmrl/Research-v0", "wmrl/ResearchDesign-v0")


def make(
    name: str, mode: AutoresetMode, arguments: argparse.Namespace, sandbox: ReplaySandbox, group_size: int
) -> tuple[Any, Any]:
    """Return the bare and the wrapped environment."""
    bare, inner = (
        gym.make_vec(
            name,
            num_envs=arguments.num_envs,
            tasks=arguments.task,
            sandbox=sandbox,
            group_size=group_size,
            autoreset_mode=mode,
        )
        for _ in range(2)
    )
    run = f"{name} {mode} {group_size}"
    wrapped = vector.WorldModelWrapper(inner, TableWorldModel(sandbox), run=run)
    return bare, vector.CorrectionWrapper(wrapped, anchor_fraction=0.1, run=run)


def play(env: Any, actions: list[Any], mode: AutoresetMode) -> float:
    """Return the CPU seconds of one round of episodes, with whatever begins the next."""
    start = time.process_time()
    for action in actions:
        env.step(action)
    if mode is AutoresetMode.DISABLED:
        env.reset()
    return time.process_time() - start


def draw_actions(name: str, num_envs: int, space: DesignSpace, rng: np.random.Generator) -> Any:
    """Return one step's actions: uniform choices, or replies that hold the solutions they stand for."""
    choices = np.stack([space.choices(int(index)) for index in rng.integers(space.size, size=num_envs)])
    if name.startswith("wmrl/ResearchDesign"):
        return choices
    return tuple(f"My next attempt:\n\n```python\n{space.render(row)}```\n" for row in choices)


def compare(
    name: str, mode: AutoresetMode, arguments: argparse.Namespace, sandbox: ReplaySandbox, group_size: int
) -> float:
    """Print one row and return the share of its speed that the wrapped environment keeps."""
    envs = make(name, mode, arguments, sandbox, group_size)
    space, rng = DesignSpace.of(envs[0].unwrapped.tasks[0]), np.random.default_rng(0)
    steps = envs[0].unwrapped.max_turns + (mode is AutoresetMode.NEXT_STEP)
    rounds = [[draw_actions(name, arguments.num_envs, space, rng) for _ in range(steps)] for _ in range(20)]
    seconds: list[list[float]] = [[], []]
    for env in envs:
        env.reset(seed=0)
    for number in range(arguments.rounds + len(rounds)):
        for which in (0, 1) if number % 2 else (1, 0):
            spent = play(envs[which], rounds[number % len(rounds)], mode)
            if number >= len(rounds):  # the first ones fill every cache
                seconds[which].append(spent)
    bare, wrapped = (float(np.quantile(times, 0.25)) / steps for times in seconds)
    ratio = bare / wrapped
    print(
        f"{name.removeprefix('wmrl/'):<20}{mode.value:<10}{group_size:>6}{1 / bare:>12,.0f}{1 / wrapped:>12,.0f}"
        f"{1e6 * (wrapped - bare):>12,.0f}{ratio:>8.1%}"
    )
    for env in envs:
        env.close()
    return ratio


def learned_cost(arguments: argparse.Namespace, sandbox: ReplaySandbox) -> None:
    """Print what the learned world model itself takes for one step's solutions."""
    envs = gym.make_vec("wmrl/ResearchDesign-v0", num_envs=1, tasks=arguments.task, sandbox=sandbox)
    (task,), space = envs.unwrapped.tasks, envs.unwrapped.design_space
    model = resolve_world_model("learned")
    start = time.process_time()
    model.prepare([task], sandbox)
    print(f"learned world model: warm-up and fit {time.process_time() - start:.2f} s", end="")
    rng = np.random.default_rng(0)
    first, again = [], []
    for _ in range(5):
        codes = [space.render(choices) for choices in space.sample(arguments.num_envs, rng)]
        for times in (first, again):
            start = time.process_time()
            model.grade([Submission(task, code) for code in codes])
            times.append(time.process_time() - start)
    print(
        f"; {arguments.num_envs} solutions {1e3 * statistics.median(first):.1f} ms the first time, "
        f"{1e3 * statistics.median(again):.1f} ms once known"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--task", default="titanic")
    parser.add_argument("--tables", help="folder of recordings; those that come with the tasks by default")
    parser.add_argument("--no-learned", action="store_true", help="leave the learned world model out")
    arguments = parser.parse_args()
    sandbox = ReplaySandbox(arguments.tables)
    print(f"{arguments.num_envs} sub-environments, {arguments.rounds} alternating rounds of episodes, steps per second")
    print(
        f"{'environment':<20}{'autoreset':<10}{'group':>6}{'bare 1/s':>12}{'wrapped 1/s':>12}"
        f"{'added us':>12}{'kept':>8}"
    )
    least = {}
    for name in ENVIRONMENTS:
        kept = [compare(name, mode, arguments, sandbox, size) for mode in AutoresetMode for size in (8, 1)]
        least[name] = min(kept)
    if not arguments.no_learned:
        learned_cost(arguments, sandbox)
    for name, share in least.items():
        print(f"{name} keeps at least {share:.1%}: 90 % {'holds' if share >= LIMIT else 'does not hold'}")


if __name__ == "__main__":
    main()
