"""What a training run notes down at each step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.outcome import STATUSES, Outcome

__all__ = ["Recorder", "TrainingEnded"]

MOST_PAIRS = 5000
_STREAMS = ("real_reward", "predicted_reward", "calibrated_reward", "corrected_return")
_CORRECTION = ("lambda", "alpha", "weight")


class TrainingEnded(Exception):
    """Ends training between two steps; as an exception, because a callback can stop an agent only within one."""


class Recorder(BaseCallback):
    """Collects one row of numbers per optimiser step and the best solutions that were executed.

    A row holds the step, the wall seconds so far, the mean of each reward stream over the step's rollouts (absent where
    no rollout has it), lambda, alpha and the anchors' weight that they were corrected with, the share of anchors, of
    ungraded rollouts and of each status among the outcomes shown to the agent, the ledger, and what ``evaluate``
    returns on the steps it is due.

    Attributes:
        rows: One dict per step.
        pairs: ``[step, predicted, real]`` of each episode that was both predicted and executed; the last 5,000.
        best: By task, the best really executed solution so far: its ``code``, ``reward`` (training half) and ``step``.
    """

    def __init__(
        self,
        *,
        after_step: Callable[[Recorder], bool] | None = None,
        evaluate: Callable[[Any], dict[str, float]] | None = None,
        evaluate_every: int = 0,
    ) -> None:
        """Set the recorder up.

        Args:
            after_step: Called when a step is complete, its optimiser update included; training ends where it returns
                False.
            evaluate: Takes the agent and returns numbers for the row, such as a reported score.
            evaluate_every: Steps between evaluations; 0 never evaluates.
        """
        super().__init__()
        self.rows: list[dict[str, Any]] = []
        self.pairs: list[list[float]] = []
        self.best: dict[str, dict[str, Any]] = {}
        self.wall_seconds = 0.0
        self._after_step, self._evaluate, self._evaluate_every = after_step, evaluate, evaluate_every
        self._statuses: Counter[str] = Counter()
        self._values: dict[str, list[float]] = {}
        self._started = time.monotonic()
        self._pending = False

    @property
    def step(self) -> int:
        """Optimiser steps taken."""
        return len(self.rows)

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps, JSON-able."""
        return {"rows": self.rows, "pairs": self.pairs, "best": self.best, "wall_seconds": self._elapsed()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the state."""
        self.rows, self.pairs, self.best = list(state["rows"]), list(state["pairs"]), dict(state["best"])
        self.wall_seconds = state["wall_seconds"]

    def _elapsed(self) -> float:
        return self.wall_seconds + time.monotonic() - self._started

    def start_clock(self) -> None:
        """Count wall seconds from now on; the warm-up happens before any callback is asked."""
        self._started = time.monotonic()

    def _on_training_start(self) -> None:
        self._pending = False

    def _on_rollout_start(self) -> None:
        # The optimiser runs after a rollout and before the next one, so here the last step is complete.
        self._complete_step()
        self._statuses.clear()
        self._values = {name: [] for name in (*_STREAMS, *_CORRECTION, "anchor", "ungraded")}

    def _on_step(self) -> bool:
        dones, actions = self.locals["dones"], self.locals["actions"]
        for index, info in enumerate(self.locals["infos"]):
            wmrl = info["wmrl"]
            outcome: Outcome | None = wmrl.get("outcome")
            if outcome is not None:
                self._statuses[outcome.status] += 1
            if "real_reward" in wmrl:
                self._keep_best(info["task"], wmrl["real_reward"], actions[index])
            if dones[index]:
                self._note_episode(wmrl)
        return True

    def _note_episode(self, wmrl: dict[str, Any]) -> None:
        for name, values in self._values.items():
            if name in wmrl and (name != "weight" or wmrl["anchor"]):
                values.append(float(wmrl[name]))
        if wmrl["anchor"] and "predicted_reward" in wmrl and "real_reward" in wmrl:
            self.pairs.append([self.step + 1, float(wmrl["predicted_reward"]), float(wmrl["real_reward"])])

    def _keep_best(self, task: str, reward: float, action: Any) -> None:
        # At an episode's last step the reward is that of its best turn, which was kept when it was taken.
        if task in self.best and reward <= self.best[task]["reward"]:
            return
        (tasks,), (space,) = (self.training_env.get_attr(name, indices=0) for name in ("tasks", "design_space"))
        known = next(known for known in tasks if known.id == task)
        code = DesignSpace.of(known, space.blocks).render(np.asarray(action))
        self.best[task] = {"code": code, "reward": float(reward), "step": self.step + 1}

    def _on_rollout_end(self) -> None:
        row: dict[str, Any] = {"step": self.step + 1, "wall_seconds": self._elapsed()}
        row |= {f"{name}s" if name == "anchor" else name: _mean(values) for name, values in self._values.items()}
        total = max(1, sum(self._statuses.values()))
        row |= {f"status_{status}": self._statuses[status] / total for status in STATUSES}
        self.pairs = self.pairs[-MOST_PAIRS:]
        ledger = self.training_env.get_attr("ledger")[0]
        self.rows.append({name: value for name, value in (row | ledger.summary()).items() if value is not None})
        self._pending = True

    def _on_training_end(self) -> None:
        self._complete_step()

    def _complete_step(self) -> None:
        if not self._pending:
            return
        self._pending = False
        if self._evaluate is not None and self._evaluate_every and self.step % self._evaluate_every == 0:
            self.rows[-1] |= self._evaluate(self.model)
        if self._after_step is not None and not self._after_step(self):
            raise TrainingEnded


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
