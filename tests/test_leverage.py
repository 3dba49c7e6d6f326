"""Ridge leverage scores against their definition, and the sketch that follows them."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats
from numpy.testing import assert_allclose, assert_array_equal
from reference import kernel_matrix, leverage_scores

from nbsketch import (
    GaussianKernel,
    IdentitySketch,
    LaplacianKernel,
    LeverageSketch,
    LinearKernel,
    PolynomialKernel,
    PrecomputedKernel,
    SketchedKernelRegressor,
)
from nbsketch.datasets import make_friedman_outliers
from nbsketch.leverage import alpha_for_dimension, ridge_leverage_scores

KERNELS = [GaussianKernel(1.0), LaplacianKernel(2.0), PolynomialKernel(2, 0.5, 1.0)]


def points(n=120, q=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, q))


def share_within(actual, desired, factor):
    ratio = actual / desired
    return np.mean((ratio <= factor) & (ratio >= 1 / factor))


# exact scores -----------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("alpha", [1e-6, 1e-2, 10.0])
def test_exact_scores_are_those_of_the_definition(kernel, alpha):
    X = points()
    desired = leverage_scores(kernel_matrix(kernel, X, X), alpha)
    for method in ("exact", "auto"):
        scores = ridge_leverage_scores(X, kernel, alpha, method=method)
        assert_allclose(scores, desired, rtol=0, atol=1e-9)


def test_scores_of_a_known_kernel():
    # K = I: every score is 1 / (1 + n alpha).
    X = 100.0 * np.arange(20)[:, None]
    scores = ridge_leverage_scores(X, GaussianKernel(1.0), 0.1)
    assert_allclose(scores, 1 / 3, rtol=1e-12)
    # K = x x^T: x_i^2 / (|x|^2 + n alpha).
    X = np.arange(1.0, 11)[:, None]
    scores = ridge_leverage_scores(X, LinearKernel(), 0.5)
    assert_allclose(scores, X[:, 0] ** 2 / (385 + 5), rtol=1e-10)


def test_given_as_names_functions_values_and_sparse_rows():
    X = points()
    K = GaussianKernel(1.0)(X)
    desired = ridge_leverage_scores(X, GaussianKernel(1.0), 1e-2)
    for method in ("exact", "recursive"):
        rows, values = sp.csr_array(X), K.copy()
        for data, kernel in (
            (X, lambda X, Y: GaussianKernel(1.0)(X, Y)),
            (rows, GaussianKernel(1.0)),
            (values, PrecomputedKernel()),
            (values, "precomputed"),
        ):
            scores = ridge_leverage_scores(data, kernel, 1e-2, method=method)
            assert_allclose(scores, desired, rtol=1e-8)
        assert_array_equal(values, K)  # what the caller gave is left alone
    named = ridge_leverage_scores(X, "laplacian", 1e-2)
    resolved = LaplacianKernel().resolve(X)
    assert_allclose(named, ridge_leverage_scores(X, resolved, 1e-2))


# approximate scores -----------------------------------------------------------------


def test_few_rows_are_their_own_landmarks():
    X = points(200)
    exact = ridge_leverage_scores(X, GaussianKernel(1.0), 1e-3)
    recursive = ridge_leverage_scores(
        X, GaussianKernel(1.0), 1e-3, method="recursive", random_state=0
    )
    assert_allclose(recursive, exact, rtol=1e-8)


@pytest.mark.parametrize("alpha", [1e-2, 1e-4])
def test_recursive_scores_are_within_a_factor_of_two(alpha):
    X, _ = make_friedman_outliers(1600, random_state=0)
    kernel = GaussianKernel(1.3)
    exact = ridge_leverage_scores(X, kernel, alpha, method="exact")
    for seed in range(3):
        scores = ridge_leverage_scores(
            X, kernel, alpha, method="recursive", random_state=seed
        )
        assert share_within(scores, exact, 2) >= 0.99
        assert abs(scores.sum() / exact.sum() - 1) < 0.3


def test_a_row_on_its_own_is_found():
    # One row among 3000 that is in no small sample.
    X = np.r_[points(2999, 2), [[40.0, 40.0]]]
    for seed in range(3):
        scores = ridge_leverage_scores(
            X, GaussianKernel(1.0), 1e-4, method="recursive", random_state=seed
        )
        assert_allclose(scores[2999], 1 / 1.3, rtol=1e-6)
        assert scores[2999] > 50 * np.median(scores)


def test_a_penalty_beyond_the_kernel_keeps_no_landmark():
    X, kernel = points(600), GaussianKernel(1.0)
    scores = ridge_leverage_scores(X, kernel, 1e6, method="recursive", random_state=0)
    assert_allclose(scores, 1 / (600 * 1e6), rtol=1e-5)


def test_the_whole_kernel_is_never_formed():
    X = points(4000)
    kernel = GaussianKernel(2.0)

    def scores():
        return ridge_leverage_scores(X, kernel, 1e-3, random_state=0)

    scores()  # compiles
    tracemalloc.start()
    try:
        scores()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 4000**2 / 2


def test_same_seed_same_scores():
    X = points(2000)
    one, other = (
        ridge_leverage_scores(X, GaussianKernel(1.0), 1e-2, random_state=3)
        for _ in range(2)
    )
    assert_array_equal(one, other)


def test_errors_of_scores():
    X, kernel = points(), GaussianKernel(1.0)
    with pytest.raises(ValueError, match="`alpha` must be in"):
        ridge_leverage_scores(X, kernel, 0.0)
    with pytest.raises(ValueError, match="`method` must be one of"):
        ridge_leverage_scores(X, kernel, 1.0, method="fast")
    with pytest.raises(ValueError, match="`X` must be finite"):
        ridge_leverage_scores(np.full((3, 2), np.nan), kernel, 1.0)
    with pytest.raises(ValueError, match="`alpha` must be large enough"):
        ridge_leverage_scores(-np.eye(5), PrecomputedKernel(), 1e-3)


# level ------------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [0.5, 3, 20.5])
def test_level_of_a_dimension(dimension):
    X = points()
    alpha = alpha_for_dimension(X, GaussianKernel(1.0), dimension)
    scores = ridge_leverage_scores(X, GaussianKernel(1.0), alpha)
    assert_allclose(scores.sum(), dimension, rtol=1e-6)


def test_level_from_a_sample_of_rows():
    X = points(2500)
    alpha = alpha_for_dimension(X, GaussianKernel(1.0), 30, random_state=0)
    scores = ridge_leverage_scores(X, GaussianKernel(1.0), alpha, method="exact")
    assert abs(scores.sum() / 30 - 1) < 0.15


def test_level_that_no_penalty_has():
    alpha = alpha_for_dimension(points(), LinearKernel(), 50)
    assert 0 < alpha < 1e-10
    assert alpha_for_dimension(np.zeros((4, 2)), LinearKernel(), 2) > 0


# sketch -----------------------------------------------------------------------------


def test_rows_are_drawn_in_proportion_to_their_scores():
    X, kernel = points(30), GaussianKernel(1.0)
    q = ridge_leverage_scores(X, kernel, 1e-2)
    q /= q.sum()
    recipe = LeverageSketch(10, alpha=1e-2)
    drawn = [recipe.draw(30, seed, X=X, kernel=kernel) for seed in range(500)]
    for S in drawn[:20]:
        csr = S.to_csr()
        assert (np.diff(csr.indptr) == 1).all()
        assert_allclose(csr.data, 1 / np.sqrt(10 * q[csr.indices]), rtol=1e-10)
    counts = np.bincount(np.concatenate([S.to_csr().indices for S in drawn]))
    statistic = ((counts - 5000 * q) ** 2 / (5000 * q)).sum()
    assert 6e-7 < scipy.stats.chi2(29).sf(statistic) < 1 - 6e-7


def test_the_identity_is_the_mean():
    X, kernel, n, draws = points(8), GaussianKernel(1.0), 8, 500
    total, squares = np.zeros((2, n, n))
    for seed in range(draws):
        dense = LeverageSketch(4).draw(n, seed, X=X, kernel=kernel).to_csr().toarray()
        inner = dense.T @ dense
        total += inner
        squares += inner**2
    mean = total / draws
    error = np.sqrt(np.maximum(squares / draws - mean**2, 0) / draws)
    assert (np.abs(mean - np.eye(n)) <= 5 * error + 1e-12).all()


def test_outliers_are_drawn_more_often_than_uniformly():
    X, _ = make_friedman_outliers(1000, random_state=0)
    outlying = X.mean(axis=1) > 1.1
    S = LeverageSketch(300).draw(1000, 0, X=X, kernel=GaussianKernel(1.3))
    share = outlying[S.to_csr().indices].mean()
    assert share > 1.5 * outlying.mean()


def test_a_kernel_that_is_zero_is_drawn_from_uniformly():
    S = LeverageSketch(4).draw(9, 0, X=np.zeros((9, 2)), kernel=LinearKernel())
    assert_allclose(S.to_csr().data, 1.5)


def test_estimators_draw_it():
    X = points(300)
    y = np.sin(X[:, 0])
    for kernel in ("gaussian", "precomputed"):
        rows = GaussianKernel(1.0)(X) if kernel == "precomputed" else X
        model = SketchedKernelRegressor(
            kernel, sketch="leverage", size=60, alpha=1e-6, random_state=0
        ).fit(rows, y)
        assert model.score(rows, y) > 0.9


def test_bad_arguments():
    X, kernel = points(9), GaussianKernel(1.0)
    for given in ({}, {"X": X}, {"kernel": kernel}):
        with pytest.raises(TypeError, match="`X` and `kernel` must be passed"):
            LeverageSketch(4).draw(9, 0, **given)
    with pytest.raises(ValueError, match="`X` must have n = 10 rows"):
        LeverageSketch(4).draw(10, 0, X=X, kernel=kernel)
    with pytest.raises(ValueError, match=r"`size` must be at most .* 9, got 10"):
        LeverageSketch(10).draw(9, 0, X=X, kernel=kernel)
    with pytest.raises(ValueError, match="`alpha` must be in"):
        LeverageSketch(4, alpha=0)
    with pytest.raises(ValueError, match="`method` must be one of"):
        LeverageSketch(4, method="fast")
    assert LeverageSketch(4, alpha=1) == LeverageSketch(4, alpha=1.0)
    assert IdentitySketch() != LeverageSketch(4)
