"""Leave-one-out residuals of exact ridge regression, in closed form."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch import GaussianKernel, MaternKernel
from nbsketch.gram import SymmetricGram
from nbsketch.solvers import leave_one_out_residuals
from nbsketch.solvers.exact import solve_exact


def make_rows(n, rng):
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + 0.2 * rng.normal(size=n)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_residuals_are_those_of_refits(fit_intercept, rng):
    X, y = make_rows(30, rng)
    Y = np.column_stack([y, y**2])
    weights = rng.exponential(size=30) * (rng.random(30) < 0.8)
    weights[:2] = 1.0
    weights /= weights.mean()
    K, alpha = GaussianKernel(1.0)(X), 1e-3
    known = {"sample_weight": weights, "fit_intercept": fit_intercept}
    found = leave_one_out_residuals(K, Y, alpha, **known)
    squares = 0.0
    for i in np.flatnonzero(weights > 0):
        left = np.where(np.arange(30) == i, 0.0, weights)
        mass = left.mean()
        refit = {"sample_weight": left / mass, "fit_intercept": fit_intercept}
        A, b, _ = solve_exact(K, Y, alpha / mass, **refit)
        expected = Y[i] - K[i] @ A - b
        assert_allclose(found.residuals[i], expected, rtol=1e-6, atol=1e-8)
        squares += weights[i] * np.sum(expected**2)
    assert np.isnan(found.residuals[weights == 0]).all()
    assert_allclose(found.mean_square, squares / weights.sum(), rtol=1e-6)


def test_a_matrix_by_its_rows_is_the_same(rng):
    X, y = make_rows(60, rng)
    weights = np.arange(60) % 3.0
    K = SymmetricGram(MaternKernel(1.0), X, dtype=np.float64)
    by_rows = leave_one_out_residuals(K, y, 1e-4, sample_weight=weights)
    stored = leave_one_out_residuals(K.kernel(X), y, 1e-4, sample_weight=weights)
    assert_allclose(by_rows.residuals, stored.residuals, rtol=1e-9)


def test_arguments_are_checked():
    K, y = np.eye(3), np.ones(3)
    with pytest.raises(ValueError, match="alpha"):
        leave_one_out_residuals(K, y, 0.0)
    with pytest.raises(ValueError, match="as many rows"):
        leave_one_out_residuals(K, y[:2], 1.0)


def test_an_indefinite_matrix_is_an_error_that_says_alpha():
    with pytest.raises(ValueError, match=r"`alpha` must be larger .* got 0.001"):
        leave_one_out_residuals(-np.eye(9), np.ones(9), 1e-3)
