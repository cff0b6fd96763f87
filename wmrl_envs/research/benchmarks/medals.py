"""Medals by mle-bench's rules, which are those of Kaggle's progression system (mle-bench, ``grade_helpers.py``).

| teams      | gold           | silver   | bronze   |
|------------|----------------|----------|----------|
| 1-99       | 10 %           | 20 %     | 40 %     |
| 100-249    | top 10         | 20 %     | 40 %     |
| 250-999    | top 10 + 0.2 % | top 50   | top 100  |
| 1000 ...   | top 10 + 0.2 % | 5 %      | 10 %     |

Shares are rounded down, to at least one place. A score that reaches the score at the last place of a medal has it, so
ties share the better one.
"""

from __future__ import annotations

from statistics import median
from typing import Literal, NamedTuple

from wmrl_envs.research.leaderboard import Leaderboard

__all__ = ["Medal", "Thresholds", "above_median", "medal", "medal_places", "thresholds"]

Medal = Literal["gold", "silver", "bronze"]


class Thresholds(NamedTuple):
    """The scores that a medal takes, and the board's median."""

    gold: float
    silver: float
    bronze: float
    median: float


def medal_places(teams: int) -> tuple[int, int, int]:
    """Return the last place, from 1, with a gold, a silver and a bronze medal.

    Raises:
        ValueError: If there is no team.
    """
    if teams < 1:
        raise ValueError(f"medals need at least one team, got {teams}")
    if teams < 250:
        gold = 10 if teams >= 100 else teams // 10
        return max(gold, 1), max(teams // 5, 1), max(teams * 2 // 5, 1)
    gold = 10 + teams // 500
    return (gold, 50, 100) if teams < 1000 else (gold, teams // 20, teams // 10)


def thresholds(board: Leaderboard) -> Thresholds:
    """Return the scores at the last places of the medals, and the median."""
    scores = board.scores()
    gold, silver, bronze = (scores[place - 1] for place in medal_places(len(scores)))
    return Thresholds(gold, silver, bronze, median(scores))


def medal(score: float, board: Leaderboard) -> Medal | None:
    """Return the medal of a score, or None."""
    scores = board.scores()
    rank = board.rank(score)
    names: tuple[Medal, ...] = ("gold", "silver", "bronze")
    for name, place in zip(names, medal_places(len(scores)), strict=True):
        # Reaching the score at a place is ranking no worse than the first of those who share it.
        if rank <= board.rank(scores[place - 1]):
            return name
    return None


def above_median(score: float, board: Leaderboard) -> bool:
    """Return whether a score is strictly better than the board's median."""
    middle = median(board.scores())
    return score > middle if board.greater_is_better else score < middle
