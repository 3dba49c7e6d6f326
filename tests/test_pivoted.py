"""Landmarks by randomly pivoted Cholesky: the law of pivots, and what they span."""

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose, assert_array_equal

import nbsketch
from nbsketch import (
    GaussianKernel,
    LinearKernel,
    RPCholeskySketch,
    SketchedKernelRegressor,
    SubsamplingSketch,
)
from nbsketch.datasets import make_friedman_outliers
from nbsketch.sketches import as_recipe


def drawn(size, n, seed, X, kernel):
    """Return the landmarks of a draw."""
    return RPCholeskySketch(size).draw(n, seed, X=X, kernel=kernel).to_csr().indices


def residual_trace(kernel, X, landmarks):
    """Return the trace of K that landmarks do not span."""
    K = kernel(X)
    part = K[:, landmarks]
    inverse = np.linalg.pinv(K[np.ix_(landmarks, landmarks)], hermitian=True)
    return np.trace(K - part @ inverse @ part.T)


def test_a_first_landmark_is_drawn_in_proportion_to_the_diagonal():
    X = np.random.default_rng(0).normal(size=(20, 2))
    q = (X**2).sum(axis=1) / (X**2).sum()
    counts = np.zeros(20)
    for seed in range(600):
        counts[drawn(1, 20, seed, X, LinearKernel())] += 1
    statistic = ((counts - 600 * q) ** 2 / (600 * q)).sum()
    assert 6e-7 < scipy.stats.chi2(19).sf(statistic) < 1 - 6e-7


def test_pairs_have_the_law_of_landmarks_drawn_one_by_one():
    X = np.random.default_rng(1).normal(size=(5, 2))
    K = GaussianKernel(1.0)(X)
    pairs = np.zeros((5, 5))
    for i in range(5):
        left = np.diagonal(K) - K[i] ** 2
        pairs[i] = left / left.sum() / 5
    pairs = (pairs + pairs.T)[np.triu_indices(5, 1)]
    counts = np.zeros((5, 5))
    for seed in range(1000):
        counts[tuple(np.sort(drawn(2, 5, seed, X, GaussianKernel(1.0))))] += 1
    counts = counts[np.triu_indices(5, 1)]
    statistic = ((counts - 1000 * pairs) ** 2 / (1000 * pairs)).sum()
    assert 6e-7 < scipy.stats.chi2(9).sf(statistic) < 1 - 6e-7


def test_landmarks_of_three_blocks_span_a_kernel_of_their_rank():
    X = np.random.default_rng(0).normal(size=(400, 120))
    landmarks = drawn(120, 400, 0, X, LinearKernel())
    assert len(np.unique(landmarks)) == 120
    kernel = LinearKernel()
    assert residual_trace(kernel, X, landmarks) < 1e-6 * np.trace(kernel(X))


def test_less_of_the_kernel_is_left_than_by_uniform_landmarks():
    X, _ = make_friedman_outliers(1000, random_state=0)
    kernel = GaussianKernel(1.3)
    for seed in range(3):
        uniform = SubsamplingSketch(100).draw(1000, seed).columns
        pivots = drawn(100, 1000, seed, X, kernel)
        left = residual_trace(kernel, X, pivots)
        assert left < 0.95 * residual_trace(kernel, X, uniform)
        outlying = X.mean(axis=1) > 1.1
        assert outlying[pivots].mean() > 2 * outlying.mean()


def test_rows_are_those_of_the_identity_and_copies_are_no_second_landmark():
    X = np.repeat(np.random.default_rng(0).normal(size=(30, 2)), 3, axis=0)
    S = RPCholeskySketch(30).draw(90, 0, X=X, kernel=GaussianKernel(0.1))
    assert_allclose(S.to_csr().data, np.sqrt(3))
    assert len(np.unique(S.columns // 3)) == 30


@pytest.mark.parametrize("size", [4, 9])
def test_a_kernel_that_is_zero_is_drawn_from_uniformly(size):
    X = np.zeros((9, 2))
    sets = [drawn(size, 9, seed, X, LinearKernel()) for seed in range(200)]
    assert all(len(np.unique(chosen)) == size for chosen in sets)
    counts = np.bincount(np.concatenate(sets), minlength=9)
    assert np.abs(counts - 200 * size / 9).max() < 45


def test_beyond_the_memory_limit_landmarks_are_of_some_rows():
    X = np.random.default_rng(0).normal(size=(2000, 2))
    kernel = GaussianKernel(1.0)
    nbsketch.set_memory_limit(8 * 500 * 20)
    try:
        few = [drawn(20, 2000, seed, X, kernel) for seed in (0, 0, 1)]
        of_values = drawn(20, 2000, 0, kernel(X), nbsketch.PrecomputedKernel())
        by_name = drawn(20, 2000, 0, kernel(X), "precomputed")
    finally:
        nbsketch.set_memory_limit(None)
    assert_array_equal(few[0], few[1])
    assert (few[0] != few[2]).any() and len(np.unique(few[0])) == 20
    assert_array_equal(of_values, by_name)
    assert residual_trace(kernel, X, of_values) < 0.05 * 2000
    assert residual_trace(kernel, X, few[0]) < 0.05 * 2000


@pytest.mark.parametrize("size", [60, "auto"])
@pytest.mark.parametrize("kernel", ["gaussian", "precomputed"])
def test_estimators_draw_it(kernel, size):
    X = np.random.default_rng(0).normal(size=(300, 3))
    y = np.sin(X[:, 0])
    rows = GaussianKernel(1.0)(X) if kernel == "precomputed" else X
    options = {"sketch": "rpcholesky", "alpha": 1e-6, "random_state": 0, "size": size}
    model = SketchedKernelRegressor(kernel, **options).fit(rows, y)
    assert model.score(rows, y) > 0.9
    again = SketchedKernelRegressor(kernel, **options).fit(rows, y)
    assert_array_equal(model.predict(rows), again.predict(rows))


def test_bad_arguments():
    assert as_recipe("rpcholesky", 7, 50) == RPCholeskySketch(7)
    with pytest.raises(TypeError, match="must be passed to draw a RPCholeskySketch"):
        RPCholeskySketch(4).draw(9, 0)
    with pytest.raises(TypeError, match="must be passed to draw a RPCholeskySketch"):
        RPCholeskySketch(4).draw_matrix(9, 0)
    X = np.zeros((9, 2))
    with pytest.raises(ValueError, match=r"`size` must be at most .* 9, got 10"):
        RPCholeskySketch(10).draw(9, 0, X=X, kernel=LinearKernel())
    with pytest.raises(ValueError, match="`X` must have n = 9 rows"):
        RPCholeskySketch(4).draw(9, 0, X=X[:8], kernel=LinearKernel())
    with pytest.raises(ValueError, match="`X`"):
        RPCholeskySketch(4).draw(9, 0, X=X[:, 0], kernel=LinearKernel())


def test_lists_are_rows():
    X = np.random.default_rng(0).normal(size=(400, 3))
    kernel = GaussianKernel(1.0)
    first = drawn(100, 400, 0, X, kernel)
    assert_array_equal(drawn(100, 400, 0, X.tolist(), kernel), first)
