"""The command ``wmrl``."""

from __future__ import annotations

import json
import time
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from wmrl_envs.config import TrainConfig
from wmrl_envs.errors import CheckpointError, WMRLError
from wmrl_envs.research.task import bundled_tasks, load_task

__all__ = ["app", "main"]

console = Console()
errors = Console(stderr=True)

app = typer.Typer(
    help="Reinforcement learning on a world model's predicted rewards, corrected by a thin stream of real executions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
tasks_app = typer.Typer(help="Look at tasks, check your own, and record real executions.", no_args_is_help=True)
app.add_typer(tasks_app, name="tasks")


def main() -> None:
    """Run the command; an error of ours is printed as one sentence, without a traceback."""
    try:
        app()
    except WMRLError as error:
        errors.print(f"[red]error:[/red] {error}", highlight=False, soft_wrap=True)
        raise SystemExit(1) from error


def _default(name: str) -> Any:
    return next(field.default for field in fields(TrainConfig) if field.name == name)


@app.command()
def train(
    task: Annotated[str, typer.Option(help="Bundled task (wmrl tasks list) or the path of a task folder.")] = _default(
        "task"
    ),
    reward: Annotated[
        str, typer.Option(help="rectified, paper, debias, denoise, mixed, world-model, real or anchors-only.")
    ] = _default("reward"),
    agent: Annotated[str, typer.Option(help="grpo, ppo, a2c, or your own as module:Class.")] = _default("agent"),
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = _default("steps"),
    budget_seconds: Annotated[
        float | None, typer.Option(help="Stop once real executions have used this many CPU seconds.")
    ] = _default("budget_seconds"),
    groups: Annotated[int, typer.Option(help="Groups of rollouts per step.")] = _default("groups"),
    group_size: Annotated[int, typer.Option(help="Rollouts per group.")] = _default("group_size"),
    turns: Annotated[int, typer.Option(help="Attempts per episode; the correction is exact with one.")] = _default(
        "turns"
    ),
    anchor_fraction: Annotated[float, typer.Option(help="Share of groups that is really executed.")] = _default(
        "anchor_fraction"
    ),
    world_model: Annotated[str, typer.Option(help="learned, or module:Class.")] = _default("world_model"),
    warmup: Annotated[int, typer.Option(help="Solutions executed to fit the learned world model.")] = _default(
        "warmup"
    ),
    refit_every: Annotated[int, typer.Option(help="Steps between its refits; 0 freezes it.")] = _default("refit_every"),
    sandbox: Annotated[str, typer.Option(help="process executes; replay answers from shipped recordings.")] = _default(
        "sandbox"
    ),
    isolation: Annotated[str, typer.Option(help="strict, auto or none.")] = _default("isolation"),
    learning_rate: Annotated[float, typer.Option(help="Step size of the agent's optimiser.")] = _default(
        "learning_rate"
    ),
    ramp: Annotated[
        float, typer.Option(help="Share of training over which the correction grows to full strength.")
    ] = _default("ramp"),
    seed: Annotated[int, typer.Option(help="Seed of everything.")] = _default("seed"),
    evaluation_rollouts: Annotated[int, typer.Option(help="Executed episodes before and after.")] = _default(
        "evaluation_rollouts"
    ),
    out: Annotated[Path | None, typer.Option(help="Run folder; runs/TASK-REWARD-SEED-TIME by default.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
) -> None:
    """Train an agent and leave a run folder with metrics, checkpoints, the best solution and figures."""
    settings = {
        name: value for name, value in locals().items() if name in {field.name for field in fields(TrainConfig)}
    }
    if resume is not None:
        settings = _saved_settings(resume) | {
            name: value for name, value in settings.items() if value != _default(name)
        }
    config = TrainConfig.from_dict(settings)
    folder = (
        resume
        or out
        or Path("runs") / f"{Path(config.task).name}-{config.reward}-{config.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    )
    from wmrl_envs.progress import TrainingProgress
    from wmrl_envs.train import train as run

    with TrainingProgress(console, config) as progress:
        summary = run(config, folder, resume=resume is not None, on_step=progress.update)
    _print_summary(summary, folder)


def _saved_settings(folder: Path) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{folder} holds no run (no readable config.json: {error.strerror})") from error
    return settings


def _print_summary(summary: dict[str, Any], folder: Path) -> None:
    before, after, ledger, best = (summary[key] for key in ("before", "after", "ledger", "best_solution"))
    table = Table(title="Reported score (answers that training never saw; really executed)", title_justify="left")
    for heading in ("", "score", "± s.e.", "valid submissions", "episodes"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, evaluation in (("before training", before), ("after training", after)):
        if evaluation is not None:
            numbers = (
                f"{evaluation['score']:.3f}",
                f"{evaluation['standard_error']:.3f}",
                f"{evaluation['valid']:.0%}",
            )
            table.add_row(name, *numbers, str(evaluation["episodes"]))
    if best is not None:
        table.add_row("best solution found", f"{best['report_reward']:.3f}", "", best["status"], "1")
    console.print(table)
    table = Table(title="Ledger of training", title_justify="left", show_header=False)
    for name, value in ledger.items():
        table.add_row(
            name.replace("_", " "), f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        )
    console.print(table)
    console.print(f"figures:        {folder / 'figures' / 'overview.png'}", highlight=False, soft_wrap=True)
    console.print(f"best solution:  {folder / 'best_solution.py'}", highlight=False, soft_wrap=True)
    console.print(f"everything:     {folder}", highlight=False, soft_wrap=True)


@tasks_app.command("list")
def list_tasks() -> None:
    """List the bundled tasks."""
    table = Table("task", "kind", "metric", "training rows", "test rows", "title")
    for name in bundled_tasks():
        task = load_task(name)
        rows = task.inventory
        table.add_row(name, task.kind, task.metric.name, str(rows.train_rows), str(rows.test_rows), task.title)
    console.print(table)


@tasks_app.command("show")
def show_task(task: Annotated[str, typer.Argument(help="Bundled task or path of a task folder.")]) -> None:
    """Show a task as an agent reads it."""
    console.print(load_task(task).prompt(), markup=False, highlight=False)


@tasks_app.command("check")
def check_task(folder: Annotated[Path, typer.Argument(help="Task folder of your own.")]) -> None:
    """Check a task folder and say what is wrong with it."""
    from wmrl_envs.research.check import check_task as check

    problems = check(folder)
    for problem in problems:
        errors.print(f"[red]✗[/red] {problem}", highlight=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)
    console.print(f"{folder}: the task is complete")


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder; its newest checkpoint is evaluated.")],
    episodes: Annotated[int, typer.Option(help="Episodes, each really executed.")] = 256,
    seed: Annotated[int, typer.Option(help="Seed of the episodes and of the agent's sampling.")] = 0,
    sandbox: Annotated[str | None, typer.Option(help="process or replay; the run's own by default.")] = None,
) -> None:
    """Execute a trained agent's solutions and print its reported score and how they ended."""
    from dataclasses import replace

    from wmrl_envs.checkpoint import latest_checkpoint
    from wmrl_envs.evaluate import evaluate as score
    from wmrl_envs.train import agent_class

    config = TrainConfig.from_dict(_saved_settings(run))
    agent = agent_class(config.agent).load(latest_checkpoint(run / "checkpoints") / "agent.zip", device="cpu")
    result = score(agent, replace(config, sandbox=sandbox or config.sandbox), episodes=episodes, seed=seed)
    console.print(
        f"reported score {result.score:.3f} ± {result.standard_error:.3f} "
        f"over {result.episodes} episodes on {config.task}"
    )
    table = Table("outcome", "turns", "share")
    total = sum(result.statuses.values())
    for status, count in sorted(result.statuses.items(), key=lambda item: -item[1]):
        table.add_row(status, str(count), f"{count / total:.0%}")
    console.print(table)


@app.command()
def compare(
    out: Annotated[Path, typer.Option(help="Where comparison.md and comparison.png are written.")] = Path("docs"),
    runs: Annotated[Path, typer.Option(help="Where the runs' curves are kept; finished ones are not repeated.")] = Path(
        "runs/compare"
    ),
    tasks: Annotated[str, typer.Option(help="Fully recorded tasks, comma-separated.")] = "titanic,weather,anes96",
    arms: Annotated[str, typer.Option(help="Arms, comma-separated; all by default.")] = "",
    seeds: Annotated[int, typer.Option(help="Seeds that are reported.")] = 24,
    tuning_seeds: Annotated[int, typer.Option(help="Other seeds, on which step sizes are chosen.")] = 6,
    workers: Annotated[int | None, typer.Option(help="Processes; one per core by default.")] = None,
) -> None:
    """Compare all reward schemes on recorded executions; resumable."""
    from wmrl_envs.compare import Comparison, run_jobs
    from wmrl_envs.compare_report import choose_rates, draw_comparison, load_curves, markdown_report
    from wmrl_envs.files import write_text
    from wmrl_envs.progress import counting

    comparison = Comparison(
        tasks=tuple(tasks.split(",")),
        arms=tuple(arms.split(",")) if arms else Comparison.arms,
        seeds=seeds,
        tuning_seeds=tuning_seeds,
    )
    tuning = comparison.tuning_jobs()
    with counting(console, "choosing step sizes", len(tuning)) as done:
        run_jobs(tuning, runs, workers=workers, done=done)
    rates = choose_rates(comparison, load_curves(tuning, runs))
    final = comparison.final_jobs({arm: purposes.values() for arm, purposes in rates.items()})
    with counting(console, "comparing", len(final)) as done:
        run_jobs(final, runs, workers=workers, done=done)
    curves = load_curves(final, runs)
    page = markdown_report(
        comparison, curves, rates, f"wmrl compare --tasks {tasks} --seeds {seeds} --tuning-seeds {tuning_seeds}"
    )
    write_text(out / "comparison.md", page)
    draw_comparison(comparison, curves, rates, out / "comparison.png")
    console.print(page, markup=False, highlight=False, soft_wrap=True)
    console.print(f"written: {out / 'comparison.md'}, {out / 'comparison.png'}", highlight=False, soft_wrap=True)
