"""Leave-one-out residuals of exact ridge regression, in closed form and estimated."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch import GaussianKernel, MaternKernel
from nbsketch.gram import SymmetricGram
from nbsketch.solvers import exact as left_out
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


@pytest.mark.parametrize("weighted", [False, True])
def test_estimates_are_close_to_the_closed_form(weighted, rng, monkeypatch):
    X, y = make_rows(600, rng)
    K = SymmetricGram(MaternKernel(1.0), X, dtype=np.float64)
    weights = None
    if weighted:
        weights = rng.uniform(0.5, 1.5, size=600)
        weights /= weights.mean()
    exact = leave_one_out_residuals(K, y, 1e-4, sample_weight=weights)
    assert (exact.relative_error == 0).all()
    monkeypatch.setattr(left_out, "_DENSE_ROWS", 0)
    known = {"sample_weight": weights, "random_state": 0}
    found = leave_one_out_residuals(K, y, 1e-4, **known)
    assert_allclose(found.mean_square, exact.mean_square, rtol=0.01)
    scale = exact.mean_square**0.5
    assert np.std(found.residuals - exact.residuals) < 0.05 * scale
    large = np.abs(exact.residuals) > 0.3 * scale
    errors = (found.residuals / exact.residuals - 1)[large]
    # standardized errors have deviation one
    assert 0.5 < np.sqrt(np.mean((errors / found.relative_error[large]) ** 2)) < 2.0
    fewer = leave_one_out_residuals(K, y, 1e-4, n_probes=8, **known)
    assert np.median(fewer.relative_error) > 1.3 * np.median(found.relative_error)


def test_arguments_are_checked():
    K, y = np.eye(3), np.ones(3)
    with pytest.raises(ValueError, match="alpha"):
        leave_one_out_residuals(K, y, 0.0)
    with pytest.raises(ValueError, match="as many rows"):
        leave_one_out_residuals(K, y[:2], 1.0)


def test_an_indefinite_matrix_is_an_error_that_says_alpha():
    with pytest.raises(ValueError, match=r"`alpha` must be larger .* got 0.001"):
        leave_one_out_residuals(-np.eye(9), np.ones(9), 1e-3)
