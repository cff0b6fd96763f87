"""Instructions as numbers, for agents that take no text, such as stable-baselines3's MultiInputPolicy.

- ``InstructionEncoding`` - replaces the instruction of an observation by a vector.
- ``VectorInstructionEncoding`` - its twin for vector environments.
- ``encode_instruction`` - a sentence as a vector, without a model that would have to be fetched.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, did_you_mean

__all__ = ["InstructionEncoding", "VectorInstructionEncoding", "encode_instruction"]

KEY = "instruction"
DEFAULT_SIZE = 64


def encode_instruction(instruction: str, size: int = DEFAULT_SIZE) -> NDArray[np.float32]:
    """Return a sentence as a vector of length 1: its words and pairs of neighbouring words, hashed with signs.

    The same sentence gives the same vector in every process and on every machine; sentences that share words are
    close to each other. Upper and lower case and punctuation count for nothing (feature hashing, arXiv 0902.2206).

    Args:
        instruction: What the robot is told to do, such as "open the drawer".
        size: Numbers in the vector.

    Returns:
        float32 [size] in [-1, 1].

    Raises:
        ConfigurationError: If the instruction is no text or has no word.
    """
    if not isinstance(instruction, str):
        raise ConfigurationError(f"an instruction is a sentence, got {instruction!r}")
    return _hashed(instruction, size).copy()


class InstructionEncoding(
    gym.ObservationWrapper[dict[str, Any], Any, dict[str, Any]],
    RecordConstructorArgs,
):
    """Replaces the text ``instruction`` in a Dict observation by a float32 vector; the other keys stay as they are.

    Wrap it around the others: what reads the instruction as text, such as a progress model, must lie inside. For
    vector environments there is ``VectorInstructionEncoding``.

    Example:
        >>> import gymnasium as gym, numpy as np
        >>> class Told(gym.Env):
        ...     observation_space = gym.spaces.Dict(instruction=gym.spaces.Text(40), state=gym.spaces.Box(-1, 1, (2,)))
        ...     action_space = gym.spaces.Discrete(2)
        ...     def reset(self, *, seed=None, options=None):
        ...         return {"instruction": "open the drawer", "state": np.zeros(2, np.float32)}, {}
        >>> env = InstructionEncoding(Told(), instructions=["close the drawer", "open the drawer"])
        >>> env.reset()[0]["instruction"]
        array([0., 1.], dtype=float32)
    """

    def __init__(
        self,
        env: gym.Env[dict[str, Any], Any],
        *,
        size: int | None = None,
        instructions: Sequence[str] | None = None,
    ) -> None:
        """Wrap an environment.

        Args:
            env: Its observation space is a Dict with a Text ``instruction``.
            size: Numbers that ``encode_instruction`` makes of a sentence; 64 by default.
            instructions: All instructions that there are: each gets a number of its own (one-hot), and any other is
                an error. Not together with ``size``.

        Raises:
            ConfigurationError: If the observation has no instruction, or the settings cannot work.
        """
        RecordConstructorArgs.__init__(self, size=size, instructions=instructions)
        gym.ObservationWrapper.__init__(self, env)
        self._encoding = _Encoding(size, instructions)
        self.observation_space = self._encoding.space(env.observation_space)

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Return the observation with a vector float32 [size] in place of the instruction."""
        return self._encoding.observation(observation)


class VectorInstructionEncoding(VectorWrapper[Any, Any, Any, Any, Any], RecordConstructorArgs):
    """Replaces the ``instruction`` of every slot by a float32 vector; see ``InstructionEncoding``.

    Every autoreset mode is served: the last observations of finished episodes are encoded too.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        *,
        size: int | None = None,
        instructions: Sequence[str] | None = None,
    ) -> None:
        """Wrap a vector environment; arguments and errors as in ``InstructionEncoding``."""
        RecordConstructorArgs.__init__(self, size=size, instructions=instructions)
        VectorWrapper.__init__(self, env)
        self._encoding = _Encoding(size, instructions)
        self.single_observation_space = self._encoding.space(env.single_observation_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Reset, and return the observations with float32 [n, size] in place of the instructions."""
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]  # lists are fine
        return self._encoding.observations(observations), infos

    def step(self, actions: Any) -> tuple[dict[str, Any], Any, Any, Any, dict[str, Any]]:
        """Step, and return the observations with float32 [n, size] in place of the instructions."""
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        if "final_obs" in infos:
            last = infos["final_obs"].copy()
            for slot in np.flatnonzero(infos["_final_obs"]):
                last[slot] = self._encoding.observation(last[slot])
            infos = infos | {"final_obs": last}
        return self._encoding.observations(observations), rewards, terminations, truncations, infos


class _Encoding:
    """What both wrappers do with an instruction."""

    def __init__(self, size: int | None, instructions: Sequence[str] | None) -> None:
        if size is not None and instructions is not None:
            raise ConfigurationError(
                "give size (hashed words) or instructions (a number for each), not both: "
                f"{len(instructions)} instructions make a vector of {len(instructions)}"
            )
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            raise ConfigurationError(f"size must be a whole number of at least 1, got {size!r}")
        self._numbers = None if instructions is None else _numbered(instructions)
        self._size = len(self._numbers) if self._numbers is not None else size or DEFAULT_SIZE

    def space(self, observations: spaces.Space[Any]) -> spaces.Dict:
        """Return a single environment's observation space with the vector in place of the text."""
        if not isinstance(observations, spaces.Dict) or not isinstance(observations.get(KEY), spaces.Text):
            raise ConfigurationError(
                f"InstructionEncoding needs a Dict observation with a Text under {KEY!r}, got {observations}"
            )
        lowest = -1.0 if self._numbers is None else 0.0
        return spaces.Dict({**observations.spaces, KEY: spaces.Box(lowest, 1.0, (self._size,), np.float32)})

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        return observation | {KEY: self._vector(observation[KEY])}

    def observations(self, observations: dict[str, Any]) -> dict[str, Any]:
        return observations | {KEY: np.stack([self._vector(instruction) for instruction in observations[KEY]])}

    def _vector(self, instruction: str) -> NDArray[np.float32]:
        if self._numbers is None:
            return encode_instruction(instruction, self._size)
        if instruction not in self._numbers:
            raise ConfigurationError(
                f"unknown instruction {instruction!r}.{did_you_mean(str(instruction), self._numbers)} "
                f"Known: {', '.join(self._numbers)}"
            )
        vector = np.zeros(self._size, np.float32)
        vector[self._numbers[instruction]] = 1.0
        return vector


def _numbered(instructions: Sequence[str]) -> dict[str, int]:
    wrong = [text for text in instructions if not isinstance(text, str) or not text.strip()]
    if isinstance(instructions, str) or wrong or not instructions:
        found = instructions if isinstance(instructions, str) else list(instructions)
        raise ConfigurationError(f"instructions must be a list of sentences, got {found!r}")
    numbers = {text: number for number, text in enumerate(instructions)}
    if len(numbers) < len(instructions):
        twice = next(text for number, text in enumerate(instructions) if numbers[text] != number)
        raise ConfigurationError(f"the instruction {twice!r} stands twice in instructions")
    return numbers


@lru_cache(maxsize=1024)
def _hashed(instruction: str, size: int) -> NDArray[np.float32]:
    words = re.findall(r"\w+", instruction.casefold())
    if not words:
        raise ConfigurationError(
            f"the instruction {instruction!r} has no word; say what the robot is to do, such as 'open the drawer'"
        )
    vector = np.zeros(size, np.float32)
    for feature in [*words, *(" ".join(pair) for pair in zip(words, words[1:], strict=False))]:
        digest = int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest(), "big")
        vector[(digest >> 1) % size] += 1.0 if digest & 1 else -1.0
    length = float(np.linalg.norm(vector))
    return vector / max(length, 1e-9)
