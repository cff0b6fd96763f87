import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from wmrl_envs.correction import OnlineDebiaser
from wmrl_envs.errors import CheckpointError, ConfigurationError

# Predictions on a grid of 1/64: ties are frequent, and no two distinct ones are too close to interpolate between.
GRID = st.integers(-64, 128).map(lambda i: i / 64)
REWARD = st.floats(-1.0, 1.0, width=32)
PAIRS = st.lists(st.tuples(GRID, REWARD), min_size=1, max_size=60)


def fitted(x, y, **options):
    debias = OnlineDebiaser(min_pairs=1, **options)
    debias.update(x, y)
    return debias


def test_ties_are_pooled_by_weight_and_queries_outside_clamp():
    f = fitted([0, 1, 1, 2, 3], [0, 0, 1, 0, 1])
    np.testing.assert_allclose(f([0, 1, 2, 3]), [0, 1 / 3, 1 / 3, 1], atol=1e-15)
    np.testing.assert_allclose(f([-5, 2.5, 99]), [0, 2 / 3, 1], atol=1e-15)


def test_identity_until_enough_pairs():
    debias = OnlineDebiaser()
    queries = np.array([[-1.0, 0.3], [7.0, np.nan]])
    debias.update(np.linspace(0, 1, 63), np.zeros(63))
    np.testing.assert_array_equal(debias(queries), queries)
    assert debias(queries) is not queries
    assert debias.num_pairs == 63
    assert debias.knots[0].size == 0
    debias.update([0.5], [0.0])
    np.testing.assert_array_equal(debias([[-1.0, 0.3], [7.0, 0.2]]), np.zeros((2, 2)))


def test_an_unknown_prediction_stays_unknown():
    np.testing.assert_array_equal(np.isnan(fitted([0, 1], [0, 1])([0.5, np.nan])), [False, True])


def test_a_scalar_keeps_its_shape():
    result = fitted([0, 1], [0, 2])(0.25)
    assert result.shape == ()
    assert result == 0.5


@given(PAIRS)
def test_identities_of_an_isotonic_fit(pairs):
    x, y = np.array(pairs).T
    f = fitted(x, y)
    at = f(x)
    assert (np.diff(f.knots[1]) >= 0).all()
    np.testing.assert_allclose(at.mean(), y.mean(), atol=1e-12)  # keeps the weighted mean
    np.testing.assert_allclose((at * (y - at)).sum(), 0.0, atol=1e-11)  # residuals orthogonal to the fit
    np.testing.assert_allclose(fitted(x, at)(x), at, atol=1e-12)  # idempotent
    assert y.min() - 1e-12 <= at.min() and at.max() <= y.max() + 1e-12


@given(PAIRS, st.floats(1 / 64, 100, width=32), st.floats(-10, 10, width=32))
def test_the_fit_commutes_with_increasing_affine_maps_of_the_reward(pairs, a, b):
    x, y = np.array(pairs).T
    np.testing.assert_allclose(fitted(x, a * y + b)(x), a * fitted(x, y)(x) + b, atol=1e-9, rtol=1e-9)


@given(st.lists(st.tuples(GRID, REWARD), min_size=2, max_size=60, unique_by=lambda pair: pair[0]))
def test_isotone_data_stay_and_antitone_data_become_their_mean(pairs):
    x, y = np.array(pairs).T
    x, rising = np.sort(x), np.sort(y)
    np.testing.assert_allclose(fitted(x, rising)(x), rising, atol=1e-12)
    falling = np.sort(y)[::-1]
    np.testing.assert_allclose(fitted(x, falling)(x), np.full(len(x), y.mean()), atol=1e-12)


@given(PAIRS)
def test_the_map_is_monotone_everywhere(pairs):
    x, y = np.array(pairs).T
    assert (np.diff(fitted(x, y)(np.linspace(-1.5, 2.5, 301))) >= -1e-12).all()


@given(st.lists(st.integers(0, 40), max_size=8), st.integers(1, 30))
def test_the_window_is_first_in_first_out(batches, window):
    rng = np.random.default_rng(0)
    debias = OnlineDebiaser(min_pairs=1, window=window)
    xs, ys = np.empty(0), np.empty(0)
    for n in batches:
        x, y = rng.integers(0, 8, n) / 8, rng.random(n)
        debias.update(x, y)
        xs, ys = np.concatenate((xs, x))[-window:], np.concatenate((ys, y))[-window:]
        np.testing.assert_array_equal(debias.pairs, (xs, ys))
        if len(xs):
            order = np.argsort(xs, kind="stable")
            levels, inverse, counts = np.unique(xs[order], return_inverse=True, return_counts=True)
            expected = isotonic_regression(np.bincount(inverse, ys[order]) / counts, weights=counts).x
            np.testing.assert_array_equal(debias.knots[0], levels)
            np.testing.assert_allclose(debias.knots[1], expected, atol=1e-12)


def test_refit_every_waits_for_that_many_pairs():
    debias = OnlineDebiaser(min_pairs=4, refit_every=4, window=100)
    debias.update([0, 1, 2], [0, 1, 2])
    assert debias([1.5]) == 1.5
    debias.update([3], [3])
    first = debias([0, 1, 2, 3]).tolist()
    assert first == [0, 1, 2, 3]
    debias.update([0, 0, 0], [9, 9, 9])
    assert debias([0, 1, 2, 3]).tolist() == first
    debias.update([0], [9])
    assert debias([0, 1, 2, 3]).tolist() != first


def test_the_papers_release_averages_in_ten_bins_first():
    debias = OnlineDebiaser.paper()
    assert (debias.min_pairs, debias.refit_every, debias.window, debias.bins) == (200, 64, 5000, 10)
    rng = np.random.default_rng(1)
    x = rng.random(250)
    y = 0.5 * x + rng.normal(0, 0.1, 250)
    debias.update(x[:199], y[:199])
    assert debias.knots[0].size == 0
    debias.update(x[199:], y[199:])
    knots, values = debias.knots
    assert len(knots) == 10
    bin_of = (x * 10).astype(int)
    np.testing.assert_allclose(knots, [x[bin_of == i].mean() for i in range(10)])
    np.testing.assert_allclose(
        values,
        isotonic_regression([y[bin_of == i].mean() for i in range(10)], weights=np.bincount(bin_of)).x,
    )


def test_the_outer_bins_take_what_lies_outside():
    debias = fitted([-3.0, 0.05, 1.0, 5.0], [0.0, 0.2, 0.6, 1.0], bins=10)
    np.testing.assert_allclose(debias.knots[0], [-1.475, 3.0])
    np.testing.assert_allclose(debias.knots[1], [0.1, 0.8])


@pytest.mark.parametrize(
    "options", [{}, {"bins": 5}, {"refit_every": 7}, {"window": 20, "min_pairs": 3}], ids=lambda o: str(o)
)
def test_a_saved_state_continues_to_the_last_bit(options):
    rng = np.random.default_rng(2)
    debias = OnlineDebiaser(**{"min_pairs": 5, "window": 50, **options})
    for _ in range(9):
        debias.update(rng.random(11).round(1), rng.random(11))
    loaded = OnlineDebiaser(**{"min_pairs": 5, "window": 50, **options})
    loaded.load_state_dict(json.loads(json.dumps(debias.state_dict())))
    queries = rng.random(40)
    for _ in range(20):
        np.testing.assert_array_equal(loaded(queries), debias(queries))
        assert loaded.state_dict() == debias.state_dict()
        x, y = rng.random(6).round(1), rng.random(6)
        debias.update(x, y)
        loaded.update(x, y)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1, 2], [1], "2 and 1"),
        ([np.nan], [1], "predicted holds None or NaN"),
        ([1], [None], "real holds None or NaN"),
        ([np.inf], [1], "infinity"),
        ([[1, 2]], [[1, 2]], "one axis"),
        (["a"], [1], "predicted must be numbers"),
    ],
)
def test_bad_pairs_are_refused_and_change_nothing(x, y, message):
    debias = fitted([0, 1], [0, 1])
    before = debias.state_dict()
    with pytest.raises(ValueError, match=message):
        debias.update(x, y)
    assert debias.state_dict() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_pairs": 0}, "min_pairs.*at least 1, got 0"),
        ({"window": 2.5}, "window.*got 2.5"),
        ({"min_pairs": 100, "window": 50}, "at most window=50, got 100"),
        ({"bins": 0}, "bins"),
        ({"refit_every": -1}, "refit_every"),
        ({"min_pairs": True}, "min_pairs"),
    ],
)
def test_bad_settings_name_the_value_and_the_range(options, message):
    with pytest.raises(ConfigurationError, match=message):
        OnlineDebiaser(**options)


def test_a_state_of_other_settings_or_damaged_is_refused_and_changes_nothing():
    debias = fitted([0, 1], [0, 1])
    good = debias.state_dict()
    with pytest.raises(CheckpointError, match="window: saved 512, here 100"):
        OnlineDebiaser(min_pairs=1, window=100).load_state_dict(good)
    with pytest.raises(CheckpointError, match="saved by Ledger"):
        debias.load_state_dict({**good, "kind": "Ledger"})
    for damage in ({"pairs": [[0.0], [0.0, 1.0]]}, {"knots": [[0.0], []]}, {"pairs": None}, {"new_pairs": "x"}):
        with pytest.raises(CheckpointError, match="damaged"):
            debias.load_state_dict({**good, **damage})
        assert debias.state_dict() == good
    with pytest.raises(CheckpointError, match="damaged"):
        debias.load_state_dict({})
