"""``wmrl train robot``."""

from __future__ import annotations

import json
import signal
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from wmrl_envs.cli_console import console, errors
from wmrl_envs.errors import CheckpointError, ConfigurationError

__all__ = ["train_robot_command"]


def train_robot_command(
    context: typer.Context,
    tasks: Annotated[str | None, typer.Option(help="Meta-World tasks, comma-separated.")] = None,
    reward: Annotated[
        str | None, typer.Option(help="mixed, rectified, paper, debias, denoise, world-model, real or anchors-only.")
    ] = None,
    reward_kind: Annotated[
        str | None, typer.Option(help="What becomes of the scores: success, shaped, final or max.")
    ] = None,
    learn: Annotated[
        bool | None, typer.Option("--learn/--no-learn", help="Whether labels also teach the progress model.")
    ] = None,
    scale: Annotated[str | None, typer.Option(help="Advantages within a group: centre or standardise.")] = None,
    progress_model: Annotated[
        str | None, typer.Option(help="video:FOLDER, robometer:FOLDER, http://HOST:PORT or module:Class.")
    ] = None,
    demonstrations: Annotated[
        str | None, typer.Option(help="Expert rollouts of each task to imitate, or a dataset's folder.")
    ] = None,
    imitation_steps: Annotated[int | None, typer.Option(help="Optimiser steps of imitation.")] = None,
    policy: Annotated[str | None, typer.Option(help="Folder of a policy to start from instead.")] = None,
    progress_demonstrations: Annotated[
        int | None, typer.Option(help="Expert rollouts of each task for a progress model of the run's own.")
    ] = None,
    progress_steps: Annotated[int | None, typer.Option(help="Optimiser steps of that model.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of fine-tuning.")] = None,
    groups: Annotated[int | None, typer.Option(help="Groups of rollouts per step.")] = None,
    group_size: Annotated[int | None, typer.Option(help="Rollouts from one initial state.")] = None,
    anchor_fraction: Annotated[float | None, typer.Option(help="Share of groups whose real success is read.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of Adam, on the action head.")] = None,
    max_decisions: Annotated[int | None, typer.Option(help="Decisions per rollout.")] = None,
    draw_arm: Annotated[
        bool | None, typer.Option("--arm/--no-arm", help="Whether images show the arm; without it half the time.")
    ] = None,
    goals: Annotated[int | None, typer.Option(help="Fresh initial states of each task in evaluations.")] = None,
    videos: Annotated[int | None, typer.Option(help="Rollouts of each task kept as videos.")] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Steps between checkpoints.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; runs/robot-REWARD-SEED-TIME by default.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run here; only steps may change.")] = None,
    track: Annotated[
        str | None, typer.Option(help="wandb or trackio, to which the run is sent beside its folder.")
    ] = None,
) -> None:
    """Fine-tune a robot policy on a progress model and a few real labels, and leave a run folder."""
    from wmrl_envs.progress import counting
    from wmrl_envs.train_robot import RobotRunConfig, train_robot

    own = ("out", "resume", "track")
    given = {name: value for name, value in context.params.items() if name not in own and value is not None}
    config = RobotRunConfig.from_dict(given if resume is None else _resumed(resume, given))
    finetune = config.finetune
    folder = resume or out or Path("runs") / f"robot-{finetune.reward}-{finetune.seed}-{time.strftime('%Y%m%d-%H%M%S')}"

    def interrupted(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupted)
    warnings.filterwarnings("ignore", r"Constant\(s\) may be too high")  # experts' actions are clipped
    try:
        with counting(console, "fine-tuning", finetune.steps) as done:
            summary = train_robot(
                config,
                folder,
                resume=resume is not None,
                track=track,
                on_step=lambda row: done(int(row["step"]), finetune.steps),
                on_phase=lambda words: console.print(words, highlight=False, soft_wrap=True),
            )
    except KeyboardInterrupt:
        hint = f"; go on with: wmrl train robot --resume {folder}" if (folder / "config.json").exists() else ""
        errors.print(f"stopped{hint}", highlight=False, soft_wrap=True, markup=False)
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)
    console.print(_table(summary))
    console.print(f"everything: {folder}", markup=False, highlight=False, soft_wrap=True)


def _resumed(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    try:
        saved: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise CheckpointError(f"{folder} holds no run that can be read (config.json: {problem})") from problem
    changed = [name for name, value in given.items() if name != "steps" and saved.get(name) != value]
    if changed:
        raise ConfigurationError(
            f"--resume goes on with the run's own settings; only steps may change, not {', '.join(changed)}"
        )
    return saved | given


def _table(summary: dict[str, Any]) -> Table:
    table = Table(
        title=f"Success on fresh initial states ({summary['labels']} of {summary['rollouts']} rollouts labelled)",
        title_justify="left",
    )
    for heading in ("", "before", "after"):
        table.add_column(heading, justify="right" if heading else "left")
    for task in summary["before"]["success"]:
        table.add_row(task, *(f"{summary[when]['success'][task]:.0%}" for when in ("before", "after")))
    table.add_row("all tasks", *(_with_error(summary[when]) for when in ("before", "after")))
    return table


def _with_error(evaluation: dict[str, Any]) -> str:
    error = evaluation["standard_error"]
    return f"{evaluation['mean']:.1%}" + ("" if error is None else f" ± {error:.1%}")
