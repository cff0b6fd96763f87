"""Seconds per training step against the number of trajectories: generation, prediction and execution.

The first figure of arXiv 2608.12564 with this package's components. Each batch holds distinct solutions of a design
space, drawn by its prior without replacement, so nothing is answered from memory:

- generation: the policy samples an action per trajectory, and the vector environment renders and books the solutions;
- prediction: one call of the learned world model, which has seen none of them;
- execution: the process sandbox runs and grades the same solutions, live.

CPU seconds of execution are those of the solutions and of grading them; the sandbox's workers run side by side, so its
wall seconds are fewer on an idle machine. What the world model costs once (its warm-up and its fit) is printed apart.

    python benchmarks/figure_one.py [--task titanic] [--sizes 16 32 64 128 256] [--rounds 2] [--docs docs]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from matplotlib.figure import Figure

import wmrl_envs  # noqa: F401  (registers the environments)
from wmrl_envs.agents import GRPO
from wmrl_envs.files import replacing, write_text
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.grading import Grader, Submission
from wmrl_envs.research.outcome import Outcome, Status
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.task import ResearchTask, load_task
from wmrl_envs.world_models import resolve_world_model

PARTS = ("generation", "prediction", "execution")
COLOURS = {"generation": "#4d4d4d", "prediction": "#e08214", "execution": "#1b7837", "corrected": "#2166ac"}
ANCHORS = 0.1
"""Share of the trajectories that a corrected step executes."""
WARM = 8
"""Trajectories of a first step that is not counted."""


@dataclass(frozen=True)
class Cost:
    """What one part of one training step took."""

    cpu: float
    """Seconds of all processes together."""
    wall: float
    """Seconds on the clock."""


Costs = dict[int, dict[str, Cost]]
"""By number of trajectories and part."""


class Collector:
    """A grader that keeps what it is given and answers at once: what is left of a step is generation."""

    def __init__(self) -> None:
        self.submissions: list[Submission] = []

    def grade(self, submissions: Sequence[Submission]) -> list[Outcome | None]:
        """Return one failed attempt each."""
        self.submissions = list(submissions)
        return [Outcome(status=Status.NO_SUBMISSION, reward=0.2)] * len(submissions)


def measure(work: Callable[[], Any]) -> tuple[Cost, Any]:
    """Return what a call takes in this process, and its result."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    return Cost(time.process_time() - cpu, time.perf_counter() - wall), result


def measure_step(
    task: ResearchTask, members: Any, world_model: Grader, sandbox: ProcessSandbox, seed: int
) -> dict[str, Cost]:
    """Measure the three parts of a step whose trajectories are these members."""
    collector = Collector()
    env = gym.make_vec(
        "wmrl/ResearchDesign-v0", num_envs=len(members), tasks=task, sandbox=collector, max_turns=1, group_size=2
    )
    agent = GRPO("PriorPolicy", env, seed=seed)
    observations, _ = env.reset(seed=seed)

    def generate() -> None:
        agent.predict(observations, deterministic=False)
        env.step(members)  # in place of the sampled actions, which repeat

    generation, _ = measure(generate)
    env.close()
    batch = collector.submissions
    assert len({submission.code for submission in batch}) == len(members)
    prediction, _ = measure(lambda: world_model.grade(batch))
    execution, outcomes = measure(lambda: sandbox.grade(batch))
    if None in outcomes:
        raise SystemExit(f"{outcomes.count(None)} of {len(outcomes)} solutions could not be executed; run: wmrl doctor")
    solutions = sum(outcome.seconds for outcome in outcomes)
    return {
        "generation": generation,
        "prediction": prediction,
        "execution": Cost(execution.cpu + solutions, execution.wall),
    }


def fresh_batches(space: DesignSpace, seen: set[str], sizes: Sequence[int], seed: int) -> list[Any]:
    """Return a batch of members' choices, int64 [n, d], for each size n; no member comes twice or is among ``seen``.

    Members are drawn by the prior without replacement and then dealt out at random, so that batches are alike.
    """
    rng = np.random.default_rng(seed)
    space = DesignSpace(space.task, space.family)  # one of its own: what it renders is not rendered for the environment
    members = np.array([space.choices(index) for index in range(space.size)])
    weights = sum(logits[members[:, column]] for column, logits in enumerate(space.prior_logits))
    order = members[np.argsort(-(weights + rng.gumbel(size=len(members))))]
    fresh = np.array([choices for choices in order if space.render(choices) not in seen][: sum(sizes)])
    return np.split(rng.permutation(fresh), np.cumsum(sizes)[:-1])


def measure_all(arguments: argparse.Namespace) -> tuple[Costs, str]:
    """Return the mean costs over rounds, and a sentence on what is paid once."""
    task = load_task(arguments.task)
    sizes: list[int] = [WARM, *arguments.sizes * arguments.rounds]
    measured: dict[int, list[dict[str, Cost]]] = {size: [] for size in arguments.sizes}
    space = DesignSpace.of(task)
    if sum(sizes) + arguments.warmup > space.size:
        raise SystemExit(
            f"{sum(sizes) + arguments.warmup} distinct solutions are needed, the design space of {task.id!r} has "
            f"{space.size}: take fewer --rounds or --sizes"
        )
    with ProcessSandbox(workers=arguments.workers) as sandbox:
        world_model: Any = resolve_world_model("learned", warmup=arguments.warmup, warmup_source="execution")
        fit, executed = measure(lambda: world_model.prepare([task], sandbox))
        seconds = sum(outcome.seconds for _, outcome in executed)
        seen = {submission.code for submission, _ in executed}
        batches = fresh_batches(space, seen, sizes, arguments.seed)
        for number, batch in enumerate(batches):
            costs = measure_step(task, batch, world_model, sandbox, arguments.seed)
            if number:  # the first one starts processes and fills caches
                measured[len(batch)].append(costs)
    charge = f"{len(executed)} executions ({seconds:.1f} CPU seconds) and its fit ({fit.cpu:.1f})"
    return {
        size: {part: mean(step[part] for step in steps) for part in PARTS} for size, steps in measured.items()
    }, f"The world model costs once: {charge}."


def mean(costs: Iterable[Cost]) -> Cost:
    """Return the mean of both kinds of seconds."""
    cpu, wall = zip(*((cost.cpu, cost.wall) for cost in costs), strict=True)
    return Cost(statistics.fmean(cpu), statistics.fmean(wall))


def corrected(cost: dict[str, Cost]) -> float:
    """Return the CPU seconds of a step in which all is predicted and a tenth executed."""
    return cost["generation"].cpu + cost["prediction"].cpu + ANCHORS * cost["execution"].cpu


def saving(cost: dict[str, Cost]) -> float:
    """Return how many times as much a step costs in which all is executed and nothing predicted."""
    return (cost["generation"].cpu + cost["execution"].cpu) / corrected(cost)


def table(costs: Costs) -> list[list[str]]:
    """Return the cells of the table, headings first; seconds are CPU seconds / wall seconds."""
    return [
        ["trajectories", *(f"{part} (s)" for part in PARTS), "execution : prediction", "all executed : a tenth"]
    ] + [
        [
            str(size),
            *(f"{cost[part].cpu:.3f} / {cost[part].wall:.3f}" for part in PARTS),
            f"{cost['execution'].cpu / cost['prediction'].cpu:.0f}",
            f"{saving(cost):.1f}",
        ]
        for size, cost in costs.items()
    ]


def markdown(costs: Costs, once: str, command: str, workers: int) -> str:
    """Return the page."""
    size = max(costs)
    each = {part: f"{1e3 * costs[size][part].cpu / size:.3g} ms" for part in PARTS}
    times = costs[size]["execution"].cpu / costs[size]["prediction"].cpu
    heading, *body = (f"| {' | '.join(cells)} |" for cells in table(costs))
    return f"""# What a training step costs

![Seconds per training step against the number of trajectories](figure_one.png)

At {size} trajectories per step, a trajectory takes {each["generation"]} of CPU time to generate,
{each["prediction"]} to predict and {each["execution"]} to execute: execution costs {times:.0f} times as much as
prediction. A step that predicts everything and executes a tenth (generation + prediction + a tenth of execution) is
{saving(costs[size]):.1f} times cheaper than one that executes everything. {once}

Generation is a small network's here; a language model's takes longer, the same whatever the rewards come from. The
solutions are small as well: the longer one runs, the more is saved.

Seconds are CPU seconds / wall seconds, measured with {workers} workers on {os.cpu_count()} cores; compare them within
this page. The ratios are of CPU seconds.

{heading}
{"|--:" * len(table(costs)[0])}|
{chr(10).join(body)}

Made by `{command}`, which tells what exactly is measured.
"""


def draw(costs: Costs, path: Path) -> None:
    """Draw CPU seconds per step against trajectories, both logarithmic."""
    figure = Figure(figsize=(6, 4.2), layout="constrained")
    axes = figure.subplots()
    sizes = list(costs)
    for part in PARTS:
        axes.plot(sizes, [costs[size][part].cpu for size in sizes], "o-", color=COLOURS[part], label=part)
    axes.plot(
        sizes,
        [corrected(costs[size]) for size in sizes],
        "--",
        color=COLOURS["corrected"],
        label="whole step, a tenth executed",
    )
    axes.set(
        xscale="log", yscale="log", xlabel="trajectories per training step", ylabel="CPU seconds per training step"
    )
    axes.set_xticks(sizes, [str(size) for size in sizes], minor=False)
    axes.set_xticks([], minor=True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="titanic")
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 32, 64, 128, 256], help="even numbers")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=180)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--docs", type=Path, help="folder that figure_one.md and figure_one.png are written to")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    costs, once = measure_all(arguments)
    for cells in table(costs):
        print("  ".join(cell.rjust(22) for cell in cells))
    print(f"seconds are CPU / wall. {once}")
    if arguments.docs is not None:
        sizes = " ".join(map(str, arguments.sizes))
        command = f"python benchmarks/figure_one.py --task {arguments.task} --sizes {sizes} --rounds {arguments.rounds}"
        page = markdown(costs, once, f"{command} --docs docs", arguments.workers)
        write_text(arguments.docs / "figure_one.md", page)
        draw(costs, arguments.docs / "figure_one.png")


if __name__ == "__main__":
    main()
