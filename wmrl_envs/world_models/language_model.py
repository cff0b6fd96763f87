"""A language model as world model: it reads the task, the data and the code, and says how executing it would end."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import CheckpointError, ConfigurationError, did_you_mean
from wmrl_envs.research.grading import Grader, Submission, check_graded
from wmrl_envs.research.outcome import Outcome, Prediction
from wmrl_envs.world_models.asking import CachedBackend
from wmrl_envs.world_models.backends.protocol import Backend
from wmrl_envs.world_models.backends.registry import resolve_backend
from wmrl_envs.world_models.believing import Belief, Reader
from wmrl_envs.world_models.executed import ExecutedSolutions
from wmrl_envs.world_models.features import DataNames
from wmrl_envs.world_models.gates import certain
from wmrl_envs.world_models.pairs import Executed
from wmrl_envs.world_models.prediction_cache import PredictionCache, content_key
from wmrl_envs.world_models.prompting import PromptTemplates
from wmrl_envs.world_models.verdicts import verdict_of
from wmrl_envs.world_models.warmup import WarmupCache, warm_up

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = ["LanguageWorldModel"]

_LOG = logging.getLogger(__name__)
_MODES = ("score", "sample")
_SETTINGS = ("mode", "samples", "temperature", "examples", "residual", "seed", "max_tokens")
_REMEMBERED = 4_096
"""Predictions that are remembered in case their solutions are executed, the latest ones."""


class LanguageWorldModel:
    """Predicts how a solution ends by asking a chat language model.

    What is certain is never asked: a reply without code, or code that does not compile. Equal solutions of a batch are
    asked once, and answers are kept on disk by the content of the question. A batch is one call of the model, two where
    feedback has to be written.

    Two ways to read it. ``mode="score"`` takes the model's own probabilities of ten one-word verdicts (six ways to
    fail, four quality buckets) after one pass over the prompt: expected reward and spread without sampling noise; a
    second, generated reply says what the terminal shows, only where the episode goes on and the solution fails for a
    reason of its own. A model that thinks before it answers has to be told not to, as in the example.
    ``mode="sample"`` lets it reason: ``samples`` JSON answers per solution, each of which counts as much, whatever
    confidence it states; those that cannot be read are left out. Where nothing can be read the prediction is None,
    which is counted and never a low reward.

    It learns from executions without being trained, in two ways. With ``examples`` the nearest executed solutions of
    the task stand in the prompt with their real outcomes. With ``residual`` a Gaussian process on the errors of its own
    earlier predictions corrects the expected reward and the status probabilities. Those predictions are made without
    the solution's own outcome among the examples; where the residual is off, a solution that was executed before is
    shown its own outcome, which is knowledge and no leak, since an execution was paid for it. What the residual knows
    of an executed solution's error is from the last time that it was predicted, so examples that came later can make
    it correct what they have corrected: ``wmrl world-model evaluate`` tells which of the two, or both, serve a model.

    Args:
        model: ``"transformers:PATH"``, ``"vllm:PATH"``, ``"openai:URL#MODEL"``, or a backend.
        model_kwargs: Arguments of the backend, such as ``{"dtype": "bfloat16"}``.
        mode: ``"score"`` or ``"sample"``.
        samples: Answers per solution in ``"sample"``.
        temperature: Of these answers; 0 needs ``samples=1``. Feedback in ``"score"`` is always the most probable text.
        templates: ``"default"``, ``"compact"``, or the path of a folder (`PromptTemplates`).
        examples: Executed solutions in each prompt; 0 shows none.
        residual: Whether executions correct later predictions.
        warmup: Solutions, drawn from the prior of a task's design space, that are executed before the first prediction
            and charged like any execution; 0 executes none and works on tasks without a design space.
        max_tokens: Longest reply; feedback in ``"score"`` ends after 256 tokens at the latest.
        feedback: Whether feedback is predicted; without it predictions have none.
        cache: Whether answers are kept on disk.
        cache_dir: Folder for these answers and for executed warm-ups; None is ``$XDG_CACHE_HOME/wmrl-envs`` (by default
            ``~/.cache/wmrl-envs``).
        seed: Seed of the samples and of the warm-up draw.

    Attributes:
        unreadable: Replies so far in which no answer could be read.
        failed: Answers so far that the model did not give (the server was away, the prompt is too long).

    Raises:
        ConfigurationError: If an argument is unknown or cannot work.
        WorldModelError: If the model cannot be loaded or reached.

    Example:
        >>> model = LanguageWorldModel(
        ...     "transformers:Qwen/Qwen3-4B",
        ...     model_kwargs={"chat_template_kwargs": {"enable_thinking": False}},
        ...     examples=2,
        ... )  # doctest: +SKIP
        >>> model.grade([Submission(task, "print(1)")])  # doctest: +SKIP
    """

    def __init__(
        self,
        model: str | Backend,
        *,
        model_kwargs: Mapping[str, Any] | None = None,
        mode: Literal["score", "sample"] = "score",
        samples: int = 4,
        temperature: float = 0.7,
        templates: str | os.PathLike[str] = "default",
        examples: int = 0,
        residual: bool = True,
        warmup: int = 0,
        max_tokens: int = 512,
        feedback: bool = True,
        cache: bool = True,
        cache_dir: str | os.PathLike[str] | None = None,
        seed: int = 0,
    ) -> None:
        counts = {"samples": (samples, 1), "examples": (examples, 0), "warmup": (warmup, 0)}
        for name, (value, least) in (counts | {"max_tokens": (max_tokens, 1), "seed": (seed, 0)}).items():
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigurationError(f"{name} must be a whole number of at least {least}, got {value!r}")
        if mode not in _MODES:
            raise ConfigurationError(
                f"unknown mode {mode!r}; it is 'score' or 'sample'.{did_you_mean(str(mode), _MODES)}"
            )
        if not 0.0 <= temperature < float("inf"):
            raise ConfigurationError(f"temperature must be 0 or more, got {temperature!r}")
        if mode == "sample" and temperature == 0 and samples > 1:
            raise ConfigurationError(
                f"temperature=0 gives the same answer {samples} times: pass samples=1 or a temperature"
            )
        if warmup and not (examples or residual):
            raise ConfigurationError(
                f"warmup={warmup} would execute solutions for nothing: pass examples=, residual=True or warmup=0"
            )
        self.mode = mode
        self.samples = samples
        self.temperature = float(temperature)
        self.examples = examples
        self.residual = bool(residual)
        self.warmup = warmup
        self.max_tokens = max_tokens
        self.feedback = bool(feedback)
        self.seed = seed
        self.templates = PromptTemplates.load(templates)
        self._owned = isinstance(model, str)
        self.backend = resolve_backend(model, **(model_kwargs or {}))
        self._asker = CachedBackend(self.backend, PredictionCache(cache_dir) if cache else None)
        self._reader = Reader(
            self._asker,
            self.templates,
            samples=samples if mode == "sample" else 0,
            temperature=self.temperature,
            max_tokens=max_tokens,
            seed=seed,
        )
        self._warmups = WarmupCache(cache_dir)
        self._executed: dict[str, ExecutedSolutions] = {}
        self._predicted: dict[str, NDArray[np.float64]] = {}
        self._lock = threading.RLock()

    @property
    def unreadable(self) -> int:
        """Replies so far in which no answer could be read."""
        return self._reader.unreadable

    @property
    def failed(self) -> int:
        """Answers so far that the model did not give."""
        return self._reader.failed

    @property
    def cache_hits(self) -> int:
        """Answers so far that came from disk."""
        return self._asker.hits

    def grade(self, submissions: Sequence[Submission]) -> list[Prediction | None]:
        """Predict a batch.

        Returns:
            One prediction per submission, in order; None where the model gave no answer that can be read. ``reward`` is
            the expectation in [0, 1]; ``seconds`` is this call's time, shared by the predictions that had to be
            computed.

        Raises:
            WorldModelError: If the model cannot be reached at all.
        """
        start = time.perf_counter()
        with self._lock:
            predictions: list[Prediction | None] = [certain(submission) for submission in submissions]
            places: dict[tuple[str, str], list[int]] = {}
            for index, submission in enumerate(submissions):
                if predictions[index] is None:
                    places.setdefault((submission.task.id, submission.code or ""), []).append(index)
            asked = [_merged([submissions[index] for index in indices]) for indices in places.values()]
            beliefs = self._believe(asked)
            found = self._predict(asked, beliefs)
            for submission, belief in zip(asked, beliefs, strict=True):
                self._remember(submission, belief)
            computed: list[int] = []
            for indices, (prediction, new) in zip(places.values(), found, strict=True):
                for index in indices:
                    predictions[index] = prediction
                if new and prediction is not None:
                    computed += indices
        share = (time.perf_counter() - start) / max(len(computed), 1)
        for index in computed:
            prediction = predictions[index]
            assert prediction is not None
            predictions[index] = replace(prediction, seconds=share)
        return predictions

    def prepare(self, tasks: Sequence[ResearchTask], grader: Grader) -> list[tuple[Submission, Outcome]]:
        """Execute a warm-up on each task of which nothing was executed yet.

        Args:
            tasks: Tasks that predictions will be asked for.
            grader: Executes the part of the warm-up of which nothing is on record.

        Returns:
            What was executed, for the ledger to charge; empty with ``warmup=0``.

        Raises:
            WorldModelError: If a task has no design space to draw from, or the model cannot be reached.
        """
        executed: list[tuple[Submission, Outcome]] = []
        for task in tasks:
            if self.warmup and task.id not in self._executed:
                pairs = warm_up(task, grader, self.warmup, self.seed, "recordings", self._warmups)
                self.fit([submission for submission, _ in pairs], [outcome for _, outcome in pairs])
                executed += pairs
        return executed

    def fit(self, submissions: Sequence[Submission], outcomes: Sequence[Outcome | None]) -> None:
        """Learn from executed solutions, in place of what was known of their tasks.

        The model itself stays as it is. With ``residual`` it predicts each of them once, the others as examples.

        Args:
            submissions: Executed solutions, of one or several tasks.
            outcomes: Their outcomes; None teaches nothing.

        Raises:
            GradingError: If the two differ in length.
            WorldModelError: If the model cannot be reached; nothing was learned then.
        """
        with self._lock:
            self._learn(submissions, outcomes, fresh=True)

    def observe(self, submissions: Sequence[Submission], outcomes: Sequence[Outcome | None]) -> None:
        """Learn from one training step's executions.

        What was predicted about them before says how the model errs; of a solution that was never predicted it is
        asked now, before its outcome is known to it.

        Args:
            submissions: What was executed.
            outcomes: What came back; None teaches nothing.

        Raises:
            GradingError: If the two differ in length.
            WorldModelError: If the model cannot be reached; nothing was learned then.
        """
        with self._lock:
            self._learn(submissions, outcomes, fresh=False)

    def state_dict(self) -> dict[str, Any]:
        """Return what was learned, JSON-able: with it, predictions are those of this model."""
        with self._lock:
            return {
                "format": 1,
                "settings": {name: getattr(self, name) for name in _SETTINGS},
                "templates": self.templates.identity,
                "model": self.backend.identity,
                "executed": {name: store.state_dict() for name, store in self._executed.items()},
                "predicted": {key: belief.tolist() for key, belief in self._predicted.items()},
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what was learned.

        Raises:
            CheckpointError: If it belongs to other settings or templates, or is no state of this class.
        """
        settings = {name: getattr(self, name) for name in _SETTINGS}
        try:
            if state["format"] != 1:
                raise CheckpointError(f"unknown format {state['format']!r} of a language world model; known is 1")
            if state["settings"] != settings or state["templates"] != self.templates.identity:
                raise CheckpointError(
                    f"the saved world model has settings {state['settings']} and templates {state['templates'][:12]}, "
                    f"this one {settings} and {self.templates.identity[:12]}; build LanguageWorldModel with the saved "
                    "ones"
                )
            executed = {name: ExecutedSolutions.from_state(saved) for name, saved in state["executed"].items()}
            predicted = {key: np.array(belief, dtype=np.float64) for key, belief in state["predicted"].items()}
            if state["model"] != self.backend.identity:
                _LOG.warning(
                    "what the world model learned is about the errors of %s, and it goes on with %s",
                    state["model"],
                    self.backend.identity,
                )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"this is no state of a language world model: {error!r}") from error
        with self._lock:
            self._executed, self._predicted = executed, predicted

    def close(self) -> None:
        """Close the cache, and the model if it was given by name."""
        with self._lock:
            self._asker.close()
            if self._owned:
                self.backend.close()

    def __enter__(self) -> LanguageWorldModel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _believe(
        self, submissions: Sequence[Submission], stores: Mapping[str, ExecutedSolutions] | None = None
    ) -> list[Belief]:
        """Ask the model about distinct solutions, their nearest executed ones as examples."""
        stores = self._executed if stores is None else stores
        shown: list[list[Executed]] = []
        for submission in submissions:
            store = stores.get(submission.task.id)
            # The residual tells a solution's own outcome; told twice it would count twice.
            itself = not self.residual
            shown.append(store.nearest(submission.code or "", self.examples, itself=itself) if store else [])
        return self._reader.read(submissions, shown)

    def _predict(
        self, submissions: Sequence[Submission], beliefs: Sequence[Belief]
    ) -> list[tuple[Prediction | None, bool]]:
        """Return predictions, and for each whether it had to be computed."""
        corrected: list[tuple[NDArray[np.float64], NDArray[np.float64]] | None] = [None] * len(submissions)
        for name, store in self._executed.items():
            rows = [
                index
                for index, (submission, belief) in enumerate(zip(submissions, beliefs, strict=True))
                if submission.task.id == name and belief.probabilities is not None
            ]
            if rows and store.corrects:
                expected = np.stack([beliefs[index].expected for index in rows])
                spread = np.array([beliefs[index].spread for index in rows])
                codes = [submissions[index].code or "" for index in rows]
                found = store.correct(codes, expected, spread)
                for row, index in enumerate(rows):
                    corrected[index] = found[0][row], found[1][row]
        predictions = [belief.prediction(correction) for belief, correction in zip(beliefs, corrected, strict=True)]
        if not self.feedback:
            return [(prediction, belief.new) for prediction, belief in zip(predictions, beliefs, strict=True)]
        shown = self._reader.with_feedback(submissions, beliefs, predictions)
        return [(prediction, new or belief.new) for (prediction, new), belief in zip(shown, beliefs, strict=True)]

    def _remember(self, submission: Submission, belief: Belief) -> None:
        """Keep a prediction for the residual, in case the solution is executed."""
        if not self.residual or belief.probabilities is None:
            return
        key = _key(submission.task.id, submission.code or "")
        self._predicted.pop(key, None)
        self._predicted[key] = belief.expected
        while len(self._predicted) > _REMEMBERED:
            del self._predicted[next(iter(self._predicted))]

    def _learn(self, submissions: Sequence[Submission], outcomes: Sequence[Outcome | None], *, fresh: bool) -> None:
        check_graded(self, submissions, outcomes)
        if not (self.examples or self.residual):
            return
        taught = [
            (submission, outcome)
            for submission, outcome in zip(submissions, outcomes, strict=True)
            if outcome is not None and verdict_of(outcome) is not None and certain(submission) is None
        ]
        by_task: dict[ResearchTask, list[tuple[Submission, Outcome]]] = {}
        for submission, outcome in taught:
            by_task.setdefault(submission.task, []).append((submission, outcome))
        if fresh:
            stores = {task.id: ExecutedSolutions(DataNames.of(task)) for task in by_task}
            for task, pairs in by_task.items():
                stores[task.id].add([(submission.code or "", outcome) for submission, outcome in pairs])
            kept = [pair for pair in taught if stores[pair[0].task.id].get(pair[0].code or "") is not None]
            bases = self._bases(kept, stores, {})
        else:
            stores = {task.id: self._executed.get(task.id) or ExecutedSolutions(DataNames.of(task)) for task in by_task}
            bases = self._bases(taught, self._executed, self._predicted)
            for task, pairs in by_task.items():
                stores[task.id].add([(submission.code or "", outcome) for submission, outcome in pairs])
        for name, store in stores.items():
            for solution in store:
                key = _key(name, solution.code)
                base = bases.get(key, self._predicted.pop(key, None))
                solution.base = solution.base if base is None else base
            if self.residual:
                store.refit()
        self._executed.update(stores)

    def _bases(
        self,
        taught: Sequence[tuple[Submission, Outcome]],
        stores: Mapping[str, ExecutedSolutions],
        known: Mapping[str, NDArray[np.float64]],
    ) -> dict[str, NDArray[np.float64]]:
        """Return what the model predicts about executed solutions of which it is not known what it predicted."""
        if not self.residual:
            return {}
        missing: dict[str, Submission] = {}
        for submission, _ in taught:
            store = stores.get(submission.task.id)
            solution = store.get(submission.code or "") if store else None
            key = _key(submission.task.id, submission.code or "")
            if key not in known and (solution is None or solution.base is None):
                missing[key] = submission
        beliefs = self._believe(list(missing.values()), stores)
        return {
            key: belief.expected
            for key, belief in zip(missing, beliefs, strict=True)
            if belief.probabilities is not None
        }


def _key(task: str, code: str) -> str:
    return content_key(task, code)[:32]


def _merged(same: Sequence[Submission]) -> Submission:
    """Return one submission for several of the same code, final if all are."""
    return replace(same[0], final=all(submission.final for submission in same))
