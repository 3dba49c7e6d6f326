"""Joint quantiles on all rows of a kernel matrix, and what certifies the solution."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch import (
    GaussianKernel,
    IdentitySketch,
    JointQuantileRegressor,
    MaternKernel,
)
from nbsketch.fitting import methods, steps
from nbsketch.gram import SymmetricGram
from nbsketch.losses import PinballLoss
from nbsketch.outputs import QuantileOutput
from nbsketch.solvers import joint_dual_path, solve_dual, solve_joint_dual
from nbsketch.solvers._dual import search as dual_search
from nbsketch.solvers._dual.matrix import CoupledMatrix, CoupledPreconditioner
from nbsketch.solvers.newton import solve_joint_pinball


def draw_problem(seed, least=-8):
    """Return K, y, levels, T, alpha and options: often ill-conditioned."""
    rng = np.random.default_rng(seed)
    n, q, d = rng.integers(8, 40), rng.integers(1, 4), rng.integers(2, 4)
    X = rng.normal(size=(n, q))
    if rng.random() < 0.4:  # duplicates
        X = X[rng.integers(0, n, n)]
    kernel = [GaussianKernel, MaternKernel][rng.integers(2)](10 ** rng.uniform(-1, 1.5))
    y = np.sin(2 * X[:, 0]) + rng.choice([0.0, 0.3, 2.0]) * rng.standard_t(2, size=n)
    levels = tuple(np.sort(rng.uniform(0.02, 0.98, size=d)))
    T = QuantileOutput(levels, rng.choice([0.0, 1.0, 100.0])).factor(d)
    options = {"fit_intercept": bool(rng.random() < 0.7)}
    if rng.random() < 0.4:
        weights = rng.exponential(size=n) * (rng.random(n) < 0.8)
        weights[0] = 1.0
        options["sample_weight"] = weights / weights.mean()
    return kernel(X), y, levels, T, 10 ** rng.uniform(least, 0), options


def features(K):
    """Return Z with Z Z^T = K."""
    values, vectors = np.linalg.eigh(K)
    return vectors * np.sqrt(np.maximum(values, 0))


def objective(K, y, levels, T, alpha, solution, sample_weight=None, **_):
    """Return the objective of a solution by its formula."""
    residual = y[:, None] - K @ solution.coef - solution.intercept
    levels = np.array(levels)
    losses = np.maximum(levels * residual, (levels - 1) * residual).sum(axis=1)
    C = solution.state.coef
    penalty = alpha / 2 * np.vdot(C, K @ C @ T.T @ T)
    return np.average(losses, weights=sample_weight) + penalty


def test_the_gap_bounds_the_distance_from_the_minimum():
    converged = 0
    for seed in range(32):
        K, y, levels, T, alpha, options = draw_problem(seed)
        known = y, levels, T, alpha
        solution = solve_joint_dual(K, *known, tol=1e-6, random_state=0, **options)
        best = solve_joint_pinball(features(K), *known, tol=1e-8, **options)
        value = objective(K, *known, solution, **options)
        rounding = 1e-13 * len(y) * (1 + alpha * np.sum(solution.state.coef**2))
        assert_allclose(solution.objective, value, rtol=1e-6, atol=rounding)
        assert value - best.objective <= solution.gap + best.gap + rounding
        assert solution.converged == (solution.relative_gap <= 1e-6)
        converged += solution.converged
    assert converged >= 28


@pytest.mark.parametrize("part", [0.0, 1.0])
def test_conjugate_gradients_give_the_same_solution(part, monkeypatch):
    monkeypatch.setattr(dual_search, "DIRECT", 0)
    monkeypatch.setattr(dual_search, "_PART", part)
    for seed in range(100, 106):
        K, y, levels, T, alpha, options = draw_problem(seed, least=-3)
        known = y, levels, T, alpha
        solution = solve_joint_dual(K, *known, tol=1e-5, random_state=0, **options)
        best = solve_joint_pinball(features(K), *known, tol=1e-8, **options)
        assert solution.converged
        assert_allclose(solution.objective, best.objective, rtol=3e-5)


def test_an_independent_solver_finds_the_same_quantiles():
    K, y, *_ = draw_problem(3)
    levels, alpha = (0.2, 0.7), 1e-3
    T, Z = QuantileOutput(levels, 1.0).factor(2), features(K)
    W, b = cp.Variable((Z.shape[1], len(T))), cp.Variable((1, 2))
    r = y[:, None] - Z @ W @ T - np.ones((len(y), 1)) @ b
    loss = sum(
        cp.sum(cp.maximum(t * r[:, j], (t - 1) * r[:, j])) for j, t in enumerate(levels)
    )
    problem = cp.Problem(cp.Minimize(loss / len(y) + alpha / 2 * cp.sum_squares(W)))
    problem.solve(solver=cp.CLARABEL)
    solution = solve_joint_dual(K, y, levels, T, alpha, tol=1e-7, random_state=0)
    assert_allclose(solution.objective, problem.value, rtol=1e-5)


def test_independent_levels_are_those_of_single_problems():
    K, y, *_ = draw_problem(5)
    levels = (0.1, 0.6)
    both = solve_joint_dual(K, y, levels, np.eye(2), 1e-3, tol=1e-8, random_state=0)
    for j, level in enumerate(levels):
        one = solve_dual(K, y, PinballLoss(level), 1e-3, tol=1e-8, random_state=0)
        fitted = K @ both.coef[:, j] + both.intercept[j]
        assert_allclose(fitted, K @ one.coef + one.intercept, atol=1e-3)


def test_a_path_is_that_of_single_solutions():
    K, y, levels, T, _, options = draw_problem(6)
    alphas = [1e-1, 1e-2, 1e-3]
    known = {"tol": 1e-7, "random_state": 0, **options}
    found = joint_dual_path(K, y, levels, T, alphas, **known)
    for alpha, solution in zip(alphas, found, strict=True):
        alone = solve_joint_dual(K, y, levels, T, alpha, **known)
        assert solution.converged and alone.converged
        assert_allclose(solution.objective, alone.objective, rtol=1e-6)


def test_the_estimator_without_a_sketch_has_the_solution_of_features(rng, monkeypatch):
    X = rng.uniform(-2, 2, size=(300, 2))
    y = np.sin(2 * X[:, 0]) + (0.3 + 0.2 * X[:, 1]) * rng.normal(size=300)
    known = {"sketch": "identity", "bandwidth": 1.0, "alpha": 1e-3, "random_state": 0}
    with monkeypatch.context() as patch:
        patch.setattr(steps, "_LEAST_LEVELS", 300)
        features = JointQuantileRegressor((0.1, 0.5, 0.9), **known).fit(X, y)
    monkeypatch.setattr(methods, "_FEATURE_ROWS", 100)
    found = JointQuantileRegressor((0.1, 0.5, 0.9), **known).fit(X, y)
    assert_allclose(found.objective_, features.objective_, rtol=2e-3)
    assert_allclose(found.predict(X), features.predict(X), atol=0.1)
    known.update(alpha=None, bandwidth=None)
    chosen = JointQuantileRegressor((0.1, 0.5, 0.9), **known).fit(X[:200], y[:200])
    assert chosen.dual_gap_ <= 1e-3 and chosen.predict(X[200:]).shape == (100, 3)
    assert 0.6 < np.mean(y[200:] <= chosen.predict(X[200:])[:, 2]) <= 1


def test_entries_of_the_coupled_matrix(rng):
    X, M = rng.normal(size=(30, 2)), np.array([[1.0, 0.5], [0.5, 2.0]])
    K = SymmetricGram(GaussianKernel(1.0), X, dtype=np.float64)
    A, D = CoupledMatrix(K, M), np.kron(M, GaussianKernel(1.0)(X))
    index, V = np.array([3, 10, 33, 40, 59]), rng.normal(size=(60, 2))
    assert_allclose(A @ V, D @ V, atol=1e-12)
    assert_allclose(A.combine(index, V[:5, 0]), D[:, index] @ V[:5, 0], atol=1e-12)
    assert_allclose(A.exact(index, V[:, 1]), D[index] @ V[:, 1], atol=1e-12)
    assert_allclose(A.block(index), D[np.ix_(index, index)], atol=1e-12)
    assert_allclose(A.take(index) @ V[:5], D[np.ix_(index, index)] @ V[:5], atol=1e-12)


def test_the_preconditioner_is_that_of_the_product_of_factors(rng):
    F, T, r = rng.normal(size=(6, 20)), rng.normal(size=(2, 3)), rng.normal(size=60)
    A = CoupledMatrix(_Identity(20), T.T @ T)
    whole = np.kron(T, F)
    updated = CoupledPreconditioner(F, T, A.row, A.output)
    for share in (1.0, 0.9, 0.85, 0.2):
        weights = rng.exponential(size=60) * (rng.random(60) < share)
        updated.reweight(weights)
        rows = np.flatnonzero(weights)
        dense = whole[:, rows].T @ whole[:, rows] + np.diag(0.7 / weights[rows])
        expected = np.linalg.solve(dense, r[rows])
        solved = updated.solve(r[:, None], [0.7])[rows, 0]
        assert_allclose(solved, expected, rtol=1e-8)
        part = updated.restricted(rows).solve(r[rows, None], [0.7])[:, 0]
        assert_allclose(part, expected, rtol=1e-8)


class _Identity:
    def __init__(self, n):
        self.shape, self.dtype = (n, n), np.dtype(float)


def test_arguments_are_checked():
    K, y = np.eye(3), np.array([1.0, -1.0, 1.0])
    with pytest.raises(ValueError, match="quantiles"):
        solve_joint_dual(K, y, [0.7, 0.3], np.eye(2), 1.0)
    with pytest.raises(ValueError, match="`y` must have shape"):
        solve_joint_dual(K, y[:2], [0.3, 0.7], np.eye(2), 1.0)
    with pytest.raises(ValueError, match="alpha"):
        solve_joint_dual(K, y, [0.3, 0.7], np.eye(2), 0.0)
    with pytest.raises(ValueError, match="state"):
        state = solve_joint_dual(K, y, [0.3, 0.7], np.eye(2), 1.0).state
        solve_joint_dual(np.eye(2), y[:2], [0.3, 0.7], np.eye(2), 1.0, state=state)


def test_all_rows_do_not_interpolate_the_levels():
    """The median alone, without noise, would be best without a penalty."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.5, 1.5, size=(1200, 5))
    angles = np.cumsum(X, axis=1)
    y = np.hypot(np.cos(angles).sum(axis=1), np.sin(angles).sum(axis=1))
    model = JointQuantileRegressor((0.1, 0.5, 0.9), sketch="identity", random_state=0)
    low, _, high = model.fit(X[:200], y[:200]).predict(X[200:]).T
    assert np.mean((low <= y[200:]) & (y[200:] <= high)) > 0.2  # else 0


@pytest.mark.filterwarnings("ignore:no penalty")
@pytest.mark.parametrize("n", [1, 2, 3, 10, 11])
def test_few_rows_have_levels(n, rng):
    X, y = rng.normal(size=(n, 2)), rng.normal(size=n)
    predicted = JointQuantileRegressor((0.1, 0.9), random_state=0).fit(X, y).predict(X)
    assert np.isfinite(predicted).all()


def test_few_rows_with_a_given_penalty_use_features():
    """They take a fifth to a half of the time of the dual, for a lower objective."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=120)
    kinds = []
    for alpha in (1e-3, None):
        model = JointQuantileRegressor(sketch=IdentitySketch(), alpha=alpha)
        problem = model.prepare(X, y)
        kinds.append(type(steps.sketched_method(problem)))
    assert kinds == [methods.Newton, methods.Dual]
