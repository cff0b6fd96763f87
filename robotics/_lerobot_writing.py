"""Writes rollouts in LeRobot's dataset format v3.0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from wmrl_envs.files import write_json
from wmrl_envs.robotics._lerobot_layout import (
    DATA,
    EPISODES,
    FILE_BYTES,
    FILES_PER_CHUNK,
    INFO,
    OWN,
    STATISTICS,
    TASKS,
    file_of,
    image_key,
    info,
    rows_schema,
)
from wmrl_envs.robotics._lerobot_statistics import column_statistics, image_statistics, level_counts
from wmrl_envs.robotics.demonstrations import Rollout

__all__ = ["write_dataset"]

Columns = dict[str, NDArray[Any]]


def write_dataset(rollouts: Sequence[Rollout], folder: Path, *, fps: float, camera: str) -> None:
    """Write checked rollouts into an empty folder."""
    first, instructions = rollouts[0], list(dict.fromkeys(rollout.instruction for rollout in rollouts))
    about = info(
        camera,
        first.frames.shape[1:],
        first.states.shape[1],
        first.actions[0].size,
        fps=fps,
        episodes=len(rollouts),
        rows=sum(len(rollout.actions) for rollout in rollouts),
        tasks=len(instructions),
    )
    write_json(folder / INFO, about)
    tasks = pd.DataFrame({"task_index": range(len(instructions))}, index=pd.Index(instructions, name="task"))
    tasks.to_parquet(folder / TASKS)
    files = _DataFiles(folder, rows_schema(about["features"]))
    columns, counts, episodes = list[Columns](), np.zeros((3, 256), np.int64), []
    try:
        for number, rollout in enumerate(rollouts):
            before = sum(len(episode["index"]) for episode in columns)
            columns.append(_columns(rollout, number, before, instructions.index(rollout.instruction), fps))
            levels = level_counts(rollout.frames[:-1])
            counts += levels
            pngs = [_png(frame) for frame in rollout.frames]
            place = files.write(columns[-1] | {image_key(camera): pngs[:-1]}, sum(map(len, pngs)))
            found = _statistics([columns[-1]], levels, camera)
            episodes.append(_episode(rollout, number, before, place, pngs[-1]) | _flat(found))
    finally:
        files.close()
    path = folder / file_of(EPISODES, 0)
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(episodes), path)
    write_json(folder / STATISTICS, _statistics(columns, counts, camera))


class _DataFiles:
    """The files of rows: each episode is a row group, and a file that is large enough is followed by another one."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder, self._schema = folder, schema
        self._number, self._bytes = -1, FILE_BYTES
        self._writer: Any = None

    def write(self, columns: dict[str, Any], size: int) -> int:
        """Write an episode of about ``size`` bytes and return the number of its file."""
        if self._bytes >= FILE_BYTES:
            self.close()
            self._number, self._bytes = self._number + 1, 0
            path = self._folder / file_of(DATA, self._number)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(path, self._schema)
        self._bytes += size
        arrays = [_array(columns[field.name], field.type) for field in self._schema]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        return self._number

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(kind):
        return pa.array([{"bytes": png, "path": None} for png in values], kind)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel(), kind.value_type), kind.list_size)
    return pa.array(values.ravel(), kind)


def _columns(rollout: Rollout, number: int, before: int, task: int, fps: float) -> Columns:
    """Return the columns of an episode without its images, each [T, d]."""
    decisions, index = len(rollout.actions), np.arange(len(rollout.actions))
    columns = {
        "observation.state": rollout.states[:-1],
        "action": rollout.actions.reshape(decisions, -1),
        "next.reward": (rollout.solved[1:] & ~rollout.solved[:-1]).astype(np.float32),
        "next.done": index == decisions - 1,
        "next.success": rollout.solved[1:],
        "timestamp": (index / fps).astype(np.float32),
        "frame_index": index,
        "episode_index": np.full(decisions, number),
        "index": before + index,
        "task_index": np.full(decisions, task),
    }
    return {name: values.reshape(decisions, -1) for name, values in columns.items()}


def _episode(rollout: Rollout, number: int, before: int, file: int, last_png: bytes) -> dict[str, Any]:
    """Return an episode's row of the episodes' table."""
    chunk, file = divmod(file, FILES_PER_CHUNK)
    row = {
        "episode_index": number,
        "tasks": [rollout.instruction],
        "length": len(rollout.actions),
        "data/chunk_index": chunk,
        "data/file_index": file,
        "dataset_from_index": before,
        "dataset_to_index": before + len(rollout.actions),
        "meta/episodes/chunk_index": 0,
        "meta/episodes/file_index": 0,
    }
    own = {
        "task": rollout.task,
        "kind": rollout.kind,
        "initial_state": int(rollout.initial_state),
        "initially_solved": bool(rollout.solved[0]),
        "action_shape": list(rollout.actions.shape[1:]),
        "last_state": rollout.states[-1].tolist(),
        "last_frame": last_png,
    }
    return row | {OWN + name: value for name, value in own.items()}


def _statistics(columns: Sequence[Columns], counts: NDArray[np.int64], camera: str) -> dict[str, Any]:
    """Return the statistics of episodes by feature."""
    joined = {name: np.concatenate([episode[name] for episode in columns]) for name in columns[0]}
    found = {name: column_statistics(values) for name, values in joined.items()}
    return {image_key(camera): image_statistics(counts, len(joined["index"]))} | found


def _flat(statistics: dict[str, Any]) -> dict[str, Any]:
    return {f"stats/{name}/{kind}": value for name, found in statistics.items() for kind, value in found.items()}


def _png(frame: NDArray[np.uint8]) -> bytes:
    done, encoded = cv2.imencode(".png", frame[..., ::-1])
    assert done
    return encoded.tobytes()
