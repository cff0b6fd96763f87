import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_envs.correction import (
    centre,
    group_advantages,
    rectified_advantages,
    standardise,
    stream_advantages,
)
from wmrl_envs.errors import ConfigurationError


@pytest.mark.parametrize("size", [3, 7, 8])
@pytest.mark.parametrize("value", [0.1, 0.7, -1e-9, 1e9])
def test_groups_without_variance_have_advantages_of_exactly_0(size, value):
    rewards, groups = [value] * size, [5] * size
    for advantages in (
        standardise(rewards, groups),
        centre(rewards, groups),
        group_advantages(rewards, groups),
        rectified_advantages(rewards, rewards, groups, np.ones(size, bool), 0.4, 1.0, 0.1),
    ):
        assert advantages.dtype == np.float64
        assert (advantages == 0.0).all()


def test_an_unscorable_member_takes_no_part():
    np.testing.assert_array_equal(
        group_advantages([1, None, 0, 0.5], [0, 0, 0, 0], standardised=False), [0.5, 0.0, -0.5, 0.0]
    )
    std = np.std([1, 0, 0.5]) + 1e-4
    np.testing.assert_allclose(group_advantages([1, np.nan, 0, 0.5], [0] * 4), np.array([0.5, 0.0, -0.5, 0.0]) / std)


def test_membership_is_by_id_not_by_position():
    np.testing.assert_allclose(standardise([1, 10, 0, 20], ["P", "Q", "P", "Q"]), [1, -1, -1, 1], atol=3e-4)


def test_masked_members_do_not_touch_the_others():
    x = np.array([1.0, 2.0, 1e12, 4.0, np.nan, 6.0])
    mask = np.array([True, True, False, True, True, True])
    groups = np.array([-3, 2**40, -3, -3, 2**40, 2**40])
    for function in (standardise, centre):
        result = function(x, groups, mask)
        assert result[2] == result[4] == 0.0
        np.testing.assert_array_equal(result[[0, 3, 1, 5]], function([1.0, 4.0, 2.0, 6.0], [0, 0, 1, 1]))


@given(st.data())
def test_agrees_with_a_loop_over_groups(data):
    n = data.draw(st.integers(0, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    groups = rng.integers(-3, 4, n)
    x = rng.integers(0, 5, n) / 10
    mask = rng.random(n) < 0.8
    expected = np.zeros(n)
    for group in set(groups.tolist()):
        members = mask & (groups == group)
        if members.any() and np.ptp(x[members]):
            expected[members] = (x[members] - x[members].mean()) / (x[members].std() + 1e-4)
    np.testing.assert_allclose(standardise(x, groups, mask), expected, atol=1e-12)


@given(
    st.lists(st.integers(-1000, 1000), min_size=2, max_size=12, unique=True),
    st.floats(1.0, 1e3),
    st.floats(-1e3, 1e3),
)
def test_standardised_advantages_ignore_increasing_affine_maps(rewards, a, b):
    x, groups = np.array(rewards, float), np.zeros(len(rewards), int)
    # The 1e-4 beside a std of at least .5 shows below 2e-4 of each.
    np.testing.assert_allclose(standardise(a * x + b, groups), standardise(x, groups), atol=3e-4 * len(x))


@pytest.mark.parametrize(
    ("rewards", "groups", "message"),
    [
        ([1, 2, 3], [0, 0], "one id per rollout"),
        ([1, np.inf], [0, 0], "infinity"),
        ([1, 2], [0.0, 1.0], "whole numbers or strings"),
        ([1, 2], [0, None], "whole numbers or strings"),
        ([[1, 2]], [0, 0], "one axis"),
    ],
)
def test_bad_groups_are_refused(rewards, groups, message):
    with pytest.raises(ValueError, match=message):
        group_advantages(rewards, groups)


def test_nothing_gives_nothing():
    assert group_advantages([], []).shape == (0,)
    assert rectified_advantages([], [], [], np.zeros(0, bool), 1.0, 1.0, 0.1).shape == (0,)


def draws(m, n):
    for chosen in itertools.combinations(range(m), n):
        anchor = np.zeros(m, bool)
        anchor[list(chosen)] = True
        yield anchor


@pytest.mark.parametrize("scale", ["standardise", "centre"])
@pytest.mark.parametrize("lambda_", [0.0, 0.4, 1.0, 1.5])
@pytest.mark.parametrize(("m", "n"), [(6, 2), (5, 1), (4, 4)])
def test_the_mean_over_all_anchor_sets_is_the_advantage_on_real_rewards(scale, lambda_, m, n):
    rng = np.random.default_rng(m)
    groups = np.repeat(rng.permutation(100)[:m], 4)
    real, predicted = rng.random(4 * m), rng.normal(3.0, 9.0, 4 * m)  # the predictions may be nonsense
    predicted[:4] = 0.3  # without variance in one group
    total, count = np.zeros(4 * m), 0
    for anchor in draws(m, n):
        chosen = np.repeat(anchor, 4)
        seen = np.where(chosen, real, np.nan)
        total += rectified_advantages(seen, predicted, groups, chosen, lambda_, 1.0, n / m, scale=scale)
        count += 1
    expected = group_advantages(real, groups, standardised=scale == "standardise")
    np.testing.assert_allclose(total / count, expected, atol=1e-12)


def test_one_lambda_per_rollout_is_as_unbiased():
    rng = np.random.default_rng(9)
    groups, real, predicted, lambdas = np.repeat(np.arange(5), 3), rng.random(15), rng.random(15), rng.random(15)
    results = [
        rectified_advantages(real, predicted, groups, np.repeat(anchor, 3), lambdas, 1.0, 2 / 5)
        for anchor in draws(5, 2)
    ]
    np.testing.assert_allclose(np.mean(results, axis=0), group_advantages(real, groups), atol=1e-12)


def test_unequal_known_probabilities_are_unbiased():
    rng = np.random.default_rng(10)
    pi = np.array([0.2, 0.5, 0.9])
    groups, real, predicted = np.repeat(np.arange(3), 4), rng.random(12), rng.random(12)
    total = np.zeros(12)
    for flags in itertools.product([False, True], repeat=3):
        anchor = np.array(flags)
        chance = np.where(anchor, pi, 1 - pi).prod()
        total += chance * rectified_advantages(
            real, predicted, groups, np.repeat(anchor, 4), 0.4, 1.0, np.repeat(pi, 4)
        )
    np.testing.assert_allclose(total, group_advantages(real, groups), atol=1e-12)


def test_standardising_the_rectified_rewards_instead_would_be_biased():
    rng = np.random.default_rng(11)
    groups, real, predicted = np.repeat(np.arange(4), 4), rng.random(16), rng.random(16)
    naive = []
    for anchor in draws(4, 1):
        chosen = np.repeat(anchor, 4)
        naive.append(standardise(predicted + np.where(chosen, 4 * (real - predicted), 0.0), groups))
    assert np.abs(np.mean(naive, axis=0) - standardise(real, groups)).max() > 0.1


@pytest.mark.parametrize(("m", "n"), [(8, 1), (10, 3), (7, 7)])
def test_alpha_of_n_over_m_with_lambda_1_is_the_unweighted_mixture(m, n):
    rng = np.random.default_rng(m)
    groups, real, predicted = np.repeat(np.arange(m), 4), rng.random(4 * m), rng.random(4 * m)
    anchor = np.repeat(np.arange(m) < n, 4)
    result = rectified_advantages(real, predicted, groups, anchor, 1.0, n / m, n / m)
    np.testing.assert_array_equal(result, group_advantages(np.where(anchor, real, predicted), groups))


def test_forced_anchors_train_on_the_real_reward_alone():
    rng = np.random.default_rng(12)
    groups, real, predicted = np.repeat([0, 1], 4), rng.random(8), rng.random(8)
    anchor = np.repeat([True, False], 4)
    result = rectified_advantages(real, predicted, groups, anchor, 0.4, 1.0, np.repeat([1.0, 0.0], 4))
    np.testing.assert_array_equal(result[:4], standardise(real, groups)[:4])
    np.testing.assert_array_equal(result[4:], 0.4 * standardise(predicted, groups)[4:])


def test_an_anchor_groups_statistics_run_over_members_graded_by_both():
    real = np.array([1.0, np.nan, 0.3, 0.2, 5.0])
    predicted = np.array([0.5, 0.7, np.nan, 0.1, 5.0])
    ungraded = np.array([False, False, False, False, True])
    anchor = np.ones(5, bool)
    result = rectified_advantages(real, predicted, np.zeros(5, int), anchor, 0.4, 1.0, 0.5, ungraded)
    both = [0, 3]
    alone = rectified_advantages(real[both], predicted[both], [0, 0], anchor[both], 0.4, 1.0, 0.5)
    np.testing.assert_array_equal(result[both], alone)
    np.testing.assert_array_equal(result[[1, 2, 4]], 0.0)


def test_outside_anchors_the_real_reward_is_not_read():
    predicted, groups = [0.1, 0.9, 0.4], [0, 0, 0]
    anchor = np.zeros(3, bool)
    for real in ([np.nan] * 3, [7.0, 8.0, 9.0]):
        result = rectified_advantages(real, predicted, groups, anchor, 0.5, 1.0, 0.0)
        np.testing.assert_array_equal(result, 0.5 * standardise(predicted, groups))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"anchor": np.array([True, False, False, False])}, "group 7 is an anchor in some members only"),
        ({"probability": 0.0}, r"probability must be in \(0, 1\], got 0"),
        ({"probability": 1.5}, r"probability must be in \(0, 1\], got 1.5"),
        ({"real": [1.0, 2.0]}, "real holds 2 values where 4"),
        ({"alpha": [1.0, 1.0]}, "alpha holds 2 values where 4"),
        ({"anchor": np.array([1, 1, 0, 0])}, "anchor must be 4 bools"),
        ({"scale": "standardize"}, "standardize.*Did you mean 'standardise'"),
    ],
)
def test_rectifying_refuses_what_it_cannot_use(change, message):
    arguments = {
        "real": [0.1, 0.2, 0.3, 0.4],
        "calibrated": [0.4, 0.3, 0.2, 0.1],
        "groups": [7, 7, 8, 8],
        "anchor": np.array([True, True, False, False]),
        "lambda_": 1.0,
        "alpha": 1.0,
        "probability": 0.5,
    }
    rectified_advantages(**arguments)
    with pytest.raises(ValueError, match=message):
        rectified_advantages(**(arguments | change))


def make_streams(**changes):
    """Return what a vector environment reports: 3 groups of 3, the second an anchor; absent real rewards are 0."""
    rng = np.random.default_rng(13)
    anchor = np.repeat([False, True, False], 3)
    streams = {
        "group": np.repeat([4, 5, 6], 3),
        "anchor": anchor,
        "ungraded": np.zeros(9, bool),
        "anchor_probability": np.full(9, 1 / 3),
        "lambda": np.full(9, 0.4),
        "alpha": np.ones(9),
        "real_reward": np.where(anchor, rng.random(9), 0.0),
        "_real_reward": anchor.copy(),
        "calibrated_reward": rng.random(9),
        "_calibrated_reward": np.ones(9, bool),
    }
    return streams | changes


@pytest.mark.parametrize("scale", ["standardise", "centre"])
def test_streams_are_rectified(scale):
    streams = make_streams()
    advantages, mask = stream_advantages(streams, scale=scale)
    expected = rectified_advantages(
        streams["real_reward"],
        streams["calibrated_reward"],
        streams["group"],
        streams["anchor"],
        0.4,
        1.0,
        1 / 3,
        scale=scale,
    )
    np.testing.assert_array_equal(advantages, expected)
    assert mask.all()


def test_streams_with_a_weight_are_mixed_and_anchors_weighted():
    streams = make_streams(weight=np.where(make_streams()["anchor"], 3.0, 1.0))
    del streams["lambda"], streams["alpha"]
    advantages, mask = stream_advantages(streams)
    mixture = np.where(streams["anchor"], streams["real_reward"], streams["calibrated_reward"])
    expected = group_advantages(mixture, streams["group"]) * streams["weight"]
    np.testing.assert_array_equal(advantages, expected)
    assert mask.all()


@pytest.mark.parametrize("weighted", [False, True])
def test_streams_leave_out_what_is_not_graded_by_all_that_is_needed(weighted):
    streams = make_streams(**({"weight": np.ones(9)} if weighted else {}))
    streams["ungraded"][0] = True
    streams["_real_reward"][3] = False
    streams["_calibrated_reward"][[4, 6]] = False
    streams["lambda"][0] = np.nan
    advantages, mask = stream_advantages(streams)
    np.testing.assert_array_equal(mask, [False, True, True, False, False, True, False, True, True])
    assert (advantages[~mask] == 0.0).all()
    assert (advantages[[1, 2, 7, 8]] != 0.0).all()


def test_streams_without_predictions_train_on_execution_alone():
    streams = make_streams(anchor=np.ones(9, bool), weight=np.ones(9), real_reward=np.random.default_rng(1).random(9))
    for key in ("_real_reward", "calibrated_reward", "_calibrated_reward", "lambda", "alpha", "anchor_probability"):
        del streams[key]
    advantages, mask = stream_advantages(streams)
    np.testing.assert_array_equal(advantages, group_advantages(streams["real_reward"], streams["group"]))
    assert mask.all()


def test_missing_streams_are_named():
    with pytest.raises(ConfigurationError, match=r"\['anchor'\].*CorrectionWrapper"):
        stream_advantages({"group": np.arange(3)})
    streams = make_streams()
    del streams["lambda"]
    with pytest.raises(ConfigurationError, match=r"\['lambda'\]"):
        stream_advantages(streams)
    with pytest.raises(ConfigurationError, match="one reward scheme"):
        stream_advantages(make_streams(weight=np.ones(9), _weight=np.arange(9) < 3))


def test_the_expectation_over_the_draw_holds_for_streams_of_a_whole_run():
    """Through random draws, not all of them: the mean of many rectified advantages is within its standard error."""
    rng = np.random.default_rng(14)
    groups, real, predicted = np.repeat(np.arange(10), 4), rng.random(40), rng.random(40)
    samples = []
    for _ in range(4000):
        anchor = np.zeros(10, bool)
        anchor[rng.choice(10, 2, replace=False)] = True
        samples.append(rectified_advantages(real, predicted, groups, np.repeat(anchor, 4), 0.4, 1.0, 0.2))
    error = np.mean(samples, axis=0) - group_advantages(real, groups)
    standard_error = np.std(samples, axis=0) / np.sqrt(len(samples))
    assert np.abs(error / standard_error).max() < 4.5
