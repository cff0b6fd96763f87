"""Submissions and outcomes of episodes under way: kept for the world model to learn from, saved as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from wmrl_envs.errors import CheckpointError
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import Outcome, Prediction, Status
from wmrl_envs.research.task import ResearchTask

__all__ = ["load_outcome", "load_submission", "save_outcome", "save_submission"]


def save_submission(submission: Submission) -> list[Any]:
    """Return a submission as JSON-able data; its task by id."""
    return [submission.task.id, submission.code, submission.seed]


def load_submission(saved: Sequence[Any], tasks: Mapping[str, ResearchTask]) -> Submission:
    """Return the submission that ``save_submission`` saved.

    Raises:
        CheckpointError: If its task is not among ``tasks``.
    """
    task, code, seed = saved
    if task not in tasks:
        raise CheckpointError(f"the state holds a submission to task {task!r}, the environment has {', '.join(tasks)}")
    return Submission(tasks[task], code, seed)


def save_outcome(outcome: Outcome | None) -> dict[str, Any] | None:
    """Return an outcome as JSON-able data."""
    if outcome is None:
        return None
    fields = {field.name: getattr(outcome, field.name) for field in dataclasses.fields(outcome)}
    return fields | {"status": outcome.status.value, "predicted": isinstance(outcome, Prediction)}


def load_outcome(saved: Mapping[str, Any] | None) -> Outcome | None:
    """Return the outcome that ``save_outcome`` saved."""
    if saved is None:
        return None
    fields = dict(saved)
    kind = Prediction if fields.pop("predicted") else Outcome
    fields["status"] = Status(fields["status"])
    if "probabilities" in fields:
        fields["probabilities"] = tuple(fields["probabilities"])
    return kind(**fields)
