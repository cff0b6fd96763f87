"""Where a score stands among other people's."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, Protocol

from wmrl_envs.errors import TaskError
from wmrl_envs.files import LFS_START

__all__ = ["HALVES", "Half", "Leaderboard", "Ranking", "ScoreScale"]

Half = Literal["train", "report"]
"""Half of the private answers: one gives the training reward, the other the reported score."""

HALVES: tuple[Half, Half] = ("train", "report")


class Ranking(Protocol):
    """What places a score in [0, 1]: a leaderboard, or a scale where there is none."""

    def position(self, score: float, half: Half = "train") -> float:
        """Return where a score stands; 1 is best.

        Raises:
            ValueError: If the score is NaN.
        """
        ...

    def score_at(self, position: float, half: Half = "train") -> float:
        """Return a score that stands at a position in [0, 1]."""
        ...

    def scores(self, half: Half = "train") -> list[float]:
        """Return the scores that define the positions, best first."""
        ...


class Leaderboard:
    """Scores of a frozen population of solutions, one board for each half of the answers.

    Args:
        train: Scores on the training half, in any order; ties are kept.
        report: Scores on the report half, likewise; need not be as many.
        greater_is_better: The metric's direction; it is stated, never guessed from the scores.

    Raises:
        TaskError: If a board is empty or holds something that is no finite number.
    """

    def __init__(self, train: Iterable[float], report: Iterable[float], greater_is_better: bool) -> None:
        self.greater_is_better = bool(greater_is_better)
        self._sign = 1.0 if greater_is_better else -1.0
        # Sorted keys, greater is better: a position is then one bisection.
        self._keys = {"train": self._sorted_keys("train", train), "report": self._sorted_keys("report", report)}

    def _sorted_keys(self, half: Half, scores: Iterable[float]) -> list[float]:
        keys = []
        for score in scores:
            if isinstance(score, (bool, str)) or not math.isfinite(score):
                raise TaskError(f"the {half} leaderboard holds {score!r}; every score must be a finite number")
            keys.append(self._sign * float(score))
        if not keys:
            raise TaskError(f"the {half} leaderboard is empty; it needs at least one score")
        return sorted(keys)

    @classmethod
    def load(cls, path: Path, greater_is_better: bool) -> Leaderboard:
        """Read a ``leaderboard.json``: ``{"train": [scores...], "report": [scores...]}``.

        Raises:
            TaskError: If the file is a Git-LFS pointer, no such JSON, or holds a board that cannot rank.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TaskError(f"cannot read the leaderboard {path}: {error}") from error
        if text.startswith(LFS_START):
            raise TaskError(f"{path} is a Git-LFS pointer, not the leaderboard itself; fetch it with `git lfs pull`")
        expected = 'it must hold {"train": [scores...], "report": [scores...]}'
        try:
            boards = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TaskError(f"the leaderboard {path} is no JSON ({error}); {expected}") from error
        if not isinstance(boards, dict) or not all(isinstance(boards.get(half), list) for half in HALVES):
            raise TaskError(f"the leaderboard {path} lacks a board; {expected}")
        try:
            return cls(boards["train"], boards["report"], greater_is_better)
        except (TaskError, TypeError) as error:
            raise TaskError(f"the leaderboard {path} cannot be used: {error}; {expected}") from error

    def scores(self, half: Half = "train") -> list[float]:
        """Return the scores of one board, best first."""
        return [self._sign * key for key in reversed(self._keys[half])]

    def rank(self, score: float, half: Half = "train") -> int:
        """Return 1 + the number of strictly better scores; N + 1 for a score worse than all N.

        Raises:
            ValueError: If the score is NaN, which has no rank.
        """
        if math.isnan(score):
            raise ValueError("NaN has no rank on a leaderboard; a score that cannot be computed is no score")
        keys = self._keys[half]
        return 1 + len(keys) - bisect_right(keys, self._sign * score)

    def position(self, score: float, half: Half = "train") -> float:
        """Return the leaderboard position in [0, 1]: ``(N - rank + 1) / N``.

        1 is as good as the best of the N, 0 is worse than all of them; a tie shares the better place.

        Raises:
            ValueError: If the score is NaN.
        """
        size = len(self._keys[half])
        return (size - self.rank(score, half) + 1) / size

    def score_at(self, position: float, half: Half = "train") -> float:
        """Return the score of the board that stands at a position in [0, 1]."""
        scores = self.scores(half)
        return scores[min(int((1.0 - position) * len(scores)), len(scores) - 1)]

    def __len__(self) -> int:
        return len(self._keys["train"])

    def __repr__(self) -> str:
        direction = "greater" if self.greater_is_better else "lower"
        return f"Leaderboard({len(self)} train, {len(self._keys['report'])} report, {direction} is better)"


class ScoreScale:
    """Places a score between two known ones, linearly; beyond them it is clipped.

    Args:
        zero: The score at position 0, such as a baseline's. Which of the two is greater says the direction.
        one: The score at position 1, such as the best known one.

    Raises:
        TaskError: If one is no finite number, or both are equal.
    """

    def __init__(self, zero: float, one: float) -> None:
        for score in (zero, one):
            if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
                raise TaskError(f"a scale runs between two finite numbers, got {zero!r} and {one!r}")
        if zero == one:
            raise TaskError(f"a scale runs between two different scores, got {zero!r} twice")
        self.zero, self.one = float(zero), float(one)

    def position(self, score: float, half: Half = "train") -> float:
        """Return ``(score - zero) / (one - zero)``, clipped to [0, 1].

        Raises:
            ValueError: If the score is NaN.
        """
        if math.isnan(score):
            raise ValueError("NaN has no place on a scale; a score that cannot be computed is no score")
        return min(max((score - self.zero) / (self.one - self.zero), 0.0), 1.0)

    def score_at(self, position: float, half: Half = "train") -> float:
        """Return the score at a position in [0, 1]."""
        return self.zero + position * (self.one - self.zero)

    def scores(self, half: Half = "train") -> list[float]:
        """Return the two scores, best first."""
        return [self.one, self.zero]

    def __repr__(self) -> str:
        return f"ScoreScale({self.zero:g}, {self.one:g})"
