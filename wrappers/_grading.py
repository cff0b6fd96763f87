"""Execution replaced by prediction: the batched core of ``WorldModelWrapper`` over environments that have a grader."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.correction import Ledger
from wmrl_envs.research.grading import Submission, check_graded
from wmrl_envs.research.outcome import Outcome, Prediction
from wmrl_envs.wrappers._executions import load_outcome, load_submission, save_outcome, save_submission, solution_keys
from wmrl_envs.wrappers._predicting import Predictor
from wmrl_envs.wrappers._slots import Slots
from wmrl_envs.wrappers._streams import BoolArray, FloatArray, IntArray, Streams

__all__ = ["GradingCore"]


class GradingCore(Slots):
    """Grades an environment's submissions by a world model, and those of anchor episodes by its sandbox as well.

    Per step there is one call of the world model for all submissions and one of the sandbox for those that are
    executed. What was executed goes to the world model's ``observe`` when an executed episode ends.
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
        if self._executed and (slots & self.begun & self.executing).any():
            self._observe()
        super().begin(slots)
        self._first_turn[slots] = self._clock

    def route(self, slots: IntArray, submissions: list[Submission]) -> list[Outcome | None]:
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
        predictions = self._predict(submissions) if self.predicting else [None] * len(submissions)
        rewards = np.fromiter((np.nan if p is None else p.reward for p in predictions), np.float64, len(predictions))
        self._predicted[slots] = rewards
        self._spread[slots] = [p.spread if isinstance(p, Prediction) else 0.0 for p in predictions]
        self._turn = (slots, submissions)
        rows: list[int] = []
        missed: list[tuple[int, Submission]] = []
        if self.predicting and (lost := rewards != rewards).any():
            self.unpredicted[slots[lost]] = True
            missed = self._rescue_episodes(slots[lost])
        executing = self.executing[slots]
        shown = predictions
        if executing.any():
            rows = np.flatnonzero(executing).tolist()
            outcomes = self._execute(
                [submissions[row] for row in rows] + [submission for _, submission in missed],
                [int(slots[row]) for row in rows] + [slot for slot, _ in missed],
            )
            self._note(slots[rows], outcomes[: len(rows)], [slot for slot, _ in missed], outcomes[len(rows) :])
            for row, outcome in zip(rows, outcomes, strict=False):
                if not self._show_predicted or predictions[row] is None:
                    shown[row] = outcome
        for slot, outcome in zip(slots.tolist(), shown, strict=True):
            self._shown[slot] = outcome
        return shown

    def finish(self, active: BoolArray, done: BoolArray) -> Streams:
        """Take the turn that was routed into the episodes, and return the step's streams.

        Args:
            active: [n] bool, the slots that took a step.
            done: [n] bool, whose episodes ended.
        """
        if self.max_rescues and self._turn is not None:
            self._attempts.append((self._clock, *self._turn))
        self._clock += 1
        streams = self.advance(active, done, self._real, self._predicted, self._spread, self._shown)
        self._clear_turn()
        if self._executed and (done & streams.executed).any():
            self._observe()
        if done.any():
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
        self._attempts, self._executed = attempts, executed
        self._clock, self._first_turn[:] = state["clock"], state["first_turn"]
        self._clear_turn()

    def _clear_turn(self) -> None:
        """Forget a turn; the arrays are fresh because the streams of the last step may still be held."""
        self._real: FloatArray = np.full(self.n, np.nan)
        self._predicted: FloatArray = np.full(self.n, np.nan)
        self._spread: FloatArray = np.zeros(self.n)
        self._shown: NDArray[np.object_] = np.full(self.n, None, dtype=object)
        self._turn: tuple[IntArray, list[Submission]] | None = None

    def _predict(self, submissions: Sequence[Submission]) -> list[Outcome | None]:
        start = time.perf_counter()
        predictions = self._predictor.grade(submissions)
        elapsed = time.perf_counter() - start
        if self.recording:
            # A Prediction says what it took, the same at every repetition; other outcomes share what the clock says.
            seconds = sum(p.seconds for p in predictions if isinstance(p, Prediction))
            unstated = sum(p is not None and not isinstance(p, Prediction) for p in predictions)
            seconds += elapsed * unstated / len(predictions)
            self._ledger.predict(len(predictions), seconds)
        return predictions

    def _execute(self, submissions: list[Submission], slots: list[int]) -> list[Outcome | None]:
        grader = self._env.grader
        outcomes = list(grader.grade(submissions))
        check_graded(grader, submissions, outcomes)
        if self.recording:
            self._charge(submissions, outcomes)
            self._executed.extend(zip(submissions, outcomes, strict=True))
        return outcomes

    def _charge(
        self, submissions: Sequence[Submission], outcomes: Sequence[Outcome | None], *, warmup: bool = False
    ) -> None:
        seconds = np.fromiter((np.nan if o is None else o.seconds for o in outcomes), np.float64, len(outcomes))
        self._ledger.execute(seconds, solution_keys(submissions), warmup=warmup)

    def _note(
        self, slots: IntArray, outcomes: list[Outcome | None], missed: list[int], caught_up: list[Outcome | None]
    ) -> None:
        """Take in what was executed: this turn's outcomes, and those of rescued episodes' earlier turns."""
        real = np.fromiter((np.nan if o is None else o.reward for o in outcomes), np.float64, len(outcomes))
        self._real[slots] = real
        self.unexecuted[slots[real != real]] = True
        for slot, outcome in zip(missed, caught_up, strict=True):
            if outcome is None:
                self.unexecuted[slot] = True
            else:
                self.real_total[slot] = np.fmax(self.real_total[slot], outcome.reward)

    def _rescue_episodes(self, slots: IntArray) -> list[tuple[int, Submission]]:
        """Return the earlier attempts of the episodes that are executed from this turn on."""
        failed = np.zeros(self.n, np.bool_)
        failed[slots] = True
        rescued = self.rescue(failed)
        if not rescued.any():
            return []
        return [
            (slot, submission)
            for turn, at, submissions in self._attempts
            for slot, submission in zip(at.tolist(), submissions, strict=True)
            if rescued[slot] and turn >= self._first_turn[slot]
        ]

    def _observe(self) -> None:
        executed, self._executed = self._executed, []
        if self.predicting:
            self._predictor.call("observe", [s for s, _ in executed], [o for _, o in executed])
