"""Checkpoints from which a run goes on to the same result as if it had never stopped."""

from __future__ import annotations

import base64
import json
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wmrl_envs.errors import CheckpointError
from wmrl_envs.files import write_json

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

__all__ = ["latest_checkpoint", "load_state", "random_state", "restore_random_state", "save_checkpoint"]

KEPT = 2
"""Newest checkpoints that stay on disk."""


def save_checkpoint(folder: Path, step: int, agent: BaseAlgorithm, state: dict[str, Any]) -> Path:
    """Write one checkpoint whole, and remove all but the newest ones.

    Args:
        folder: The run's checkpoint folder.
        step: Optimiser steps taken.
        agent: Saved in stable-baselines3's own format, optimiser included.
        state: JSON-able rest: environment, correction, recorder.

    Returns:
        The checkpoint's folder, ``folder/step-NNNNNN``.
    """
    target = folder / f"step-{step:06d}"
    temporary = folder / f".writing-{target.name}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    agent.save(temporary / "agent.zip")
    write_json(temporary / "state.json", {"step": step, "random": random_state(), **state})
    shutil.rmtree(target, ignore_errors=True)
    temporary.replace(target)
    for old in sorted(folder.glob("step-*"))[:-KEPT]:
        shutil.rmtree(old)
    return target


def latest_checkpoint(folder: Path) -> Path:
    """Return the newest checkpoint of a run.

    Raises:
        CheckpointError: If there is none.
    """
    found = sorted(folder.glob("step-*"))
    if not found:
        raise CheckpointError(
            f"no checkpoint in {folder}; the run stopped before its first one, start it again without --resume"
        )
    return found[-1]


def load_state(checkpoint: Path) -> dict[str, Any]:
    """Read the JSON part of a checkpoint."""
    try:
        state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint {checkpoint} cannot be read: {error}; remove its folder to resume from the one before"
        ) from error
    return state


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
