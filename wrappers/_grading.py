"""Execution replaced by prediction: the batched core of ``WorldModelWrapper`` over environments that have a grader."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.correction import Ledger
from wmrl_envs.errors import GradingError
from wmrl_envs.research.core import GradedBatch
from wmrl_envs.research.grading import Submission, check_graded
from wmrl_envs.research.outcome import Outcome, Prediction
from wmrl_envs.wrappers._executions import load_outcome, load_submission, save_outcome, save_submission
from wmrl_envs.wrappers._predicting import Predictor
from wmrl_envs.wrappers._slots import Slots
from wmrl_envs.wrappers._streams import BoolArray, FloatArray, IntArray, Streams
from wmrl_envs.wrappers._turn import GradedTurn

__all__ = ["GradingCore"]


class GradingCore(Slots):
    """Grades an environment's submissions by a world model, and those of anchor episodes by its sandbox as well.

    Per step there is one call of the world model for all submissions and one of the sandbox for those that are
    executed. What was executed goes to the world model's ``observe`` when an executed episode ends.

    Attributes:
        last_turn: What was routed last, with predicted and real outcomes; ``None`` before the first turn.
    """

    def __init__(
        self, env: Any, predictor: Predictor, ledger: Ledger, *, show_predicted: bool, max_rescues: int | None = None
    ) -> None:
        """Build the core; ``route`` is for the caller to install.

        Args:
            env: The bare environment: ``grader``, ``tasks``, ``groups``, ``num_slots`` and ``group_size`` are read.
            predictor: The world model.
            ledger: Is charged.
            show_predicted: Whether anchor episodes show the agent the predicted outcome too.
            max_rescues: See ``Slots``.
        """
        super().__init__(env.num_slots, env.group_size, summed=False, max_rescues=max_rescues)
        self._env, self._predictor, self._ledger = env, predictor, ledger
        self._show_predicted = show_predicted
        self._attempts: list[tuple[int, IntArray, list[Submission]]] = []
        self._clock = 0
        self._prepared = False
        self._first_turn = np.zeros(self.n, np.int64)
        self._executed: list[tuple[Submission, Outcome | None]] = []
        self._charged = 0
        self._turn: tuple[IntArray, list[Submission]] | None = None
        self.last_turn: GradedTurn | None = None
        self._unknown, self._nothing = np.full(self.n, np.nan), np.zeros(self.n)
        self._blank: NDArray[np.object_] = np.full(self.n, None, dtype=object)
        self._shown: NDArray[np.object_] = self._blank
        self._clear_turn()

    def prepare(self) -> None:
        """Let the world model warm up on the environment's tasks, and charge what it executed."""
        if not self.predicting:
            return
        self._prepared = True
        executed = self._predictor.call("prepare", self._env.tasks, self._env.grader) or []
        if executed and self.recording:
            self._charge([submission for submission, _ in executed], [outcome for _, outcome in executed], warmup=True)

    def begin(self, slots: BoolArray) -> None:
        """Begin the next episodes of some slots ([n] bool); an abandoned one leaves nothing behind."""
        if self._executed and self.begun.any() and (slots & self.begun & self.executing).any():
            self._observe()
        super().begin(slots)
        self._first_turn[slots] = self._clock

    def route(self, slots: IntArray, submissions: list[Submission]) -> Sequence[Outcome | None]:
        """Grade one turn in the place of the environment's sandbox.

        Args:
            slots: [m] int64, the slots that submit.
            submissions: Theirs, in order.

        Returns:
            The m outcomes to show: of an execution in anchor episodes (unless predicted feedback is asked for),
            predicted elsewhere; ``None`` where neither is known.
        """
        self._clear_turn()
        if not self._prepared:  # the environment below was reset without its wrappers
            self.prepare()
        self._turn = (slots, submissions)
        shown: list[Outcome | None] = [None] * len(submissions)
        missed: list[tuple[int, Submission]] = []
        if self.predicting:
            shown, rewards, seconds = self._predictor.grade(submissions)
            if self.recording:
                self._ledger.predict(len(submissions), seconds)
            missed = self._note_predictions(slots, shown, rewards)
        rows = self.executing_rows if len(slots) == self.n else np.flatnonzero(self.executing[slots]).tolist()
        predictions: Sequence[Outcome | None] = shown if self.predicting else ()
        executions: dict[int, Outcome | None] = {}
        if rows:
            predictions = list(predictions)  # the other list shows what was executed from here on
            outcomes = self._execute([submissions[row] for row in rows] + [submission for _, submission in missed])
            self._note_executions(
                slots[rows], outcomes[: len(rows)], [slot for slot, _ in missed], outcomes[len(rows) :]
            )
            executions = dict(zip(slots[rows].tolist(), outcomes, strict=False))
            for row, outcome in zip(rows, outcomes, strict=False):
                if not self._show_predicted or shown[row] is None:
                    shown[row] = outcome
        self.last_turn = GradedTurn(slots, submissions, predictions, executions)
        whole = len(slots) == self.n
        self._shown = np.fromiter(shown, object, len(shown)) if whole else _scattered(shown, slots, self.n)
        if self.flawed or not self.predicting:
            return shown
        if rows and not self._show_predicted:
            rewards = rewards.copy()  # the streams keep the other
            rewards[rows] = self._real[slots[rows]]
        return GradedBatch(shown, rewards)  # type: ignore[arg-type]  # none is unknown where nothing is flawed

    def finish(self, active: BoolArray, done: BoolArray) -> Streams:
        """Take the turn that was routed into the episodes, and return the step's streams.

        Args:
            active: [n] bool, the slots that took a step.
            done: [n] bool, whose episodes ended.
        """
        if self.max_rescues and self._turn is not None:
            self._attempts.append((self._clock, *self._turn))
        self._clock += 1
        clean = self.predicting and self._turn is not None and len(self._turn[0]) == self.n
        streams = self.advance(active, done, self._real, self._predicted, self._spread, self._shown, clean=clean)
        self._clear_turn()
        if self._executed and not streams.ended.none and (done & streams.executed).any():
            self._observe()
        if self._attempts and not streams.ended.none:
            first = self._first_turn[self.begun].min(initial=self._clock)
            self._attempts = [attempt for attempt in self._attempts if attempt[0] >= first]
        return streams

    def state_dict(self) -> dict[str, Any]:
        """Return the episodes under way, JSON-able and exact."""
        return super().state_dict() | {
            "attempts": [
                [turn, slots.tolist(), [save_submission(submission) for submission in submissions]]
                for turn, slots, submissions in self._attempts
            ],
            "charged": self._charged,
            "clock": self._clock,
            "first_turn": self._first_turn.tolist(),
            "executed": [
                [save_submission(submission), save_outcome(outcome)] for submission, outcome in self._executed
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned."""
        tasks = {task.id: task for task in self._env.tasks}
        attempts = [
            (turn, np.array(slots, np.int64), [load_submission(saved, tasks) for saved in submissions])
            for turn, slots, submissions in state["attempts"]
        ]
        executed = [(load_submission(saved, tasks), load_outcome(outcome)) for saved, outcome in state["executed"]]
        super().load_state_dict(state)
        self._attempts, self._executed, self._charged = attempts, executed, state["charged"]
        self._clock, self._first_turn[:] = state["clock"], state["first_turn"]
        self._clear_turn()

    def _clear_turn(self) -> None:
        """Forget a turn; its arrays are replaced, since the streams of the last step still hold them."""
        self._real: FloatArray = self._unknown
        self._predicted: FloatArray = self._unknown
        self._spread: FloatArray = self._nothing
        self._shown = self._blank
        self._turn = None

    def _note_predictions(
        self, slots: IntArray, predictions: list[Outcome | None], rewards: FloatArray
    ) -> list[tuple[int, Submission]]:
        """Take in this turn's predictions; return the earlier attempts of episodes that are executed from now on."""
        whole = len(slots) == self.n
        self._predicted = rewards if whole else _scattered(rewards, slots, self.n)
        if self.spreading:
            spread = np.array([p.spread if isinstance(p, Prediction) else 0.0 for p in predictions])
            self._spread = spread if whole else _scattered(spread, slots, self.n)
        lost = rewards != rewards
        if not lost.any():
            return []
        failed = np.zeros(self.n, np.bool_)
        failed[slots[lost]] = True
        self.miss(predictions=failed)
        rescued = self.rescue(failed)
        return [
            (slot, submission)
            for turn, at, submissions in self._attempts
            for slot, submission in zip(at.tolist(), submissions, strict=True)
            if rescued[slot] and turn >= self._first_turn[slot]
        ]

    def _execute(self, submissions: list[Submission]) -> list[Outcome | None]:
        grader = self._env.grader
        outcomes = list(grader.grade(submissions))
        check_graded(grader, submissions, outcomes)
        for outcome in outcomes:
            if outcome is not None and not isinstance(outcome, Outcome):
                raise GradingError(f"{type(grader).__name__} returned {outcome!r}; it must return an Outcome, or None")
        if self.recording:
            self._executed.extend(zip(submissions, outcomes, strict=True))
        return outcomes

    def _charge(
        self, submissions: Sequence[Submission], outcomes: Sequence[Outcome | None], *, warmup: bool = False
    ) -> None:
        seconds = np.array([np.nan if outcome is None else outcome.seconds for outcome in outcomes])
        self._ledger.execute(seconds, [(s.task.id, s.code or "") for s in submissions], warmup=warmup)

    def _note_executions(
        self, slots: IntArray, outcomes: list[Outcome | None], missed: list[int], caught_up: list[Outcome | None]
    ) -> None:
        """Take in what was executed: this turn's outcomes, and those of rescued episodes' earlier turns."""
        real = np.array([np.nan if outcome is None else outcome.reward for outcome in outcomes])
        self._real = self._unknown.copy()
        self._real[slots] = real
        if missed:
            self.real_total = self.real_total.copy()
            for slot, outcome in zip(missed, caught_up, strict=True):
                # NaN, once in, has to stay for what follows: an unknown turn leaves the episode unknown.
                reward = np.nan if outcome is None else outcome.reward
                self.real_total[slot] = np.fmax(self.real_total[slot], reward)
        unknown = [slot for slot, outcome in zip(missed, caught_up, strict=True) if outcome is None]
        if unknown or math.isnan(np.add.reduce(real)):
            failed = np.zeros(self.n, np.bool_)
            failed[slots[real != real]] = failed[unknown] = True
            self.miss(executions=failed)

    def charge(self) -> None:
        """Charge the executions of episodes under way that are not charged yet; otherwise they are when one ends."""
        fresh = self._executed[self._charged :]
        if fresh:
            self._charge([submission for submission, _ in fresh], [outcome for _, outcome in fresh])
            self._charged = len(self._executed)

    def _observe(self) -> None:
        self.charge()
        executed, self._executed, self._charged = self._executed, [], 0
        if self.predicting:
            self._predictor.call("observe", [s for s, _ in executed], [o for _, o in executed])


def _scattered(values: Any, slots: IntArray, n: int) -> Any:
    """Return values of some slots as an array of all, unknown elsewhere."""
    known = np.fromiter(values, object, len(values)) if isinstance(values, list) else values
    array = np.full(n, None if known.dtype == object else np.nan, known.dtype)
    array[slots] = known
    return array
