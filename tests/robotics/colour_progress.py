"""Progress models on colours: how red a frame is, and the ways in which a model can go wrong at that."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.robotics.progress import Progress, Video

__all__ = [
    "Alone",
    "Broken",
    "Choosy",
    "Exacting",
    "Excited",
    "Forgetful",
    "Hasty",
    "Redness",
    "Slow",
    "Square",
    "Undecided",
    "Unnumbered",
]


def redness(video: Video) -> NDArray[np.float64]:
    """Share of red in all light, frame by frame; 0 where it is dark."""
    light = video.sum(axis=(1, 2), dtype=np.float64)
    return light[:, 0] / np.maximum(light.sum(axis=1), 1.0)


class Redness:
    """Progress is how red a frame is, success how far that exceeds an even mixture, the features are what is red least.

    All are in the precision asked for.
    """

    max_frames = 8

    def __init__(self, dtype: str = "float32", success: bool = True, features: int = 0) -> None:
        self.dtype, self.success, self.features = dtype, success, features
        self.asked: list[int] = []
        self.instructions: list[str] = []
        self.closed = False

    def score(self, videos: Sequence[Video], instructions: Sequence[str]) -> list[Progress | None]:
        self.asked.append(len(videos))
        self.instructions += instructions
        return [self._progress(redness(video)) for video in videos]

    def close(self) -> None:
        self.closed = True

    def _progress(self, share: NDArray[np.float64]) -> Progress:
        success = np.clip(1.5 * share - 0.5, 0.0, 1.0).astype(self.dtype) if self.success else None
        features = np.resize(np.sort(share) - 0.5, self.features).astype(self.dtype) if self.features else None
        return Progress(share.astype(self.dtype), success, features)


class Undecided(Redness):
    """Cannot say in the dark."""

    def score(self, videos: Sequence[Video], instructions: Sequence[str]) -> list[Progress | None]:
        scores = super().score(videos, instructions)
        return [score if video.any() else None for score, video in zip(scores, videos, strict=True)]


class Unnumbered(Redness):
    """Divides by the light, which there may be none of."""

    def score(self, videos: Sequence[Video], instructions: Sequence[str]) -> list[Progress | None]:
        with np.errstate(invalid="ignore"):
            light = [video.sum(axis=(1, 2), dtype=np.float64) for video in videos]
            return [self._progress(part[:, 0] / part.sum(axis=1)) for part in light]


class Forgetful(Redness):
    """Leaves out the last video."""

    def score(self, videos: Sequence[Video], instructions: Sequence[str]) -> list[Progress | None]:
        return super().score(videos[:-1], instructions[:-1])


class Hasty(Redness):
    """Leaves out the last frame."""

    def score(self, videos: Sequence[Video], instructions: Sequence[str]) -> list[Progress | None]:
        return super().score([video[:-1] for video in videos], instructions)


class Excited(Redness):
    """Gives percentages."""

    def _progress(self, share: NDArray[np.float64]) -> Progress:
        return Progress((100.0 * share).astype(np.float32))


class Broken(Redness):
    """Fails in the dark."""

    def score(self, videos: Sequence[Video], instructions: Sequence[str]) -> list[Progress | None]:
        if not all(video.any() for video in videos):
            raise ZeroDivisionError("there is no light")
        return super().score(videos, instructions)


class Choosy(Redness):
    """Reads one sentence only."""

    def score(self, videos: Sequence[Video], instructions: Sequence[str]) -> list[Progress | None]:
        if set(instructions) != {"turn red"}:
            raise ConfigurationError(f"instructions must be 'turn red', got {instructions[0]!r}")
        return super().score(videos, instructions)


class Slow(Redness):
    """Says that it has begun, and goes on when it may, or never."""

    def __init__(self, seconds: float = 60.0, sign: str | None = None) -> None:
        super().__init__()
        self.seconds, self.sign = seconds, sign
        self.begun, self.may_go_on = threading.Event(), threading.Event()

    def score(self, videos: Sequence[Video], instructions: Sequence[str]) -> list[Progress | None]:
        self.begun.set()
        if self.sign is not None:  # for other processes
            Path(self.sign).touch()
        self.may_go_on.wait(self.seconds)
        return super().score(videos, instructions)


class Alone(Redness):
    """Fails if it is called while it is at work."""

    def __init__(self) -> None:
        super().__init__()
        self.working = False

    def score(self, videos: Sequence[Video], instructions: Sequence[str]) -> list[Progress | None]:
        if self.working:
            raise RuntimeError("two at a time")
        self.working = True
        time.sleep(0.01)
        self.working = False
        return super().score(videos, instructions)


class Square(Redness):
    """Describes a video by a table."""

    def _progress(self, share: NDArray[np.float64]) -> Progress:
        return Progress(share.astype(np.float32), features=np.eye(2, dtype=np.float32))


class Exacting(Redness):
    """Wants an argument."""

    def __init__(self, colour: str) -> None:
        super().__init__()
        self.colour = colour
