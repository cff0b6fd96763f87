import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_envs.correction import RectifiedFusion, alpha_ramp, rectified_advantages, standardise
from wmrl_envs.errors import CheckpointError, ConfigurationError


def anchor_groups(rng, n, slope=0.5, noise=0.2):
    real = rng.random((n, 8))
    return real, slope * real + rng.normal(0, noise, (n, 8))


def z(x):
    return (x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + 1e-4)


def test_lambda_is_1_until_10_anchor_groups_were_seen():
    rng = np.random.default_rng(0)
    fusion = RectifiedFusion()
    for _ in range(9):
        fusion.update(*anchor_groups(rng, 1))
        assert fusion.lambda_ == 1.0
    fusion.update(*anchor_groups(rng, 1))
    assert fusion.num_groups == 10
    assert 0.0 < fusion.lambda_ < 1.0


@pytest.mark.parametrize("scale", ["standardise", "centre"])
@pytest.mark.parametrize("batch", [1, 3, 12])
def test_lambda_is_the_ratio_of_decayed_sums(scale, batch):
    rng = np.random.default_rng(1)
    real, predicted = anchor_groups(rng, 24)
    fusion = RectifiedFusion(half_life=4, scale=scale)
    for i in range(0, 24, batch):
        fusion.update(real[i : i + batch], predicted[i : i + batch])
    if scale == "standardise":
        z_r, z_f = z(real), z(predicted)
    else:
        z_r, z_f = (x - x.mean(1, keepdims=True) for x in (real, predicted))
    age = 0.5 ** (np.arange(23, -1, -1) / 4)
    expected = (age * (z_r * z_f).sum(1)).sum() / (age * (z_f**2).sum(1)).sum()
    assert fusion.lambda_ == pytest.approx(np.clip(expected, 0, 1.5), rel=1e-12)


def test_lambda_stays_within_0_and_its_limit():
    rng = np.random.default_rng(2)
    real, _ = anchor_groups(rng, 20)
    inverse = RectifiedFusion()
    inverse.update(real, -real)
    assert inverse.lambda_ == 0.0
    shrunk = RectifiedFusion(scale="centre")
    shrunk.update(real, 0.1 * real)
    assert shrunk.lambda_ == 1.5
    perfect = RectifiedFusion()
    perfect.update(real, real)
    assert perfect.lambda_ == pytest.approx(1.0, abs=1e-12)


def test_predictions_without_variance_leave_lambda_unchanged():
    rng = np.random.default_rng(3)
    fusion = RectifiedFusion()
    fusion.update(rng.random((20, 7)), np.full((20, 7), 0.1))
    assert fusion.num_groups == 20
    assert fusion.lambda_ == 1.0
    fusion.update(*anchor_groups(rng, 20))
    before = fusion.lambda_
    fusion.update(rng.random((5, 7)), np.full((5, 7), 0.1))
    assert fusion.lambda_ == pytest.approx(before, rel=1e-12)
    for _ in range(10):  # until the sums have faded beneath every float
        fusion.update(rng.random((9000, 2)), np.full((9000, 2), 0.1))
    assert fusion.lambda_ == pytest.approx(before, rel=1e-9)


def test_lambda_minimises_the_variance_of_the_rectified_advantages():
    rng = np.random.default_rng(4)
    m, groups = 20, np.repeat(np.arange(20), 8)
    real, predicted = anchor_groups(rng, m, noise=0.3)
    fusion = RectifiedFusion(half_life=1e6)
    fusion.update(real, predicted)
    anchors = [np.repeat(rng.permutation(m) < 2, 8) for _ in range(1500)]

    def variance(lambda_):
        samples = [
            rectified_advantages(real.ravel(), predicted.ravel(), groups, anchor, lambda_, 1.0, 0.1)
            for anchor in anchors
        ]
        return np.var(samples, axis=0).sum()

    at = [variance(x) for x in (fusion.lambda_ - 0.25, fusion.lambda_, fusion.lambda_ + 0.25)]
    assert at[1] < at[0] and at[1] < at[2]


def test_rollouts_graded_by_one_alone_take_no_part():
    rng = np.random.default_rng(5)
    real, predicted = anchor_groups(rng, 12)
    clean, holed = RectifiedFusion(), RectifiedFusion()
    clean.update(real[:, :5], predicted[:, :5])
    real[:, 5], predicted[:, 6], real[:, 7] = np.nan, np.nan, 1e6
    mask = np.ones((12, 8), bool)
    mask[:, 7] = False
    holed.update(real, predicted, mask=mask)
    assert holed.lambda_ == pytest.approx(clean.lambda_, rel=1e-12)
    holed.update([None, None], [0.0, 1.0])
    assert holed.num_groups == 12


def test_a_fixed_lambda_stays():
    fusion = RectifiedFusion(fixed=0.5, bins=[0.2])
    rng = np.random.default_rng(6)
    real, predicted = anchor_groups(rng, 30)
    fusion.update(real, predicted, spread=rng.random((30, 8)))
    assert fusion.lambda_ == 0.5
    np.testing.assert_array_equal(fusion.lambda_for([0.1, 0.9]), [0.5, 0.5])


def binned_step(rng, n):
    """Return groups in which predictions of small spread are good and of large spread are noise."""
    real = rng.random((n, 16))
    spread = rng.choice([0.0, 0.3], (n, 16)) + 0.2 * rng.random((n, 16))
    predicted = real + rng.normal(0, 1, real.shape) * np.where(spread < 0.25, 0.02, 0.6)
    return {"real": real, "calibrated": predicted, "spread": spread}


@pytest.mark.parametrize("bins", [[0.25], 2])
def test_one_lambda_per_bin_trusts_less_where_the_model_is_unsure(bins):
    rng = np.random.default_rng(7)
    fusion = RectifiedFusion(bins=bins, scale="centre")
    np.testing.assert_array_equal(fusion.lambda_for([0.05, 0.4]), [1.0, 1.0])
    for _ in range(30):
        fusion.update(**binned_step(rng, 2))
    sure, unsure, unknown = fusion.lambda_for([0.05, 0.4, np.nan])
    assert sure > 0.7 > 0.3 > unsure
    assert unknown == fusion.lambda_
    assert unsure < fusion.lambda_ < sure


def test_a_bin_uses_the_common_lambda_until_it_has_seen_enough_groups():
    rng = np.random.default_rng(8)
    fusion = RectifiedFusion(bins=[0.22, 0.28])
    fusion.update(**binned_step(rng, 9))
    np.testing.assert_array_equal(fusion.lambda_for([0.1, 0.25, 0.4]), [1.0, 1.0, 1.0])
    fusion.update(**binned_step(rng, 9))
    low, middle, high = fusion.lambda_for([0.1, 0.25, 0.4])
    assert middle == fusion.lambda_ != 1.0
    assert low != middle != high


def test_a_number_of_bins_needs_the_first_groups_to_place_its_edges():
    rng = np.random.default_rng(9)
    fusion = RectifiedFusion(bins=4)
    spreads = rng.random((10, 8))
    for i in range(10):
        assert fusion.state_dict()["edges"] is None
        fusion.update(*anchor_groups(rng, 1), spread=spreads[i : i + 1])
    np.testing.assert_allclose(fusion.state_dict()["edges"], np.quantile(spreads, [0.25, 0.5, 0.75]))
    assert fusion.state_dict()["spreads"] == []


def test_spreads_are_asked_for_only_where_they_matter():
    real, predicted = anchor_groups(np.random.default_rng(10), 2)
    with pytest.raises(ValueError, match="needs spread="):
        RectifiedFusion(bins=2).update(real, predicted)
    RectifiedFusion().update(real, predicted)


@pytest.mark.parametrize("options", [{}, {"bins": 3}, {"bins": [0.1, 0.3]}, {"scale": "centre"}], ids=str)
@pytest.mark.parametrize("steps", [2, 12])
def test_a_saved_fusion_continues_to_the_last_bit(options, steps):
    rng = np.random.default_rng(11)
    fusion, loaded = RectifiedFusion(**options), RectifiedFusion(**options)
    for _ in range(steps):
        fusion.update(**binned_step(rng, 3))
    loaded.load_state_dict(json.loads(json.dumps(fusion.state_dict())))
    for _ in range(8):
        assert loaded.state_dict() == fusion.state_dict()
        np.testing.assert_array_equal(loaded.lambda_for([0.0, 0.2, 0.5]), fusion.lambda_for([0.0, 0.2, 0.5]))
        step = binned_step(rng, 2)
        fusion.update(**step)
        loaded.update(**step)


def test_a_state_of_other_settings_or_damaged_changes_nothing():
    fusion = RectifiedFusion(bins=[0.2])
    fusion.update(**binned_step(np.random.default_rng(12), 12))
    good = fusion.state_dict()
    with pytest.raises(CheckpointError, match=r"bins: saved \[0.2\], here 3"):
        RectifiedFusion(bins=3).load_state_dict(good)
    for damage in ({"common": {}}, {"binned": good["common"]}, {"edges": [0.1, 0.2]}, {"spreads": None}):
        with pytest.raises(CheckpointError, match="damaged"):
            fusion.load_state_dict({**good, **damage})
        assert fusion.state_dict() == good


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"half_life": 0}, "half_life.*got 0"),
        ({"min_groups": 0}, "min_groups.*got 0"),
        ({"limit": -1}, "limit.*got -1"),
        ({"fixed": 2.0}, r"fixed must be in \[0, 1.5\], got 2.0"),
        ({"scale": "center"}, "center.*Did you mean 'centre'"),
        ({"bins": 1}, "bins.*at least 2, got 1"),
        ({"bins": [0.3, 0.1]}, "increasing edges"),
        ({"bins": []}, "increasing edges"),
        ({"bins": ["a"]}, "increasing edges"),
    ],
)
def test_bad_settings_name_the_value_and_the_range(options, message):
    with pytest.raises(ConfigurationError, match=message):
        RectifiedFusion(**options)


def test_updates_of_unequal_shapes_are_refused():
    with pytest.raises(ValueError, match="calibrated must have the shape of real"):
        RectifiedFusion().update([[1, 2]], [1, 2])
    with pytest.raises(ValueError, match="one id per rollout"):
        RectifiedFusion().update([1, 2], [1, 2], groups=[1])
    with pytest.raises(ValueError, match="infinity"):
        RectifiedFusion().update([1, np.inf], [1, 2])


def test_alpha_is_1_where_nothing_is_known_or_there_is_no_ramp():
    assert alpha_ramp(None, 0.1, 0.3) == 1.0
    assert alpha_ramp(0.0, 0.1, 0.0) == 1.0


def test_alpha_rises_linearly_from_pi_to_1():
    assert alpha_ramp(0.0, 0.1, 0.3) == pytest.approx(0.1)
    assert alpha_ramp(0.15, 0.1, 0.3) == pytest.approx(0.55)
    assert alpha_ramp(0.3, 0.1, 0.3) == 1.0
    assert alpha_ramp(1.2, 0.1, 0.3) == 1.0
    assert alpha_ramp(-0.5, 0.1, 0.3) == pytest.approx(0.1)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_alpha_never_leaves_its_range(progress, pi, ramp):
    assert pi <= alpha_ramp(progress, pi, ramp) <= 1.0


@pytest.mark.parametrize(("progress", "pi", "ramp"), [(0.1, 2, 0.3), (0.1, 0.1, -0.1), (float("nan"), 0.1, 0.3)])
def test_bad_ramps_are_refused(progress, pi, ramp):
    with pytest.raises(ConfigurationError, match="got"):
        alpha_ramp(progress, pi, ramp)


def test_at_the_start_of_a_ramp_anchors_count_as_any_group():
    rng = np.random.default_rng(13)
    real, predicted = rng.random(40), rng.random(40)
    groups, anchor = np.repeat(np.arange(10), 4), np.repeat(np.arange(10) < 1, 4)
    start = rectified_advantages(real, predicted, groups, anchor, 1.0, alpha_ramp(0.0, 0.1, 0.3), 0.1)
    np.testing.assert_array_equal(start, standardise(np.where(anchor, real, predicted), groups))
