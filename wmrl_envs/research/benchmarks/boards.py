"""Leaderboards of competitions: CSV files with a column of scores, in any order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from wmrl_envs.errors import TaskError
from wmrl_envs.research.benchmarks.place import refuse_pointer
from wmrl_envs.research.leaderboard import Half, Leaderboard
from wmrl_envs.research.table import TableError, read_table, shown

__all__ = ["MeanOfBoards", "order_of", "read_scores"]


def read_scores(path: Path) -> list[float]:
    """Return the scores of a leaderboard file, in the order of the file: its column ``score``, or else its second one.

    Raises:
        TaskError: If the file is missing, a Git-LFS pointer, no table, empty, or holds something that is no finite
            number; the message names the file and the row.
    """
    refuse_pointer(path, "the leaderboard")
    try:
        table = read_table(path.read_bytes())
    except TableError as error:
        raise TaskError(f"the leaderboard {path} cannot be used: {error}") from error
    names = list(table)
    if "score" not in table and len(names) < 2:
        raise TaskError(f"the leaderboard {path} has no column 'score'; it has {', '.join(map(repr, names))}")
    column = table["score"] if "score" in table else table[names[1]]
    scores = [_number(path, row, text) for row, text in enumerate(column, 1)]
    if not scores:
        raise TaskError(f"the leaderboard {path} is empty; it needs at least one score")
    return scores


def _number(path: Path, row: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise TaskError(f"the leaderboard {path} holds {shown(text)} in data row {row}, which is no finite number")
    return value


def order_of(scores: Sequence[float]) -> bool | None:
    """Return whether scores fall from first to last (True), rise (False), or do neither (None).

    A leaderboard that is still in the order of its ranks falls where greater is better. It says nothing if it was
    shuffled, or if all its scores are equal.
    """
    falls = all(before >= after for before, after in zip(scores, scores[1:], strict=False))
    rises = all(before <= after for before, after in zip(scores, scores[1:], strict=False))
    return None if falls == rises else falls


class MeanOfBoards:
    """The mean position on several leaderboards, as MLE-Dojo scores: the private one and the public one.

    Args:
        boards: One or more.
    """

    def __init__(self, boards: Sequence[Leaderboard]) -> None:
        self.boards = tuple(boards)

    def position(self, score: float, half: Half = "train") -> float:
        """Return the mean of the positions in [0, 1].

        Raises:
            ValueError: If the score is NaN.
        """
        return sum(board.position(score, half) for board in self.boards) / len(self.boards)

    def score_at(self, position: float, half: Half = "train") -> float:
        """Return the score at a position of the first board."""
        return self.boards[0].score_at(position, half)

    def scores(self, half: Half = "train") -> list[float]:
        """Return the scores of the first board, best first."""
        return self.boards[0].scores(half)

    def __len__(self) -> int:
        return len(self.boards[0])

    def __repr__(self) -> str:
        return f"MeanOfBoards({', '.join(map(repr, self.boards))})"
