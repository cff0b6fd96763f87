"""Reads rollouts from LeRobot's dataset format v3.0, and says which file is wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from wmrl_envs.errors import DatasetError
from wmrl_envs.robotics._lerobot_layout import DATA, EPISODES, INFO, OWN, file_of
from wmrl_envs.robotics.demonstrations import Kind, Rollout

__all__ = ["read_json", "read_rollouts"]

NAMES = ("task", "kind", "initial_state", "initially_solved", "action_shape", "last_state", "last_frame")
EPISODE_COLUMNS = ["episode_index", "tasks", "length", "data/chunk_index", "data/file_index", *(OWN + n for n in NAMES)]
FOREIGN = "it was not written by save_rollouts, or changed since"


def read_rollouts(folder: Path) -> list[Rollout]:
    """Return the rollouts of a dataset in their order.

    Raises:
        DatasetError: If there is no dataset, a file of it is damaged, or something else wrote it.
    """
    image, shape, count = _images(folder)
    found: list[Rollout] = []
    path, rows = Path(), pa.table({})
    for episode in _episodes(folder, count):
        place = folder / DATA.format(chunk_index=episode["data/chunk_index"], file_index=episode["data/file_index"])
        if place != path:
            columns = [image, "observation.state", "action", "next.success", "episode_index", "frame_index"]
            path, rows = place, _table(place, columns)
        try:
            found.append(_rollout(episode, _rows_of(episode, rows), image))
            if found[-1].frames.shape[1:] != shape:
                raise ValueError(f"its images are {list(found[-1].frames.shape[1:])}, and {INFO} says {list(shape)}")
        except (TypeError, ValueError) as error:
            raise DatasetError(f"{path} is damaged in episode {episode['episode_index']}: {error}") from error
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON file's object.

    Raises:
        DatasetError: If it cannot be read, or is something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DatasetError(
            f"there is no dataset in the folder {path.parent.parent}: {path} cannot be read ({error.strerror}); "
            f"collect one with: wmrl robot collect --out {path.parent.parent}"
        ) from error
    except ValueError as error:
        raise DatasetError(f"{path} is damaged: {error}") from error
    if not isinstance(value, dict):
        raise DatasetError(f"{path} is damaged: it holds {type(value).__name__}, no object")
    return value


def _images(folder: Path) -> tuple[str, tuple[int, ...], int]:
    """Return the name and shape of a dataset's images, and how many episodes it has."""
    path, about = folder / INFO, read_json(folder / INFO)
    version = str(about.get("codebase_version"))
    if not version.startswith("v3."):
        raise DatasetError(f"{path} says that this is a dataset of LeRobot's format {version}; only v3 can be read")
    try:
        images = {name: tuple(f["shape"]) for name, f in about["features"].items() if f["dtype"] == "image"}
        count = int(about["total_episodes"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DatasetError(f"{path} is damaged: {type(error).__name__} {error}") from error
    if len(images) != 1:
        raise DatasetError(f"{path} names {len(images)} features of images, and a rollout has one; {FOREIGN}")
    [(name, shape)] = images.items()
    return name, shape, count


def _episodes(folder: Path, count: int) -> list[dict[str, Any]]:
    paths = sorted(folder.glob("meta/episodes/chunk-*/file-*.parquet"))
    if not paths:
        raise DatasetError(f"{folder / file_of(EPISODES, 0)} is missing from the dataset")
    rows = [row for path in paths for row in _table(path, EPISODE_COLUMNS).to_pylist()]
    if [row["episode_index"] for row in rows] != list(range(count)):
        raise DatasetError(
            f"the dataset in {folder} is damaged: {folder / INFO} promises the episodes 0 to {count - 1}, and "
            f"{', '.join(map(str, paths))} list {len(rows)}, or others"
        )
    return rows


def _table(path: Path, columns: Sequence[str]) -> pa.Table:
    try:
        present = pq.read_schema(path).names
        missing = [name for name in columns if name not in present]
        if missing:
            raise DatasetError(f"{path} has no column {', '.join(missing)}: {FOREIGN}")
        return pq.read_table(path, columns=list(columns))
    except FileNotFoundError as error:
        raise DatasetError(f"{path} is missing from the dataset") from error
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{path} is damaged: {error}") from error


def _rows_of(episode: dict[str, Any], rows: pa.Table) -> pa.Table:
    """Return an episode's rows.

    Raises:
        ValueError: If some are missing, or they are not in order.
    """
    number, length = episode["episode_index"], episode["length"]
    places = np.flatnonzero(rows["episode_index"].to_numpy() == number)
    own = rows.slice(places[0] if len(places) else 0, len(places))
    if set(own["episode_index"].to_pylist()) != {number} or own["frame_index"].to_pylist() != list(range(length)):
        raise ValueError(f"it should have {length} rows in order, and has {len(places)}, or in another order")
    return own


def _rollout(episode: dict[str, Any], rows: pa.Table, image: str) -> Rollout:
    """Return an episode as a rollout.

    Raises:
        ValueError: If something in it does not fit together.
    """
    own = {name: episode[OWN + name] for name in NAMES}
    pngs = [png and png["bytes"] for png in rows[image].to_pylist()] + [own["last_frame"]]
    states = [*rows["observation.state"].to_pylist(), own["last_state"]]
    if own["kind"] not in get_args(Kind):
        raise ValueError(f"it is of the unknown kind {own['kind']!r}")
    return Rollout(
        task=own["task"],
        instruction=episode["tasks"][0],
        initial_state=own["initial_state"],
        kind=own["kind"],
        frames=np.stack([_decoded(png, number) for number, png in enumerate(pngs)]),
        states=np.array([np.ravel(state) for state in states], np.float32),
        actions=np.array(rows["action"].to_pylist(), np.float32).reshape(len(rows), *own["action_shape"]),
        solved=np.array([own["initially_solved"], *rows["next.success"].to_pylist()], np.bool_),
    )


def _decoded(png: bytes | None, number: int) -> NDArray[np.uint8]:
    frame = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR) if png else None
    if frame is None:
        raise ValueError(f"frame {number} is no image")
    return np.ascontiguousarray(frame[..., ::-1], np.uint8)
