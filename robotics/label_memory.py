"""Labelled rollouts that a progress model goes on learning from, and when it does."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from wmrl_envs.robotics.progress import ProgressModel, Video

__all__ = ["AdaptiveModel", "LabelMemory"]

_FIRST, _EVERY, _WINDOW = 24, 16, 512


@runtime_checkable
class AdaptiveModel(ProgressModel, Protocol):
    """A progress model that can learn from labelled rollouts."""

    def adapt(self, videos: Sequence[Video], instructions: Sequence[str], labels: Sequence[float]) -> None:
        """Learn from n labelled rollouts (n may be 0), anew from where the model was.

        Equal arguments leave equal models.
        """
        ...


class LabelMemory:
    """Keeps labelled rollouts, and lets a model adapt to them as they become more.

    It adapts from 24 labels on, whenever 16 have come; the last 512 count.
    """

    def __init__(self, model: AdaptiveModel) -> None:
        """Start without labels."""
        self._model = model
        self._videos: list[Video] = []
        self._instructions: list[str] = []
        self._labels: list[float] = []
        self._new, self._used = 0, 0

    def __len__(self) -> int:
        """Return the number of labels that are kept."""
        return len(self._labels)

    def learn(self, videos: Sequence[Video], instructions: Sequence[str], labels: Sequence[float]) -> None:
        """Take in n labelled rollouts, and let the model adapt where it is time."""
        self._videos += videos
        self._instructions += instructions
        self._labels += [float(label) for label in labels]
        self._new += len(labels)
        if self._new >= _EVERY and len(self) >= _FIRST:
            for column in (self._videos, self._instructions, self._labels):
                del column[:-_WINDOW]  # not before, since a resumed run has to adapt to the same ones
            self._adapt(len(self))

    def state_dict(self) -> dict[str, Any]:
        """Return the labelled rollouts, JSON-able and exact; frames are compressed."""
        return {
            "videos": [
                {"shape": list(video.shape), "zlib": base64.b64encode(zlib.compress(video.tobytes())).decode()}
                for video in self._videos
            ],
            "instructions": list(self._instructions),
            "labels": list(self._labels),
            "new": self._new,
            "used": self._used,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned; the model adapts as it had."""
        self._videos = [
            np.frombuffer(zlib.decompress(base64.b64decode(video["zlib"])), np.uint8).reshape(video["shape"])
            for video in state["videos"]
        ]
        self._instructions, self._labels = list(state["instructions"]), list(state["labels"])
        if state["used"] or self._used:
            self._adapt(state["used"])
        self._new, self._used = state["new"], state["used"]

    def _adapt(self, count: int) -> None:
        """Let the model adapt to the oldest ``count`` of the labels that are kept."""
        self._model.adapt(self._videos[:count], self._instructions[:count], self._labels[:count])
        self._new, self._used = 0, count
