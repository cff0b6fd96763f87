import pytest

from wmrl_envs.research.benchmarks.medals import above_median, medal, medal_places, thresholds
from wmrl_envs.research.leaderboard import Leaderboard


def board(scores, greater):
    return Leaderboard(scores, scores, greater)


@pytest.mark.parametrize(
    ("teams", "places"),
    [
        (1, (1, 1, 1)),
        (5, (1, 1, 2)),
        (8, (1, 1, 3)),
        (10, (1, 2, 4)),
        (29, (2, 5, 11)),
        (99, (9, 19, 39)),
        (100, (10, 20, 40)),
        (249, (10, 49, 99)),
        (250, (10, 50, 100)),
        (499, (10, 50, 100)),
        (500, (11, 50, 100)),
        (999, (11, 50, 100)),
        (1000, (12, 50, 100)),
        (2000, (14, 100, 200)),
    ],
)
def test_places_by_the_number_of_teams(teams, places):
    assert medal_places(teams) == places


def test_no_team_no_medal():
    with pytest.raises(ValueError, match="at least one team"):
        medal_places(0)


@pytest.mark.parametrize(
    ("score", "expected"),
    [(101, "gold"), (100, "gold"), (91, "gold"), (90.5, "silver"), (81, "silver"), (61, "bronze"), (60.9, None)],
)
def test_a_hundred_teams(score, expected):
    scores = [(37 * place) % 100 + 1 for place in range(100)]  # 1 to 100, shuffled
    assert medal(score, board(scores, True)) == expected
    assert medal(-score, board([-value for value in scores], False)) == expected


def test_ties_share_the_better_medal():
    # Ten teams: gold is place 1, silver place 2, bronze place 4; three share the first place.
    tied = board([1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3], True)
    assert thresholds(tied) == (1.0, 1.0, 0.9, 0.75)
    assert [medal(score, tied) for score in (1.0, 0.95, 0.9, 0.89)] == ["gold", "bronze", "bronze", None]


def test_one_row():
    single = board([0.5], False)
    assert thresholds(single) == (0.5, 0.5, 0.5, 0.5)
    assert (medal(0.5, single), medal(0.51, single)) == ("gold", None)


def test_median_is_strict():
    even = board([4, 1, 3, 2], True)
    assert (above_median(2.5, even), above_median(2.6, even)) == (False, True)
    assert (above_median(2.5, board([4, 1, 3, 2], False)), above_median(2.4, board([4, 1, 3, 2], False))) == (
        False,
        True,
    )
