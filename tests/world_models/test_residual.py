"""The Gaussian process on a model's errors against its formula."""

import numpy as np
import pytest

from wmrl_envs.world_models.residual import KernelResidual


def _binary(rng, rows, columns):
    return (rng.random((rows, columns)) < 0.4).astype(np.float32)


def _kernel(a, b, width):
    return np.exp(-((a[:, None, :] - b[None, :, :]).astype(float) ** 2).sum(axis=2) / width)


def test_posterior_is_the_formula():
    rng = np.random.default_rng(0)
    points = np.unique(_binary(rng, 40, 30), axis=0)
    queries = _binary(rng, 25, 30)
    counts = rng.integers(1, 5, len(points)).astype(float)
    errors = rng.normal(size=(len(points), 3))
    residual = KernelResidual(width=6.0, noise=0.02)
    residual.fit(points, counts, errors)
    gram = _kernel(points, points, 6.0) + 0.02 * np.diag(1 / counts)
    expected = _kernel(queries, points, 6.0) @ np.linalg.solve(gram, errors)
    np.testing.assert_allclose(residual.correction(residual.similarity(queries)), expected, atol=1e-10)


def test_executed_often_means_believed_and_far_away_means_unchanged():
    point = np.zeros((1, 100), dtype=np.float32)
    far = np.ones((1, 100), dtype=np.float32)
    for count in (1.0, 10.0, 1e6):
        residual = KernelResidual(width=6.0, noise=0.02)
        residual.fit(point, np.array([count]), np.array([[0.4]]))
        shrunk = 0.4 * count / (count + 0.02)
        assert residual.correction(residual.similarity(point))[0, 0] == pytest.approx(shrunk, abs=1e-12)
        assert abs(residual.correction(residual.similarity(far))[0, 0]) < 1e-6


def test_features_that_came_later_only_add_distance():
    points = np.array([[1, 0], [0, 1]], dtype=np.float32)
    residual = KernelResidual(width=2.0, noise=0.02)
    residual.fit(points, np.ones(2), np.ones((2, 1)))
    wider = np.array([[1, 0, 1, 1]], dtype=np.float32)
    np.testing.assert_allclose(residual.similarity(wider), np.exp([[-1.0, -2.0]]))


def test_a_row_is_the_same_in_a_batch_of_any_size():
    rng = np.random.default_rng(1)
    points = np.unique(_binary(rng, 300, 64), axis=0)
    queries = _binary(rng, 129, 64)
    residual = KernelResidual(width=6.0, noise=0.02)
    residual.fit(points, np.ones(len(points)), rng.normal(size=(len(points), 10)))
    together = residual.correction(residual.similarity(queries))
    alone = np.concatenate([residual.correction(residual.similarity(queries[[i]])) for i in range(len(queries))])
    np.testing.assert_array_equal(together, alone)


def test_spread_shrinks_at_what_was_executed_and_nowhere_else():
    points = np.zeros((1, 200), dtype=np.float32)
    queries = np.stack([np.zeros(200), np.ones(200)]).astype(np.float32)
    residual = KernelResidual(width=6.0, noise=0.02)
    residual.fit(points, np.ones(1), np.zeros((1, 1)))
    left = residual.shrinkage(residual.similarity(queries))
    # One point alone: the bound is the exact posterior standard deviation.
    np.testing.assert_allclose(left, [np.sqrt(1 - 1 / 1.02), 1.0], atol=1e-12)


def test_shrinkage_bounds_the_exact_posterior():
    rng = np.random.default_rng(2)
    points = np.unique(_binary(rng, 60, 20), axis=0)
    queries = _binary(rng, 50, 20)
    residual = KernelResidual(width=6.0, noise=0.02)
    residual.fit(points, np.ones(len(points)), np.zeros((len(points), 1)))
    similarity = residual.similarity(queries)
    gram = _kernel(points, points, 6.0) + 0.02 * np.eye(len(points))
    exact = np.sqrt(1 - np.einsum("ij,ji->i", similarity, np.linalg.solve(gram, similarity.T)))
    assert (residual.shrinkage(similarity) >= exact - 1e-9).all()
