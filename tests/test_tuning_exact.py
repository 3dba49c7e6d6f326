"""The evidence of few rows: refits, the Gaussian density, the gradient, searches."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import laplacian, matern
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal
from tables import Sample, prepare

from nbsketch._jit.tuning import FAMILIES
from nbsketch.rows.transform import fit_scaler
from nbsketch.tuning import criterion as criteria
from nbsketch.tuning.descent import Budget
from nbsketch.tuning.search import Descents, settle, spread_start

KERNELS = {
    "matern-3/2": lambda X, Y, bandwidth: matern(X, Y, bandwidth, 1.5),
    "matern-5/2": lambda X, Y, bandwidth: matern(X, Y, bandwidth, 2.5),
    "laplacian": laplacian,
}
families = pytest.mark.parametrize("family", KERNELS)
outputs = pytest.mark.parametrize("n_outputs", [1, 3])
weighted = pytest.mark.parametrize("weighted", [False, True])
POINT = np.array([-0.8, -0.3, 0.1, -1.3])


def some_sample(n_outputs, weighted, family="gaussian", m=25):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, 3))
    Y = np.sin(2 * X[:, :1]) + 0.5 * rng.normal(size=(m, n_outputs))
    weights = rng.uniform(0.2, 1.8, size=m) if weighted else np.ones(m)
    if weighted:
        weights /= weights.mean()
    return Sample(X, Y, weights, np.arange(m), FAMILIES[family])


def covariance(sample, family):
    noise = 1 / sample.weights
    K = KERNELS[family](sample.X, sample.X, np.exp(-POINT[:-1]))
    return K, K + np.exp(POINT[-1]) * np.diag(noise * np.ones(len(K)))


def left_out(sample, family):
    """Return the log of the mean squared error of refits, each without a row."""
    K, full = covariance(sample, family)
    Y = sample.Y - np.average(sample.Y, axis=0, weights=sample.weights)
    squares = []
    for i in range(len(Y)):
        others = np.delete(np.arange(len(Y)), i)
        dual = np.linalg.solve(full[np.ix_(others, others)], Y[others])
        squares.append(np.square(Y[i] - K[i, others] @ dual).sum())
    return np.log(np.average(squares, weights=sample.weights))


def evidence(sample, family):
    """Return minus twice the log density per row, at the best variance."""
    full = covariance(sample, family)[1]
    Y = sample.Y - np.average(sample.Y, axis=0, weights=sample.weights)
    m, d = Y.shape

    w = np.ones(m) if sample.weights is None else sample.weights
    effective = w.sum() ** 2 / (w**2).sum()

    def minus_log_density(log_variance):
        normal = multivariate_normal(np.zeros(m), np.exp(log_variance) * full)
        # rows of weight w count w times, as often as there are effective rows
        others = d * (effective - m) * (log_variance + POINT[-1])
        return (others - 2 * np.sum(normal.logpdf(Y.T))) / (effective * d)

    least = minimize_scalar(minus_log_density, bounds=(-9, 9), method="bounded")
    # without the constants of the density, and of the mean over the outputs
    return least.fun - 1 - m / effective * np.log(2 * np.pi) + np.log(d)


@families
@outputs
@weighted
def test_value_is_the_density_and_the_error_that_of_refits(
    family, n_outputs, weighted, monkeypatch
):
    monkeypatch.setattr(criteria, "_LEAST_EXACT_TAU", np.inf)
    sample = some_sample(n_outputs, weighted, family)
    criterion = sample.by_evidence()
    assert_allclose(criterion(POINT)[0], evidence(sample, family), rtol=0, atol=1e-6)
    desired = left_out(sample, family)
    assert_allclose(criterion.error, desired, rtol=0, atol=1e-6)
    assert_allclose(criterion.left_out(POINT), desired, rtol=0, atol=1e-6)


@families
@outputs
@weighted
def test_gradient_is_that_of_finite_differences(
    family, n_outputs, weighted, monkeypatch
):
    monkeypatch.setattr(criteria, "_LEAST_EXACT_TAU", np.inf)
    criterion = some_sample(n_outputs, weighted, family).by_evidence()
    actual = criterion(POINT)[1]
    step = 1e-5
    desired = [
        (criterion(POINT + d)[0] - criterion(POINT - d)[0]) / (2 * step)
        for d in step * np.eye(len(POINT))
    ]
    assert_allclose(actual, desired, rtol=0, atol=1e-8)


@families
def test_single_precision_only_where_double_agrees(family, monkeypatch):
    sample, single = some_sample(2, True, family, m=300), {}
    for log_tau in (-1.0, -3.5, -6.0):
        point = np.append(POINT[:-1] - 1, log_tau)
        single[log_tau] = sample.by_evidence()(point)
    monkeypatch.setattr(criteria, "_LEAST_EXACT_TAU", np.inf)
    for log_tau, (value, gradient) in single.items():
        point = np.append(POINT[:-1] - 1, log_tau)
        desired, by_point = sample.by_evidence()(point)
        assert_allclose(value, desired, rtol=0, atol=5e-5)
        assert_allclose(gradient, by_point, rtol=0, atol=1e-3)
        assert (value == desired) == (log_tau < -4)


def some_rows(n=240, repeated=False):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 4))
    X = np.repeat(X[: n // 4], 4, axis=0) if repeated else X
    Y = (
        np.sin(2 * X[:, :1])
        + np.sin(2 * X[:, 1:2])
        + (0 if repeated else 0.1 * rng.normal(size=(n, 1)))
    )
    return prepare(X, Y, None, fit_scaler(X, "standard"), np.arange(n))


def searched(rows, family, seed=0, **options):
    budget = Budget(**{"iterations": 100, "seconds": np.inf, **options})
    start = np.append(np.full(4, -1.0), -2.0)
    rng = np.random.default_rng(seed)
    rows = replace(rows, family=FAMILIES[family])
    return Descents(rows, rng, budget).learn(start)


@families
def test_search_finds_the_columns_that_matter(family):
    point = searched(some_rows(), family)
    assert point[:2].min() > point[2:4].max() + 1


def test_searches_differ_by_the_rows_that_they_draw():
    rows = some_rows(1100)
    first, again, other = (searched(rows, "matern-3/2", s) for s in (0, 0, 1))
    assert_array_equal(first, again)
    assert 1e-4 < np.abs(first[:2] - other[:2]).max() < 1


@families
def test_noise_free_targets_of_repeated_rows_are_survived(family):
    point = searched(some_rows(repeated=True), family)
    assert np.isfinite(point).all()
    assert point[-1] < -5


def test_a_spent_budget_leaves_the_start():
    start = np.append(np.full(4, -1.0), -2.0)
    assert_array_equal(searched(some_rows(), "matern-3/2", iterations=0), start)


def test_a_given_penalty_is_kept():
    rows = some_rows()
    fixed = prepare(rows.X, rows.Y, None, rows.scaler, rows.kept, alpha=1e-3)
    assert_allclose(searched(fixed, "matern-3/2")[-1], np.log(1e-3 * 240), rtol=1e-12)


@pytest.mark.parametrize(("family", "power"), [("gaussian", 2), ("laplacian", 1)])
def test_a_start_in_more_columns_has_the_mean_distances_of_one_in_few(family, power):
    """In the sum over columns of differences to a power, times those of the scales."""
    point = np.array([0.3, 0.3, 0.3, -2.0])
    scaler = SimpleNamespace(center=np.zeros(12))
    rows = SimpleNamespace(scaler=scaler, family=FAMILIES[family])
    wide = spread_start(rows, point)
    assert_allclose(12 * np.exp(power * wide[:-1]), 3 * np.exp(power * 0.3))
    assert wide[-1] == -2.0


@pytest.mark.parametrize("best", range(5))
def test_a_common_factor_is_the_best_of_all(best):
    # Factors around the middle one, of which the given one is the best.
    sample = some_sample(1, False, m=60)._replace(landmarks=np.arange(30))
    log_taus = np.linspace(-2, 2, 9)
    criterion = sample.by_landmarks()
    tried = np.linspace(-4, 4, 33)
    errors = [criterion.path(np.full(3, log), log_taus).min() for log in tried]
    moves = np.arange(-2, 3) * 0.75
    point = np.append(np.full(3, tried[np.argmin(errors)] - moves[best]), 0.0)
    found, moved = settle(criterion, (moves, log_taus), point)
    expected = [criterion.path(point[:-1] + move, log_taus).min() for move in moves]
    assert np.argmin(expected) == best and found == expected[best]
    assert_allclose(moved[:-1], point[:-1] + moves[best])
    # The best of several points, each of which is moved by tau.
    far = point + 1.0
    several = settle(criterion, (np.zeros(1), log_taus), far, moved)
    assert several[0] == settle(criterion, (np.zeros(1), log_taus), moved)[0]
