"""What a training run notes down at each step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from wmrl_envs.research.outcome import STATUSES, Outcome

__all__ = ["Recorder"]

_STREAMS = ("real_reward", "predicted_reward", "calibrated_reward", "corrected_return")


class Recorder(BaseCallback):
    """Collects one row of numbers per optimiser step and the best solution that was executed.

    A row holds the step, the wall seconds so far, the mean of each reward stream over the step's rollouts (absent where
    no rollout has it), the share of each status among the outcomes shown to the agent, the correction's own metrics,
    and what ``evaluate`` returns on the steps it is due.

    Attributes:
        rows: One dict per step.
        best: The best really executed solution so far: its code, reward (training half) and step; ``None`` before one
            was.
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
            after_step: Called when a step is complete, its optimiser update included; training stops where it returns
                False.
            evaluate: Takes the agent and returns numbers for the row, such as a reported score.
            evaluate_every: Steps between evaluations; 0 never evaluates.
        """
        super().__init__()
        self.rows: list[dict[str, Any]] = []
        self.best: dict[str, Any] | None = None
        self.wall_seconds = 0.0
        self._after_step, self._evaluate, self._evaluate_every = after_step, evaluate, evaluate_every
        self._statuses: Counter[str] = Counter()
        self._streams: dict[str, list[float]] = {}
        self._started = time.monotonic()

    @property
    def step(self) -> int:
        """Optimiser steps taken."""
        return len(self.rows)

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps, JSON-able."""
        return {"rows": self.rows, "best": self.best, "wall_seconds": self._elapsed()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the state."""
        self.rows, self.best, self.wall_seconds = list(state["rows"]), state["best"], state["wall_seconds"]

    def _elapsed(self) -> float:
        return self.wall_seconds + time.monotonic() - self._started

    def _on_training_start(self) -> None:
        self._started = time.monotonic()
        self._pending = False

    def _on_rollout_start(self) -> None:
        # The optimiser runs after a rollout and before the next one, so here the last step is complete.
        self._stop = not self._complete_step()
        self._statuses.clear()
        self._streams = {name: [] for name in (*_STREAMS, "anchor", "ungraded")}

    def _on_step(self) -> bool:
        if self._stop:
            return False
        dones, actions = self.locals["dones"], self.locals.get("clipped_actions", self.locals.get("actions"))
        for index, info in enumerate(self.locals["infos"]):
            streams = info["wmrl"]
            outcome: Outcome | None = streams.get("outcome")
            if outcome is not None:
                self._statuses[outcome.status] += 1
                if streams["anchor"] and (self.best is None or outcome.reward > self.best["reward"]):
                    self._keep_best(outcome, actions[index])
            if dones[index]:
                for name, values in self._streams.items():
                    if name in streams:
                        values.append(float(streams[name]))
        return True

    def _keep_best(self, outcome: Outcome, action: Any) -> None:
        space = self.training_env.get_attr("design_space")[0]
        self.best = {"code": space.render(np.asarray(action)), "reward": outcome.reward, "step": self.step}

    def _on_rollout_end(self) -> None:
        row: dict[str, Any] = {"step": self.step + 1, "wall_seconds": self._elapsed()}
        row |= {name: float(np.mean(values)) for name, values in self._streams.items() if values}
        total = max(1, sum(self._statuses.values()))
        row |= {f"status_{status}": self._statuses[status] / total for status in STATUSES}
        row |= self.training_env.env_method("metrics")[0]
        self.rows.append(row)
        self._pending = True

    def _on_training_end(self) -> None:
        self._complete_step()

    def _complete_step(self) -> bool:
        if not self._pending:
            return True
        self._pending = False
        if self._evaluate is not None and self._evaluate_every and self.step % self._evaluate_every == 0:
            self.rows[-1] |= self._evaluate(self.model)
        return self._after_step is None or self._after_step(self)
