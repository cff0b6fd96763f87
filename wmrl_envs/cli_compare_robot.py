"""``wmrl compare robot``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wmrl_envs.cli_console import console
from wmrl_envs.errors import ConfigurationError

__all__ = ["compare_robot_command"]


def compare_robot_command(
    out: Annotated[Path, typer.Option(help="Where the page and the figure are written.")] = Path("docs"),
    runs: Annotated[Path, typer.Option(help="Where results are kept; what is finished is not repeated.")] = Path(
        "runs/robot_comparison"
    ),
    seeds: Annotated[int, typer.Option(help="Paired seeds that are reported.")] = 8,
    tuning_seeds: Annotated[int, typer.Option(help="Other seeds, on which learning rates are chosen.")] = 2,
    learning_rates: Annotated[str, typer.Option(help="The grid, comma-separated.")] = "3e-5,1e-4,3e-4",
    steps: Annotated[int, typer.Option(help="Steps of fine-tuning.")] = 20,
    goals: Annotated[int, typer.Option(help="Fresh initial states of each task.")] = 100,
    workers: Annotated[int, typer.Option(help="Processes.")] = 2,
) -> None:
    """Compare reward schemes on a robot policy; two hours on two cores, resumable."""
    from wmrl_envs.compare_robot_report import draw_robot_comparison, robot_report
    from wmrl_envs.files import write_text
    from wmrl_envs.robotics.comparison import ComparisonConfig, compare_rewards

    try:
        grid = tuple(float(rate) for rate in learning_rates.split(","))
    except ValueError as error:
        raise ConfigurationError(f"learning_rates must be numbers such as 3e-5,1e-4, got {learning_rates!r}") from error
    config = ComparisonConfig(
        seeds=seeds, tuning_seeds=tuning_seeds, learning_rates=grid, steps=steps, goals=goals, workers=workers
    )
    results = compare_rewards(
        config, runs, on_phase=lambda words: console.print(words, markup=False, highlight=False, soft_wrap=True)
    )
    command = (
        f"wmrl compare robot --seeds {seeds} --tuning-seeds {tuning_seeds} --learning-rates {learning_rates} "
        f"--steps {steps} --goals {goals}"
    )
    page = robot_report(results, command, "robot_comparison.png")
    write_text(out / "robot_comparison.md", page)
    draw_robot_comparison(results, out / "robot_comparison.png")
    console.print(page, markup=False, highlight=False, soft_wrap=True)
