"""How much to execute: score and cost against the share of groups that are anchors.

GRPO trains on recorded real executions with a share of .02 to .4 of its groups executed: rewards rectified, by a world
model that learns from what is executed or by one left as the warm-up made it, and, as the simplest rival, the executed
groups alone. Everything executed (a share of 1) stands beside them. The anchors-only runs take as many steps as their
share of the groups allows, and go on until they have cost as much as the rectified ones, whose warm-up they do not pay.

The step size of every row is chosen on seeds of its own. Runs are those of ``wmrl_envs.compare``; finished ones are
kept in --runs and not repeated.

    python benchmarks/anchor_fraction.py [--seeds 8] [--steps 60] [--docs docs]
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from wmrl_envs.compare import TUNING_SEED, Job, run_jobs
from wmrl_envs.compare_report import Curves, CurveTable, Estimate, load_curves
from wmrl_envs.config import TrainConfig
from wmrl_envs.files import replacing, write_text

FloatArray = NDArray[np.float64]
KINDS = {
    "learning": ("rectified, learning world model", "#2166ac"),
    "frozen": ("rectified, frozen world model", "#92c5de"),
    "anchors-only": ("the executed groups alone", "#1b7837"),
}
"""What trains on a share of the groups, in words, and its colour; all else is executed in full: ``real``."""
RIVALS = ("anchors-only", "real")
BUDGETS = (0.05, 0.1, 0.15, 0.2, 0.4)
"""Costs, as shares of executing everything, at which the rows are compared."""
LONGER = 1.6
"""Groups of the anchors-only runs over what the rectified ones execute, so that they reach the same cost."""
RIVAL_TUNING = 2
"""Tuning seeds of the rivals over those of the rectified rows: their runs differ more, and no rival is to lose by an
unlucky choice."""


@dataclass(frozen=True)
class Arm:
    """One row: what is trained on, and the share of groups that is executed for it."""

    kind: str
    fraction: float

    @property
    def name(self) -> str:
        """The folder of its runs."""
        return f"{self.kind}-{self.fraction:g}"

    def config(self, base: TrainConfig) -> TrainConfig:
        """Return the settings of its runs."""
        config = replace(base, reward="rectified", anchor_fraction=self.fraction)
        if self.kind == "real":
            return replace(base, reward="real")
        if self.kind == "frozen":
            return replace(config, refit_every=0)
        if self.kind == "anchors-only":
            config = replace(config, reward="anchors-only")
            executed = self.fraction * base.steps * base.groups + base.warmup / base.group_size
            return replace(config, steps=math.ceil(LONGER * executed / config.executed_groups))
        return config

    def end(self, base: TrainConfig) -> int:
        """Return the step after which the row has had its share of the groups."""
        if self.kind != "anchors-only":
            return base.steps
        return max(1, round(self.fraction * base.steps * base.groups / self.config(base).executed_groups))


REAL = Arm("real", 1.0)


@dataclass(frozen=True)
class Grid:
    """What is run."""

    tasks: tuple[str, ...]
    fractions: tuple[float, ...]
    rates: tuple[float, ...]
    seeds: int
    tuning_seeds: int
    base: TrainConfig

    @property
    def arms(self) -> list[Arm]:
        """All rows, the one that executes everything last."""
        return [*(Arm(kind, fraction) for kind in KINDS for fraction in self.fractions), REAL]

    def tuning_jobs(self) -> list[Job]:
        """Return the runs that choose step sizes, the rivals' on more seeds."""
        first, last = TUNING_SEED + self.tuning_seeds, TUNING_SEED + RIVAL_TUNING * self.tuning_seeds
        rivals = [arm for arm in self.arms if arm.kind in RIVALS]
        return self.jobs(range(TUNING_SEED, first), dict.fromkeys(self.arms, self.rates)) + self.jobs(
            range(first, last), dict.fromkeys(rivals, self.rates)
        )

    def jobs(self, seeds: Sequence[int], rates: Mapping[Arm, Sequence[float]]) -> list[Job]:
        """Return the runs of every arm at its step sizes."""
        return [
            Job(arm.name, replace(arm.config(self.base), task=task, seed=seed, learning_rate=rate))
            for seed in seeds
            for task in self.tasks
            for arm, tried in rates.items()
            for rate in tried
        ]


class Results:
    """The curves at the step sizes chosen, and what is read off them."""

    def __init__(self, grid: Grid, curves: CurveTable, chosen: Mapping[tuple[Arm, Arm], float]) -> None:
        """Keep what is needed; ``chosen`` is as by ``choose``."""
        self.grid, self.curves, self.chosen = grid, curves, chosen

    def of(self, arm: Arm, task: str, at: Arm | None = None) -> Curves:
        """Return an arm's runs, with the step size chosen for its end or for the cost of another arm."""
        return self.curves[arm.name, task, self.chosen[arm, at or arm]]

    def mean(self, value: Callable[[str], FloatArray]) -> FloatArray:
        """Average a per-seed value over the tasks."""
        average: FloatArray = np.mean([value(task) for task in self.grid.tasks], axis=0)
        return average

    def score(self, arm: Arm, task: str) -> FloatArray:
        """Return each seed's reported score at the arm's end."""
        return self.of(arm, task).report[:, arm.end(self.grid.base)]

    def cost(self, arm: Arm, task: str) -> FloatArray:
        """Return each seed's CPU seconds of execution at the arm's end, the warm-up included."""
        return self.of(arm, task).seconds[:, arm.end(self.grid.base)]

    def final(self, arm: Arm) -> Estimate:
        """Estimate the reported score at the arm's end."""
        return Estimate.of(self.mean(lambda task: self.score(arm, task)))

    def share(self, arm: Arm) -> float:
        """Return the arm's cost over that of executing everything."""
        return float(self.mean(lambda task: self.cost(arm, task)).mean() / self.full())

    def full(self) -> float:
        """Return the mean seconds of executing everything."""
        return float(self.mean(lambda task: self.cost(REAL, task)).mean())

    def executions(self, arm: Arm) -> float:
        """Return the mean number of executions at the arm's end, the warm-up included."""
        end = arm.end(self.grid.base)
        return float(self.mean(lambda task: self.of(arm, task).executions[:, end]).mean())

    def groups(self, arm: Arm) -> float:
        """Return the mean number of groups executed in training."""
        warmup = self.grid.base.warmup if arm.kind in ("learning", "frozen") else 0
        return (self.executions(arm) - warmup) / self.grid.base.group_size

    def lead(self, arm: Arm, rival: Arm) -> Estimate:
        """Estimate an arm's score minus a rival's at the arm's cost, paired by seed."""
        return Estimate.of(
            self.mean(
                lambda task: (
                    self.score(arm, task) - self.of(rival, task, arm).score_at(self.cost(arm, task), cached=False)
                )
            )
        )

    def at_budget(self, arm: Arm, budget: float) -> Estimate | None:
        """Estimate the score when a share of the cost of executing everything is spent, or at the end of shorter runs.

        Returns:
            None where an arm has not begun to train by then.
        """
        limits = {task: budget * self.cost(REAL, task).mean() for task in self.grid.tasks}
        if any(self.of(arm, task).seconds[:, 1].mean() > limit for task, limit in limits.items()):
            return None

        def reached(rate: float) -> FloatArray:
            spent = {task: np.full(self.grid.seeds, limit) for task, limit in limits.items()}
            return self.mean(lambda task: self.curves[arm.name, task, rate].score_at(spent[task], cached=False))

        return Estimate.of(max(map(reached, rates_of(arm, self.curves)), key=np.mean))


def rates_of(arm: Arm, curves: CurveTable) -> list[float]:
    """Return the step sizes with which an arm was run."""
    return sorted({rate for name, _, rate in curves if name == arm.name})


def choose(grid: Grid, curves: CurveTable) -> dict[tuple[Arm, Arm], float]:
    """Choose step sizes among those that were run.

    Returns:
        By (arm, arm) the one with which the arm ends best; by (rival, arm) that with which the rival is best at the
        arm's cost, so that a rival that is stopped early is tuned for just that.
    """

    def best(arm: Arm, score: Callable[[Curves, str], FloatArray]) -> float:
        return max(
            rates_of(arm, curves),
            key=lambda rate: float(np.mean([score(curves[arm.name, task, rate], task).mean() for task in grid.tasks])),
        )

    chosen = {}
    for arm in grid.arms:
        end = arm.end(grid.base)
        chosen[arm, arm] = best(arm, lambda runs, task, end=end: runs.report[:, end])  # type: ignore[misc]
        if arm.kind in ("learning", "frozen"):
            cost = {task: curves[arm.name, task, chosen[arm, arm]].seconds[:, -1].mean() for task in grid.tasks}
            for rival in (REAL, Arm("anchors-only", arm.fraction)):
                chosen[rival, arm] = best(
                    rival,
                    lambda runs, task, cost=cost: runs.score_at(  # type: ignore[misc]
                        np.full(len(runs.report), cost[task]), cached=False
                    ),
                )
    return chosen


def run_grid(grid: Grid, folder: Path, workers: int) -> Results:
    """Choose step sizes, run what is not on disk yet, and read all curves."""

    def told(done: int, total: int) -> None:
        print(f"{done} of {total} runs", end="\r", flush=True)

    tuning = grid.tuning_jobs()
    run_jobs(tuning, folder, workers=workers, done=told)
    chosen = choose(grid, load_curves(tuning, folder))
    rates = {arm: sorted({rate for (of, _), rate in chosen.items() if of == arm}) for arm in grid.arms}
    final = grid.jobs(range(grid.seeds), rates)
    run_jobs(final, folder, workers=workers, done=told)
    curves = load_curves(final, folder)
    return Results(grid, curves, choose(grid, curves))  # the rivals', of what tuning left, in hindsight


def verdict(lead: Estimate) -> str:
    """Return a difference, bold where it is clear of zero by two standard errors."""
    return f"**{lead.signed}**" if abs(lead.mean) > 2 * lead.error else lead.signed


def words(arm: Arm) -> list[str]:
    """Return an arm as the first two cells of a row."""
    return ["1", "everything executed"] if arm.kind == "real" else [f"{arm.fraction:g}", KINDS[arm.kind][0]]


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; None is an empty cell."""
    lines = [headings, ["---"] * len(headings), *([("" if cell is None else cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def ends(results: Results) -> str:
    """Return the table of how each row ended and what it cost."""

    def row(arm: Arm) -> list[object]:
        seconds = results.mean(lambda task: results.cost(arm, task)).mean()
        rivals = (REAL, Arm("anchors-only", arm.fraction)) if arm.kind in ("learning", "frozen") else ()
        leads = [verdict(results.lead(arm, rival)) for rival in rivals] or ["", ""]
        counts = (f"{results.executions(arm):,.0f}", f"{seconds:,.0f}", f"{results.share(arm):.0%}")
        return [*words(arm), f"{results.chosen[arm, arm]:g}", results.final(arm), *counts, *leads]

    headings = ["anchor fraction", "trained on", "step size", "reported score", "executions", "seconds"]
    headings += ["cost against executing everything", "minus everything executed at equal cost"]
    return table([*headings, "minus the executed groups alone at equal cost"], map(row, results.grid.arms))


def on_the_way(results: Results) -> str:
    """Return the scores of every row when as much has been spent."""

    def cell(arm: Arm, budget: float) -> str | None:
        score = results.at_budget(arm, budget)
        ended = all(
            results.of(arm, task).seconds[:, -1].mean() < budget * results.cost(REAL, task).mean()
            for task in results.grid.tasks
        )
        return None if score is None else f"*{score}*" if ended else str(score)

    rows = ([*words(arm), *(cell(arm, budget) for budget in BUDGETS)] for arm in results.grid.arms)
    return table(["anchor fraction", "trained on", *(f"{budget:.0%}" for budget in BUDGETS)], rows)


def by_task(results: Results) -> str:
    """Return how each row ended, task by task."""

    def cell(arm: Arm, task: str) -> str:
        share = results.cost(arm, task).mean() / results.cost(REAL, task).mean()
        return f"{Estimate.of(results.score(arm, task))} ({share:.0%})"

    rows = ([*words(arm), *(cell(arm, task) for task in results.grid.tasks)] for arm in results.grid.arms)
    return table(["anchor fraction", "trained on", *results.grid.tasks], rows)


def choices(results: Results) -> str:
    """Return what each kind reaches for some costs, by its best fraction for that."""

    def row(budget: float) -> list[str | None]:
        cells: list[str | None] = []
        reached = {arm: score for arm in results.grid.arms if (score := results.at_budget(arm, budget)) is not None}
        first = max(reached, key=lambda arm: reached[arm].mean, default=None)
        for kind in (*KINDS, "real"):
            arm = max((arm for arm in reached if arm.kind == kind), key=lambda arm: reached[arm].mean, default=None)
            told = None if arm is None else f"{reached[arm]}" + (f" by {arm.fraction:g}" if kind != "real" else "")
            cells.append(f"**{told}**" if arm is not None and arm == first else told)
        return [f"{budget:.0%}", *cells]

    headings = ["spent, of what executing everything costs", *(label for label, _ in KINDS.values())]
    return table([*headings, "everything executed, stopped there"], map(row, BUDGETS))


def good_fractions(results: Results, kind: str) -> tuple[Arm, list[Arm]]:
    """Return the row of a kind that ends best, and all within one standard error of it, paired by seed."""
    arms = [Arm(kind, fraction) for fraction in results.grid.fractions]
    best = max(arms, key=lambda arm: results.final(arm).mean)

    def close(arm: Arm) -> bool:
        behind = results.mean(lambda task: results.score(best, task) - results.score(arm, task))
        return float(behind.mean()) <= Estimate.of(behind).error

    return best, [arm for arm in arms if close(arm)]


def listed(arms: Sequence[Arm]) -> str:
    """Return the fractions of some rows as words."""
    names = [f"{arm.fraction:g}" for arm in arms]
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names) or "none"


def answer(results: Results) -> str:
    """Return what to choose, in sentences made of the numbers."""
    grid = results.grid
    points = []
    for kind, start in (("learning", "With a world model that learns"), ("frozen", "With a frozen one")):
        best, good = good_fractions(results, kind)
        least = good[0]
        told = "the best" if least == best else f"the smallest within a standard error of the best ({best.fraction:g})"
        points.append(
            f"- **{start}: {least.fraction:g}**, {told}. It executes {results.groups(least):.0f} groups in all, costs "
            f"{results.share(least):.0%} of executing everything, and ends at {results.final(least)}; everything "
            f"executed ends at {results.final(REAL)}."
        )
    ours = [Arm("learning", fraction) for fraction in grid.fractions]
    for rival, told in (
        ("real", "executing everything and stopping there"),
        ("anchors-only", "the executed groups alone"),
    ):
        leads = {arm: results.lead(arm, REAL if rival == "real" else Arm(rival, arm.fraction)) for arm in ours}
        ahead = [arm for arm, lead in leads.items() if lead.mean > 2 * lead.error]
        behind = [arm for arm, lead in leads.items() if lead.mean < -2 * lead.error]
        points.append(
            f"- At equal cost the learning world model is clearly ahead of {told} at {listed(ahead)}"
            + (f", clearly behind at {listed(behind)}" if behind else "")
            + "; elsewhere the difference is within two standard errors."
        )
    return "\n".join(points)


def markdown(results: Results) -> str:
    """Return the page."""
    grid, base = results.grid, results.grid.base
    lists = {"tasks": grid.tasks, "fractions": grid.fractions, "rates": grid.rates}
    numbers = {"seeds": grid.seeds, "tuning-seeds": grid.tuning_seeds, "steps": base.steps, "warmup": base.warmup}
    told = [f"--{name} {' '.join(map(str, values))}" for name, values in lists.items()]
    told += [f"--{name} {value}" for name, value in numbers.items()]
    command = f"python benchmarks/anchor_fraction.py {' '.join(told)} --docs docs"
    return f"""# Choosing the anchor fraction

{answer(results)}

Scores by what has been spent on each task, with the fraction that is best for it; the highest in bold:

{choices(results)}

![Reported score against anchor fraction and against cost](anchor_fraction.png)

## What was run

Recorded real executions of {", ".join(grid.tasks)}; GRPO with one logit per solution, {base.groups} groups of
{base.group_size} rollouts, {base.steps} steps, one turn an episode, {grid.seeds} seeds, ± is the standard error over
them. Scores are expected rewards on the half of the answers that training never sees, averaged over the tasks. Cost is
CPU seconds of real execution, every execution charged, the {base.warmup} of the warm-up included; it also depends on
how long the solutions run that a policy settles on.

Of {base.groups} groups a whole number is executed in each step, the nearest to the fraction; below one group a step
each is drawn by itself. The executed groups alone pay no warm-up; they take as many steps as it takes to execute that
fraction of all groups, and are run on for the comparison at equal cost.

Each row's step size is the best of {", ".join(f"{rate:g}" for rate in grid.rates)} on {grid.tuning_seeds} other seeds.
The rivals (everything executed, the executed groups alone) were tuned on {RIVAL_TUNING * grid.tuning_seeds}, at their
end and at each cost that they are compared at, and of the step sizes that won there they have at every cost the one
that turned out best on the seeds shown, which favours them. Differences are paired by seed; bold ones are clear of zero
by two standard errors. With {grid.seeds} seeds a difference of .03 between neighbouring fractions is often chance;
longer runs, other numbers of groups, several turns and policies that generalise were not measured here.

## How each row ends

{ends(results)}

## When as much has been spent

Scores on the way, when on each task the share of its cost of executing everything that heads the column has been spent.
Empty where a row spends that much on its warm-up, in italics where it has ended before on all tasks.

{on_the_way(results)}

## By task

In brackets the cost against executing everything.

{by_task(results)}

Made by `{command}`.
"""


def draw(results: Results, path: Path) -> None:
    """Draw the score against the fraction, and against the cost; bars are two standard errors."""
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    by_fraction, by_cost = figure.subplots(1, 2, sharey=True)
    for kind, (label, colour) in KINDS.items():
        arms = [Arm(kind, fraction) for fraction in results.grid.fractions]
        scores = [results.final(arm) for arm in (*arms, REAL)]
        means, errors = [score.mean for score in scores], [2 * score.error for score in scores]
        style = {"color": colour, "capsize": 3, "marker": "o", "markersize": 4}
        by_fraction.errorbar([*results.grid.fractions, 1.0], means, errors, label=label, **style)
        by_cost.errorbar([results.share(arm) for arm in arms], means[:-1], errors[:-1], **style)
        for arm, mean in zip(arms, means, strict=False):
            by_cost.annotate(
                f"{arm.fraction:g}", (results.share(arm), mean), (3, 4), textcoords="offset points", size=7
            )
    curve = [(share, results.at_budget(REAL, share)) for share in np.geomspace(0.02, 1.0, 60)]
    by_cost.plot(
        [share for share, score in curve if score],
        [score.mean for _, score in curve if score],
        color="#222222",
        label="everything executed, stopped there",
    )
    full = results.final(REAL).mean
    by_fraction.axhline(full, color="#222222", linewidth=0.8, linestyle=":")
    by_fraction.set(xscale="log", xlabel="anchor fraction (1: everything executed)", ylabel="reported score")
    by_fraction.set_xticks([*results.grid.fractions, 1.0], [f"{x:g}" for x in (*results.grid.fractions, 1.0)])
    by_cost.set(xscale="log", xlabel="cost against executing everything (labels: anchor fraction)")
    marks = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    by_cost.set_xticks(marks, [f"{share:.0%}" for share in marks])
    lowest = min(results.final(Arm(kind, fraction)).mean for kind in KINDS for fraction in results.grid.fractions)
    by_fraction.set_ylim(bottom=max(0.0, lowest - 0.1))
    for axes in (by_fraction, by_cost):
        axes.spines[["top", "right"]].set_visible(False)
        axes.minorticks_off()
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)


def parse() -> tuple[Grid, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["titanic", "weather", "anes96"], help="fully recorded tasks")
    parser.add_argument("--fractions", nargs="+", type=float, default=[0.02, 0.05, 0.1, 0.2, 0.4])
    parser.add_argument("--rates", nargs="+", type=float, default=[0.06, 0.12, 0.25, 0.5], help="step sizes tried")
    parser.add_argument("--seeds", type=int, default=8, help="at least 2")
    parser.add_argument("--tuning-seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--warmup", type=int, default=TrainConfig().warmup)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--runs", type=Path, default=Path("runs/anchor_fraction"), help="folder of finished runs")
    parser.add_argument("--docs", type=Path, help="folder that anchor_fraction.md and .png are written to")
    arguments = parser.parse_args()
    base = TrainConfig(
        sandbox="replay",
        warmup_source="recordings",
        evaluation_rollouts=0,
        steps=arguments.steps,
        warmup=arguments.warmup,
    )
    grid = Grid(
        tuple(arguments.tasks),
        tuple(sorted(arguments.fractions)),
        tuple(arguments.rates),
        arguments.seeds,
        arguments.tuning_seeds,
        base,
    )
    return grid, arguments


def main() -> None:
    grid, arguments = parse()
    results = run_grid(grid, arguments.runs, arguments.workers)
    print(ends(results))
    if arguments.docs is not None:
        write_text(arguments.docs / "anchor_fraction.md", markdown(results))
        draw(results, arguments.docs / "anchor_fraction.png")


if __name__ == "__main__":
    main()
