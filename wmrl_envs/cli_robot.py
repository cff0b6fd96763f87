"""``wmrl robot``: demonstrations of robots, in simulation."""

from __future__ import annotations

import shlex
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from wmrl_envs.cli_console import console, errors

if TYPE_CHECKING:
    from wmrl_envs.robotics.demonstrations import Rollout

__all__ = ["robot_app"]

robot_app = typer.Typer(help="Collect demonstrations of robots in simulation.", no_args_is_help=True)


@robot_app.callback()
def _group() -> None:
    """Make ``collect`` a command of its own, also while it is the only one."""


@robot_app.command()
def collect(
    tasks: Annotated[
        str, typer.Option(help="Meta-World tasks, comma-separated, such as drawer-open,window-open; or MT10.")
    ] = "drawer-open",
    per_task: Annotated[int, typer.Option(help="Rollouts of each task by its scripted expert.")] = 50,
    perturbed: Annotated[
        int, typer.Option(help="Rollouts of each task by the expert disturbed; most of them fail.")
    ] = 100,
    seed: Annotated[int, typer.Option(help="Of initial states and disturbances.", min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the dataset; runs/demonstrations-TIME by default.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the dataset in that folder.")] = False,
    camera: Annotated[str, typer.Option(help="workspace, or one of Meta-World's.")] = "workspace",
    image_size: Annotated[int, typer.Option(help="Height and width of the images in pixels.")] = 64,
    arm: Annotated[
        bool,
        typer.Option("--arm/--no-arm", help="Whether images show the arm above the wrist; without it, half the time."),
    ] = True,
    hold: Annotated[int, typer.Option(help="Simulator steps of 1/80 s for which an action is held.")] = 10,
    max_decisions: Annotated[int, typer.Option(help="Decisions per rollout.")] = 15,
) -> None:
    """Collect rollouts of scripted experts, and of disturbed ones, as a dataset that LeRobot opens as well."""
    from wmrl_envs.progress import counting
    from wmrl_envs.robotics.dataset import check_dataset_folder, save_rollouts
    from wmrl_envs.robotics.demonstrations import collect as run
    from wmrl_envs.robotics.envs import MetaWorldEnv
    from wmrl_envs.robotics.metaworld import resolve_tasks

    names = resolve_tasks([name.strip() for name in tasks.split(",") if name.strip()])
    folder = out or Path("runs") / f"demonstrations-{time.strftime('%Y%m%d-%H%M%S')}"
    check_dataset_folder(folder, overwrite=overwrite)
    environment: dict[str, Any] = {
        "camera": camera,
        "image_size": image_size,
        "draw_arm": arm,
        "hold": hold,
        "max_decisions": max_decisions,
    }
    fps = MetaWorldEnv(names, **environment).metadata["render_fps"]  # refuses settings that cannot work
    total, found = len(names) * (per_task + perturbed), list["Rollout"]()
    try:
        with counting(console, "collecting", total) as done, warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"Constant\(s\) may be too high")  # experts' actions are clipped

            def keep(rollout: Rollout) -> None:
                found.append(rollout)
                done(len(found), total)

            run(names, per_task, perturbed=perturbed, seed=seed, on_rollout=keep, **environment)
    except KeyboardInterrupt:
        errors.print(f"stopped after {len(found)} of {total} rollouts; nothing was written", highlight=False)
        raise typer.Exit(130) from None
    settings = {"environment": environment, "tasks": list(names), "per_task": per_task, "perturbed": perturbed}
    save_rollouts(found, folder, fps=fps, camera=camera, settings=settings | {"seed": seed}, overwrite=overwrite)
    console.print(_table(found))
    console.print(f"dataset: {folder}", markup=False, highlight=False, soft_wrap=True)
    following = shlex.join(["wmrl", "progress", "train", str(folder), "--out", f"{folder}-progress"])
    console.print(f"train a progress model on it: {following}", markup=False, highlight=False, soft_wrap=True)


def _table(rollouts: Sequence[Rollout]) -> Table:
    """Return how many rollouts of each task and kind solved it, and how soon."""
    table = Table(title="Rollouts", title_justify="left")
    for heading in ("task", "by", "rollouts", "success", "decisions to success"):
        table.add_column(heading, justify="left" if heading in ("task", "by") else "right")
    for task, kind in dict.fromkeys((rollout.task, rollout.kind) for rollout in rollouts):
        own = [rollout.solved for rollout in rollouts if (rollout.task, rollout.kind) == (task, kind)]
        soon = [int(solved.argmax()) for solved in own if solved[-1]]
        mean = f"{sum(soon) / len(soon):.1f}" if soon else "-"
        table.add_row(task, kind, str(len(own)), f"{len(soon) / len(own):.0%}", mean)
    return table
