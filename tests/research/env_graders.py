"""Graders for tests of the environments: deterministic in task, code and seed, quick, and no sandboxes."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

from wmrl_envs.research.grading import Submission, gate
from wmrl_envs.research.outcome import STATUSES, Outcome, Status, ladder_reward


def outcome(status: Status, position: float | None = None, feedback: str = "", **more) -> Outcome:
    reward = ladder_reward(status, position)
    return Outcome(status=status, reward=reward, position=position, feedback=feedback, report_reward=reward, **more)


class InProcessGrader:
    """Executes code with ``exec`` in this process: a valid attempt assigns its leaderboard position to ``position``.

    The code sees ``rng``, seeded by the submission's seed. An exception is a runtime error, ``harness_fails = True`` an
    unknown outcome.
    """

    def __init__(self) -> None:
        self.batches: list[list[Submission]] = []
        self.closed = 0

    def grade(self, submissions: Sequence[Submission]) -> list[Outcome | None]:
        self.batches.append(list(submissions))
        return [gate(submission) or self._run(submission) for submission in submissions]

    def _run(self, submission: Submission) -> Outcome | None:
        names: dict = {"rng": random.Random(submission.seed), "task": submission.task.id}
        try:
            exec(submission.code, names)
        except Exception as error:
            return outcome(Status.RUNTIME_ERROR, feedback=repr(error), error_type=type(error).__name__)
        if names.get("harness_fails"):
            return None
        if "position" not in names:
            return outcome(Status.NO_SUBMISSION, feedback="no submission.csv")
        return outcome(Status.VALID, names["position"], f"position {names['position']:.6f} on {submission.task.id}")

    def close(self) -> None:
        self.closed += 1


class HashGrader:
    """Answers from a hash of task, code and seed; nothing is executed. About one attempt in nine cannot be graded."""

    def grade(self, submissions: Sequence[Submission]) -> list[Outcome | None]:
        return [self._answer(submission) for submission in submissions]

    def _answer(self, submission: Submission) -> Outcome | None:
        text = f"{submission.task.id} {submission.seed} {submission.code}"
        rng = random.Random(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
        status = rng.choice([*STATUSES, Status.VALID, Status.VALID, None])
        if status is None:
            return None
        position = rng.random() if status is Status.VALID else None
        reward = ladder_reward(status, position)
        report = ladder_reward(status, rng.random()) if status is Status.VALID else reward
        return Outcome(
            status=status, reward=reward, position=position, feedback=f"{status} {rng.random()}", report_reward=report
        )
