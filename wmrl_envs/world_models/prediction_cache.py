"""What a language model answered, remembered on disk by the content of what it was asked."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wmrl_envs.errors import MissingExtraError
from wmrl_envs.world_models.warmup import default_cache_dir

__all__ = ["PredictionCache", "content_key"]

_LOG = logging.getLogger(__name__)
_SIZE = 2**30
"""Bytes on disk after which the answers that were stored first make room."""


def content_key(*parts: Any) -> str:
    """Return a hash of JSON-able content."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class PredictionCache:
    """JSON-able answers by content hash, in one folder for all processes of a user.

    The key holds everything that an answer depends on, so that nothing in it is out of date; of a model behind a server
    no more is known than its address and name: who serves other weights under the same name goes on with
    ``cache=False`` or another folder. A folder that cannot be used costs one warning, and the time of asking again.

    Args:
        folder: Folder for it; None is ``$XDG_CACHE_HOME/wmrl-envs`` (by default ``~/.cache/wmrl-envs``).

    Raises:
        MissingExtraError: If diskcache is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = (default_cache_dir() if folder is None else Path(folder)) / "language-model"
        self._store: Any = None
        try:
            import diskcache
        except ImportError as error:
            raise MissingExtraError(
                "the cache of predictions needs diskcache: pip install 'wmrl-envs[llm]', or pass cache=False"
            ) from error
        self._errors = (OSError, sqlite3.Error, diskcache.Timeout, zlib.error, ValueError, TypeError, KeyError)
        try:
            # Values are JSON: the library's default would unpickle whatever lies in the folder.
            self._store = diskcache.Cache(
                str(self.folder), disk=diskcache.JSONDisk, size_limit=_SIZE, eviction_policy="least-recently-stored"
            )
        except self._errors as error:
            self._give_up(error)

    def get(self, keys: Sequence[str]) -> list[Any]:
        """Return the answer stored under each key, None where there is none."""
        found: list[Any] = [None] * len(keys)
        for index, key in enumerate(keys):
            if self._store is None:
                break
            try:
                found[index] = self._store.get(key)
            except self._errors as error:
                self._give_up(error)
        return found

    def put(self, answers: Mapping[str, Any]) -> None:
        """Store answers by key."""
        if self._store is None or not answers:
            return
        try:
            with self._store.transact():
                for key, answer in answers.items():
                    self._store.set(key, answer)
        except self._errors as error:
            self._give_up(error)

    def close(self) -> None:
        """Close the files; what is asked for later is not found."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _give_up(self, error: Exception) -> None:
        self._store = None
        _LOG.warning(
            "going on without the cache of predictions in %s: %s: %s. Pass cache_dir= or set XDG_CACHE_HOME to a "
            "folder that can be written, or remove this one if it is damaged",
            self.folder,
            type(error).__name__,
            error,
        )
