"""Asking a world model, and refusing or marking what is no prediction."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from wmrl_envs.errors import GradingError, WMRLError, WorldModelError
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import Outcome

__all__ = ["Predictor"]


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

    def grade(self, submissions: Sequence[Submission]) -> list[Outcome | None]:
        """Return one prediction per submission.

        Raises:
            GradingError: If the number of predictions is wrong.
            WorldModelError: If the model raises, or returns something that is no outcome.
        """
        with self._chained("grade"):
            answer = self.model.grade(submissions)
        predictions = self._listed(answer, len(submissions), "grade", "submissions")
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
        return predictions

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
