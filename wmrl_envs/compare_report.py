"""What a comparison shows.

Step sizes chosen, the table with standard errors, the claims held against it, the figure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from wmrl_envs.compare import ARMS, Arm, Comparison, Job
from wmrl_envs.files import replacing

__all__ = ["Curves", "Estimate", "choose_rates", "draw_comparison", "load_curves", "markdown_report"]

FloatArray = NDArray[np.float64]
DEFAULT = "rectified-learning"
RIVALS = ("real", "anchors-only")
_POLICIES = {
    "joint": "one logit per solution",
    "halves": "one logit per half of a solution",
    "choices": "one logit per option of each choice",
}
COLOURS = {
    "real": "#222222",
    "anchors-only": "#1b7837",
    "world-model": "#bbbbbb",
    "mixed-learning": "#e08214",
    "paper-learning": "#7e57c2",
    "rectified-learning": "#2166ac",
    "rectified-frozen": "#92c5de",
}


@dataclass(frozen=True)
class Curves:
    """The runs of one arm with one step size on one task.

    All are float64 of shape (seeds, steps + 1); see ``run_job``.
    """

    report: FloatArray
    seconds: FloatArray
    cached_seconds: FloatArray
    prediction_seconds: FloatArray
    executions: FloatArray

    def cost(self, cached: bool) -> FloatArray:
        """Return the seconds of real execution, float64 [seeds, steps + 1], every execution charged or repeats free."""
        return self.cached_seconds if cached else self.seconds

    def score_at(self, seconds: FloatArray, cached: bool) -> FloatArray:
        """Return each seed's reported score at a cost, float64 [seeds]; a run that ended before has its last."""
        rows = zip(seconds, self.cost(cached), self.report, strict=True)
        return np.array([np.interp(limit, cost, report) for limit, cost, report in rows])


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: FloatArray) -> Estimate:
        """Estimate from one value per seed (tasks already averaged)."""
        return cls(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))

    def __str__(self) -> str:
        """Return ``mean ± error`` to three places."""
        return f"{self.mean:.3f} ± {self.error:.3f}"

    @property
    def signed(self) -> str:
        """Return the same with a sign, for differences."""
        return f"{self.mean:+.3f} ± {self.error:.3f}"


CurveTable = Mapping[tuple[str, str, float], Curves]
"""Curves by (arm, task, step size)."""


def load_curves(jobs: Sequence[Job], folder: Path) -> CurveTable:
    """Read the curves of finished jobs."""
    gathered: dict[tuple[str, str, float], list[dict[str, list[float]]]] = {}
    for job in jobs:
        curve = json.loads(job.path(folder).read_text(encoding="utf-8"))["curve"]
        gathered.setdefault((job.arm, job.config.task, job.rate), []).append(curve)
    return {
        key: Curves(
            *(
                np.array([curve[name] for curve in curves], dtype=np.float64)
                for name in [field.name for field in fields(Curves)]
            )
        )
        for key, curves in gathered.items()
    }


def choose_rates(comparison: Comparison, tuning: CurveTable) -> dict[str, dict[str, float]]:
    """Choose each arm's step sizes on the tuning seeds.

    Returns:
        By arm: ``final``, the one with the highest score at the end; for the rivals also ``equal``, the one with the
        highest score at the default's cost, so that a rival that is stopped early is tuned for just that.
    """

    def best(arm: str, score: Callable[[Curves, str], FloatArray]) -> float:
        return max(
            comparison.learning_rates,
            key=lambda rate: np.mean([score(tuning[arm, task, rate], task).mean() for task in comparison.tasks]),
        )

    rates = {
        arm.name: {"final": best(arm.name, lambda curves, task: curves.report[:, -1])} for arm in comparison.chosen
    }
    if DEFAULT in rates:
        ours = rates[DEFAULT]["final"]
        for rival in RIVALS:
            if rival in rates:
                rates[rival]["equal"] = best(
                    rival,
                    lambda curves, task: curves.score_at(tuning[DEFAULT, task, ours].seconds[:, -1], cached=False),
                )
    return rates


@dataclass(frozen=True)
class _Row:
    arm: Arm
    rate: float
    score: Estimate
    executions: float
    seconds: float
    predicting: float
    relative_cost: float
    against: dict[str, Estimate]


class _Results:
    """The comparison's numbers under one way of charging executions."""

    def __init__(
        self, comparison: Comparison, curves: CurveTable, rates: Mapping[str, Mapping[str, float]], cached: bool
    ) -> None:
        self.comparison, self.curves, self.rates, self.cached = comparison, curves, rates, cached

    def of(self, arm: str, task: str, purpose: str = "final") -> Curves:
        return self.curves[arm, task, self.rates[arm].get(purpose, self.rates[arm]["final"])]

    def pooled(self, value: Callable[[str], FloatArray]) -> FloatArray:
        """Average a per-seed value over the tasks."""
        mean: FloatArray = np.mean([value(task) for task in self.comparison.tasks], axis=0)
        return mean

    def cost(self, arm: str, task: str) -> FloatArray:
        return self.of(arm, task).cost(self.cached)[:, -1]

    def score(self, arm: str) -> FloatArray:
        return self.pooled(lambda task: self.of(arm, task).report[:, -1])

    def lead(self, arm: str, rival: str, tasks: Sequence[str] | None = None) -> Estimate:
        """Estimate an arm's final score minus the rival's at equal cost, paired by seed."""

        def difference(task: str) -> FloatArray:
            return self.of(arm, task).report[:, -1] - self.of(rival, task, "equal").score_at(
                self.cost(arm, task), self.cached
            )

        return Estimate.of(np.mean([difference(task) for task in tasks or self.comparison.tasks], axis=0))

    def saving(self, arm: str, task: str) -> float | None:
        """Return real execution's seconds to the arm's final score over the arm's seconds, on mean curves.

        None if never reached.
        """
        curve = self.of("real", task)
        report, seconds = curve.report.mean(axis=0), curve.cost(self.cached).mean(axis=0)
        reached = np.flatnonzero(np.maximum.accumulate(report) >= self.of(arm, task).report[:, -1].mean())
        return float(seconds[reached[0]] / self.cost(arm, task).mean()) if len(reached) else None

    def _total(self, arm: str, value: Callable[[str, str], FloatArray]) -> float:
        return float(self.pooled(lambda task: value(arm, task)).mean())

    def rows(self) -> Iterator[_Row]:
        names = [arm.name for arm in self.comparison.chosen]
        real = self._total("real", self.cost) if "real" in names else np.nan
        for arm in self.comparison.chosen:
            seconds = self._total(arm.name, self.cost)
            yield _Row(
                arm=arm,
                rate=self.rates[arm.name]["final"],
                score=Estimate.of(self.score(arm.name)),
                executions=self._total(arm.name, lambda name, task: self.of(name, task).executions[:, -1]),
                seconds=seconds,
                predicting=self._total(arm.name, lambda name, task: self.of(name, task).prediction_seconds[:, -1]),
                relative_cost=seconds / real,
                against={rival: self.lead(arm.name, rival) for rival in RIVALS if rival in names and arm.name != rival},
            )


def markdown_report(
    comparison: Comparison, curves: CurveTable, rates: Mapping[str, Mapping[str, float]], command: str, figure: str
) -> str:
    """Return the comparison as a Markdown page: claims, tables, and how it was made.

    Args:
        comparison: What was compared.
        curves: The final runs.
        rates: The step sizes from ``choose_rates``.
        command: The command that repeats the page.
        figure: The figure's file, relative to the page.
    """
    base = comparison.base
    charged = _Results(comparison, curves, rates, cached=False)
    cached = _Results(comparison, curves, rates, cached=True)
    parts = [
        "# Reward schemes compared on real executions",
        f"Recorded real executions of {', '.join(comparison.tasks)} (every member of each design space), GRPO with "
        f"{_POLICIES[base.actions]}, {base.groups} groups of {base.group_size} rollouts, {base.steps} steps, "
        f"{base.anchor_fraction:.0%} of groups executed, warm-up {base.warmup} executions, {comparison.seeds} seeds. "
        "Scores are expected ladder rewards on the half of the answers that training never sees, averaged over tasks; "
        "± is the standard error over seeds. Seconds are CPU seconds of real execution per run, warm-up included. Each "
        f"arm's step size was chosen among {', '.join(f'{rate:g}' for rate in comparison.learning_rates)} on "
        f"{comparison.tuning_seeds} other seeds; the rivals' at equal cost were chosen for just that cost. Width and "
        "noise of the learned world model's kernel had been chosen before, by how well it ranks recorded executions of "
        "titanic and weather. "
        f"Made by `{command}`.",
        f"![Score against seconds of real execution]({figure})",
        "## What is claimed, and what came out",
        _claims(charged),
        "## Every execution charged, repeated ones too",
        _table(charged),
        "## With an execution cache: a repeated solution is free",
        _table(cached),
        "## By task",
        _by_task(charged),
    ]
    return "\n\n".join(parts) + "\n"


def _claims(results: _Results) -> str:
    lines = []
    for rival in RIVALS:
        lead = results.lead(DEFAULT, rival)
        verdict = "holds" if lead.mean > 2 * lead.error else "does not hold"
        lines.append(
            f"- At equal cost the default scores above `{rival}` by more than two standard errors: {lead.signed}. "
            f"**{verdict}**."
        )
    share = results.score(DEFAULT).mean() / results.score("real").mean()
    cost = (
        results.pooled(lambda task: results.cost(DEFAULT, task)).mean()
        / results.pooled(lambda task: results.cost("real", task)).mean()
    )
    verdict = "holds" if share >= 0.98 and cost <= 0.25 else "does not hold"
    lines.append(
        f"- It reaches 98 % of `real`'s final score at a quarter of its cost or less: {share:.1%} at {cost:.1%}. "
        f"**{verdict}**."
    )
    savings = {task: results.saving(DEFAULT, task) for task in results.comparison.tasks}
    told = ", ".join(
        f"{task} {'never reached by real' if ratio is None else f'{ratio:.1f} times'}"
        for task, ratio in savings.items()
    )
    lines.append(
        f"- Cheaper than `real` stopped where its own mean curve first reaches the default's final score: {told}."
    )
    return "\n".join(lines)


def _table(results: _Results) -> str:
    lines = [
        "| rewards | world model | step size | reported score | executions | seconds | of prediction | "
        "cost against real | minus real at equal cost | minus anchors-only at equal cost |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in results.rows():
        against = [row.against[rival].signed if rival in row.against else "" for rival in RIVALS]
        name = f"**{row.arm.reward}**" if row.arm.name == DEFAULT else row.arm.reward
        lines.append(
            f"| {name} | {row.arm.world_model} | {row.rate:g} | {row.score} | {row.executions:,.0f} | "
            f"{row.seconds:,.0f} | {row.predicting:.1f} | {row.relative_cost:.0%} | {against[0]} | {against[1]} |"
        )
    return "\n".join(lines)


def _by_task(results: _Results) -> str:
    tasks = results.comparison.tasks
    lines = ["| rewards | world model | " + " | ".join(tasks) + " |", "|---|---|" + "---|" * len(tasks)]
    for arm in results.comparison.chosen:
        cells = [
            f"{Estimate.of(results.of(arm.name, task).report[:, -1])} ({results.cost(arm.name, task).mean():,.0f} s)"
            for task in tasks
        ]
        lines.append(f"| {arm.reward} | {arm.world_model} | " + " | ".join(cells) + " |")
    for rival in RIVALS:
        cells = [results.lead(DEFAULT, rival, [task]).signed for task in tasks]
        lines.append(f"| default minus {rival} at equal cost | | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw_comparison(
    comparison: Comparison, curves: CurveTable, rates: Mapping[str, Mapping[str, float]], path: Path
) -> None:
    """Draw reported score against seconds of real execution, a panel per task; bands are two standard errors."""
    with matplotlib.rc_context({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10}):
        figure = Figure(figsize=(5 * len(comparison.tasks), 5), layout="constrained")
        panels = figure.subplots(1, len(comparison.tasks), squeeze=False)[0]
        names = {
            arm.name: f"{arm.reward} ({arm.world_model})" if arm.world_model != "none" else arm.reward for arm in ARMS
        }
        for axes, task in zip(panels, comparison.tasks, strict=True):
            for name in (name for name in COLOURS if name in comparison.arms):
                runs = curves[name, task, rates[name]["final"]]
                seconds, mean = runs.seconds.mean(axis=0), runs.report.mean(axis=0)
                error = 2 * runs.report.std(axis=0, ddof=1) / np.sqrt(len(runs.report))
                shown = (
                    1 if runs.executions[:, 1].mean() else 0
                )  # from the first step on: the warm-up is paid before it
                wide = 2.5 if name == DEFAULT else 1.2
                if seconds[-1] <= 1.5 * max(seconds[shown], 1e-9):  # spends nothing after its warm-up: a point
                    axes.errorbar(seconds[-1], mean[-1], error[-1], fmt="o", color=COLOURS[name], label=names[name])
                    continue
                axes.plot(seconds[shown:], mean[shown:], color=COLOURS[name], linewidth=wide, label=names[name])
                axes.fill_between(
                    seconds[shown:],
                    (mean - error)[shown:],
                    (mean + error)[shown:],
                    color=COLOURS[name],
                    alpha=0.15,
                    linewidth=0,
                )
            axes.set(title=task, xlabel="CPU seconds of real execution", xscale="log")
        panels[0].set_ylabel("reported score")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=4)
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=130)
