"""Recorded executions of a task, split into solutions that a world model may learn from and others that test it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, did_you_mean
from wmrl_envs.research.grading import Submission

if TYPE_CHECKING:
    from wmrl_envs.research.outcome import Outcome
    from wmrl_envs.research.sandbox.replay import RecordedTable, ReplaySandbox
    from wmrl_envs.research.task import ResearchTask

__all__ = ["DRAWS", "RecordedSplit", "drawn_members", "split_recording"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

DRAWS = ("prior", "uniform")
"""How solutions are drawn: from the prior with which an untrained policy starts, or each with the same probability."""


@dataclass(frozen=True, eq=False)
class RecordedSplit:
    """Distinct recorded solutions of one task."""

    task: ResearchTask
    tested: list[Submission]
    """n solutions to predict; nobody reads feedback to them."""
    members: IntArray
    """Their indices in the design space, int64 [n]."""
    rewards: FloatArray
    """Their mean ladder reward over the recorded executions, float64 [n]."""
    statuses: IntArray
    """Their most frequent status, an index into ``STATUSES``, int64 [n]."""
    executed: list[tuple[Submission, Outcome]]
    """Other solutions, each executed once, in random order: the first k of them are a smaller set."""


def split_recording(
    task: ResearchTask, recordings: ReplaySandbox, *, solutions: int, executions: int, draw: str, seed: int
) -> RecordedSplit:
    """Draw distinct recorded solutions of a task, and split them.

    The places of one draw without replacement go to the two sides in turn, so that which solutions are tested does not
    depend on how many are executed. Both sides have the same distribution: the executed ones are drawn from among as
    many as are tested. The further a draw goes, the less the prior matters: of a task of which little is recorded, the
    solutions are nearly those of a uniform draw.

    Args:
        task: A task with recorded executions.
        recordings: Where they are.
        solutions: Solutions to test with; at most half of the recorded ones are taken.
        executions: Solutions to learn from.
        draw: ``"prior"`` or ``"uniform"``.
        seed: Seed of the draw, together with the task's id.

    Raises:
        ConfigurationError: If the draw is unknown, or fewer executions are recorded than asked for.
        RecordingError: If the task has no recording that can be used.
    """
    if draw not in DRAWS:
        raise ConfigurationError(
            f"unknown draw {draw!r} of solutions; it is {' or '.join(map(repr, DRAWS))}.{did_you_mean(draw, DRAWS)}"
        )
    table = recordings.table(task)
    rng = np.random.default_rng([seed, zlib.crc32(task.id.encode())])
    order = drawn_members(table, draw, rng)
    tested, others = order[0::2][:solutions], order[1::2][: max(solutions, executions)]
    if len(others) < executions:
        raise ConfigurationError(
            f"{len(order)} solutions of task {task.id!r} are recorded, half of which can be learned from; "
            f"{executions} executions were asked for. Ask for at most {len(others)}, or record more with: "
            "wmrl tasks record"
        )
    learned = rng.permutation(others)[:executions]
    given = [Submission(task, table.space.solution(int(member)), int(rng.integers(2**31))) for member in learned]
    outcomes = recordings.grade(given)
    return RecordedSplit(
        task=task,
        tested=[Submission(task, table.space.solution(int(member)), final=True) for member in tested],
        members=tested,
        rewards=table.rewards[tested],
        statuses=table.probabilities[tested].argmax(axis=1),
        executed=[(item, outcome) for item, outcome in zip(given, outcomes, strict=True) if outcome is not None],
    )


def drawn_members(table: RecordedTable, draw: str, rng: np.random.Generator) -> IntArray:
    """Return the recorded members of a design space in the order in which a draw without replacement takes them.

    Args:
        table: The recording.
        draw: One of ``DRAWS``.
        rng: Draws.

    Returns:
        Indices in the design space, int64.
    """
    members = np.flatnonzero(table.draws)
    if draw == "uniform":
        return rng.permutation(members)
    choices = np.unravel_index(members, tuple(table.space.nvec.tolist()))
    logits = np.sum([log[option] for log, option in zip(table.space.prior_logits, choices, strict=True)], axis=0)
    # Largest log-probability plus Gumbel noise first: successive draws from the prior, each without those before.
    return members[np.argsort(-(logits + rng.gumbel(size=len(members))), kind="stable")]
