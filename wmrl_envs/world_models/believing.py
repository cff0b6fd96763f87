"""What a language model believes about solutions, read off its probabilities or out of its answers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.research.outcome import STATUSES, Prediction, Status
from wmrl_envs.world_models.asking import CachedBackend
from wmrl_envs.world_models.backends.protocol import Conversation
from wmrl_envs.world_models.pairs import Executed
from wmrl_envs.world_models.parsing import ANSWER_SCHEMA, Answer, parse_answer
from wmrl_envs.world_models.posterior import consistent
from wmrl_envs.world_models.prompting import PromptTemplates
from wmrl_envs.world_models.terminal import Terminal, plain_feedback, read_terminal
from wmrl_envs.world_models.verdicts import VERDICTS, prediction_from, verdict_for

if TYPE_CHECKING:
    from wmrl_envs.research.grading import Submission

__all__ = ["Belief", "Reader"]

FloatArray = NDArray[np.float64]
_LOG = logging.getLogger(__name__)
_OWN_REASON = (Status.RUNTIME_ERROR, Status.INVALID_SUBMISSION)
"""Statuses whose feedback depends on the code; what the others show is known from the task."""
_MAX_FEEDBACK_TOKENS = 256
"""Longest feedback that is written: ten lines are asked for, and a small model goes on for ever."""


@dataclass(frozen=True, slots=True)
class Belief:
    """What the model said about one solution."""

    probabilities: FloatArray | None
    """Of each of ``VERDICTS``, float64 [10]; None where it said nothing that can be read."""
    answers: tuple[Answer, ...] = ()
    """The answers behind it, where it was asked for answers."""
    examples: tuple[Executed, ...] = ()
    """The executed solutions that it was shown."""
    new: bool = True
    """Whether it had to be computed."""

    @property
    def expected(self) -> FloatArray:
        """The expected reward, then each status's probability: float64 [10]."""
        prediction = self._plain()
        return np.array([prediction.reward, *prediction.probabilities])

    @property
    def spread(self) -> float:
        """Standard deviation of the reward."""
        return self._plain().spread

    def prediction(self, corrected: tuple[FloatArray, FloatArray] | None = None) -> Prediction | None:
        """Return the prediction that this amounts to, without feedback.

        Args:
            corrected: In place of `expected` and `spread`, what they are after a correction.
        """
        if self.probabilities is None:
            return None
        prediction = self._plain()
        if corrected is not None:
            found = consistent(corrected[0][None, :])
            status = STATUSES[found.status[0]]
            prediction = Prediction(
                status=status,
                reward=float(found.reward[0]),
                position=float(found.position[0]) if status is Status.VALID else None,
                probabilities=tuple(found.probabilities[0].tolist()),
                spread=float(corrected[1]),
                confidence=float(found.probabilities[0].max()),
            )
        stated = [a.confidence for a in self.answers if a.status is prediction.status and a.confidence is not None]
        return replace(prediction, confidence=float(np.mean(stated))) if stated else prediction

    def _plain(self) -> Prediction:
        assert self.probabilities is not None
        return prediction_from(self.probabilities)


class Reader:
    """Asks a language model about solutions and reads what it says.

    Args:
        asker: The language model.
        templates: Write the prompts.
        samples: Answers per solution; 0 reads the model's probabilities instead.
        temperature: Of the answers.
        max_tokens: Longest reply.
        seed: Seed of the answers.
    """

    def __init__(
        self,
        asker: CachedBackend,
        templates: PromptTemplates,
        *,
        samples: int,
        temperature: float,
        max_tokens: int,
        seed: int,
    ) -> None:
        self.unreadable = 0
        """Replies so far in which no answer could be read."""
        self.failed = 0
        """Answers so far that the model did not give."""
        self._asker = asker
        self._templates = templates
        self._samples = samples
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._seed = seed

    def read(self, submissions: Sequence[Submission], examples: Sequence[Sequence[Executed]]) -> list[Belief]:
        """Return the model's belief about each solution.

        Args:
            submissions: Solutions that compile.
            examples: For each, executed solutions that its prompt shows.

        Raises:
            WorldModelError: If the model cannot be reached at all.
        """
        if not submissions:
            return []
        ask = self._sampled if self._samples else self._scored
        chats = [
            self._templates.conversation(submission, answer="json" if self._samples else "word", examples=shown)
            for submission, shown in zip(submissions, examples, strict=True)
        ]
        return [replace(belief, examples=tuple(shown)) for belief, shown in zip(ask(chats), examples, strict=True)]

    def with_feedback(
        self,
        submissions: Sequence[Submission],
        beliefs: Sequence[Belief],
        predictions: Sequence[Prediction | None],
    ) -> list[tuple[Prediction | None, bool]]:
        """Return the predictions with what the terminal shows, where somebody will read it.

        Args:
            submissions: n solutions.
            beliefs: What `read` returned about them.
            predictions: What was made of it.

        Returns:
            The predictions, and for each whether its feedback had to be computed.

        Raises:
            WorldModelError: If the model cannot be reached at all.
        """
        shown: list[Terminal | None] = [None] * len(submissions)
        asked: list[int] = []
        for index, (submission, belief, prediction) in enumerate(zip(submissions, beliefs, predictions, strict=True)):
            if prediction is None or submission.final:
                continue
            status = prediction.status
            if status not in _OWN_REASON:
                shown[index] = Terminal(plain_feedback(submission.task, status, prediction.position))
            elif self._samples:
                shown[index] = _told(belief, submission, status)
            else:
                asked.append(index)
        new = [False] * len(submissions)
        written = self._written(submissions, beliefs, predictions, asked)
        for index, (terminal, computed) in zip(asked, written, strict=True):
            shown[index], new[index] = terminal, computed
        return [
            (prediction if prediction is None or terminal is None else _showing(prediction, terminal), computed)
            for prediction, terminal, computed in zip(predictions, shown, new, strict=True)
        ]

    def _scored(self, chats: Sequence[Conversation]) -> list[Belief]:
        found = self._asker.choose(chats, VERDICTS)
        self._count(failed=sum(asked.answer is None for asked in found), of=len(found), unreadable=0)
        return [Belief(asked.answer, new=asked.new) for asked in found]

    def _sampled(self, chats: Sequence[Conversation]) -> list[Belief]:
        found = self._asker.generate(
            chats,
            samples=self._samples,
            max_tokens=self._max_tokens,
            temperature=self._temperature,
            seed=self._seed,
            schema=ANSWER_SCHEMA,
        )
        beliefs: list[Belief] = []
        replies = [[reply for reply in asked.answer if reply is not None] for asked in found]
        for asked, given in zip(found, replies, strict=True):
            parsed = [parse_answer(reply.text) for reply in given]
            answers = tuple(answer for answer in parsed if answer is not None)
            mean = np.mean([answer.probabilities for answer in answers], axis=0) if answers else None
            beliefs.append(Belief(mean, answers, new=asked.new))
        wanted, came = len(found) * self._samples, sum(map(len, replies))
        readable = sum(len(belief.answers) for belief in beliefs)
        self._count(failed=wanted - came, of=wanted, unreadable=came - readable)
        return beliefs

    def _written(
        self,
        submissions: Sequence[Submission],
        beliefs: Sequence[Belief],
        predictions: Sequence[Prediction | None],
        asked: Sequence[int],
    ) -> list[tuple[Terminal, bool]]:
        """Let the model write what the terminal shows; where it does not, return what is known anyway."""
        chats = []
        for index in asked:
            prediction = predictions[index]
            assert prediction is not None
            alike = [
                (code, outcome) for code, outcome in beliefs[index].examples if outcome.status is prediction.status
            ]
            verdict = verdict_for(prediction.status)
            chats.append(
                self._templates.conversation(submissions[index], answer="feedback", examples=alike, verdict=verdict)
            )
        if not chats:
            return []
        most = min(self._max_tokens, _MAX_FEEDBACK_TOKENS)
        found = self._asker.generate(chats, samples=1, max_tokens=most, temperature=0.0, seed=self._seed)
        written = []
        for index, member in zip(asked, found, strict=True):
            prediction, reply = predictions[index], member.answer[0]
            assert prediction is not None
            terminal = read_terminal(reply.text if reply else "", submissions[index].code or "")
            if not terminal.text:
                terminal = Terminal(plain_feedback(submissions[index].task, prediction.status, None))
            written.append((terminal, member.new))
        self._count(failed=sum(member.answer[0] is None for member in found), of=len(found), unreadable=0)
        return written

    def _count(self, *, failed: int, of: int, unreadable: int) -> None:
        self.failed += failed
        self.unreadable += unreadable
        if failed:
            _LOG.warning(
                "the language model gave no answer in %d of %d cases: its server may be away, the prompt longer than "
                "its context, or, in mode='score', the server reports no log-probabilities (use mode='sample')",
                failed,
                of,
            )
        if unreadable:
            _LOG.warning("%d of %d answers of the language model could not be read", unreadable, of)


def _told(belief: Belief, submission: Submission, status: Status) -> Terminal:
    """Return the feedback of the first answer that agrees with what was predicted in the end and has some."""
    agreeing = [answer for answer in belief.answers if answer.status is status]
    answer = next((answer for answer in agreeing if answer.feedback), agreeing[0] if agreeing else None)
    if answer is None:
        return Terminal(plain_feedback(submission.task, status, None))
    lines = (submission.code or "").count("\n") + 1
    line = answer.error_line if answer.error_line and answer.error_line <= lines else None
    text = answer.feedback or plain_feedback(submission.task, status, None, answer.error_type, line)
    return Terminal(text, answer.error_type, line)


def _showing(prediction: Prediction, terminal: Terminal) -> Prediction:
    failed = prediction.status is Status.RUNTIME_ERROR
    return replace(
        prediction,
        feedback=terminal.text,
        error_type=terminal.error_type if failed else None,
        error_line=terminal.error_line if failed else None,
    )
