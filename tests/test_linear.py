"""Linear algebra that solvers share, against dense solves."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch.solvers._linear.conjugate_gradients import (
    ConjugateGradients,
    conjugate_gradients,
)


def draw_system(seed, largest=40):
    """Return a positive definite matrix, right sides, and an inverse of another one."""
    rng = np.random.default_rng(seed)
    n, k = rng.integers(1, largest), rng.integers(1, 5)
    basis = np.linalg.qr(rng.normal(size=(n, n)))[0]
    H = basis * 10 ** rng.uniform(-2, 1, n) @ basis.T
    inverse = np.eye(n)
    if rng.random() < 0.7:  # of the largest eigenvalues only
        inverse = np.linalg.inv(H + 10 ** rng.uniform(-2, 0) * np.eye(n))
    B = rng.normal(size=(n, k)) * 10 ** rng.uniform(-20, 20, k)
    return H, B, inverse


@pytest.mark.thin(every=3)
@pytest.mark.parametrize("seed", range(60))
def test_a_block_of_columns_is_solved_as_by_a_dense_solver(seed):
    H, B, inverse = draw_system(seed)
    X, shifts, asked = np.zeros(B.shape), np.arange(1.0, 1 + B.shape[1]), []

    def precondition(R, columns):
        asked.append(len(columns))
        return inverse @ R

    steps = ConjugateGradients(B, precondition)
    for _ in range(6 * len(B) + 10):
        steps.turn()
        D = steps.D
        product = H @ D + D * shifts[steps.columns]
        X[:, steps.columns] += steps.step(product) * D
        sizes = np.linalg.norm(steps.R, axis=0)
        steps.keep(sizes > 1e-12 * np.linalg.norm(B[:, steps.columns], axis=0))
        if not len(steps.columns):
            break
    assert not len(steps.columns)  # every column has ended, and cost nothing after
    assert asked == sorted(asked, reverse=True)
    for c, shift in enumerate(shifts):
        exact = np.linalg.solve(H + shift * np.eye(len(H)), B[:, c])
        assert_allclose(X[:, c], exact, atol=1e-9 * np.abs(exact).max())


@pytest.mark.thin(every=3)
@pytest.mark.parametrize("seed", range(60))
def test_one_system_is_solved_as_by_a_dense_solver(seed):
    H, B, inverse = draw_system(seed)
    b, forward = B[:, 0], np.random.default_rng(seed).normal(size=(7, len(B)))
    x, move, count = conjugate_gradients(
        lambda d: (H @ d, forward @ d), lambda r: inverse @ r, b, 1e-12, 1000
    )
    exact = np.linalg.solve(H, b)
    assert count < 1000
    assert_allclose(x, exact, atol=1e-7 * np.abs(exact).max())
    assert_allclose(move, forward @ x, atol=1e-9 * np.abs(forward @ x).max())


def test_a_preconditioner_that_is_the_inverse_takes_one_step():
    H, B, _ = draw_system(3)
    inverse = np.linalg.inv(H)
    x, _, count = conjugate_gradients(
        lambda d: (H @ d, d.copy()), lambda r: inverse @ r, B[:, 0], 1e-6, 100
    )
    assert count == 1
    assert_allclose(H @ x, B[:, 0], atol=1e-8 * np.abs(B[:, 0]).max())


def test_a_column_without_curvature_has_no_step():
    H, B = np.diag([1.0, 0.0]), np.eye(2)
    steps = ConjugateGradients(B, lambda R, _: R)
    steps.turn()
    assert_allclose(steps.step(H @ steps.D), [1.0, 0.0])
    x, move, count = conjugate_gradients(
        lambda d: (0 * d, d.copy()), lambda r: r, np.ones(3), 0.1, 10
    )
    assert not x.any() and move == 0.0 and count == 1
