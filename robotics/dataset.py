"""Rollouts as a dataset on disk, in LeRobot's format v3.0: Parquet files with lossless images in them.

- ``save_rollouts``, ``load_rollouts`` - what comes back is equal to what was written, array by array.
- ``load_settings`` - how the rollouts were collected.
- ``check_dataset_folder`` - whether a dataset may be written to a folder, before it has been collected.

``LeRobotDataset("demos", root=folder)`` opens such a folder. As there, a row is one decision: what was seen before it,
the action, and ``next.reward``, ``next.success`` and ``next.done`` after it. An episode of T decisions has T rows, so
that no made-up action follows the last one for a policy to learn. What was seen after the last decision stands, with
the other facts that LeRobot has no place for, in columns ``rollout/...`` of the episodes' table, which LeRobot leaves
alone. A chunk of k actions is one row of k * a numbers.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from wmrl_envs.errors import ConfigurationError, DatasetError, MissingExtraError
from wmrl_envs.files import check_folder
from wmrl_envs.robotics.demonstrations import Kind, Rollout

try:
    from wmrl_envs.robotics._lerobot_layout import INFO, SETTINGS
    from wmrl_envs.robotics._lerobot_reading import read_json, read_rollouts
    from wmrl_envs.robotics._lerobot_writing import write_dataset
except ImportError as error:
    raise MissingExtraError(f"datasets need pyarrow and OpenCV ({error}): pip install 'wmrl-envs[robotics]'") from error

__all__ = ["check_dataset_folder", "load_rollouts", "load_settings", "save_rollouts"]


def save_rollouts(
    rollouts: Sequence[Rollout],
    folder: str | Path,
    *,
    fps: float,
    camera: str = "workspace",
    settings: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Write rollouts as a dataset, whole or not at all.

    Args:
        rollouts: With frames, states and actions of one shape each; they may differ in length.
        folder: Where to; it is made, or empty.
        fps: Decisions per second, which gives rows their time.
        camera: Name of the camera: rows have their image as ``observation.images.<camera>``.
        settings: What ``load_settings`` is to return, in what JSON knows.
        overwrite: Whether a dataset that is there already is replaced.

    Raises:
        ConfigurationError: If there is no rollout, one is no rollout or differs in shape from the first, an argument
            cannot work, or the folder holds something already.
    """
    if not (isinstance(fps, int | float) and math.isfinite(fps) and fps > 0):
        raise ConfigurationError(f"fps must be a number above 0, got {fps!r}")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", camera):
        raise ConfigurationError(f"camera must be a name of letters, digits, '_' and '-', got {camera!r}")
    _check_rollouts(rollouts)
    try:
        text = json.dumps({"format": 1, "settings": dict(settings or {})}, indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"settings must be what JSON knows, got {settings!r}: {error}") from error

    def write(beside: Path) -> None:
        write_dataset(rollouts, beside, fps=fps, camera=camera)
        (beside / SETTINGS).write_text(text + "\n", encoding="utf-8")

    _write_whole(Path(folder), write, overwrite)


def load_rollouts(folder: str | Path) -> list[Rollout]:
    """Return the rollouts of a dataset in their order.

    Raises:
        DatasetError: If there is no dataset, a file of it is damaged, or something else wrote it.
    """
    return read_rollouts(Path(folder))


def load_settings(folder: str | Path) -> dict[str, Any]:
    """Return the settings that a dataset's rollouts were saved with; empty where a tool of LeRobot's left them out.

    Raises:
        DatasetError: If there is no dataset, or the file is damaged.
    """
    path = Path(folder) / SETTINGS
    if (Path(folder) / INFO).is_file() and not path.exists():
        return {}
    settings = read_json(path).get("settings")
    if not isinstance(settings, dict):
        raise DatasetError(f"{path} is damaged: it has no settings")
    return settings


def check_dataset_folder(folder: str | Path, *, overwrite: bool = False) -> None:
    """Refuse a folder to which ``save_rollouts`` would not write.

    Raises:
        ConfigurationError: If something is in it that may not be replaced, or it cannot be written to.
    """
    folder = Path(folder)
    check_folder(folder)
    place = folder.resolve()
    check_folder(place.parent)
    if os.path.ismount(place):
        raise ConfigurationError(f"{folder} is a disk of its own, which cannot be replaced; name a folder in it")
    if not place.exists() or not any(place.iterdir()):
        return
    if not overwrite:
        raise ConfigurationError(
            f"the folder {folder} is not empty; name another one, or replace the dataset in it by "
            "overwrite=True (--overwrite)"
        )
    if not (place / INFO).is_file():
        raise ConfigurationError(f"the folder {folder} holds no dataset, so it is not overwritten; name another one")


def _write_whole(folder: Path, write: Callable[[Path], None], overwrite: bool) -> None:
    """Write a folder beside its place and move it there, so that nobody ever loads half of it."""
    check_dataset_folder(folder, overwrite=overwrite)
    place = folder.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}-"))
    try:
        (scratch / "new").mkdir()
        write(scratch / "new")
        if place.exists() and any(place.iterdir()):
            place.rename(scratch / "old")
        (scratch / "new").rename(place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _check_rollouts(rollouts: Sequence[Any]) -> None:
    if not rollouts:
        raise ConfigurationError("there is no rollout to save; a dataset has at least one")
    for number, rollout in enumerate(rollouts):
        problem = _problem(rollout) or _difference(rollout, rollouts[0])
        if problem:
            raise ConfigurationError(f"rollout {number} cannot be saved: {problem}")


def _problem(rollout: Any) -> str | None:
    """Return what is wrong with a rollout by itself."""
    if not isinstance(rollout, Rollout):
        return f"it is no Rollout but {type(rollout).__name__}"
    decisions = len(rollout.actions)
    for name, dtype, dimensions, length in (
        ("frames", np.uint8, (4,), decisions + 1),
        ("states", np.float32, (2,), decisions + 1),
        ("actions", np.float32, (2, 3), decisions),
        ("solved", np.bool_, (1,), decisions + 1),
    ):
        values = getattr(rollout, name)
        if values.dtype != dtype or values.ndim not in dimensions or len(values) != length or not values.size:
            return (
                f"{name} must be {np.dtype(dtype)} of {' or '.join(map(str, dimensions))} dimensions and length "
                f"{length}, none of them empty, got {values.dtype} {list(values.shape)} beside {decisions} actions"
            )
        if not np.isfinite(values).all():
            return f"{name} must be finite, and some are not"
    if rollout.frames.shape[-1] != 3:
        return f"frames must have 3 colours, got {list(rollout.frames.shape)}"
    if (rollout.solved[:-1] > rollout.solved[1:]).any():
        return "solved says whether the task had been solved by then, so that it stays true; here it does not"
    if rollout.kind not in get_args(Kind):
        return f"kind must be one of {', '.join(get_args(Kind))}, got {rollout.kind!r}"
    if isinstance(rollout.initial_state, bool) or not isinstance(rollout.initial_state, int | np.integer):
        return f"initial_state must be a whole number, got {rollout.initial_state!r}"
    for name in ("task", "instruction"):
        if not isinstance(getattr(rollout, name), str) or not getattr(rollout, name):
            return f"{name} must be words, got {getattr(rollout, name)!r}"
    return None


def _difference(rollout: Rollout, first: Rollout) -> str | None:
    """Return in what shape a rollout differs from the first one."""
    for name in ("frames", "states", "actions"):
        own, others = getattr(rollout, name).shape[1:], getattr(first, name).shape[1:]
        if own != others:
            return f"its {name} are {list(own)} each and those of rollout 0 {list(others)}; a dataset has one shape"
    return None
