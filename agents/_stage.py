"""The environment of a distributed run: it lives in the first process, and all processes play in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.agents._outcomes import status_shares
from wmrl_envs.correction import stream_advantages
from wmrl_envs.errors import CheckpointError
from wmrl_envs.wrappers._turn import GradedTurn

__all__ = ["Judgement", "SharedStage"]

T = TypeVar("T")
Judgement = tuple[list[float], list[bool], list[float]]
"""Of each slot: its advantage, whether it takes part in the loss, and its corrected return."""

_REWARDS = ("predicted_reward", "calibrated_reward", "real_reward", "corrected_return")
_TOTALS = (
    "executions",
    "failed_executions",
    "predictions",
    "unreadable",
    "execution_seconds",
    "prediction_seconds",
    "cost_ratio",
    "pairs",
    "lambda",
    "weight",
)


class SharedStage:
    """Plays the slots of every process in one environment, so that groups, anchors and correction are the run's.

    The slots are numbered process by process. What the environment raises is raised in all processes.

    Attributes:
        turns: Turns of every episode.
        metrics: Numbers of the last episodes for a log; only in the first process.
        totals: Numbers of the whole run so far, likewise.
        streams: ``info["wmrl"]`` of the last episodes at their end, likewise.
        outcomes: Those that the agents were shown in their turns, likewise.
        turns_taken: Of each of their turns the replies, and what was submitted and graded, likewise.
    """

    def __init__(self, env: Any, *, turns: int, seed: int, processes: int, rank: int) -> None:
        """Take an environment.

        Args:
            env: The wrapped vector environment, which never resets by itself; ``None`` except in the first process.
            turns: Turns of its episodes.
            seed: Seeds the episodes, once.
            processes: Number of processes.
            rank: This one's.
        """
        self.env, self.turns = env, turns
        self.metrics: dict[str, float] = {}
        self.totals: dict[str, float] = {}
        self._seed, self._processes, self._rank = seed, processes, rank
        self._begun = False
        self._progress: Callable[[], float] = lambda: 0.0
        self._own = slice(0, None)
        self.outcomes: list[Any] = []
        self.streams: dict[str, NDArray[Any]] = {}
        self.turns_taken: list[tuple[list[str], GradedTurn]] = []

    def expect(self, slots: int, progress: Callable[[], float]) -> None:
        """Say how many slots this process plays, and how to ask how far training has come, in [0, 1]."""
        self._own = slice(self._rank * slots, (self._rank + 1) * slots)
        self._progress = progress

    @property
    def group_size(self) -> int:
        """Neighbouring slots that form a group; in the first process."""
        return int(self.env.unwrapped.group_size)

    def begin(self) -> list[str]:
        """Begin an episode in every slot; return the tasks of this process's."""
        return self._everywhere(self._reset)[self._own]

    def step(self, replies: list[str]) -> list[str]:
        """Take a turn in every slot; return what this process's terminals show."""
        gathered = self._gathered(replies)
        return self._everywhere(lambda: self._step(gathered))[self._own]

    def most(self, here: int) -> int:
        """Return the greatest of all processes' numbers."""
        return max(self._gathered([here]))

    def judge(self) -> Judgement:
        """Return the advantages of this process's ended episodes, by the reward scheme."""
        advantages, graded, returns = self._everywhere(self._judge)
        return advantages[self._own], graded[self._own], returns[self._own]

    def state_dict(self) -> dict[str, Any]:
        """Return environment, correction, ledger and world model as JSON-able data; in the first process."""
        return {"begun": self._begun, "env": self.env.unwrapped.state_dict(), "correction": self.env.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned.

        Raises:
            CheckpointError: If it belongs to other settings.
        """
        try:
            self.env.unwrapped.load_state_dict(state["env"])
            self.env.load_state_dict(state["correction"])
            self._begun = bool(state["begun"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"this is no state of a research environment: {error!r}") from error

    def close(self) -> None:
        """Close the environment with its sandbox."""
        if self.env is not None:
            self.env.close()

    def _reset(self) -> list[str]:
        self.env.set_progress(self._progress())
        observations, _ = self.env.reset(seed=None if self._begun else self._seed)
        self._begun, self.outcomes, self.turns_taken = True, [], []
        return list(observations["task"])

    def _step(self, replies: list[str]) -> list[str]:
        observations, _, _, _, infos = self.env.step(tuple(replies))
        self.streams = infos["wmrl"]
        self.outcomes += list(self.streams.get("outcome", ()))
        self.turns_taken.append((replies, self.env.last_turn))
        return list(observations["feedback"])

    def _judge(self) -> Judgement:
        advantages, graded = stream_advantages(self.streams, scale=self.env.scale)
        self.metrics = self._numbers(graded)
        totals = {**self.env.metrics(), "unreadable": getattr(self.env.world_model, "unreadable", None)}
        self.totals = {name: float(totals[name]) for name in _TOTALS if totals.get(name) is not None}
        return advantages.tolist(), graded.tolist(), self.streams["corrected_return"].tolist()

    def _numbers(self, graded: NDArray[np.bool_]) -> dict[str, float]:
        streams = self.streams
        numbers = {"ungraded": 1.0 - float(graded.mean())}
        for name in _REWARDS:
            if name in streams and streams[f"_{name}"].any():
                numbers[name] = float(streams[name][streams[f"_{name}"]].mean())
        numbers["anchors"] = float(len(set(streams["group"][streams["anchor"]].tolist())))
        return numbers | status_shares(self.outcomes)

    def _gathered(self, values: list[T]) -> list[T]:
        if self._processes == 1:
            return values
        from accelerate.utils import gather_object

        return list(gather_object(values))

    def _everywhere(self, compute: Callable[[], T]) -> T:
        """Compute in the first process, and return (or raise) the result in all."""
        if self._processes == 1:
            return compute()
        from accelerate.utils import broadcast_object_list

        message: list[Any] = [None, None]
        if self.env is not None:
            try:
                message[0] = compute()
            except Exception as error:  # the other processes wait: they must hear of it
                message[1] = error
        broadcast_object_list(message, from_process=0)
        if message[1] is not None:
            raise message[1]
        result: T = message[0]
        return result
