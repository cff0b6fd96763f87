"""Checkpoints from which a run goes on to the same result as if it had never stopped."""

from __future__ import annotations

import base64
import json
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from wmrl_envs.errors import CheckpointError
from wmrl_envs.files import write_text

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

__all__ = [
    "checkpoints",
    "load_agent",
    "load_newest",
    "load_state",
    "random_state",
    "restore_random_state",
    "restoring",
    "save_checkpoint",
]

KEPT = 2
"""Newest checkpoints that stay on disk."""

Loaded = TypeVar("Loaded")


def save_checkpoint(folder: Path, step: int, save: Callable[[Path], object], state: dict[str, Any]) -> Path:
    """Write one checkpoint whole, and remove all but the newest ones.

    Args:
        folder: The run's checkpoint folder.
        step: Optimiser steps taken.
        save: Writes the agent, optimiser included, into the folder that it is given.
        state: JSON-able rest: environment, correction, recorder.

    Returns:
        The checkpoint's folder, ``folder/step-NNNNNN``.
    """
    target = folder / f"step-{step:06d}"
    for left_over in folder.glob(".writing-*"):  # of a run that was killed here
        shutil.rmtree(left_over)
    temporary = folder / f".writing-{target.name}"
    temporary.mkdir(parents=True)
    save(temporary)
    text = json.dumps({"step": step, "random": random_state(), **state}, allow_nan=False)
    write_text(temporary / "state.json", text + "\n")
    shutil.rmtree(target, ignore_errors=True)
    temporary.replace(target)
    for old in checkpoints(folder)[KEPT:]:
        shutil.rmtree(old)
    return target


def checkpoints(folder: Path) -> list[Path]:
    """Return a run's checkpoints, the newest first."""
    return sorted(folder.glob("step-*"), reverse=True)


def load_newest(folder: Path, load: Callable[[Path], Loaded]) -> Loaded:
    """Load the newest checkpoint that can be read; a broken one is left out with a warning.

    Args:
        folder: The run's checkpoint folder.
        load: Reads one checkpoint's folder.

    Raises:
        CheckpointError: If there is none, or none can be read.
    """
    found = checkpoints(folder)
    for path in found:
        try:
            return load(path)
        except CheckpointError as error:
            warnings.warn(f"{error}; falling back to the checkpoint before", RuntimeWarning, stacklevel=2)
    if found:
        raise CheckpointError(f"none of the {len(found)} checkpoints in {folder} can be read; start a new run")
    raise CheckpointError(f"{folder} holds no checkpoint: the run stopped before its first one")


def load_state(checkpoint: Path) -> dict[str, Any]:
    """Read the JSON part of a checkpoint.

    Raises:
        CheckpointError: If it cannot be read.
    """
    try:
        state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
        state["step"], state["random"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"the checkpoint {checkpoint} cannot be read ({type(error).__name__}: {error})"
        ) from error
    return state


@contextmanager
def restoring(folder: Path) -> Iterator[None]:
    """Say of a state that lacks something, or holds it in another form, that it is another version's.

    Args:
        folder: The run's checkpoint folder.

    Raises:
        CheckpointError: If what is in the ``with`` block cannot take the state up.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise CheckpointError(
            f"the checkpoints in {folder} were made by another version of wmrl-envs ({reason}); go on with the version "
            "that versions.json names, or start a new run"
        ) from error


def load_agent(checkpoint: Path, kind: type[BaseAlgorithm], env: Any = None) -> BaseAlgorithm:
    """Load the agent of a checkpoint.

    Args:
        checkpoint: Its folder.
        kind: The agent's class.
        env: Environment to go on in, taken as it stands; ``None`` for an agent that only acts.

    Raises:
        CheckpointError: If it cannot be read.
    """
    try:
        return kind.load(checkpoint / "agent.zip", env=env, device="cpu", force_reset=False)
    except Exception as error:  # whatever a damaged file makes unzipping, unpickling or torch raise
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise CheckpointError(f"the agent of the checkpoint {checkpoint} cannot be read ({reason})") from error


def random_state() -> dict[str, Any]:
    """Return the state of the global generators that stable-baselines3 draws from, JSON-able."""
    import torch

    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    version, internal, gauss = random.getstate()
    return {
        "torch": base64.b64encode(torch.get_rng_state().numpy().tobytes()).decode(),
        "numpy": [name, np.asarray(keys).tolist(), int(position), int(has_gauss), float(cached)],
        "python": [version, list(internal), gauss],
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Set the global generators to a state from ``random_state``."""
    import torch

    torch.set_rng_state(torch.frombuffer(bytearray(base64.b64decode(state["torch"])), dtype=torch.uint8))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
