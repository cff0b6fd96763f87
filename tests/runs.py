"""Small training runs on recorded executions, and the command line as a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from wmrl_envs.config import TrainConfig
from wmrl_envs.trajectories import read_trajectories

SMALL = {
    "task": "titanic",
    "sandbox": "replay",
    "warmup_source": "recordings",
    "steps": 10,
    "groups": 4,
    "group_size": 4,
    "warmup": 40,
    "refit_every": 2,
    "evaluation_rollouts": 4,
    "checkpoint_every": 2,
}
"""Settings of a run of seconds, in which the world model is refitted and checkpoints are dropped."""

CLOCK = ["wall_seconds", "prediction_seconds", "seconds", "cached_seconds", "cost_ratio", "cached_cost_ratio"]
"""Columns of metrics.csv that the clock enters; all others are the same at every repetition."""


def small_config(**changes: object) -> TrainConfig:
    return TrainConfig.from_dict(SMALL | changes)


def arguments(**changes: object) -> list[str]:
    """Return ``SMALL`` with changes as arguments of ``wmrl train``."""
    settings = SMALL | changes
    return [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def start_wmrl(*args: str, folder: Path, **variables: object) -> subprocess.Popen[str]:
    """Start the command as a process of its own, with some environment variables."""
    environment = os.environ | {
        **{name: str(value) for name, value in variables.items()},
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
        "COLUMNS": "200",
    }
    # A shell that runs the tests in the background has interrupts ignored, which children inherit; a terminal has not.
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    return subprocess.Popen(
        [sys.executable, "-c", f"{start}; from wmrl_envs.cli import main; main()", *args],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wmrl(*args: str, folder: Path, **variables: object) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    process = start_wmrl(*args, folder=folder, **variables)
    out, err = process.communicate(timeout=240)
    return subprocess.CompletedProcess(args, process.returncode, out, err)


def stop_when(process: subprocess.Popen[str], condition: Callable[[], bool], number: signal.Signals) -> tuple[int, str]:
    """Send a signal once a condition holds, and return the process's code and what it wrote to stderr."""
    deadline = time.monotonic() + 240
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert process.poll() is None, process.communicate()
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    return process.returncode, err


def steps_done(folder: Path) -> int:
    """Return the steps in a run's metrics.csv."""
    path = folder / "metrics.csv"
    return len(path.read_text().splitlines()) - 1 if path.exists() else 0


def metrics(folder: Path, without: Sequence[str] = CLOCK) -> pd.DataFrame:
    """Return a run's metrics.csv, exactly as written, without some columns."""
    table = pd.read_csv(folder / "metrics.csv", dtype=str, keep_default_na=False)
    return table.drop(columns=[name for name in without if name in table])


def trajectories(folder: Path) -> list[dict[str, Any]]:
    """Return the episodes that a run left, without what a clock said."""
    episodes = read_trajectories(folder)
    for turn in (turn for episode in episodes for turn in episode["turns"]):
        for outcome in ("predicted", "real"):
            turn.get(outcome, {}).pop("seconds", None)
    return episodes


def watched(folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Return what a run leaves for those who look on: its episodes and the calibration's history, empty before one."""
    history = folder / "calibration_history.json"
    return trajectories(folder), history.read_text() if history.exists() else ""
