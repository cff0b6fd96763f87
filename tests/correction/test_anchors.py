import itertools
import json

import numpy as np
import pytest

from wmrl_envs.correction import AnchorSchedule
from wmrl_envs.errors import CheckpointError, ConfigurationError


@pytest.mark.parametrize(
    ("fraction", "m", "n"), [(0.1, 16, 2), (0.1, 32, 3), (0.1, 10, 1), (0.1, 14, 1), (0.5, 7, 4), (0.99, 8, 8)]
)
def test_so_many_are_drawn_and_each_with_probability_n_over_m(fraction, m, n):
    schedule = AnchorSchedule(fraction, seed=0)
    for _ in range(50):
        anchor, probability = schedule.draw(m)
        assert anchor.dtype == np.bool_ and probability.dtype == np.float64
        assert anchor.sum() == n
        np.testing.assert_array_equal(probability, np.full(m, n / m))


def test_every_set_of_anchors_is_equally_likely():
    schedule = AnchorSchedule(0.4, seed=1)
    sets = list(itertools.combinations(range(5), 2))
    counts = dict.fromkeys(sets, 0)
    for _ in range(5000):
        counts[tuple(np.flatnonzero(schedule.draw(5)[0]).tolist())] += 1
    expected = 5000 / len(sets)
    assert sum((c - expected) ** 2 / expected for c in counts.values()) < 27.9  # 0.1 % of chi-squared with 9 degrees


def test_few_groups_are_drawn_independently_with_probability_p():
    schedule = AnchorSchedule(0.1, seed=2)
    draws = [schedule.draw(9) for _ in range(3000)]
    np.testing.assert_array_equal(draws[0][1], np.full(9, 0.1))
    counts = np.array([anchor.sum() for anchor, _ in draws])
    assert {0, 1, 2} <= set(counts.tolist())
    assert abs(counts.mean() - 0.9) < 4 * np.sqrt(9 * 0.09 / 3000)


@pytest.mark.parametrize("m", [1, 4, 9])
def test_single_draws_equal_the_draws_of_one_call(m):
    together, alone = AnchorSchedule(0.1, seed=3), AnchorSchedule(0.1, seed=3)
    for _ in range(30):
        anchor, probability = together.draw(m)
        singles = [alone.draw(1) for _ in range(m)]
        np.testing.assert_array_equal(anchor, np.concatenate([a for a, _ in singles]))
        np.testing.assert_array_equal(probability, np.concatenate([p for _, p in singles]))


@pytest.mark.parametrize("m", [0, 1, 5, 100])
def test_none_and_all_are_exact(m):
    anchor, probability = AnchorSchedule(0, seed=4).draw(m)
    assert not anchor.any() and (probability == 0.0).all() and len(anchor) == m
    anchor, probability = AnchorSchedule(1, seed=4).draw(m)
    assert anchor.all() and (probability == 1.0).all() and len(anchor) == m


def test_draws_repeat_under_a_seed():
    first, second, other = (AnchorSchedule(0.3, seed=seed) for seed in (5, 5, 6))
    draws = [[schedule.draw(20)[0].tolist() for _ in range(10)] for schedule in (first, second, other)]
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize("fraction", [-0.1, 2, float("nan"), "0.1", None, True, float("inf")])
def test_a_fraction_outside_0_and_1_is_an_error(fraction):
    with pytest.raises(ConfigurationError) as caught:
        AnchorSchedule(fraction, seed=0)
    assert "anchor_fraction" in str(caught.value)
    assert str(fraction) in str(caught.value)
    assert "[0, 1]" in str(caught.value)


@pytest.mark.parametrize("m", [-1, 2.5, None])
def test_a_wrong_number_of_groups_is_an_error(m):
    with pytest.raises(ConfigurationError, match="m must be a whole number"):
        AnchorSchedule(0.1, seed=0).draw(m)


@pytest.mark.parametrize(("fraction", "m"), [(0.3, 10), (0.1, 6)])
def test_weighted_groups_are_drawn_with_the_probabilities_that_are_told(fraction, m):
    schedule = AnchorSchedule(fraction, seed=7)
    weights = np.arange(1.0, m + 1)
    draws = [schedule.draw(m, weights) for _ in range(6000)]
    probability = draws[0][1]
    np.testing.assert_allclose(probability, fraction * m * weights / weights.sum())
    counts = np.array([anchor for anchor, _ in draws])
    if fraction * m >= 1:
        assert (counts.sum(axis=1) == round(fraction * m)).all()
    error = counts.mean(axis=0) - probability
    assert np.abs(error / np.sqrt(probability * (1 - probability) / 6000)).max() < 4.5


def test_no_weight_makes_a_probability_above_1():
    schedule = AnchorSchedule(0.5, seed=8)
    anchor, probability = schedule.draw(6, [1000.0, 1.0, 1.0, 1.0, 1.0, 500.0])
    np.testing.assert_allclose(probability, [1.0, 0.25, 0.25, 0.25, 0.25, 1.0])
    assert anchor.sum() == 3 and anchor[0] and anchor[5]
    anchor, probability = AnchorSchedule(0.95, seed=8).draw(4, [1.0, 2.0, 3.0, 1e-9])
    np.testing.assert_array_equal(probability, np.ones(4))
    assert anchor.all()


@pytest.mark.parametrize("weights", [[1.0] * 4, [1.0, 0.0] + [1.0] * 8, [-1.0] * 10, [None] * 10])
def test_weights_that_leave_a_group_uncorrected_are_refused(weights):
    with pytest.raises(ValueError, match="weights"):
        AnchorSchedule(0.3, seed=9).draw(10, weights)


def test_a_saved_schedule_continues_its_draws():
    schedule = AnchorSchedule(0.1, seed=10)
    schedule.draw(30)
    loaded = AnchorSchedule(0.1, seed=99)
    loaded.load_state_dict(json.loads(json.dumps(schedule.state_dict())))
    for m in (1, 5, 30, 64):
        np.testing.assert_array_equal(loaded.draw(m)[0], schedule.draw(m)[0])
    assert loaded.state_dict() == schedule.state_dict()


def test_a_damaged_state_changes_nothing():
    schedule = AnchorSchedule(0.1, seed=11)
    good = schedule.state_dict()
    with pytest.raises(CheckpointError, match="fraction: saved 0.1, here 0.2"):
        AnchorSchedule(0.2, seed=0).load_state_dict(good)
    broken = json.loads(json.dumps(good))
    broken["rng"]["state"]["inc"] = "x"
    overflowing = json.loads(json.dumps(good))
    overflowing["rng"]["uinteger"] = 2**200
    for state in (broken, overflowing, {**good, "rng": {}}):
        with pytest.raises(CheckpointError, match="damaged"):
            schedule.load_state_dict(state)
        assert schedule.state_dict() == good
