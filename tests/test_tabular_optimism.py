"""The factor from left-out errors to those of new rows."""

import numpy as np
import pytest

from nbsketch import TabularKernelRegressor
from nbsketch.kernels import MaternKernel
from nbsketch.tabular.optimism import effective_numbers, optimism
from nbsketch.tabular.scales import SMOOTH, Scales


def cross_validated(point, rows, Y):
    """Return the residuals of generalized cross-validation, from the definition."""
    inverse, tau = np.exp(point[:-1]), np.exp(point[-1])
    K = MaternKernel(bandwidth=1.0, nu=1.5)(rows * inverse, rows * inverse)
    A = np.linalg.inv(K + tau * np.eye(len(rows)))
    u = A.sum(axis=1)
    P = A - np.outer(u, u) / u.sum()
    return (len(rows) * P @ Y / np.trace(P)).ravel()


@pytest.mark.parametrize("tau", [0.3, 1e-3])
def test_the_effective_number_is_that_of_numerical_derivatives(tau):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 3))
    Y = np.column_stack([np.sin(rows[:, 0]), rows[:, 1]]) + rng.normal(size=(40, 2))
    point = np.log([0.5, 0.8, 0.01, tau])
    J = np.column_stack(
        [
            (
                cross_validated(point + step, rows, Y)
                - cross_validated(point - step, rows, Y)
            )
            / 2e-4
            for step in 1e-4 * np.eye(4)
        ]
    )
    residual = cross_validated(point, rows, Y).reshape(Y.shape)
    values = np.linalg.eigvalsh(residual.T @ residual)
    outputs = values.sum() ** 2 / np.square(values).sum()
    G, square = J.T @ J, values.sum() / (40 * outputs)
    expected = np.trace(G @ np.linalg.inv(G + square * np.eye(4)))
    found = effective_numbers(Scales.at(SMOOTH, point), rows, Y)
    assert found == pytest.approx((expected, outputs), rel=1e-5)
    assert 0.5 < expected < 4
    assert 1 < outputs < 2


def test_a_useless_column_does_not_count():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(100, 5))
    y = np.sin(rows[:, :1]) + 0.1 * rng.normal(size=(100, 1))
    inverse = np.array([1, *[1e-4] * 4])
    few, _ = effective_numbers(Scales(SMOOTH, inverse, 0.01), rows, y)
    many, _ = effective_numbers(Scales(SMOOTH, np.ones(5), 0.01), rows, y)
    assert few < 2 < many - 1


def test_the_factor_falls_with_rows_and_copies_of_an_output_count_once():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(400, 3))
    y, other = rows[:, :1] + 0.5 * rng.normal(size=(2, 400, 1))
    scales = Scales(SMOOTH, np.ones(3), 0.1)
    factor = optimism(scales, rows, y)
    k, _ = effective_numbers(scales, rows, y)
    assert factor == pytest.approx(np.sqrt((400 + k) / (400 - k)))
    assert optimism(scales, rows[:50], y[:50]) > factor > 1
    assert optimism(scales, rows, np.hstack([y, y])) == pytest.approx(factor)
    more = optimism(scales, rows, np.hstack([y, other]))
    assert 1 < more < 1 + 0.8 * (factor - 1)


def test_constant_targets_are_expected_without_error():
    rows = np.random.default_rng(3).normal(size=(20, 2))
    assert optimism(Scales(SMOOTH, np.ones(2), 0.1), rows, np.zeros((20, 1))) == 1


def test_few_rows_expect_the_errors_of_new_rows():
    ratios, inside = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(1100, 8))
        y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=1100)
        model = TabularKernelRegressor("fast", random_state=seed)
        model.fit(X[:100], y[:100])
        error = y[100:] - model.predict(X[100:])
        ratios.append(np.mean(error**2) / model.loo_error_**2)
        low, high = model.predict_interval(X[100:], 0.8).T
        inside.append(np.mean((low <= y[100:]) & (y[100:] <= high)))
    assert np.sqrt(np.mean(ratios)) == pytest.approx(1, abs=0.12)
    assert np.mean(inside) == pytest.approx(0.8, abs=0.03)
