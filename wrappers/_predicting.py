"""Asking a world model, and refusing or marking what is no prediction."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import numpy as np

from wmrl_envs.errors import GradingError, WMRLError, WorldModelError
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import Outcome, Prediction
from wmrl_envs.wrappers._streams import FloatArray

__all__ = ["Predictor"]

# attrgetter and map stay in C: a step has a hundred predictions and more.
_REWARD, _SECONDS = attrgetter("reward"), attrgetter("seconds")


class Predictor:
    """Calls one world model and checks each of its answers.

    A prediction whose reward is no finite number counts as none (``None``), with one warning for the predictor's life.
    """

    def __init__(self, model: Any) -> None:
        """Hold the model: a grader, or a callable on transitions or episodes."""
        self.model = model
        self._warned = False

    @property
    def name(self) -> str:
        """Class name of the model (of a function, its own)."""
        model = self.model
        return getattr(model, "__qualname__", None) or type(model).__name__

    def grade(self, submissions: Sequence[Submission]) -> tuple[list[Outcome | None], FloatArray, float]:
        """Return one prediction per submission, their rewards (NaN where there is none), and the seconds they took.

        Raises:
            GradingError: If the number of predictions is wrong.
            WorldModelError: If the model raises, or returns something that is no outcome.
        """
        start = time.perf_counter()
        with self._chained("grade"):
            answer = self.model.grade(submissions)
        elapsed = time.perf_counter() - start
        predictions = self._listed(answer, len(submissions), "grade", "submissions")
        if set(map(type, predictions)) == {Prediction}:
            rewards = np.fromiter(map(_REWARD, predictions), np.float64, len(predictions))
            if math.isfinite(np.add.reduce(rewards)):
                return predictions, rewards, sum(map(_SECONDS, predictions))
        self._check(predictions)
        rewards = np.fromiter((np.nan if p is None else p.reward for p in predictions), np.float64, len(predictions))
        # A Prediction says what it took, the same at every repetition; other outcomes share what the clock says.
        seconds = sum(p.seconds for p in predictions if isinstance(p, Prediction))
        unstated = sum(p is not None and not isinstance(p, Prediction) for p in predictions)
        return predictions, rewards, seconds + elapsed * unstated / max(len(predictions), 1)

    def _check(self, predictions: list[Any]) -> None:
        """Refuse what is no outcome, and put ``None`` in the place of one whose reward is no finite number."""
        for index, prediction in enumerate(predictions):
            if prediction is None:
                continue
            if not isinstance(prediction, Outcome):
                raise WorldModelError(
                    f"{self.name}.grade returned {type(prediction).__name__} as prediction {index}; it must return an "
                    "Outcome (best a Prediction), or None where it can predict nothing"
                )
            if not math.isfinite(prediction.reward):
                self._warn(index, prediction.reward)
                predictions[index] = None

    def rewards(self, count: int, *batch: Any) -> list[float]:
        """Return ``count`` predicted rewards of transitions or whole episodes, NaN where there is none.

        Raises:
            GradingError: If the number of rewards is wrong.
            WorldModelError: If the model raises, or returns something that is no number.
        """
        with self._chained("__call__"):
            answer = self.model(*batch)
        rewards = self._listed(answer, count, "__call__", "items")
        for index, reward in enumerate(rewards):
            try:
                rewards[index] = math.nan if reward is None else float(reward)
            except (TypeError, ValueError) as error:
                raise WorldModelError(
                    f"{self.name} returned {reward!r} as reward {index}; it must return a number, or None where it can "
                    "predict nothing"
                ) from error
            if reward is not None and not math.isfinite(rewards[index]):
                self._warn(index, rewards[index])
                rewards[index] = math.nan
        return rewards

    def call(self, method: str, *arguments: Any) -> Any:
        """Call an optional method of the model; ``None`` where it has none."""
        function: Callable[..., Any] | None = getattr(self.model, method, None)
        if function is None:
            return None
        with self._chained(method):
            return function(*arguments)

    def _listed(self, answer: Any, count: int, method: str, what: str) -> list[Any]:
        try:
            items = list(answer)
        except TypeError as error:
            raise WorldModelError(
                f"{self.name}.{method} returned {type(answer).__name__}; it must return a sequence, "
                "one per item of the batch"
            ) from error
        if len(items) != count:
            raise GradingError(
                f"{self.name}.{method} returned {len(items)} predictions for {count} {what}; it must return "
                "one each, in order, with None where it can predict nothing"
            )
        return items

    def _warn(self, index: int, reward: float) -> None:
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"{self.name} predicted the reward {reward} for member {index} of a batch; it counts as no prediction, "
            "so the episode is executed or left out. Later ones are treated alike without a warning",
            RuntimeWarning,
            stacklevel=3,
        )

    @contextmanager
    def _chained(self, method: str) -> Iterator[None]:
        try:
            yield
        except WMRLError:
            raise
        except Exception as error:
            raise WorldModelError(
                f"the world model {self.name} failed in {method}: {type(error).__name__}: {error}"
            ) from error
