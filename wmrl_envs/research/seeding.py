"""Random numbers of an episode: which task, and the seed of each solution that is executed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DRAWS_PER_EPISODE", "draw_episode", "generator_from_state", "generator_state", "submission_seeds"]

DRAWS_PER_EPISODE = 3
_BITS = 53  # exact in a float64 too, so that an id survives any array that it is put into


def draw_episode(generator: np.random.Generator) -> NDArray[np.int64]:
    """Return the numbers that fix an episode: group id, key of its submission seeds, choice of the task.

    A slot draws all three at each reset, also where its group's first slot or the caller decides in its place, so that
    the streams of single and batched environments stay aligned.

    Returns:
        int64 [3], each in [0, 2**53).
    """
    raw = generator.bit_generator.random_raw(DRAWS_PER_EPISODE)
    return (np.asarray(raw, dtype=np.uint64) >> np.uint64(64 - _BITS)).astype(np.int64)


def submission_seeds(keys: NDArray[np.uint64], turns: NDArray[np.int64]) -> list[int]:
    """Return one seed in [0, 2**32) per submission, fixed by the episode's key and the turn (splitmix64's finaliser).

    Args:
        keys: uint64 [n], the episodes' keys.
        turns: int64 [n], turns already taken, from 0.
    """
    z = keys + (turns.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    seeds: list[int] = ((z ^ (z >> np.uint64(31))) >> np.uint64(32)).tolist()
    return seeds


def generator_state(generator: np.random.Generator) -> dict[str, Any]:
    """Return a generator's state as JSON-able data (numpy's integers, arbitrarily large, stay exact)."""
    return dict(generator.bit_generator.state)


def generator_from_state(state: dict[str, Any]) -> np.random.Generator:
    """Return the generator whose state ``generator_state`` gave."""
    generator = np.random.Generator(getattr(np.random, state["bit_generator"])())
    generator.bit_generator.state = state
    return generator
