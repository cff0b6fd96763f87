"""What a served page shows: run folders, read again once something in them changed."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wmrl_envs.report.contents import Limits, contents
from wmrl_envs.report.folder import STALE_SECONDS, Run, find_runs, read_run, tell_apart
from wmrl_envs.report.text import escaped_json
from wmrl_envs.report.videos import Video

__all__ = ["Sources"]

_NAMES = "config versions before after summary calibration calibration_history"
_FILES = (*(f"{name}.json" for name in _NAMES.split()), "metrics.csv", "trajectories.jsonl", "videos")
_LIMITS = Limits(episodes=300, video_bytes=200_000_000)


class Sources:
    """Run folders and what was last read of them; read again once something in them changed."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._lock = threading.Lock()
        self._read: dict[Path, tuple[str, Run]] = {}
        self._tag = ""
        self._shown: dict[str, Any] = {}
        self._body = b""
        self._videos: dict[str, Path] = {}
        find_runs(self._paths)  # a wrong path is told at once

    def current(self) -> tuple[str, dict[str, Any], bytes]:
        """Return the ETag, contents and JSON of now.

        Raises:
            ConfigurationError: If no run is there any more.
        """
        with self._lock:
            prints = {folder: _print(folder) for folder in find_runs(self._paths)}
            tag = hashlib.sha256("\n".join(prints.values()).encode("utf-8", "surrogateescape")).hexdigest()[:20]
            if tag != self._tag:
                self._update(prints)
                self._tag = tag
            return self._tag, self._shown, self._body

    def _update(self, prints: dict[Path, str]) -> None:
        share = max(8, _LIMITS.episodes // len(prints))
        for folder, mark in prints.items():
            if folder not in self._read or self._read[folder][0] != mark:
                self._read[folder] = (mark, read_run(folder, episodes=share))
        videos: dict[str, Path] = {}

        def source(video: Video) -> str | None:
            try:
                written = video.path.stat().st_mtime_ns
            except OSError:
                return None  # it is being replaced, or was removed
            # A name of its own for each content, which stays the same whatever comes beside it.
            mark = hashlib.sha256(f"{video.path} {written}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
            videos[mark] = video.path
            return f"videos/{mark}.mp4"

        runs = tell_apart([self._read[folder][1] for folder in prints])
        self._shown = contents(runs, _LIMITS, source=source)
        self._body = escaped_json(self._shown).encode("utf-8")
        self._videos = videos

    def video(self, mark: str) -> Path | None:
        """Return the file of a video that the page shows, or ``None``."""
        with self._lock:
            return self._videos.get(mark)


def _print(folder: Path) -> str:
    """Return what changes when a run writes: sizes and times of its files, and whether it has gone stale."""
    marks = [str(folder)]
    newest = 0.0
    for name in _FILES:
        try:
            found = (folder / name).stat()
        except OSError:
            continue
        newest = max(newest, found.st_mtime)
        marks.append(f"{name} {found.st_size} {found.st_mtime_ns}")
    return " ".join([*marks, str(time.time() - newest > STALE_SECONDS)])
