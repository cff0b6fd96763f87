"""The bias floor: what long training on predicted rewards comes to, with and without correction.

One frozen world model per seed, fitted on its warm-up; GRPO trains on its raw predictions, on debiased ones (f, fitted
on a tenth of the groups, which are executed), on the paper's both corrections (arXiv 2608.12564) and on rectified ones.
Real execution everywhere stands beside them. All answers come from recordings of real executions, so after each step
all of this is known exactly, as expectations over the policy, without sampling:

- the reported score: the real reward on the half of the answers that training never sees;
- the real reward on the half that trains, which is what a corrected reward can promise; a policy that has settled on
  one solution may have the better one by it and the worse one by the other half;
- the gap: the reward that the world model predicts minus the real one, both on the half that trains; also with the
  run's own calibration f in place of the raw prediction.

A policy that climbs predictions finds the solutions that are over-rated, so the raw gap grows while the score stalls.

    python benchmarks/bias_floor.py [--tasks titanic] [--seeds 4] [--steps 200] [--docs docs]

Finished seeds are kept in --runs and not repeated.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from wmrl_envs.compare import ExpectedReport
from wmrl_envs.compare_report import Estimate
from wmrl_envs.config import LEARNING_RATES, TrainConfig
from wmrl_envs.files import replacing, write_json, write_text
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import load_task
from wmrl_envs.world_models import resolve_world_model

FloatArray = NDArray[np.float64]
Curves = dict[tuple[str, str], FloatArray]
"""By (scheme, curve), one row per seed, averaged over tasks: float64 [seeds, steps + 1]."""
ARMS = {
    "world-model": ("raw predictions", "#bbbbbb"),
    "debias": ("debiased", "#e08214"),
    "paper": ("the paper's both corrections", "#7e57c2"),
    "rectified": ("rectified", "#2166ac"),
    "real": ("real execution everywhere", "#222222"),
}
"""Reward scheme: what it trains on in words, and its colour."""
CURVES = {
    "report": "Reported score (real reward on answers that training never sees)",
    "real": "Real reward on the answers that train",
    "gap": "Predicted minus real reward",
    "calibrated_gap": "Calibrated minus real reward",
}
"""What is known after each step, and its heading; the gaps are NaN under ``real``, which predicts nothing."""


def train_all(jobs: Sequence[tuple[str, int]], base: TrainConfig, folder: Path, workers: int) -> None:
    """Train the (task, seed) jobs that are not on disk, in parallel where there are several workers."""
    work = partial(train_seed, base=base, folder=folder)
    if workers == 1:
        for job in jobs:
            work(job)
        return
    with multiprocessing.get_context("spawn").Pool(min(workers, len(jobs))) as pool:
        for done, _ in enumerate(pool.imap_unordered(work, jobs), start=1):
            print(f"{done} of {len(jobs)} seeds", end="\r", flush=True)


def train_seed(job: tuple[str, int], base: TrainConfig, folder: Path) -> None:
    """Train every arm on one task with one seed and write the curves; what is on disk already is left alone.

    Raises:
        SystemExit: If the file holds runs of other settings.
    """
    config = replace(base, task=job[0], seed=job[1])
    path = curve_path(folder, *job)
    settings = json.loads(json.dumps(config.to_dict()))
    if path.exists():
        if json.loads(path.read_text(encoding="utf-8"))["config"] != settings:
            raise SystemExit(f"{path} holds runs of other settings: remove it, or name another folder by --runs")
        return
    expected = ExpectedReport(config)
    real, predicted = member_rewards(config)
    arms = {scheme: train_arm(replace(config, reward=scheme), expected, real, predicted) for scheme in ARMS}
    write_json(path, {"config": settings, "arms": arms})


def member_rewards(config: TrainConfig) -> tuple[FloatArray, FloatArray]:
    """Return each member's recorded training-half reward and the frozen world model's prediction of it, [size] each."""
    task, replay = load_task(config.task), ReplaySandbox()
    world_model: Any = resolve_world_model("learned", warmup=config.warmup, refit_every=0, seed=config.seed)
    world_model.prepare([task], replay)
    table = replay.table(task)
    submissions = [Submission(task, table.space.solution(index)) for index in range(table.space.size)]
    return table.rewards, np.array([prediction.reward for prediction in world_model.grade(submissions)])


def train_arm(
    config: TrainConfig, expected: ExpectedReport, real: FloatArray, predicted: FloatArray
) -> dict[str, list[float | None]]:
    """Train one run and return its curves, one value per step from 0 (the untrained policy) on."""
    import torch

    from wmrl_envs.train import Run

    torch.set_num_threads(1)
    torch.manual_seed(config.seed)
    curves: dict[str, list[float | None]] = {name: [] for name in CURVES}

    def note(agent: Any) -> dict[str, float]:
        probabilities = expected.probabilities(agent)
        knots = run.env.calibration()["knots"]
        calibrated = np.interp(predicted, knots["predicted"], knots["real"]) if knots["real"] else predicted
        curves["report"].append(expected(agent))
        curves["real"].append(float(probabilities @ real))
        for name, reward in (("gap", predicted), ("calibrated_gap", calibrated)):
            curves[name].append(None if config.reward == "real" else float(probabilities @ (reward - real)))
        return {}

    run = Run(config, evaluate=note, evaluate_every=1)
    try:
        note(run.agent)
        run.learn()
    finally:
        run.close()
    return curves


def curve_path(folder: Path, task: str, seed: int) -> Path:
    """Return the file of one task's seed."""
    return folder / Path(task).name / f"seed-{seed}.json"


def load_curves(arguments: argparse.Namespace) -> Curves:
    """Read the curves of all seeds."""
    loaded = [
        [
            json.loads(curve_path(arguments.runs, task, seed).read_text(encoding="utf-8"))["arms"]
            for task in arguments.tasks
        ]
        for seed in range(arguments.seeds)
    ]
    return {
        (scheme, name): np.array([[arms[scheme][name] for arms in tasks] for tasks in loaded], dtype=float).mean(axis=1)
        for scheme in ARMS
        for name in CURVES
    }


def table(curves: Curves, name: str, marks: Sequence[int]) -> list[list[str]]:
    """Return the cells of one curve's table, headings first."""
    rows = [["trained on", *(f"after {step} steps" for step in marks)]]
    for scheme, (words, _) in ARMS.items():
        values = curves[scheme, name]
        if not np.isnan(values).any():
            rows.append([words, *(str(Estimate.of(values[:, step])) for step in marks)])
    return rows


def findings(curves: Curves) -> list[str]:
    """Return one sentence per arm: where its rewards ended, and what became of its gap."""
    sentences = []
    for scheme, (words, _) in ARMS.items():
        report, real, gap = (curves[scheme, name] for name in ("report", "real", "gap"))
        peak = int(report.mean(axis=0).argmax())
        told = (
            f"{words}: the reported score peaks after {peak} steps ({report[:, peak].mean():.3f}) and ends at "
            f"{Estimate.of(report[:, -1])}, the real reward on the answers that train at {Estimate.of(real[:, -1])}"
        )
        if scheme not in ("world-model", "real"):
            told += f" ({Estimate.of(real[:, -1] - curves['world-model', 'real'][:, -1]).signed} to raw predictions')"
        if scheme != "real":
            told += f"; predicted minus real goes from {gap[:, 0].mean():+.3f} to {Estimate.of(gap[:, -1]).signed}"
        sentences.append(told + ".")
    return sentences


def markdown(curves: Curves, base: TrainConfig, arguments: argparse.Namespace) -> str:
    """Return the page."""
    tables = {}
    for name in CURVES:
        heading, *body = (f"| {' | '.join(cells)} |" for cells in table(curves, name, step_marks(arguments.steps)))
        tables[name] = "\n".join([heading, "|---" * heading.count(" | ") + "|---|", *body])
    points = "\n".join(f"- {sentence[0].upper()}{sentence[1:]}" for sentence in findings(curves))
    command = (
        f"python benchmarks/bias_floor.py --tasks {' '.join(arguments.tasks)} --seeds {arguments.seeds} "
        f"--steps {base.steps} --learning-rate {base.learning_rate:g} --actions {base.actions} --warmup {base.warmup} "
        "--docs docs"
    )
    return f"""# The bias floor

![Reported score and gap over training](bias_floor.png)

GRPO for {base.steps} steps of {base.groups} groups of {base.group_size} rollouts, step size {base.learning_rate:g},
actions `{base.actions}`, on recorded real executions of {", ".join(arguments.tasks)}. {base.anchor_fraction:.0%} of the
groups are executed (none for raw predictions, all for real execution). The world model is fitted on {base.warmup}
executions and then frozen, the same one for all rows of a seed. {arguments.seeds} seeds, ± is the standard error over
them. Scores and gaps are expectations under the policy, not samples.

{points}

## {CURVES["report"]}

{tables["report"]}

## {CURVES["real"]}

{tables["real"]}

## {CURVES["gap"]}

{tables["gap"]}

## {CURVES["calibrated_gap"]}

The same with the run's own calibration in place of the raw prediction. Where it is not 0, the bias is no function of
the prediction, or the calibration lags behind the policy; rectification removes both on average. A policy that has
settled on few solutions has no such gap left: the calibration knows them by then.

{tables["calibrated_gap"]}

Made by `{command}`.
"""


def step_marks(steps: int) -> list[int]:
    """Return the steps that the tables show."""
    return sorted({round(steps * share) for share in (0.0, 0.1, 0.2, 0.5, 1.0)})


def draw(curves: Curves, path: Path) -> None:
    """Draw scores and gaps over steps; bands are two standard errors, dashes the calibrated gap."""
    figure = Figure(figsize=(14, 4.2), layout="constrained")
    score, real, gap = figure.subplots(1, 3)
    panels = ((score, "report", "-"), (real, "real", "-"), (gap, "gap", "-"), (gap, "calibrated_gap", "--"))
    for scheme, (words, colour) in ARMS.items():
        for axes, name, style in panels:
            values = curves[scheme, name]
            if np.isnan(values).any() or (scheme == "world-model" and name == "calibrated_gap"):
                continue
            mean, error = values.mean(axis=0), 2 * values.std(axis=0, ddof=1) / np.sqrt(len(values))
            axes.plot(mean, style, color=colour, label=words if axes is score else None)
            if style == "-":
                axes.fill_between(
                    np.arange(len(mean)), mean - error, mean + error, color=colour, alpha=0.15, linewidth=0
                )
    gap.axhline(0, color="#999999", linewidth=0.8)
    score.set(title="Reported score", ylabel="expected reward")
    real.set(title="Real reward on the answers that train")
    gap.set(title="Predicted minus real reward (dashed: calibrated)")
    figure.legend(loc="outside upper center", ncols=5, frameon=False)
    for axes in (score, real, gap):
        axes.set_xlabel("step")
        axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["titanic"], help="fully recorded tasks")
    parser.add_argument("--seeds", type=int, default=4, help="at least 2")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--learning-rate", type=float, help="by default smaller the more steps, as a long run wants it")
    parser.add_argument("--actions", default=TrainConfig().actions, help="choices, halves or joint; see TrainConfig")
    parser.add_argument("--warmup", type=int, default=TrainConfig().warmup)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--runs", type=Path, default=Path("runs/bias_floor"), help="folder that keeps finished seeds")
    parser.add_argument("--docs", type=Path, help="folder that bias_floor.md and bias_floor.png are written to")
    arguments = parser.parse_args()
    base = TrainConfig(
        sandbox="replay",
        warmup_source="recordings",
        refit_every=0,
        evaluation_rollouts=0,
        steps=arguments.steps,
        warmup=arguments.warmup,
        learning_rate=arguments.learning_rate or LEARNING_RATES["grpo"] * TrainConfig().steps / arguments.steps,
        actions=arguments.actions,
    )
    jobs = [(task, seed) for seed in range(arguments.seeds) for task in arguments.tasks]
    train_all(jobs, base, arguments.runs, arguments.workers)
    curves = load_curves(arguments)
    for name, title in CURVES.items():
        print(f"\n{title}")
        for cells in table(curves, name, step_marks(arguments.steps)):
            print("  ".join(cell.ljust(28) if not i else cell.rjust(16) for i, cell in enumerate(cells)))
    print("\n" + "\n".join(findings(curves)))
    if arguments.docs is not None:
        write_text(arguments.docs / "bias_floor.md", markdown(curves, base, arguments))
        draw(curves, arguments.docs / "bias_floor.png")


if __name__ == "__main__":
    main()
