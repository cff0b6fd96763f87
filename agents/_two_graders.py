"""One batch graded twice: all of it by a world model, the anchors by a sandbox as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.correction import Ledger
from wmrl_envs.research.grading import Grader, Submission, check_graded
from wmrl_envs.research.outcome import Outcome, Prediction
from wmrl_envs.research.task import ResearchTask
from wmrl_envs.world_models.protocol import WorldModel
from wmrl_envs.wrappers._predicting import Predictor

__all__ = ["GradedTwice", "TwoGraders"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GradedTwice:
    """A graded batch of n; NaN is unknown."""

    real: FloatArray
    """[n] Real rewards, of the anchors."""
    predicted: FloatArray
    """[n] Predicted rewards."""
    spread: FloatArray
    """[n] The world model's own spread; 0 where it states none."""
    outcomes: list[Outcome | None]
    """n outcomes, executed where known and else predicted."""


class TwoGraders:
    """Calls world model and sandbox on batches, charges both, and lets the world model learn.

    Attributes:
        sandbox: Executes.
        ledger: What was executed and predicted, and what it cost.
    """

    def __init__(self, world_model: WorldModel, sandbox: Grader, tasks: Sequence[ResearchTask]) -> None:
        """Take the two graders, and the tasks that the world model is to be made ready for."""
        self.sandbox, self.ledger = sandbox, Ledger()
        self._predictor, self._tasks = Predictor(world_model), tuple(tasks)

    @property
    def world_model(self) -> Any:
        """The world model."""
        return self._predictor.model

    def grade(self, submissions: list[Submission], anchors: NDArray[np.bool_], *, predict: bool) -> GradedTwice:
        """Predict all submissions (if asked to) and execute the anchors (bool [n])."""
        n = len(submissions)
        outcomes: list[Outcome | None] = [None] * n
        predicted, spread = np.full(n, np.nan), np.zeros(n)
        if predict:
            self._prepare()
            outcomes, predicted, seconds = self._predictor.grade(submissions)
            self.ledger.predict(n, seconds)
            spread = np.array([item.spread if isinstance(item, Prediction) else 0.0 for item in outcomes])
        real, rows = np.full(n, np.nan), np.flatnonzero(anchors).tolist()
        if rows:
            executed = self._execute([submissions[row] for row in rows], learn=predict)
            for row, outcome in zip(rows, executed, strict=True):
                if outcome is not None:
                    real[row], outcomes[row] = outcome.reward, outcome
        return GradedTwice(real, predicted, spread, outcomes)

    def state_dict(self) -> dict[str, Any]:
        """Return the ledger and the world model's state as JSON-able data."""
        return {"ledger": self.ledger.state_dict(), "world_model": self._predictor.call("state_dict")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned."""
        self.ledger.load_state_dict(state["ledger"])
        if state["world_model"] is not None:
            self._predictor.call("load_state_dict", state["world_model"])

    def _prepare(self) -> None:
        executed = self._predictor.call("prepare", self._tasks, self.sandbox) or []
        if executed:
            self._charge([item for item, _ in executed], [outcome for _, outcome in executed], warmup=True)

    def _execute(self, submissions: list[Submission], *, learn: bool) -> list[Outcome | None]:
        outcomes = list(self.sandbox.grade(submissions))
        check_graded(self.sandbox, submissions, outcomes)
        self._charge(submissions, outcomes, warmup=False)
        if learn:
            self._predictor.call("observe", submissions, outcomes)
        return outcomes

    def _charge(self, submissions: list[Submission], outcomes: list[Outcome | None], *, warmup: bool) -> None:
        seconds = np.array([np.nan if outcome is None else outcome.seconds for outcome in outcomes])
        self.ledger.execute(seconds, [(item.task.id, item.code or "") for item in submissions], warmup=warmup)
