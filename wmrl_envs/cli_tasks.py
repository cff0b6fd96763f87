"""``wmrl tasks``: look at tasks, check your own, record real executions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from wmrl_envs.cli_console import console, errors
from wmrl_envs.errors import ConfigurationError, TaskError
from wmrl_envs.research.task import BENCHMARKS, TASKS_DIR, ResearchTask, bundled_tasks, load_task

__all__ = ["tasks_app"]

tasks_app = typer.Typer(help="Look at tasks, check your own, and record real executions.", no_args_is_help=True)

TaskArgument = Annotated[str, typer.Argument(help="Bundled task (wmrl tasks list), or the path of a task folder.")]
AnyTask = Annotated[str, typer.Argument(help="As elsewhere, or a benchmark's task, such as mle-bench:DIR/ID.")]
Workers = Annotated[int | None, typer.Option(help="Solutions that run at once; one per CPU by default.")]


@tasks_app.command("list")
def list_tasks(
    folder: Annotated[
        str | None, typer.Argument(help="Folder of a benchmark, such as mle-bench:DIR, or DIR alone.")
    ] = None,
) -> None:
    """List the bundled tasks, or those in the folder of a benchmark."""
    if folder is not None:
        for name in _competitions(folder):
            console.print(name, markup=False, highlight=False, soft_wrap=True)
        return
    width = max(map(len, bundled_tasks()))
    for name in bundled_tasks():
        task = _without_board(name)
        rows = f"{task.inventory.train_rows:,} + {task.inventory.test_rows:,} rows" if task.inventory.train_rows else ""
        console.print(f"[bold]{name:<{width}}[/bold] {escape(task.title)}", highlight=False, soft_wrap=True)
        facts = ", ".join(filter(None, (task.kind, task.metric.name, rows, _recorded(task))))
        console.print(f"{'':<{width}} [dim]{escape(facts)}[/dim]", highlight=False, soft_wrap=True)


@tasks_app.command("show")
def show_task(task: AnyTask) -> None:
    """Show a task as an agent reads it."""
    console.print(load_task(task).prompt(), markup=False, highlight=False, soft_wrap=True)


@tasks_app.command("check")
def check_task(
    task: Annotated[
        str,
        typer.Argument(help="A task, a task folder, or the folder of a benchmark: all its competitions are checked."),
    ],
) -> None:
    """Check a task folder, or every competition in a benchmark's folder, and say everything that is wrong."""
    from wmrl_envs.research.check import check_task as check

    names = [] if task in bundled_tasks() or (Path(task) / "task.json").is_file() else _competition_names(task)
    if names:
        _check_competitions(names)
        return
    problems = check(_folder(task))
    for problem in problems:
        _problem(problem)
    if problems:
        raise typer.Exit(1)
    console.print(f"{task}: the task is complete", highlight=False, soft_wrap=True)


@tasks_app.command("import")
def import_task(
    task: Annotated[
        str, typer.Argument(help="A benchmark's task: mle-bench:DIR/ID, mle-dojo:DIR/ID or dsbench:DIR/ID.")
    ],
    out: Annotated[Path, typer.Option(help="Task folder to make; its name becomes the task's.")],
    metric: Annotated[
        str | None, typer.Option(help="One of our metrics; by default what the benchmark's is called.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Splits the answers in two halves.")] = 0,
) -> None:
    """Make a task folder of a benchmark's task, with two halves of answers, our metric and maybe a design space."""
    from wmrl_envs.research.benchmarks.importing import import_competition
    from wmrl_envs.research.check import check_task as check

    made = import_competition(task, out, metric, seed)
    console.print(f"written: {out}", highlight=False, soft_wrap=True)
    for problem in check(out):
        errors.print("[yellow]warning:[/yellow]", end=" ")
        errors.print(problem, markup=False, highlight=False, soft_wrap=True)
    if made.design is None:
        console.print(
            "It has no design space, so agents that write programs can learn on it, and wmrl train cannot: state a "
            '"design" in its task.json if its columns allow one.',
            highlight=False,
            soft_wrap=True,
        )
    else:
        console.print(f"Train on it by: wmrl train --task {out}", highlight=False, soft_wrap=True)


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


def _competition_names(text: str) -> list[str]:
    from wmrl_envs.research.benchmarks.folders import competition_names

    return competition_names(text)


def _competitions(folder: str) -> list[str]:
    names = _competition_names(folder)
    if not names:
        raise ConfigurationError(
            f"{folder} has not the layout of any benchmark; known are {', '.join(BENCHMARKS)}, "
            f"see docs/benchmarks_as_tasks.md"
        )
    return names


def _check_competitions(names: list[str]) -> None:
    from wmrl_envs.research.benchmarks.folders import check_competition

    wrong = 0
    for name in names:
        checked = check_competition(name)
        wrong += checked.problem is not None
        if checked.problem is not None:
            _problem(f"{name}: {checked.problem}")
            continue
        console.print("[green]✓[/green]", end=" ")
        console.print(f"{name}: {checked.facts}", markup=False, highlight=False, soft_wrap=True)
    if wrong:
        raise typer.Exit(1)


def _problem(text: str) -> None:
    errors.print("[red]✗[/red]", end=" ")
    errors.print(text, markup=False, highlight=False, soft_wrap=True)


def _folder(task: str) -> Path:
    """Return the folder of a task that need not be complete."""
    if task in bundled_tasks():
        return TASKS_DIR / task
    if task and Path(task).is_dir():
        return Path(task)
    if task.partition(":")[0] in BENCHMARKS and ":" in task:
        raise ConfigurationError(
            f"{task} is a benchmark's task, and this needs a task folder; make one by: "
            f"wmrl tasks import {task} --out FOLDER"
        )
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
