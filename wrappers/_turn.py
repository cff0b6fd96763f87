"""What a turn submitted, and what prediction and execution said about it: for those who look on, never for an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import Outcome
from wmrl_envs.wrappers._streams import IntArray

__all__ = ["GradedTurn"]


@dataclass(frozen=True, slots=True, eq=False)
class GradedTurn:
    """One turn of some slots under a world model. An agent is shown one outcome of each; here are both."""

    slots: IntArray
    """[m] the slots that submitted, ascending."""
    submissions: Sequence[Submission]
    """Theirs."""
    predictions: Sequence[Outcome | None]
    """m predicted outcomes, ``None`` where there is none; empty where nothing was predicted."""
    executions: Mapping[int, Outcome | None]
    """By slot, the outcomes of those that were executed; ``None`` where the sandbox failed."""

    def of(self, slot: int) -> tuple[Submission, Outcome | None, Outcome | None] | None:
        """Return a slot's submission, its predicted and its real outcome; ``None`` where it submitted nothing."""
        row = int(np.searchsorted(self.slots, slot))
        if row == len(self.slots) or self.slots[row] != slot:
            return None
        predicted = self.predictions[row] if self.predictions else None
        return self.submissions[row], predicted, self.executions.get(slot)
