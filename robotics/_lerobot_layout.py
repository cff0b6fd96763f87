"""LeRobot's dataset format v3.0: which files there are, and what stands in them.

https://huggingface.co/docs/lerobot/lerobot-dataset-v3
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = [
    "DATA",
    "EPISODES",
    "FILE_BYTES",
    "INFO",
    "OWN",
    "SETTINGS",
    "STATISTICS",
    "TASKS",
    "file_of",
    "image_key",
    "info",
    "rows_schema",
]

CODEBASE_VERSION = "v3.0"
INFO = "meta/info.json"
TASKS = "meta/tasks.parquet"
STATISTICS = "meta/stats.json"
SETTINGS = "meta/wmrl.json"
"""Ours: how the rollouts were collected. LeRobot does not read it."""
EPISODES = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
FILES_PER_CHUNK = 1000
FILE_BYTES = 100 * 2**20
"""A file of rows is followed by another one when it has so many."""
OWN = "rollout/"
"""Prefix of our own columns of the episodes' table."""


def file_of(path: str, number: int) -> str:
    """Return the path of file ``number``, counted through all chunks."""
    chunk, file = divmod(number, FILES_PER_CHUNK)
    return path.format(chunk_index=chunk, file_index=file)


def image_key(camera: str) -> str:
    """Return the name of a camera's feature."""
    return f"observation.images.{camera}"


def info(
    camera: str,
    frame: tuple[int, ...],
    state_size: int,
    action_size: int,
    *,
    fps: float,
    episodes: int,
    rows: int,
    tasks: int,
) -> dict[str, Any]:
    """Return what meta/info.json says.

    Args:
        camera: Name of the camera.
        frame: Height, width and 3.
        state_size: Numbers of a state.
        action_size: Numbers of an action.
        fps: Rows per second.
        episodes: How many there are.
        rows: How many there are in all episodes.
        tasks: Different instructions.
    """
    features: dict[str, Any] = {
        image_key(camera): {"dtype": "image", "shape": list(frame), "names": ["height", "width", "channels"]},
        "observation.state": _feature("float32", state_size),
        "action": _feature("float32", action_size),
        "next.reward": _feature("float32"),
        "next.done": _feature("bool"),
        "next.success": _feature("bool"),
        "timestamp": _feature("float32"),
    }
    features |= {name: _feature("int64") for name in ("frame_index", "episode_index", "index", "task_index")}
    return {
        "codebase_version": CODEBASE_VERSION,
        "robot_type": None,
        "total_episodes": episodes,
        "total_frames": rows,
        "total_tasks": tasks,
        "chunks_size": FILES_PER_CHUNK,
        "data_files_size_in_mb": FILE_BYTES // 2**20,
        "video_files_size_in_mb": 200,
        "fps": int(fps) if fps == int(fps) else fps,
        "splits": {"train": f"0:{episodes}"},
        "data_path": DATA,
        "video_path": None,
        "features": features,
    }


def rows_schema(features: dict[str, Any]) -> pa.Schema:
    """Return the columns of the data files, as Hugging Face's ``datasets`` stores such features."""
    image = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    return pa.schema([(name, image if "image" == f["dtype"] else _type(f)) for name, f in features.items()])


def _feature(dtype: str, size: int = 1) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [size], "names": None}


def _type(feature: dict[str, Any]) -> pa.DataType:
    single = {"float32": pa.float32(), "int64": pa.int64(), "bool": pa.bool_()}[feature["dtype"]]
    size = feature["shape"][0]
    return single if size == 1 else pa.list_(single, size)
