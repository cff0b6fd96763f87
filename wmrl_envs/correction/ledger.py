"""What was executed and predicted, and what it cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wmrl_envs.correction._arrays import check_integer, float_vector, known
from wmrl_envs.correction._state import State, restore

__all__ = ["Ledger"]

_COUNTS = (
    "executions",
    "failed_executions",
    "warmup_executions",
    "failed_warmup_executions",
    "repeated_executions",
    "predictions",
)
_SECONDS = ("execution_seconds", "prediction_seconds", "warmup_seconds", "repeated_seconds")


class Ledger:
    """Counts executions and predictions and adds up their seconds, with and without an execution cache.

    Every execution is charged, a repeated one too. Beside that the ledger knows what a cache would have saved, in which
    executing the same solution of the same task again is free: it keeps a hash per solution, never the solution.
    """

    def __init__(self) -> None:
        self.executions = 0
        """Executions, warm-up and failed ones included."""
        self.failed_executions = 0
        """Executions of which nothing came back, so that their seconds are unknown and not added."""
        self.warmup_executions = 0
        """Those of the executions that the world model was first fitted on."""
        self.failed_warmup_executions = 0
        """Those of the failed executions that belong to the warm-up."""
        self.repeated_executions = 0
        """Those of the executions that had been made before, which a cache would have answered."""
        self.predictions = 0
        """Predictions made."""
        self.execution_seconds = 0.0
        """Seconds of all executions."""
        self.prediction_seconds = 0.0
        """Seconds of all predictions."""
        self.warmup_seconds = 0.0
        """Those of the execution seconds that the warm-up took."""
        self.repeated_seconds = 0.0
        """Those of the execution seconds that a cache would have saved."""
        self._seen: set[int] = set()

    def execute(
        self, seconds: ArrayLike, keys: Sequence[str | tuple[str, ...]] | None = None, *, warmup: bool = False
    ) -> None:
        """Charge executions.

        Args:
            seconds: What each took, [n]; ``None`` or NaN for one that failed, of which nothing is known.
            keys: What was executed, such as (task id, code), [n], to tell repeats; ``None`` counts none of them as one.
            warmup: Whether the world model was fitted on these before training.

        Raises:
            ValueError: If the lengths differ, or a number of seconds is negative or infinite.
        """
        spent = float_vector("seconds", seconds)
        answered = known(spent)
        if (spent < 0.0).any():
            raise ValueError(f"seconds must be at least 0, got {spent.min()}")
        if keys is not None and len(keys) != len(spent):
            raise ValueError(f"keys must name each execution, got {len(keys)} for {len(spent)}")
        total = math.fsum(spent[answered].tolist())
        self.executions += len(spent)
        failed = len(spent) - int(answered.sum())
        self.failed_executions += failed
        self.execution_seconds += total
        if warmup:
            self.warmup_executions += len(spent)
            self.failed_warmup_executions += failed
            self.warmup_seconds += total
        if keys is not None:
            self._count_repeats(np.where(answered, spent, -1.0).tolist(), keys)

    def _count_repeats(self, spent: list[float], keys: Sequence[str | tuple[str, ...]]) -> None:
        for seconds, key in zip(spent, keys, strict=True):
            if seconds < 0.0:
                continue  # it failed: a cache would have had nothing to keep
            digest = _digest(key)
            if digest in self._seen:
                self.repeated_executions += 1
                self.repeated_seconds += seconds
            else:
                self._seen.add(digest)

    def predict(self, n: int, seconds: float) -> None:
        """Charge ``n`` predictions that took ``seconds`` together.

        Raises:
            ConfigurationError: If n is negative or no whole number.
            ValueError: If the seconds are negative or no finite number.
        """
        n = check_integer("n", n, 0)
        if not (math.isfinite(seconds) and seconds >= 0.0):
            raise ValueError(f"seconds must be at least 0 and finite, got {seconds}")
        self.predictions += n
        self.prediction_seconds += float(seconds)

    @property
    def seconds(self) -> float:
        """Seconds spent in all: every execution, the warm-up's included, and every prediction."""
        return self.execution_seconds + self.prediction_seconds

    @property
    def cached_executions(self) -> int:
        """Executions that a cache would have left."""
        return self.executions - self.repeated_executions

    @property
    def cached_seconds(self) -> float:
        """Seconds spent in all, had a repeated execution been free."""
        return self.seconds - self.repeated_seconds

    @property
    def mean_execution_seconds(self) -> float | None:
        """Mean seconds of a training execution (of the warm-up's, while there is no other); ``None`` before any."""
        warmup = self.warmup_executions - self.failed_warmup_executions
        count = self.executions - self.failed_executions - warmup
        seconds = self.execution_seconds - self.warmup_seconds
        if count == 0:
            count, seconds = warmup, self.warmup_seconds
        return seconds / count if count > 0 else None

    @property
    def full_seconds(self) -> float | None:
        """Estimated seconds of executing everything: the mean execution times the attempts made; ``None`` if unknown.

        An attempt is what was predicted; without a world model it is what was executed.
        """
        mean = self.mean_execution_seconds
        attempts = max(self.predictions, self.executions - self.warmup_executions)
        return None if mean is None or attempts == 0 else mean * attempts

    @property
    def cost_ratio(self) -> float | None:
        """Seconds spent over the estimated seconds of executing everything; ``None`` while that is unknown or 0."""
        full = self.full_seconds
        return self.seconds / full if full else None

    @property
    def cached_cost_ratio(self) -> float | None:
        """Seconds spent with a cache over those of executing everything *without* one; ``None`` if unknown or 0."""
        full = self.full_seconds
        return self.cached_seconds / full if full else None

    def summary(self) -> dict[str, float | int | None]:
        """Return every count and number of seconds by name, for logs and tables."""
        names = (*_COUNTS, "cached_executions", *_SECONDS, "seconds", "cached_seconds")
        ratios = ("mean_execution_seconds", "full_seconds", "cost_ratio", "cached_cost_ratio")
        return {name: getattr(self, name) for name in (*names, *ratios)}

    def state_dict(self) -> State:
        """Return the counts, seconds and hashes as a dict that JSON carries exactly."""
        return {
            "kind": type(self).__name__,
            "settings": {},
            "counts": {name: getattr(self, name) for name in _COUNTS},
            "seconds": {name: getattr(self, name) for name in _SECONDS},
            "seen": sorted(f"{digest:016x}" for digest in self._seen),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` returned.

        Raises:
            CheckpointError: If the state is damaged.
        """

        def apply() -> None:
            values: dict[str, Any] = {name: int(state["counts"][name]) for name in _COUNTS}
            values |= {name: float(state["seconds"][name]) for name in _SECONDS}
            values["_seen"] = {int(digest, 16) for digest in state["seen"]}
            vars(self).update(values)

        restore(self, state, {}, apply)


@lru_cache(maxsize=8192)  # a policy that has settled attempts the same solutions again and again
def _digest(key: str | tuple[str, ...]) -> int:
    """Return 64 bits of a key's hash; the length before each part keeps ("a", "b") apart from ("ab",)."""
    parts = (key,) if isinstance(key, str) else key
    digest = blake2b(digest_size=8)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return int.from_bytes(digest.digest(), "little")
