"""What a world model is, and the check of what it returns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from wmrl_envs.errors import GradingError, WorldModelError
from wmrl_envs.research.grading import Grader, Submission
from wmrl_envs.research.outcome import Outcome

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = ["LearningWorldModel", "WorldModel", "check_predictions"]


@runtime_checkable
class WorldModel(Protocol):
    """A grader that predicts outcomes instead of executing solutions.

    It need return nothing but outcomes; a `wmrl_envs.research.outcome.Prediction` says more (status probabilities,
    spread). The methods of `LearningWorldModel` are used where they exist.
    """

    def grade(self, submissions: Sequence[Submission]) -> Sequence[Outcome | None]:
        """Return one prediction per submission, in order; ``None`` where none could be made."""
        ...


@runtime_checkable
class LearningWorldModel(WorldModel, Protocol):
    """A world model that is prepared with executions and learns from those that follow."""

    def prepare(self, tasks: Sequence[ResearchTask], grader: Grader) -> list[tuple[Submission, Outcome]]:
        """Make ready for these tasks and return what was executed for it (empty if already ready)."""
        ...

    def observe(self, submissions: Sequence[Submission], outcomes: Sequence[Outcome | None]) -> None:
        """Learn from one training step's executions; called after the step's predictions were used."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state, JSON-able and exact."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state, after which predictions are those of the saved model."""
        ...


def check_predictions(world_model: object, submissions: Sequence[Submission], predictions: Sequence[object]) -> None:
    """Refuse an answer of a world model that cannot be used.

    Raises:
        GradingError: If there is not one prediction per submission.
        WorldModelError: If one is neither an `Outcome` nor ``None``, or its reward is no number in [0, 1].
    """
    name = type(world_model).__name__
    if not isinstance(predictions, Sequence):
        raise WorldModelError(f"{name}.grade returned {type(predictions).__name__}; it must return a list of outcomes")
    if len(predictions) != len(submissions):
        raise GradingError(
            f"{name}.grade returned {len(predictions)} predictions for {len(submissions)} submissions; "
            "it must return one per submission, in order, with None where it could predict nothing"
        )
    for index, prediction in enumerate(predictions):
        if prediction is None:
            continue
        if not isinstance(prediction, Outcome):
            raise WorldModelError(
                f"{name}.grade returned {type(prediction).__name__} as prediction {index}; "
                "return an Outcome, a Prediction or None"
            )
        if not (math.isfinite(prediction.reward) and 0.0 <= prediction.reward <= 1.0):
            raise WorldModelError(
                f"{name}.grade predicted the reward {prediction.reward} for submission {index}; "
                "a ladder reward lies in [0, 1], and None says that nothing could be predicted"
            )
