"""``wmrl tasks``: look at tasks, check your own, record real executions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from wmrl_envs.cli_console import console, errors
from wmrl_envs.errors import ConfigurationError, TaskError
from wmrl_envs.research.task import TASKS_DIR, ResearchTask, bundled_tasks, load_task

__all__ = ["tasks_app"]

tasks_app = typer.Typer(help="Look at tasks, check your own, and record real executions.", no_args_is_help=True)

TaskArgument = Annotated[str, typer.Argument(help="Bundled task (wmrl tasks list), or the path of a task folder.")]
Workers = Annotated[int | None, typer.Option(help="Solutions that run at once; one per CPU by default.")]


@tasks_app.command("list")
def list_tasks() -> None:
    """List the bundled tasks."""
    for name in bundled_tasks():
        task = _without_board(name)
        rows = f"{task.inventory.train_rows:,} + {task.inventory.test_rows:,} rows"
        console.print(f"[bold]{name:<9}[/bold] {escape(task.title)}", highlight=False, soft_wrap=True)
        facts = f"{task.kind}, {task.metric.name}, {rows}, {_recorded(task)}"
        console.print(f"{'':<9} [dim]{escape(facts)}[/dim]", highlight=False, soft_wrap=True)


@tasks_app.command("show")
def show_task(task: TaskArgument) -> None:
    """Show a task as an agent reads it."""
    console.print(load_task(task).prompt(), markup=False, highlight=False, soft_wrap=True)


@tasks_app.command("check")
def check_task(task: TaskArgument) -> None:
    """Check a task folder, and say everything that is wrong with it."""
    from wmrl_envs.research.check import check_task as check

    problems = check(_folder(task))
    for problem in problems:
        errors.print("[red]✗[/red]", end=" ")
        errors.print(problem, markup=False, highlight=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)
    console.print(f"{task}: the task is complete", highlight=False, soft_wrap=True)


@tasks_app.command("record")
def record_task(
    task: TaskArgument,
    members: Annotated[str, typer.Option(help="How many solutions, drawn at random, or all.")] = "all",
    workers: Workers = None,
    out: Annotated[Path | None, typer.Option(help="File to write; by default recording.jsonl.gz of the task.")] = None,
) -> None:
    """Execute a task's design space for real, for sandbox 'replay'; goes on where it was stopped."""
    from wmrl_envs.progress import counting
    from wmrl_envs.research.design_space import DesignSpace
    from wmrl_envs.research.recording import record
    from wmrl_envs.research.sandbox.process import ProcessSandbox

    loaded, count = _without_board(task), _count(members)
    total = DesignSpace.of(loaded).size if count is None else count
    with ProcessSandbox(workers=workers) as sandbox, counting(console, f"recording {loaded.id}", total) as done:
        path = record(loaded, sandbox, count, out, progress=done)
    console.print(f"written: {path}", highlight=False, soft_wrap=True)


@tasks_app.command("leaderboard")
def make_leaderboard(
    task: TaskArgument,
    population: Annotated[int | None, typer.Option(help="Solutions to execute; 180 by default.")] = None,
    workers: Workers = None,
    seed: Annotated[int, typer.Option(help="Draws the solutions.")] = 0,
) -> None:
    """Execute sound solutions of a task and write their scores as its leaderboard.json, in place of the one there."""
    from wmrl_envs.progress import counting
    from wmrl_envs.research.board import POPULATION
    from wmrl_envs.research.board import make_leaderboard as make
    from wmrl_envs.research.sandbox.process import ProcessSandbox

    size = POPULATION if population is None else population
    with ProcessSandbox(workers=workers) as sandbox, counting(console, f"leaderboard of {task}", size) as done:
        path = make(_folder(task), sandbox, size, seed=seed, progress=done)
    console.print(f"written: {path}", highlight=False, soft_wrap=True)


def _folder(task: str) -> Path:
    """Return the folder of a task that need not be complete."""
    if task in bundled_tasks():
        return TASKS_DIR / task
    if task and Path(task).is_dir():
        return Path(task)
    return load_task(task).folder  # raises, with what it may have been meant to be


def _without_board(task: str) -> ResearchTask:
    from wmrl_envs.research.board import task_without_board

    return task_without_board(_folder(task))


def _count(members: str) -> int | None:
    if members == "all":
        return None
    if not members.isdecimal():
        raise ConfigurationError(f"members must be a whole number or 'all', got {members!r}")
    return int(members)


def _recorded(task: ResearchTask) -> str:
    from wmrl_envs.errors import RecordingError
    from wmrl_envs.research.design_space import DesignSpace
    from wmrl_envs.research.recording import RECORDING, read_recording

    path = task.folder / RECORDING
    if not path.is_file():
        return "not recorded"
    try:
        count, size = read_recording(path)[0]["members"], DesignSpace.of(task).size
    except (RecordingError, TaskError):
        return "an unreadable recording"
    return f"all {size:,} solutions recorded" if count == size else f"{count:,} of {size:,} solutions recorded"
