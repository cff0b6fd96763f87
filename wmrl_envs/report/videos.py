"""Rollouts of robots: which videos a page carries, and how."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wmrl_envs.report.episodes import Episode
from wmrl_envs.report.folder import Run
from wmrl_envs.report.text import short_text

__all__ = ["Video", "choose_videos", "data_uri"]

MOST_OF_ONE = 4_000_000
"""Bytes of a video that a page still carries."""


@dataclass(frozen=True)
class Video:
    """A video that a page shows."""

    run: Run
    path: Path
    caption: str
    episode: Episode | None
    """The episode of trajectories.jsonl that it shows; ``None`` for a rollout after training."""


def choose_videos(runs: Sequence[Run], *, most_bytes: int, most: int) -> tuple[list[Video], int]:
    """Return the videos worth most, as many as fit, and the number of those left out.

    Runs take turns. Of each run the rollouts after training come first, then those of its last and first steps, then
    those between.

    Args:
        runs: The runs.
        most_bytes: Bytes of all videos together.
        most: Videos.
    """
    queues = [_by_worth(run) for run in runs]
    total = sum(len(queue) for queue in queues)
    chosen: list[Video] = []
    while any(queues) and len(chosen) < most:
        for queue in queues:
            if not queue or len(chosen) >= most:
                continue
            video = queue.pop(0)
            size = _size(video.path)
            if size is not None and size <= min(MOST_OF_ONE, most_bytes):
                most_bytes -= size
                chosen.append(video)
    order = {id(run): place for place, run in enumerate(runs)}
    chosen.sort(key=lambda video: (order[id(video.run)], video.episode is not None, -_step(video), video.path.name))
    return chosen, total - len(chosen)


def data_uri(video: Video) -> str | None:
    """Return the video as a data URI, or ``None`` if it cannot be read any more."""
    try:
        return "data:video/mp4;base64," + base64.b64encode(video.path.read_bytes()).decode("ascii")
    except OSError:
        return None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _step(video: Video) -> int:
    return 0 if video.episode is None else video.episode.step


def _by_worth(run: Run) -> list[Video]:
    named = {episode.video: episode for episode in run.episodes if episode.video is not None}
    videos = [_video(run, path, named.get(path.relative_to(run.folder).as_posix())) for path in run.videos]
    final = [video for video in videos if video.episode is None]
    during = sorted((video for video in videos if video.episode is not None), key=_step)
    return final + _outside_in(during)


def _video(run: Run, path: Path, episode: Episode | None) -> Video:
    if episode is None:
        return Video(run, path, short_text(f"after training: {re.sub('-([0-9]+)$', '', path.stem)}", 120), None)
    return Video(run, path, short_text(f"step {episode.step}: {episode.instruction or episode.task}", 160), episode)


def _outside_in(videos: list[Video]) -> list[Video]:
    """Return last, first, then the middles of what lies between, halving it again and again."""
    found = videos[-1:] + videos[:1] if len(videos) > 1 else list(videos)
    spans = [(0, len(videos) - 1)]
    while spans:
        low, high = spans.pop(0)
        if high - low > 1:
            middle = (low + high) // 2
            found.append(videos[middle])
            spans += [(low, middle), (middle, high)]
    return found
