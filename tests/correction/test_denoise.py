import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_envs.correction import InverseVarianceWeighter, inverse_variance
from wmrl_envs.errors import CheckpointError, ConfigurationError


def test_inverse_variance_of_the_worked_example():
    np.testing.assert_allclose(inverse_variance([0.4, 0.8], [0.01, 0.04]), (0.48, 0.008), rtol=1e-14)


def test_a_zero_variance_wins_outright():
    assert inverse_variance([0.4, 0.8], [0.0, 0.04]) == (0.4, 0.0)
    assert inverse_variance([0.4, 0.8, 0.6], [0.0, 0.04, 0.0]) == (0.5, 0.0)


def test_an_infinite_variance_has_no_say():
    assert inverse_variance([0.4, 9.0], [0.25, math.inf]) == (0.4, 0.25)
    assert inverse_variance([1.0, 3.0], [math.inf, math.inf]) == (2.0, math.inf)


@given(st.lists(st.tuples(st.floats(-10, 10), st.floats(1e-3, 1e3)), min_size=1, max_size=6))
def test_the_fused_variance_is_that_of_the_weights_used(estimates):
    values, variances = np.array(estimates).T
    value, variance = inverse_variance(values, variances)
    np.testing.assert_allclose(variance, 1 / (1 / variances).sum(), rtol=1e-12)
    weights = (1 / variances) / (1 / variances).sum()
    np.testing.assert_allclose((weights**2 * variances).sum(), variance, rtol=1e-12)
    np.testing.assert_allclose(value, weights @ values, rtol=1e-9, atol=1e-9)
    assert variance <= variances.min() * (1 + 1e-12)


def test_tiny_variances_do_not_overflow():
    assert inverse_variance([1.0, 3.0], [1e-310, 1e-310]) == (2.0, pytest.approx(5e-311))


@pytest.mark.parametrize(
    ("values", "variances", "message"),
    [
        ([1, 2], [1], "pair up"),
        ([], [], "one at least"),
        ([1], [-0.1], "at least 0"),
        ([1], [math.nan], "at least 0"),
        ([None], [1], "None or NaN"),
    ],
)
def test_estimates_that_cannot_be_fused_are_refused(values, variances, message):
    with pytest.raises(ValueError, match=message):
        inverse_variance(values, variances)


def anchor_groups(rng, n, noise=0.3):
    real = rng.random((n, 8))
    return real, real + rng.normal(0, noise, (n, 8))


def test_the_weight_is_1_until_32_observations_and_then_2():
    rng = np.random.default_rng(0)
    weighter = InverseVarianceWeighter()
    for _ in range(31):
        weighter.update(*anchor_groups(rng, 1))
    assert weighter.s2 > 0.0
    assert weighter.weight == 1.0
    weighter.update(*anchor_groups(rng, 1))
    assert weighter.weight == pytest.approx(2.0, abs=1e-15)


def test_s2_is_the_moving_average_of_the_groups_ratios():
    rng = np.random.default_rng(1)
    real, predicted = anchor_groups(rng, 40)
    weighter = InverseVarianceWeighter(half_life=8)
    for i in range(0, 40, 4):
        weighter.update(real[i : i + 4], predicted[i : i + 4])
    residual = predicted - real
    ratios = ((residual - residual.mean(1, keepdims=True)) ** 2).mean(1) / real.var(1)
    age = 0.5 ** (np.arange(39, -1, -1) / 8)
    np.testing.assert_allclose(weighter.s2, (age * ratios).sum() / age.sum(), rtol=1e-12)


def test_k_is_fixed_once_and_the_weight_stays_within_1_and_4():
    rng = np.random.default_rng(2)
    weighter = InverseVarianceWeighter(half_life=1)
    weighter.update(*anchor_groups(rng, 32, noise=0.1))
    k = weighter.state_dict()["k"]
    assert weighter.weight == pytest.approx(2.0)
    weighter.update(*anchor_groups(rng, 32, noise=3.0))
    assert weighter.weight == 4.0
    real, _ = anchor_groups(rng, 64)
    weighter.update(real, 2.0 * real)  # residual variance equals the real one's
    assert weighter.weight == pytest.approx(min(1 + k, 4.0))
    weighter.update(np.tile(real, (20, 1)), np.tile(real, (20, 1)))
    assert weighter.weight == pytest.approx(1.0)
    assert weighter.state_dict()["k"] == k


def test_without_residuals_the_weight_is_1_for_ever():
    rng = np.random.default_rng(3)
    weighter = InverseVarianceWeighter()
    for _ in range(50):
        real, _ = anchor_groups(rng, 1)
        weighter.update(real, real + 0.1)  # (r + .1) - r is no constant in floats
    assert weighter.weight == 1.0


def test_groups_whose_real_rewards_hardly_vary_are_skipped():
    weighter = InverseVarianceWeighter()
    before = weighter.state_dict()
    weighter.update([[0.1] * 7, [0.1, 0.1 + 1e-5, 0.1, 0.1, 0.1, 0.1, 0.1]], np.random.default_rng(4).random((2, 7)))
    assert weighter.state_dict() == before


def test_groups_are_by_id_and_ungraded_members_take_no_part():
    rng = np.random.default_rng(5)
    real, predicted = anchor_groups(rng, 3)
    by_rows, by_ids = InverseVarianceWeighter(), InverseVarianceWeighter()
    by_rows.update(real[:, :6], predicted[:, :6])
    real[0, 6], predicted[1, 7] = np.nan, np.nan
    real[:, 6:][~np.isnan(real[:, 6:])] = 99.0
    mask = np.ones((3, 8), bool)
    mask[0, 7] = mask[1, 6] = mask[2, 6] = mask[2, 7] = False
    shuffled = rng.permutation(24)
    flat = [a.ravel()[shuffled] for a in (real, predicted, np.repeat([4, 7, 9], 8), mask)]
    by_ids.update(*flat)
    assert by_ids.s2 == pytest.approx(by_rows.s2, rel=1e-12)


def test_nothing_graded_changes_nothing():
    weighter = InverseVarianceWeighter()
    weighter.update([], [])
    weighter.update([None, None], [0.1, 0.2])
    assert weighter.s2 == 0.0


def test_a_saved_weighter_continues_to_the_last_bit():
    rng = np.random.default_rng(6)
    weighter = InverseVarianceWeighter()
    weighter.update(*anchor_groups(rng, 40))
    loaded = InverseVarianceWeighter()
    loaded.load_state_dict(json.loads(json.dumps(weighter.state_dict())))
    for _ in range(5):
        groups = anchor_groups(rng, 2)
        weighter.update(*groups)
        loaded.update(*groups)
        assert loaded.weight == weighter.weight
        assert loaded.state_dict() == weighter.state_dict()
    with pytest.raises(CheckpointError, match="half_life: saved 64.0, here 8.0"):
        InverseVarianceWeighter(half_life=8).load_state_dict(weighter.state_dict())


def test_bad_arguments_are_named():
    with pytest.raises(ConfigurationError, match="half_life.*got 0"):
        InverseVarianceWeighter(half_life=0)
    with pytest.raises(ConfigurationError, match="observations.*got 0"):
        InverseVarianceWeighter(observations=0)
    with pytest.raises(ValueError, match="calibrated must have the shape of real"):
        InverseVarianceWeighter().update([1, 2], [1])
    with pytest.raises(ValueError, match="mask must be 2 bools"):
        InverseVarianceWeighter().update([1, 2], [1, 2], mask=[1.0, 0.0])
