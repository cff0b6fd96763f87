"""Collects the episodes of a training run by stable-baselines3 for ``trajectories.jsonl``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from wmrl_envs.trajectories import REWARDS, choose_episodes, describe_turn, episodes_kept, number
from wmrl_envs.wrappers._turn import GradedTurn

__all__ = ["TrajectoryRecorder"]

Turns = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Ended:
    slot: int
    number: int
    """How many episodes the slot had before."""
    info: dict[str, Any]
    turns: list[GradedTurn | None]
    before: Turns
    """Turns that a checkpoint held."""


class TrajectoryRecorder(BaseCallback):
    """Puts the turns of each episode together, and describes some of a step's episodes when its rollouts end.

    What the environment graded is only pointed to until then, so that a step of which nothing is kept costs next to
    nothing.
    """

    def __init__(self, step: Callable[[], int]) -> None:
        """Set the recorder up.

        Args:
            step: Tells the number of the step that is under way, from 1.
        """
        super().__init__()
        self._step = step
        self._episodes: list[int] = []
        self._before: dict[int, Turns] = {}
        self._turns: list[GradedTurn | None] = []
        self._begun: list[int] = []
        self._ended: list[_Ended] = []
        self._group_size = 1
        self._described: list[dict[str, Any]] = []

    def take(self) -> list[dict[str, Any]]:
        """Hand over the episodes described since the last call."""
        taken, self._described = self._described, []
        return taken

    def state_dict(self) -> dict[str, Any]:
        """Return the episodes' numbers, and the turns of those under way, JSON-able."""
        under_way = {slot: self._before.get(slot, []) + self._taken(slot) for slot in range(len(self._episodes))}
        return {"episodes": self._episodes, "under_way": [[s, turns] for s, turns in under_way.items() if turns]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what ``state_dict`` returned."""
        self._episodes = list(state["episodes"])
        self._before = {slot: list(turns) for slot, turns in state["under_way"]}
        self._turns, self._begun, self._ended = [], [0] * len(self._episodes), []

    def _on_training_start(self) -> None:
        if not self._episodes:
            self._episodes = [0] * self.training_env.num_envs
            self._begun = [0] * self.training_env.num_envs
        (self._group_size,) = self.training_env.get_attr("group_size", indices=0)

    def _on_step(self) -> bool:
        (turn,) = self.training_env.get_attr("last_turn", indices=0)
        self._turns.append(turn)
        ended = np.flatnonzero(self.locals["dones"]).tolist()
        if not ended:
            return True
        kept = episodes_kept(self._step()) > 0
        for slot in ended:
            before = self._before.pop(slot, [])
            if kept:
                turns = self._turns[self._begun[slot] :]
                self._ended.append(_Ended(slot, self._episodes[slot], self.locals["infos"][slot], turns, before))
            self._begun[slot] = len(self._turns)
            self._episodes[slot] += 1
        self._forget()
        return True

    def _forget(self) -> None:
        """Let go of the turns that no episode under way has taken."""
        first = min(self._begun)
        del self._turns[:first]
        self._begun = [begun - first for begun in self._begun]

    def _on_rollout_end(self) -> None:
        step = self._step()
        anchors = [bool(ended.info["wmrl"]["anchor"]) for ended in self._ended]
        groups = [self._group(ended) for ended in self._ended]
        chosen = choose_episodes(anchors, groups, episodes_kept(step))
        self._described += [self._describe(step, self._ended[index]) for index in chosen]
        self._ended = []

    def _describe(self, step: int, ended: _Ended) -> dict[str, Any]:
        wmrl = ended.info["wmrl"]
        rewards = {name: number(wmrl.get(name)) for name in REWARDS}
        return {
            "step": step,
            "episode": ended.number * len(self._episodes) + ended.slot,
            "group": self._group(ended),
            "task": ended.info["task"],
            "anchor": bool(wmrl["anchor"]),
            **{name: value for name, value in rewards.items() if value is not None},
            "turns": ended.before + _described(ended.turns, ended.slot),
        }

    def _group(self, ended: _Ended) -> int:
        """Return a group's number; the environment's own ids are random and too long for a reader."""
        return (ended.number * len(self._episodes) + ended.slot) // self._group_size

    def _taken(self, slot: int) -> Turns:
        return _described(self._turns[self._begun[slot] :], slot)


def _described(turns: list[GradedTurn | None], slot: int) -> Turns:
    parts = [turn.of(slot) for turn in turns if turn is not None]
    return [describe_turn(part[0].code, part[1], part[2]) for part in parts if part is not None]
