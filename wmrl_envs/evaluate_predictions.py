"""What a world model says of the attempts of an evaluation, beside what execution said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import WorldModelError
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.reply import extract_code
from wmrl_envs.world_models.protocol import check_predictions

if TYPE_CHECKING:
    from wmrl_envs.evaluate_text import TextEvaluation
    from wmrl_envs.research.grading import Grader
    from wmrl_envs.research.task import ResearchTask
    from wmrl_envs.world_models.protocol import WorldModel

__all__ = ["PredictedBeside", "predict_beside"]


@dataclass(frozen=True, slots=True)
class PredictedBeside:
    """Predicted and real rewards of the same attempts, those of episodes that were left out not among them."""

    predicted: tuple[float | None, ...]
    """By turn, the mean predicted ladder reward in [0, 1]; ``None`` where nothing could be predicted."""
    real: tuple[float | None, ...]
    """By turn, the mean real ladder reward in [0, 1] of the same attempts."""
    attempts: int
    """Attempts with a prediction."""
    unpredicted: int
    """Attempts without one, which do not count."""
    status_accuracy: float
    """Share of attempts whose status was predicted."""
    error: float
    """Mean absolute difference of predicted and real reward."""


def predict_beside(
    result: TextEvaluation, tasks: Sequence[ResearchTask], world_model: WorldModel, grader: Grader
) -> PredictedBeside:
    """Let a world model predict the attempts of an evaluation.

    Args:
        result: The evaluation.
        tasks: The tasks it was made on.
        world_model: Predicts; one that learns is made ready first.
        grader: Executes what the world model asks for to be ready.

    Raises:
        WorldModelError: If it predicts not a single attempt.
    """
    by_id = {task.id: task for task in tasks}
    known = [record for record in result.records if record.known]
    prepare = getattr(world_model, "prepare", None)
    if prepare is not None:
        prepare([by_id[name] for name in result.task_scores], grader)
    submissions = [
        Submission(by_id[record.task], extract_code(turn.reply or ""), final=number + 1 == len(record.turns))
        for record in known
        for number, turn in enumerate(record.turns)
    ]
    predictions = world_model.grade(submissions)
    check_predictions(world_model, submissions, predictions)
    real = [turn for record in known for turn in record.turns]
    pairs = [
        (index % len(result.scores), prediction, turn)
        for index, (prediction, turn) in enumerate(zip(predictions, real, strict=True))
        if prediction is not None
    ]
    if not pairs:
        raise WorldModelError(f"{type(world_model).__name__} predicted none of {len(submissions)} attempts")
    rewards = np.array([(prediction.reward, turn.reward) for _, prediction, turn in pairs], dtype=np.float64)
    at = np.array([number for number, _, _ in pairs])
    by_turn = [_means(rewards[at == number]) for number in range(len(result.scores))]
    return PredictedBeside(
        predicted=tuple(mean[0] for mean in by_turn),
        real=tuple(mean[1] for mean in by_turn),
        attempts=len(pairs),
        unpredicted=len(submissions) - len(pairs),
        status_accuracy=float(np.mean([str(prediction.status) == turn.status for _, prediction, turn in pairs])),
        error=float(np.abs(rewards[:, 0] - rewards[:, 1]).mean()),
    )


def _means(rewards: NDArray[np.float64]) -> tuple[float | None, float | None]:
    """Return the means of float64 [m, 2], None for an empty one."""
    return (float(rewards[:, 0].mean()), float(rewards[:, 1].mean())) if len(rewards) else (None, None)
