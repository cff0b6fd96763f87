"""What a progress server answers, apart from HTTP: one request at a time reaches the model."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from wmrl_envs.errors import ConfigurationError, ProgressModelError
from wmrl_envs.robotics._progress_wire import (
    MAX_VIDEOS,
    PROTOCOL,
    SERVICE,
    Answer,
    WireError,
    checksum,
    decode_request,
    encode_answer,
    finite,
    message_limit,
)
from wmrl_envs.robotics.progress import Progress, ProgressModel, Video, check_scores, check_videos

__all__ = ["ProgressService", "Refusal"]

logger = logging.getLogger(__name__)

_IN_MEMORY = 4
"""Requests that are read, waiting for the model, being scored or answered at the same time; others wait unread."""


class Refusal(Exception):
    """A request that is not answered as it asks.

    Attributes:
        status: HTTP's number for it.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ProgressService:
    """Answers requests of any number of threads from one model.

    Attributes:
        largest_message: Most bytes of a request as it is sent.
    """

    def __init__(self, model: ProgressModel, name: str, max_bytes: int) -> None:
        self._model = model
        self._name = name
        self._max_bytes = max_bytes
        self.largest_message = message_limit(max_bytes)
        self._model_is_free = threading.Lock()
        self._places = threading.BoundedSemaphore(_IN_MEMORY)
        self._changed = threading.Condition()
        self._inside = 0
        self._stopping = False

    @property
    def health(self) -> dict[str, Any]:
        """What the server says of itself; later versions of the protocol keep ``service``, ``protocol``, ``model``."""
        frames = getattr(self._model, "max_frames", None)
        return {
            "service": SERVICE,
            "protocol": PROTOCOL,
            "model": self._name,
            "max_frames": None if frames is None else int(frames),
            "max_bytes": self._max_bytes,
            "max_videos": MAX_VIDEOS,
        }

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold one of the few places for requests in memory.

        Raises:
            Refusal: If the server stops.
        """
        with self._changed:
            self._inside += 1
        try:
            with self._places:
                self._refuse_if_stopping()
                yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def answer(self, message: bytes, is_waited_for: Callable[[], bool]) -> bytes:
        """Return the answer to a request.

        Args:
            message: As it came.
            is_waited_for: Says whether the client is still there once the model is free.

        Raises:
            Refusal: If there is none.
        """
        try:
            videos, instructions = decode_request(message, self._max_bytes)
            check_videos(videos, instructions)
            with self._model_is_free:
                self._refuse_if_stopping()
                if not is_waited_for():
                    raise Refusal(408, "the client went away")
                scores, reasons = self._scores(videos, instructions)
        except WireError as error:
            raise Refusal(400, f"the request cannot be read: {error}") from error
        except ConfigurationError as error:
            raise Refusal(422, str(error)) from error
        except ProgressModelError as error:
            raise Refusal(500, str(error)) from error
        return encode_answer(Answer(self._name, checksum(message), scores, reasons))

    def stop(self, patience: float) -> bool:
        """Refuse what comes, and return whether all that came before is done within ``patience`` seconds."""
        self._stopping = True
        with self._changed:
            return self._changed.wait_for(lambda: self._inside == 0, patience)

    def _scores(self, videos: list[Video], instructions: list[str]) -> tuple[list[Progress | None], list[str]]:
        name, began = type(self._model).__name__, time.monotonic()
        try:
            scores, reasons = finite(list(self._model.score(videos, instructions)))
            checked = check_scores(name, scores, videos)
            _check_features(name, checked)
        except (ConfigurationError, ProgressModelError) as error:
            logger.warning(str(error))
            raise
        except Exception as error:
            logger.warning(f"the progress model {name} failed:\n{traceback.format_exc()}")
            raise ProgressModelError(f"the progress model {name} failed: {type(error).__name__}: {error}") from error
        for index, reason in enumerate(reasons):
            if reason:
                logger.warning(f"video {index} of {len(videos)} counts as not scored: {reason}")
        logger.info(f"scored {len(videos)} videos in {time.monotonic() - began:.2f} s")
        return checked, reasons

    def _refuse_if_stopping(self) -> None:
        if self._stopping:
            raise Refusal(503, "the server stops")


def _check_features(name: str, scores: list[Progress | None]) -> None:
    for index, item in enumerate(scores):
        if item is not None and item.features is not None and np.ndim(item.features) != 1:
            raise ProgressModelError(
                f"{name}.score returned features of shape {list(np.shape(item.features))} for video {index}; they are "
                "one row of numbers [d]"
            )
