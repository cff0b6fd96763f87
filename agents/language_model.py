"""A language model as an agent of `wmrl/Research-v0`: it reads the task, replies with code, and reads what happened.

Where the model runs is the backend's part (`wmrl_envs.world_models.backends`): in this process, in an engine, or behind
a server. What it reads of the turns before is `wmrl_envs.agents.history`'s.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypedDict, cast

import numpy as np

from wmrl_envs.agents.history import Turn, check_room, fit_conversation, split_thinking
from wmrl_envs.errors import ConfigurationError, WorldModelError
from wmrl_envs.world_models.backends.protocol import Backend, Generation, Message
from wmrl_envs.world_models.backends.registry import resolve_backend

__all__ = ["SYSTEM", "LanguageModelAgent", "SlotState", "Usage"]

SYSTEM = """\
You are an expert in machine learning who solves tasks by writing Python.

Reply with one complete program in one ```python fence, after a sentence or two of reasoning. The program runs by \
itself, from its first line to its last: import what you use, read the files from input/, and write the file that the \
task asks for. Your program is run after each reply and you read what the terminal showed. Mend what failed; if the \
submission was valid, try to improve its score. Every reply holds the whole program, and your best attempt counts.
"""
"""The system prompt unless another is given."""


class SlotState(TypedDict):
    """What the agent remembers of one episode, JSON-able."""

    episode: int
    """Number of the episode among those that the agent began."""
    turns: list[Turn]


@dataclass(slots=True)
class Usage:
    """What an agent's replies took, counted since it was made."""

    prompt_tokens: int = 0
    """Tokens read; what a server or a cache reads again for free counts as well."""
    completion_tokens: int = 0
    """Tokens written, thinking included."""
    replies: int = 0
    """Replies that were had."""
    cut_replies: int = 0
    """Of these, how many reached ``max_tokens``."""
    failed_replies: int = 0
    """Replies that could not be had."""


class LanguageModelAgent:
    """Plays the text environments with a chat model, single and vector ones, by stable-baselines3's ``predict``.

    The state that ``predict`` takes and returns is a list with the turns of each episode, JSON-able, so that an episode
    can be put away and taken up again. An episode begins where ``turn`` is 0 or ``episode_start`` says so.

    A reply that could not be had is an empty one, and its turn is marked ``failed`` in the state: what an environment
    makes of it says nothing about the agent. `failed` tells the episodes with such a turn.

    With autoreset mode ``NEXT_STEP`` a vector environment ignores the replies of one step in an episode, which cost as
    much as any: prefer ``SAME_STEP`` or ``DISABLED``.

    Example:
        >>> import gymnasium as gym, wmrl_envs
        >>> from wmrl_envs.agents.language_model import LanguageModelAgent
        >>> agent = LanguageModelAgent("openai:http://localhost:8000/v1#Qwen/Qwen3-4B")  # doctest: +SKIP
        >>> env = gym.make("wmrl/Research-v0", tasks="titanic")  # doctest: +SKIP
        >>> observation, _ = env.reset(seed=0)  # doctest: +SKIP
        >>> reply, state = agent.predict(observation)  # doctest: +SKIP
        >>> observation, *_ = env.step(reply)  # doctest: +SKIP
        >>> reply, state = agent.predict(observation, state)  # doctest: +SKIP
    """

    def __init__(
        self,
        model: str | Backend,
        *,
        model_kwargs: Mapping[str, Any] | None = None,
        max_tokens: int = 1024,
        context_tokens: int = 8192,
        temperature: float = 0.7,
        system: str | Path | None = None,
        seed: int = 0,
    ) -> None:
        """Make the agent.

        Args:
            model: ``"transformers:PATH"``, ``"vllm:PATH"``, ``"openai:URL#MODEL"``, or a backend.
            model_kwargs: Arguments for a backend given by name.
            max_tokens: Longest reply, in tokens, thinking included.
            context_tokens: Longest chat with its reply, in tokens; what is beyond is left out, oldest turns first. At
                most what the model reads.
            temperature: Of the sampling; 0 always takes the most probable token.
            system: System prompt, or the `pathlib.Path` of a file that holds it; ``None`` is `SYSTEM`, and an empty
                text sends none.
            seed: Seeds the sampling.

        Raises:
            ConfigurationError: If an argument cannot work.
            MissingExtraError: If what the backend needs is not installed.
        """
        for name, value in (("max_tokens", max_tokens), ("context_tokens", context_tokens)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigurationError(f"{name} must be a whole number of at least 1, got {value!r}")
        if context_tokens <= max_tokens:
            raise ConfigurationError(
                f"context_tokens={context_tokens} must be more than max_tokens={max_tokens}: it holds the chat and the "
                "reply"
            )
        if not 0 <= temperature < float("inf"):
            raise ConfigurationError(f"temperature must be a finite number of at least 0, got {temperature!r}")
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise ConfigurationError(f"seed must be a whole number of at least 0, got {seed!r}")
        self.max_tokens, self.context_tokens, self.temperature = max_tokens, context_tokens, float(temperature)
        self.system, self.seed = _system_prompt(system), int(seed)
        self.usage = Usage()
        self.backend = resolve_backend(model, **(model_kwargs or {}))
        self._owned = isinstance(model, str)
        self._numbers = itertools.count()
        self._fitting: set[str] = set()

    def predict(
        self,
        observation: Mapping[str, Any],
        state: Sequence[SlotState] | None = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, list[SlotState]]:
        """Return the replies to observations, and what to remember.

        Args:
            observation: Of `wmrl/Research-v0`, single or batched: ``task``, ``feedback`` and ``turn``.
            state: What the last call returned; ``None`` where there was none.
            episode_start: Whether each episode begins here, bool [n] or one bool; ``None`` reads it off ``turn``.
            deterministic: Take the most probable tokens, whatever the temperature.

        Returns:
            A string for a single observation, a tuple of n strings for a batched one, and the state: a list with one
            `SlotState` per episode. What was passed in is left as it was.

        Raises:
            ConfigurationError: If the observation is of another environment, the state does not belong to it, or the
                task does not fit into ``context_tokens``.
            WorldModelError: If the model cannot be reached, or not a single reply could be had.
        """
        tasks, feedback, numbers, single = _unpacked(observation)
        starts = np.broadcast_to(np.asarray(False if episode_start is None else episode_start, dtype=bool), len(tasks))
        if state is not None and len(state) != len(tasks):
            raise ConfigurationError(
                f"the state is of {len(state)} episodes and the observation of {len(tasks)}; pass what the last "
                "predict returned, or None"
            )
        slots = [
            self._seen(None if state is None or start else state[index], number, shown)
            for index, (number, shown, start) in enumerate(zip(numbers, feedback, starts.tolist(), strict=True))
        ]
        turns = self._replies(tasks, slots, temperature=0.0 if deterministic else self.temperature)
        for slot, turn in zip(slots, turns, strict=True):
            slot["turns"].append(turn)
        replies = tuple(turn["reply"] or "" for turn in turns)
        return (replies[0] if single else replies), slots

    @staticmethod
    def failed(state: Sequence[SlotState]) -> list[bool]:
        """Return for each episode whether any of its replies could not be had."""
        return [any(turn["failed"] for turn in slot["turns"]) for slot in state]

    def close(self) -> None:
        """Close the backend, if it was given by name."""
        if self._owned:
            self.backend.close()

    def __enter__(self) -> LanguageModelAgent:
        """Return the agent; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _seen(self, slot: SlotState | None, number: int, feedback: str) -> SlotState:
        """Return a copy of an episode's memory in which the last turn's feedback stands, or a new episode's."""
        if slot is None or number == 0:
            slot = {"episode": next(self._numbers), "turns": []}
            if number == 0:
                return slot
        turns = [cast(Turn, dict(turn)) for turn in slot["turns"]]
        if not turns:  # somebody else took the turns so far
            turns.append(_turn(None))
        if not turns[-1]["failed"]:
            turns[-1]["feedback"] = feedback
        return {"episode": slot["episode"], "turns": turns}

    def _replies(self, tasks: Sequence[str], slots: Sequence[SlotState], temperature: float) -> list[Turn]:
        chats = [self._chat(task, slot["turns"]) for task, slot in zip(tasks, slots, strict=True)]
        found: list[Generation | None] = [None] * len(chats)
        for alike in _by_count(chats):
            # Equal chats are one chat with several samples: it is read once, and its samples differ.
            first = slots[alike[0][0]]
            answers = self.backend.generate(
                [chats[indices[0]] for indices in alike],
                samples=len(alike[0]),
                max_tokens=self.max_tokens,
                temperature=temperature,
                seed=_seed(self.seed, first["episode"], len(first["turns"])),
            )
            for indices, samples in zip(alike, answers, strict=True):
                for index, sample in zip(indices, samples, strict=True):
                    found[index] = sample
        self._count(found)
        if found and all(generation is None for generation in found):
            raise WorldModelError(
                f"{self.backend.identity} gave none of {len(found)} replies: it is away or too slow, or it reads fewer "
                f"than context_tokens={self.context_tokens}"
            )
        return [_turn(generation, failed=generation is None) for generation in found]

    def _chat(self, task: str, turns: Sequence[Turn]) -> list[Message]:
        if task not in self._fitting:
            check_room(
                self.system,
                task,
                context_tokens=self.context_tokens,
                max_tokens=self.max_tokens,
                count=self.backend.count_tokens,
            )
            self._fitting.add(task)
        budget = self.context_tokens - self.max_tokens
        return fit_conversation(self.system, task, turns, budget=budget, count=self.backend.count_tokens)

    def _count(self, generations: Sequence[Generation | None]) -> None:
        for generation in generations:
            if generation is None:
                self.usage.failed_replies += 1
                continue
            self.usage.replies += 1
            self.usage.cut_replies += not generation.complete
            self.usage.prompt_tokens += generation.prompt_tokens
            self.usage.completion_tokens += generation.completion_tokens


def _system_prompt(system: str | Path | None) -> str:
    if not isinstance(system, Path):
        return SYSTEM if system is None else system
    try:
        return system.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the system prompt in {system}: {error}") from error


def _unpacked(observation: Mapping[str, Any]) -> tuple[list[str], list[str], list[int], bool]:
    """Return tasks, feedback and turns of n episodes, and whether the observation is a single one's."""
    if not isinstance(observation, Mapping) or not {"task", "feedback", "turn"} <= observation.keys():
        raise ConfigurationError(
            "a language model plays the text environments, such as wmrl/Research-v0, whose observations hold task, "
            f"feedback and turn; got {sorted(observation) if isinstance(observation, Mapping) else type(observation)}"
        )
    if isinstance(observation["task"], str):
        return [observation["task"]], [observation["feedback"]], [int(observation["turn"])], True
    numbers = np.asarray(observation["turn"]).reshape(-1).tolist()
    return list(observation["task"]), list(observation["feedback"]), numbers, False


def _by_count(chats: Sequence[Sequence[Message]]) -> list[list[list[int]]]:
    """Return the indices of equal chats together, and such groups of one size together: [call][chat][sample]."""
    alike: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for index, chat in enumerate(chats):
        alike.setdefault(tuple((message["role"], message["content"]) for message in chat), []).append(index)
    calls: dict[int, list[list[int]]] = {}
    for indices in alike.values():
        calls.setdefault(len(indices), []).append(indices)
    return list(calls.values())


def _seed(seed: int, episode: int, turn: int) -> int:
    """Return a seed below 2**31 that belongs to one turn of one episode."""
    return int(np.random.SeedSequence((seed, episode, turn)).generate_state(1)[0] >> 1)


def _turn(generation: Generation | None, *, failed: bool = False) -> Turn:
    thinking, reply = ("", None) if generation is None else split_thinking(generation.text)
    return {
        "reply": reply,
        "thinking": thinking,
        "feedback": None,
        "failed": failed,
        "complete": True if generation is None else generation.complete,
        "prompt_tokens": 0 if generation is None else generation.prompt_tokens,
        "completion_tokens": 0 if generation is None else generation.completion_tokens,
    }
