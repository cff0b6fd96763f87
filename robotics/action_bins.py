"""Actions as whole numbers, for models that write them as tokens: OpenVLA's convention (arXiv 2406.09246).

- ``ActionStatistics`` - the range of a data set's actions, to and from [-1, 1].
- ``ActionBins`` - numbers in [-1, 1] to and from bins.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, did_you_mean
from wmrl_envs.files import write_json

__all__ = ["STATISTICS_FILE", "ActionBins", "ActionStatistics"]

STATISTICS_FILE = "dataset_statistics.json"
_FORM = '{"NAME": {"action": {"q01": [...], "q99": [...], "mask": [...]}}}'
_TOP = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class ActionStatistics:
    """The range in which a data set's actions lie, all arrays [d]."""

    q01: NDArray[np.float64]
    """Their 1st percentile, in the units of the environment's actions; it becomes -1."""
    q99: NDArray[np.float64]
    """Their 99th percentile; it becomes 1."""
    mask: NDArray[np.bool_]
    """Which dimensions are so scaled; the others, such as a gripper's, are in [-1, 1] already."""
    dataset: str = "actions"

    def __post_init__(self) -> None:
        shapes = {np.shape(values) for values in (self.q01, self.q99, self.mask)}
        if len(shapes) != 1 or len(shapes.pop()) != 1 or np.size(self.q01) == 0:
            raise ConfigurationError(
                f"the action statistics of {self.dataset!r} have {np.size(self.q01)} q01, {np.size(self.q99)} q99 and "
                f"{np.size(self.mask)} mask; each is a list with one entry per action dimension"
            )
        wrong = ~(np.isfinite(self.q01) & np.isfinite(self.q99) & (self.q01 <= self.q99))
        if wrong.any():
            raise ConfigurationError(
                f"the action statistics of {self.dataset!r} have no range in the dimensions "
                f"{np.flatnonzero(wrong).tolist()}: q01 must be a finite number no larger than q99"
            )

    @classmethod
    def load(cls, folder: Path, dataset: str | None = None) -> ActionStatistics:
        """Read ``dataset_statistics.json`` beside a checkpoint.

        Args:
            folder: The checkpoint's.
            dataset: Whose statistics; ``None`` takes the only ones.

        Raises:
            ConfigurationError: If they are missing, damaged, or of several data sets of which none was named.
        """
        path = folder / STATISTICS_FILE
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ConfigurationError(
                f"{path} is missing: without it nobody knows the range of the model's actions; write one as {_FORM}"
            ) from error
        except ValueError as error:
            raise ConfigurationError(f"{path} is no JSON ({error}); write it as {_FORM}") from error
        name = _chosen(path, known, dataset)
        try:
            action = known[name]["action"]
            q01, q99 = (np.asarray(action[key], dtype=np.float64) for key in ("q01", "q99"))
            mask = np.asarray(action.get("mask", np.ones(q01.shape)), dtype=np.bool_)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(f"{path} does not read as {_FORM} for {name!r}: {error!r}") from error
        return cls(q01, q99, mask, name)

    def save(self, folder: Path) -> None:
        """Write ``dataset_statistics.json`` into a folder."""
        action = {"q01": self.q01.tolist(), "q99": self.q99.tolist(), "mask": self.mask.tolist()}
        write_json(folder / STATISTICS_FILE, {self.dataset: {"action": action}})

    @property
    def size(self) -> int:
        """How many dimensions an action has, d."""
        return len(self.q01)

    @property
    def constant(self) -> list[int]:
        """The dimensions in which every action of the data set was the same."""
        return np.flatnonzero(self.mask & (self.q01 == self.q99)).tolist()

    def normalise(self, actions: NDArray[Any]) -> NDArray[np.float64]:
        """Scale actions [..., d] from the environment's units to [-1, 1]; those beyond the range lie beyond 1."""
        width = np.where(self.q99 > self.q01, self.q99 - self.q01, 1.0)
        return np.where(self.mask, 2.0 * (actions - self.q01) / width - 1.0, actions)

    def unnormalise(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Scale [..., d] from [-1, 1] to the environment's units."""
        return np.where(self.mask, 0.5 * (values + 1.0) * (self.q99 - self.q01) + self.q01, values)


@dataclass(frozen=True, slots=True)
class ActionBins:
    """Numbers in [-1, 1] as bins 0 to ``count`` - 1.

    ``count`` edges lie evenly from -1 to 1, and a number's bin is how many of them it reaches, less one. So the last
    bin holds 1 alone: it stands for 1, and every other one for its middle.
    """

    count: int = 256
    values: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    """[count] what each bin stands for."""

    def __post_init__(self) -> None:
        if self.count < 2:
            raise ConfigurationError(f"actions cannot be told apart in {self.count} bins; take at least 2, such as 256")
        edges = np.linspace(-1.0, 1.0, self.count)
        object.__setattr__(self, "values", np.append((edges[:-1] + edges[1:]) / 2, 1.0))

    def encode(self, numbers: NDArray[Any]) -> NDArray[np.int64]:
        """Return the bin of each number; those beyond [-1, 1] count as its ends."""
        reached = np.clip((numbers + 1.0) * (self.count - 1) / 2, 0, self.count - 1)
        # Rounding to float32 must not carry an exact 1, such as an open gripper's, into the bin below.
        top = numbers >= 1.0 - _TOP
        return np.where(top, self.count - 1, np.minimum(np.floor(reached), self.count - 2)).astype(np.int64)

    def decode(self, bins: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Return the number that each bin stands for, in [-1, 1]."""
        return np.asarray(self.values[bins])


def _chosen(path: Path, known: Any, dataset: str | None) -> str:
    if not isinstance(known, dict) or not known:
        raise ConfigurationError(f"{path} holds no statistics; write it as {_FORM}")
    if dataset is None and len(known) > 1:
        raise ConfigurationError(f"{path} has statistics of {sorted(known)}; say which with dataset=")
    name = next(iter(known)) if dataset is None else dataset
    if name not in known:
        raise ConfigurationError(
            f"{path} has no statistics of {name!r}, only of {sorted(known)}.{did_you_mean(name, known)}"
        )
    return str(name)
