"""Experiment trackers beside the run folder: Weights & Biases, or trackio.

- ``find_tracker`` - a tracker's module by its name.
- ``Tracker`` - sends each step's row, and at the end the summary and the figures.

A tracker only looks on: whatever happens to it, training goes on, and to the same result.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from wmrl_envs.errors import ConfigurationError, MissingExtraError, did_you_mean

__all__ = ["TRACKERS", "Tracker", "find_tracker"]

TRACKERS = ("wandb", "trackio")
PROJECT = "wmrl-envs"
"""Project under which runs appear; ``WANDB_PROJECT`` names another."""


def find_tracker(name: str | None) -> ModuleType | None:
    """Return a tracker's module; ``None`` for none.

    Raises:
        ConfigurationError: If there is no such tracker.
        MissingExtraError: If it is not installed.
    """
    if name is None:
        return None
    if name not in TRACKERS:
        raise ConfigurationError(
            f"track must be one of {', '.join(TRACKERS)}, got {name!r}.{did_you_mean(name, TRACKERS)}"
        )
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"--track {name} needs the package {name} ({error}): pip install {name}") from error


class Tracker:
    """One run at a tracker, or at none. After its first failure, which is a warning, it is left alone."""

    def __init__(self, module: ModuleType | None, folder: Path, config: Mapping[str, Any]) -> None:
        """Begin the run, or go on with it where this folder's was tracked before.

        Args:
            module: From `find_tracker`.
            folder: The run folder, which exists; its name is the run's.
            config: The settings.
        """
        self._module = module
        self._guarded(lambda module: _begin(module, folder.absolute(), dict(config)))

    def log(self, row: Mapping[str, Any]) -> None:
        """Send a step's row of metrics."""
        numbers = {name: value for name, value in row.items() if name != "step"}
        self._guarded(lambda module: module.log(numbers, step=int(row["step"])))

    def finish(self, folder: Path | None = None, summary: Mapping[str, Any] | None = None) -> None:
        """End the run; a second call does nothing.

        Args:
            folder: Run folder whose figures are sent; ``None`` for a run that stopped on its way.
            summary: Whose numbers are sent, such as ``after/score``; its settings were sent at the beginning.
        """
        figures = [] if folder is None else sorted((folder / "figures").glob("*.png"))
        results = {name: value for name, value in (summary or {}).items() if name != "config"}

        def send(module: ModuleType) -> None:
            sent = {f"figures/{path.stem}": module.Image(str(path)) for path in figures} | dict(_numbers(results))
            if sent:
                module.log(sent)

        self._guarded(send)
        self._guarded(lambda module: module.finish())
        self._module = None

    def _guarded(self, send: Callable[[ModuleType], object]) -> None:
        module = self._module
        if module is None:
            return
        state = random.getstate()  # is part of a run's result, and trackers draw names
        try:
            send(module)
        except Exception as error:
            self._module = None
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            warnings.warn(
                f"{module.__name__} failed ({reason}); the run goes on without it, and its folder has everything",
                RuntimeWarning,
                stacklevel=3,
            )
        finally:
            random.setstate(state)


def _begin(module: ModuleType, folder: Path, config: dict[str, Any]) -> None:
    # The folder's place makes the id, so that a resumed run goes on where it was.
    identity = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    if module.__name__ == "wandb":
        project, place = os.environ.get("WANDB_PROJECT", PROJECT), os.environ.get("WANDB_DIR", str(folder))
        module.init(project=project, name=folder.name, id=identity, dir=place, config=config, resume="allow")
        return
    # trackio knows runs by their names alone; the machine's load is no part of a run.
    name = f"{folder.name}-{identity}"
    quiet = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
    module.init(project=PROJECT, name=name, config=config, resume="allow", **quiet)


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers in nested dictionaries under names such as ``after/score``."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + name, value
