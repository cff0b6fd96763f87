import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_envs.correction import ScalarFusion, episode_returns, scalar_return, turn_reward, weighted_return
from wmrl_envs.errors import CheckpointError, ConfigurationError

NUMBER = st.floats(-10, 10)


@given(f=NUMBER, r=NUMBER, c=NUMBER, p=st.floats(0.01, 1), lambda_=st.sampled_from([0.4, 0.0, 1.0, 1.5]))
def test_the_expectation_over_the_draw_is_the_real_return(f, r, c, p, lambda_):
    def paid(anchor):
        return scalar_return(f, r, anchor, mean=c, lambda_=lambda_, alpha=1.0, probability=p)

    assert p * paid(True) + (1 - p) * paid(False) == pytest.approx(r, abs=1e-10)


@pytest.mark.parametrize(("m", "n"), [(6, 2), (7, 1), (5, 5)])
def test_the_mean_over_all_anchor_sets_is_the_real_return_at_lambda_04(m, n):
    rng = np.random.default_rng(m)
    f, r = rng.normal(5, 3, m), rng.random(m)
    results = []
    for chosen in itertools.combinations(range(m), n):
        anchor = np.isin(np.arange(m), chosen)
        real = np.where(anchor, r, np.nan)
        results.append(scalar_return(f, real, anchor, mean=0.3, lambda_=0.4, alpha=1.0, probability=n / m))
    np.testing.assert_allclose(np.mean(results, axis=0), r, atol=1e-12)


def test_the_worked_formula():
    g = 0.3 + 0.4 * (0.5 - 0.3)
    common = {"mean": 0.3, "lambda_": 0.4, "probability": 0.1}
    assert scalar_return(0.5, np.nan, False, alpha=1.0, **common) == pytest.approx(g)
    assert scalar_return(0.5, 0.9, True, alpha=1.0, **common) == pytest.approx(g + (0.9 - g) / 0.1)
    assert scalar_return(0.5, 0.9, True, alpha=0.55, **common) == pytest.approx(g + 5.5 * (0.9 - g))


@given(f=NUMBER, r=NUMBER, c=NUMBER, lambda_=st.floats(0, 1.5))
def test_a_forced_anchor_returns_r_and_a_forced_other_returns_g(f, r, c, lambda_):
    assert scalar_return(f, r, True, mean=c, lambda_=lambda_, alpha=1.0, probability=1.0) == r
    g = c + lambda_ * (f - c)
    assert scalar_return(f, r, False, mean=c, lambda_=lambda_, alpha=1.0, probability=1.0) == g
    assert scalar_return(f, r, True, mean=c, lambda_=lambda_, alpha=1.0, probability=0.0) == g


@given(x=NUMBER, c=NUMBER, w=st.floats(1, 4))
def test_the_papers_scalar_return(x, c, w):
    assert weighted_return(x, mean=c, weight=w) == pytest.approx(c + w * (x - c), abs=1e-9)
    assert weighted_return(x, mean=c, weight=1.0) == x


def test_episode_returns_by_what_is_known():
    calibrated = [0.5, 0.5, None, 0.5, None]
    real = [0.9, None, 0.8, None, None]
    anchor = np.array([True, False, False, True, True])
    returns, ungraded = episode_returns(calibrated, real, anchor, mean=0.3, lambda_=0.4, probability=0.1)
    g = 0.38
    np.testing.assert_allclose(returns, [g + 10 * (0.9 - g), g, 0.8, 0.3, 0.3])
    np.testing.assert_array_equal(ungraded, [False, False, False, True, True])
    mixed, ungraded = episode_returns(calibrated, real, anchor, mean=0.3, weight=2.0)
    np.testing.assert_allclose(mixed, [0.3 + 2 * 0.6, 0.5, 0.8, 0.3, 0.3])
    np.testing.assert_array_equal(ungraded, [False, False, False, True, True])


def test_episode_returns_take_one_value_per_episode():
    n = 6
    rng = np.random.default_rng(0)
    f, r, c, lambdas, p = rng.random((5, n))
    anchor = np.arange(n) % 2 == 0
    returns, _ = episode_returns(f, r, anchor, mean=c, lambda_=lambdas, probability=p)
    for i in range(n):
        one = scalar_return(f[i], r[i], anchor[i], mean=c[i], lambda_=lambdas[i], alpha=1.0, probability=p[i])
        assert returns[i] == one


def test_without_any_prediction_the_real_return_is_paid():
    returns, ungraded = episode_returns([None] * 3, [0.1, 0.2, None], np.ones(3, bool), mean=0.0, weight=1.0)
    np.testing.assert_array_equal(returns, [0.1, 0.2, 0.0])
    np.testing.assert_array_equal(ungraded, [False, False, True])


@given(st.data())
def test_the_turns_add_up_to_the_return(data):
    """Through turns without a prediction, too: the last turn settles what was paid, not what should have been."""
    turns = data.draw(st.integers(1, 6))
    rewards = data.draw(st.lists(st.one_of(st.just(np.nan), st.floats(0, 1)), min_size=turns, max_size=turns))
    lambda_, total = data.draw(st.floats(0, 1.5)), data.draw(st.floats(-20, 20))
    paid, best, undiscounted = np.zeros(1), np.zeros(1), 0.0
    for turn, predicted in enumerate(rewards):
        best = np.maximum(best, predicted)
        last = turn == turns - 1
        reward = turn_reward([total] if last else lambda_ * best, paid)
        paid = paid + reward
        undiscounted += float(reward[0])
    assert undiscounted == pytest.approx(total, abs=1e-13)


def test_turns_pay_the_improvement_of_the_calibrated_best():
    best = np.maximum.accumulate([0.2, 0.1, 0.6, 0.5])
    lambda_, c, p, r, alpha = 0.4, 0.3, 0.1, 0.7, 1.0
    g = c + lambda_ * (best[-1] - c)
    paid, rewards = 0.0, []
    for turn in range(3):
        rewards.append(turn_reward(lambda_ * best[turn], paid))
        paid += rewards[-1]
    total = scalar_return(best[-1], r, True, mean=c, lambda_=lambda_, alpha=alpha, probability=p)
    rewards.append(turn_reward(total, paid))
    np.testing.assert_allclose(rewards[:3], [lambda_ * 0.2, 0.0, lambda_ * 0.4], atol=1e-15)
    assert rewards[3] == pytest.approx((1 - lambda_) * c + (alpha / p) * (r - g))
    assert sum(rewards) == pytest.approx(total, abs=1e-15)


def test_an_unknown_turn_pays_nothing_for_now():
    np.testing.assert_array_equal(turn_reward([np.nan, 0.5], [0.2, 0.2]), [0.0, 0.3])


def episodes(rng, n, slope=0.5, noise=0.1):
    real = rng.random(n)
    return slope * real + rng.normal(0, noise, n), real


def test_c_is_the_mean_of_earlier_episodes():
    rng = np.random.default_rng(1)
    fusion = ScalarFusion(mean_window=50)
    assert fusion.mean == 0.0
    seen = []
    for _ in range(20):
        f, _ = episodes(rng, 7)
        seen.extend(f.tolist())
        fusion.update([*f, None])
        assert fusion.mean == pytest.approx(np.mean(seen[-50:]), rel=1e-12)
    assert fusion.num_anchors == 0
    assert (fusion.lambda_, fusion.weight) == (1.0, 1.0)


def test_lambda_is_cov_over_var_of_recent_anchor_episodes():
    rng = np.random.default_rng(2)
    fusion = ScalarFusion(window=100)
    pairs = []
    for step in range(30):
        f, r = episodes(rng, 20, slope=1.0, noise=0.3)
        anchor = rng.random(20) < 0.5
        pairs.extend(zip(f[anchor], r[anchor], strict=True))
        fusion.update(f, np.where(anchor, r, np.nan), anchor)
        if len(pairs) < 32:
            assert fusion.lambda_ == 1.0, step
        else:
            recent = np.array(pairs[-100:]).T
            cov = np.cov(recent, bias=True)
            assert fusion.lambda_ == pytest.approx(cov[0, 1] / cov[0, 0], rel=1e-9)
    assert fusion.num_anchors == len(pairs)


def test_lambda_is_clipped_and_unchanged_without_variance():
    rng = np.random.default_rng(3)
    _, real = episodes(rng, 40)
    for f, expected in ((-real, 0.0), (0.1 * real, 1.5), (np.full(40, 0.1), 1.0)):
        fusion = ScalarFusion()
        fusion.update(f, real)
        assert fusion.lambda_ == expected


def test_lambda_minimises_the_variance_of_the_return():
    rng = np.random.default_rng(4)
    fusion = ScalarFusion(window=4000)
    f, r = episodes(rng, 4000, slope=1.0, noise=0.3)
    fusion.update(f, r)
    anchor = rng.random(4000) < 0.1

    def spread(lambda_):
        return np.var(scalar_return(f, r, anchor, mean=f.mean(), lambda_=lambda_, alpha=1.0, probability=0.1) - r)

    assert spread(fusion.lambda_) < min(spread(fusion.lambda_ - 0.25), spread(fusion.lambda_ + 0.25))


def test_the_weight_pools_the_residuals_of_recent_anchors():
    rng = np.random.default_rng(5)
    fusion = ScalarFusion()
    f, r = episodes(rng, 31)
    fusion.update(f, r)
    assert fusion.weight == 1.0
    fusion.update([0.4], [0.5])
    assert fusion.weight == pytest.approx(2.0)
    assert fusion.s2 == pytest.approx(np.var([*(f - r), -0.1]) / np.var([*r, 0.5]))
    for _ in range(30):
        f, r = episodes(rng, 32, noise=2.0)
        fusion.update(f, r)
    assert fusion.weight == 4.0
    for _ in range(16):
        _, r = episodes(rng, 32)
        fusion.update(r + 0.1, r)
    assert fusion.weight == pytest.approx(1.0)


def test_without_residuals_or_variance_the_weight_is_1():
    rng = np.random.default_rng(6)
    fusion = ScalarFusion()
    for _ in range(4):
        _, r = episodes(rng, 20)
        fusion.update(r + 0.1, r)
    assert fusion.weight == 1.0
    constant = ScalarFusion()
    constant.update(rng.random(100), np.full(100, 0.1))
    assert constant.weight == 1.0


def test_ungraded_episodes_enter_no_statistic():
    rng = np.random.default_rng(7)
    f, r = episodes(rng, 50)
    clean, holed = ScalarFusion(), ScalarFusion()
    clean.update(f, r)
    holed.update([*f, None, np.nan], [*r, 1e6, 1e6])
    assert holed.state_dict() == clean.state_dict()
    holed.update([], [])
    holed.update([None], [None])
    assert holed.state_dict() == clean.state_dict()


def test_a_fixed_lambda_stays():
    fusion = ScalarFusion(fixed=0.4)
    fusion.update(*episodes(np.random.default_rng(8), 100))
    assert fusion.lambda_ == 0.4


def test_a_saved_fusion_continues_to_the_last_bit():
    rng = np.random.default_rng(9)
    fusion, loaded = ScalarFusion(window=40, mean_window=30), ScalarFusion(window=40, mean_window=30)
    for _ in range(9):
        f, r = episodes(rng, 13)
        fusion.update(f, r, rng.random(13) < 0.5)
    loaded.load_state_dict(json.loads(json.dumps(fusion.state_dict())))
    for _ in range(20):
        assert loaded.state_dict() == fusion.state_dict()
        f, r = episodes(rng, 7)
        anchor = rng.random(7) < 0.5
        fusion.update(f, r, anchor)
        loaded.update(f, r, anchor)
    with pytest.raises(CheckpointError, match="window: saved 40, here 512"):
        ScalarFusion(mean_window=30).load_state_dict(fusion.state_dict())
    with pytest.raises(CheckpointError, match="damaged"):
        loaded.load_state_dict({**fusion.state_dict(), "anchors": [[0.0, np.nan], [0.0, 1.0]]})
    assert loaded.state_dict() == fusion.state_dict()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 1}, "window.*at least 2, got 1"),
        ({"mean_window": 0}, "mean_window.*got 0"),
        ({"min_anchors": 1}, "min_anchors.*got 1"),
        ({"observations": 0}, "observations.*got 0"),
        ({"fixed": -0.1}, r"fixed must be in \[0, 1.5\], got -0.1"),
    ],
)
def test_bad_settings_name_the_value_and_the_range(options, message):
    with pytest.raises(ConfigurationError, match=message):
        ScalarFusion(**options)


def test_bad_episodes_are_refused():
    fusion = ScalarFusion()
    with pytest.raises(ValueError, match="real holds 1 values where 2"):
        fusion.update([0.1, 0.2], [0.1])
    with pytest.raises(ValueError, match="anchor must be 1 bools"):
        fusion.update([0.1], [0.1], [1])
    with pytest.raises(ValueError, match="infinity"):
        episode_returns([np.inf], [0.1], np.ones(1, bool), mean=0.0)
