import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_envs.errors import TaskError
from wmrl_envs.research.leaderboard import Leaderboard

FINITE = st.floats(allow_nan=False, allow_infinity=False)
BOARDS = st.lists(FINITE, min_size=1, max_size=30)


def test_rank_of_a_tie_where_lower_is_better():
    board = Leaderboard([15, 11, 10, 10, 10, 9, 7, 5], [1], greater_is_better=False)
    assert board.rank(10) == 4
    assert board.position(10) == (8 - 4 + 1) / 8


def test_best_is_one_and_worse_than_all_is_zero():
    board = Leaderboard([0.5, 0.7, 0.6], [0.1], greater_is_better=True)
    assert board.position(0.9) == 1.0
    assert board.position(0.7) == 1.0
    assert board.position(0.5) == pytest.approx(1 / 3)
    assert board.position(0.4) == 0.0
    assert board.rank(0.4) == 4


def test_board_of_one_row():
    board = Leaderboard([0.5], [0.5], greater_is_better=True)
    assert [board.position(score) for score in (0.4, 0.5, 0.6)] == [0.0, 1.0, 1.0]


def test_board_of_ties():
    board = Leaderboard([2.0] * 5, [1.0], greater_is_better=False)
    assert [board.position(score) for score in (1.0, 2.0, 2.5)] == [1.0, 1.0, 0.0]


def test_halves_have_boards_of_their_own():
    board = Leaderboard([1, 2, 3, 4], [10, 20], greater_is_better=True)
    assert board.position(15, "train") == 1.0
    assert board.position(15, "report") == 0.5
    assert board.scores("report") == [20.0, 10.0]
    assert len(board) == 4


@given(BOARDS, FINITE)
def test_position_follows_its_definition_in_both_directions(scores, score):
    greater = Leaderboard(scores, [0.0], greater_is_better=True)
    better = sum(other > score for other in scores)
    assert greater.rank(score) == 1 + better
    assert greater.position(score) == (len(scores) - (1 + better) + 1) / len(scores)
    lower = Leaderboard([-other for other in scores], [0.0], greater_is_better=False)
    assert lower.rank(-score) == greater.rank(score)


@given(BOARDS, st.randoms())
def test_order_of_the_board_does_not_matter(scores, random):
    shuffled = random.sample(scores, len(scores))
    for greater in (True, False):
        one, other = Leaderboard(scores, [0.0], greater), Leaderboard(shuffled, [0.0], greater)
        assert [one.position(score) for score in scores] == [other.position(score) for score in scores]
        assert one.scores() == sorted(scores, reverse=greater)


def test_infinite_scores_rank_last_or_first_and_nan_not_at_all():
    board = Leaderboard([1.0, 2.0], [1.0], greater_is_better=False)
    assert board.position(math.inf) == 0.0
    with pytest.raises(ValueError, match="NaN has no rank"):
        board.position(math.nan)


@pytest.mark.parametrize("scores", [[], [math.nan, 1.0], [math.inf], ["0.5"], [True], [None]])
def test_boards_that_cannot_rank_are_refused(scores, tmp_path):
    path = tmp_path / "leaderboard.json"
    path.write_text(json.dumps({"train": [0.5], "report": scores}))
    with pytest.raises(TaskError, match=r"leaderboard\.json") as error:
        Leaderboard.load(path, greater_is_better=True)
    assert "report" in str(error.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n", "Git-LFS pointer"),
        (b"", "is no JSON"),
        (b"score\n0.5\n", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"[0.5, 0.6]", "lacks a board"),
        (b'{"train": [0.5]}', "lacks a board"),
        (b'{"train": [0.5], "report": 0.5}', "lacks a board"),
        (b"\xff\xfe\x00", "cannot read"),
    ],
)
def test_unreadable_files_are_named(content, reason, tmp_path):
    path = tmp_path / "leaderboard.json"
    path.write_bytes(content)
    with pytest.raises(TaskError, match=reason) as error:
        Leaderboard.load(path, greater_is_better=True)
    assert str(path) in str(error.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(TaskError, match=r"cannot read .*leaderboard\.json"):
        Leaderboard.load(tmp_path / "leaderboard.json", greater_is_better=True)
