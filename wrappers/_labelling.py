"""A label replaced by a model's reward: the batched core of ``WorldModelWrapper`` where there is no grader."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from wmrl_envs.correction import Ledger
from wmrl_envs.wrappers._predicting import Predictor
from wmrl_envs.wrappers._slots import Slots
from wmrl_envs.wrappers._streams import BoolArray, FloatArray, Streams

__all__ = ["LabellingCore"]


class LabellingCore(Slots):
    """Keeps an environment's own reward back and asks a model for another, in every slot.

    The model sees each transition, or each whole episode at its end, without the keys that are withheld. An episode's
    real and predicted rewards are sums over its turns.
    """

    def __init__(
        self,
        n: int,
        group_size: int,
        predictor: Predictor,
        ledger: Ledger,
        *,
        per: Literal["step", "episode"],
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        max_rescues: int | None = None,
    ) -> None:
        """Build the core.

        Args:
            n: Number of slots.
            group_size: Neighbouring slots that form a group.
            predictor: The model.
            ledger: Is charged one execution per label that is read, and one prediction per item of a batch.
            per: Whether the model judges transitions or whole episodes.
            observation_space: Of one slot.
            action_space: Of one slot.
            max_rescues: See ``Slots``.
        """
        super().__init__(n, group_size, summed=True, max_rescues=max_rescues)
        self._predictor, self._ledger, self._per = predictor, ledger, per
        self._observation_space, self._action_space = observation_space, action_space
        self._episodes: list[list[tuple[Any, Any, Any, dict[str, Any]]]] = [[] for _ in range(n)]
        self._interrupted = np.zeros(n, np.bool_)

    def prepare(self) -> None:
        """Let a model that can prepare itself do so; nothing is executed for it."""
        if self.predicting:
            self._predictor.call("prepare")

    def begin(self, slots: BoolArray) -> None:
        """Begin the next episodes of some slots ([n] bool)."""
        super().begin(slots)
        self._interrupted[slots] = False
        for slot in np.flatnonzero(slots):
            self._episodes[slot] = []

    def finish(
        self,
        active: BoolArray,
        done: BoolArray,
        rewards: FloatArray,
        observations: Sequence[Any],
        actions: Sequence[Any],
        next_observations: Sequence[Any],
        infos: Sequence[dict[str, Any]],
    ) -> Streams:
        """Judge one step.

        Args:
            active: [n] bool, the slots that took a step.
            done: [n] bool, whose episodes ended.
            rewards: [n] the environment's own rewards.
            observations: n single observations before the step.
            actions: n single actions.
            next_observations: n single observations after it, the final ones where an episode ended.
            infos: n single infos without what is withheld.
        """
        predicted = np.full(self.n, np.nan)
        if self.predicting:
            rows = np.flatnonzero(active).tolist()
            transitions = [(observations[i], actions[i], next_observations[i], infos[i]) for i in rows]
            if self._per == "step":
                predicted[rows] = self._judge_steps(transitions)
                judged = active
            else:
                for row, transition in zip(rows, transitions, strict=True):
                    self._episodes[row].append(transition)
                judged = active & done
                predicted[judged] = self._judge_episodes(np.flatnonzero(judged))
            lost = judged & (predicted != predicted)
            if lost.any():
                self.miss(predictions=lost)
                self.rescue(lost)
        streams = self.advance(active, done, np.where(active, rewards, np.nan), predicted, np.zeros(self.n), None)
        if self._per == "episode" and self.predicting:
            if self.recording:
                self._observe(np.flatnonzero(done & active & streams.executed), streams.real_total)
            streams.predicted_total = np.where(done, streams.predicted_total, np.nan)  # unknown before the end
        labels = int((done & streams.executed).sum())
        if labels and self.recording:
            self._ledger.execute(np.zeros(labels))
        return streams

    def state_dict(self) -> dict[str, Any]:
        """Return the episodes under way; with a model that judges whole episodes their transitions are not saved."""
        cut = [bool(episode) for episode in self._episodes]
        return super().state_dict() | {"cut": cut}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned; an episode that was cut off counts as not predicted."""
        super().load_state_dict(state)
        self._episodes = [[] for _ in range(self.n)]
        self._interrupted[:] = state["cut"]

    def _judge_steps(self, transitions: list[tuple[Any, Any, Any, dict[str, Any]]]) -> list[float]:
        if not transitions:
            return []
        observations, actions, next_observations, infos = zip(*transitions, strict=True)
        return self._timed(
            len(transitions),
            _batched(self._observation_space, observations),
            _batched(self._action_space, actions),
            _batched(self._observation_space, next_observations),
            list(infos),
        )

    def _judge_episodes(self, slots: Sequence[int] | np.ndarray[Any, Any]) -> list[float]:
        whole = [slot for slot in slots if not self._interrupted[slot]]
        rewards = dict.fromkeys(map(int, slots), float("nan"))
        if whole:
            judged = self._timed(len(whole), *self._columns(whole))
            rewards.update(zip(map(int, whole), judged, strict=True))
        return list(rewards.values())

    def _observe(self, slots: np.ndarray[Any, Any], totals: FloatArray) -> None:
        """Show a model that learns the real rewards of whole episodes that ended now."""
        whole = [int(slot) for slot in slots if not self._interrupted[slot]]
        if whole:
            self._predictor.call("observe", *self._columns(whole), totals[whole].tolist())

    def _columns(self, slots: Sequence[int]) -> list[list[list[Any]]]:
        """Return observations, actions, next observations and infos of whole episodes, each a list per episode."""
        episodes = [[list(column) for column in zip(*self._episodes[slot], strict=True)] for slot in slots]
        return [list(column) for column in zip(*episodes, strict=True)]

    def _timed(self, count: int, *batch: Any) -> list[float]:
        start = time.perf_counter()
        rewards = self._predictor.rewards(count, *batch)
        if self.recording:
            self._ledger.predict(count, time.perf_counter() - start)
        return rewards


def _batched(space: gym.Space[Any], items: Sequence[Any]) -> Any:
    """Return single items as one batch, the way Gymnasium's vector environments stack them."""
    empty: Any = create_empty_array(space, n=len(items), fn=np.zeros)
    return concatenate(space, items, empty)


def unbatched(space: gym.Space[Any], batch: Any) -> list[Any]:
    """Return a vector environment's batch as single items; ``space`` is the batch's."""
    return list(iterate(space, batch))
