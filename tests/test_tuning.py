"""The tuner against finite differences, refits, and designs whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import gaussian, laplacian, loo_residuals, matern, ridge_on_landmarks

from nbsketch._jit.tuning import FAMILIES
from nbsketch.datasets import make_friedman_outliers
from nbsketch.kernels import LEARNABLE
from nbsketch.rows.transform import fit_scaler
from nbsketch.tuning import search, tune
from nbsketch.tuning.criterion import ExactCriterion, LeaveOneOut, Sample
from nbsketch.tuning.descent import LONGEST, Budget, Curvature, Descent
from nbsketch.tuning.rows import prepare

KERNELS = {
    "gaussian": gaussian,
    "matern-1/2": lambda X, Y, bandwidth: matern(X, Y, bandwidth, 0.5),
    "matern-3/2": lambda X, Y, bandwidth: matern(X, Y, bandwidth, 1.5),
    "matern-5/2": lambda X, Y, bandwidth: matern(X, Y, bandwidth, 2.5),
    "laplacian": laplacian,
}
families = pytest.mark.parametrize("family", KERNELS)
outputs = pytest.mark.parametrize("n_outputs", [1, 3])
weighted = pytest.mark.parametrize("weighted", [False, True])
LOG_TAU = -1.3


def some_sample(n_outputs=1, weighted=False, cut=np.inf, m=40, q=3, size=12):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, q))
    Y = np.sin(2 * X[:, :1]) + 0.5 * rng.normal(size=(m, n_outputs))
    weights = None
    if weighted:
        weights = rng.uniform(size=m) * (np.arange(m) % 5 > 0)
        weights /= weights.mean()
    return Sample(X, Y, weights, rng.choice(m, size, replace=False), cut)


def some_point(q=3):
    return np.append(np.linspace(-0.8, 0.1, q), LOG_TAU)


def mean_log(sample, residuals):
    """Return the criterion for leave-one-out residuals."""
    sizes = np.linalg.norm(residuals, axis=1)
    inside = np.minimum(sizes, sample.cut)
    huber = np.square(sizes) if np.isinf(sample.cut) else inside * (2 * sizes - inside)
    return np.log(np.average(huber, weights=sample.weights))


def test_each_learnable_kernel_has_compiled_slopes():
    assert list(FAMILIES) == list(LEARNABLE) == list(KERNELS)
    X = np.random.default_rng(0).normal(size=(4, 2))
    for family, kernel in LEARNABLE.items():
        expected = KERNELS[family](X, X, np.array([0.5, 2.0]))
        found = replace(kernel, bandwidth=(0.5, 2.0))(X)
        assert_allclose(found, expected, rtol=1e-13)


# the criterion ----------------------------------------------------------------------


@families
@outputs
@weighted
def test_residuals_are_those_of_refits(family, n_outputs, weighted):
    sample, point = some_sample(n_outputs, weighted), some_point()
    desired = loo_residuals(sample, KERNELS[family], point)
    criterion = LeaveOneOut(sample, FAMILIES[family])
    actual = criterion.residuals(point)
    if weighted:
        assert_array_equal(actual[sample.weights == 0], 0)
        desired[sample.weights == 0] = 0
    assert_allclose(actual, desired, rtol=0, atol=1e-6)
    assert_allclose(criterion(point)[0], mean_log(sample, desired), rtol=0, atol=1e-6)


@pytest.mark.thin
@families
@outputs
@weighted
@pytest.mark.parametrize("cut", [np.inf, 0.7])
def test_gradient_is_that_of_finite_differences(family, n_outputs, weighted, cut):
    sample, point = some_sample(n_outputs, weighted, cut), some_point()
    criterion = LeaveOneOut(sample, FAMILIES[family])
    value, actual = criterion(point)
    assert_allclose(value, mean_log(sample, criterion.residuals(point)), rtol=1e-12)
    step = 1e-4
    moves = step * np.eye(len(point))
    desired = [
        (criterion(point + d)[0] - criterion(point - d)[0]) / (2 * step) for d in moves
    ]
    # Matern 1/2 has a kink at 0: rounding of distances counts by its square root
    tolerance = 2e-4 if family == "matern-1/2" else 1e-6
    assert_allclose(actual, desired, rtol=0, atol=tolerance)


@families
@weighted
def test_path_and_predictions_agree_with_the_criterion(family, weighted):
    sample, point = some_sample(2, weighted, cut=0.7), some_point()
    criterion = LeaveOneOut(sample, FAMILIES[family])
    errors = criterion.path(point[:-1], np.array([0.5, LOG_TAU]))
    assert_allclose(errors[1], criterion(point)[0], rtol=0, atol=1e-8)
    new = np.random.default_rng(1).normal(size=(7, 3))
    predict = ridge_on_landmarks(sample, KERNELS[family], point)
    mean = np.average(sample.Y, axis=0, weights=sample.weights)
    assert_allclose(
        criterion.predictor(point)(new) + mean, predict(new), rtol=0, atol=1e-6
    )


def test_gradient_of_the_laplacian_to_eight_digits():
    """Central differences of fourth order; many rows make several tiles."""
    sample = some_sample(2, weighted=True, m=150, size=40)
    point, step = some_point(), 4e-4
    criterion = LeaveOneOut(sample, FAMILIES["laplacian"])
    actual = criterion(point)[1]
    for k, move in enumerate(step * np.eye(len(point))):
        near, far = (
            criterion(point + f * move)[0] - criterion(point - f * move)[0]
            for f in (1, 2)
        )
        assert_allclose(actual[k], (8 * near - far) / (12 * step), rtol=0, atol=1e-8)


@families
@outputs
@weighted
def test_evidence_beside_the_error_is_that_of_the_covariance(
    family, n_outputs, weighted
):
    sample, point = some_sample(n_outputs, weighted), some_point()
    error, evidence = (
        LeaveOneOut(sample, FAMILIES[family], share)(point)[0] for share in (1.0, 0.0)
    )
    L, width = sample.X[sample.landmarks], np.exp(-point[:-1])
    weights = np.ones(40) if sample.weights is None else sample.weights
    B, C = KERNELS[family](sample.X, L, width), KERNELS[family](L, L, width)
    B = np.sqrt(weights)[:, None] * (B - weights @ B / 40)
    Y = np.sqrt(weights)[:, None] * (sample.Y - weights @ sample.Y / 40)
    S = B @ np.linalg.solve(C, B.T) / np.exp(LOG_TAU) + np.eye(40)
    effective = weights.sum() ** 2 / (weights**2).sum()
    desired = np.linalg.slogdet(S)[1] / effective
    desired += np.log((Y * np.linalg.solve(S, Y)).sum() / effective)
    assert_allclose(evidence, desired, rtol=0, atol=1e-6)
    both = LeaveOneOut(sample, FAMILIES[family], 0.8)
    value, actual = both(point)
    assert_allclose(value, 0.8 * error + 0.2 * evidence, rtol=0, atol=1e-10)
    step = 1e-4
    slopes = [
        (both(point + d)[0] - both(point - d)[0]) / (2 * step)
        for d in step * np.eye(len(point))
    ]
    tolerance = 2e-4 if family == "matern-1/2" else 1e-6
    assert_allclose(actual, slopes, rtol=0, atol=tolerance)


@pytest.mark.parametrize("family", ["laplacian", "matern-3/2"])
@pytest.mark.parametrize("log_tau", [-1.0, -14.0])
def test_single_precision_only_where_double_agrees(family, log_tau, monkeypatch):
    sample = some_sample(2, weighted=True, m=600, size=120)
    point = np.append(np.linspace(-0.8, 0.1, 3), log_tau)
    value, gradient = LeaveOneOut(sample, FAMILIES[family])(point)
    monkeypatch.setattr(LeaveOneOut, "_least_level", lambda *args: 2)
    desired, exact = LeaveOneOut(sample, FAMILIES[family])(point)
    assert_allclose(value, desired, rtol=0, atol=1e-4)
    assert_allclose(gradient, exact, rtol=0, atol=1e-3 * np.abs(exact).max())
    # Penalties near zero leave no digits to spare.
    assert (value == desired) == (log_tau < -10)


def test_single_precision_of_nearly_dependent_landmarks(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    Y = np.sin(X[:, :1]) + 0.01 * rng.normal(size=(1000, 1))
    sample = Sample(X, Y, None, np.arange(100))
    point = np.append(np.full(3, -2.5), -4.0)
    value, gradient = LeaveOneOut(sample, FAMILIES["matern-3/2"])(point)
    monkeypatch.setattr(LeaveOneOut, "_least_level", lambda *args: 2)
    desired, exact = LeaveOneOut(sample, FAMILIES["matern-3/2"])(point)
    assert value != desired
    assert_allclose(value, desired, rtol=0, atol=1e-4)
    assert_allclose(gradient, exact, rtol=0, atol=1e-3 * np.abs(exact).max())


@pytest.mark.parametrize("family", ["gaussian", "matern-3/2"])
def test_rows_whitened_in_double_precision_allow_the_rest_in_single(
    family, monkeypatch
):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(1000, 1))
    sample = Sample(X, Y, np.ones(1000), np.arange(100))
    point = np.append(np.full(3, -2.5), -8.0)
    criterion = LeaveOneOut(sample, FAMILIES[family])
    value, gradient = criterion(point)
    assert criterion.level == 1
    monkeypatch.setattr(LeaveOneOut, "_least_level", lambda *args: 2)
    desired, exact = LeaveOneOut(sample, FAMILIES[family])(point)
    assert value != desired
    assert_allclose(value, desired, rtol=0, atol=1e-4)
    assert_allclose(gradient, exact, rtol=0, atol=1e-3 * np.abs(exact).max())


def test_large_eigenvalues_leave_the_gram_matrix_positive_definite(monkeypatch):
    rng = np.random.default_rng(0)
    X = np.sign(rng.normal(size=(2000, 1))) + 0.001 * rng.normal(size=(2000, 2))
    Y = X[:, :1] + 0.1 * rng.normal(size=(2000, 1))
    sample = Sample(X, Y, None, np.arange(300))
    point = np.append(np.zeros(2), -9.2)
    criterion = LeaveOneOut(sample, FAMILIES["gaussian"])
    value = criterion(point)[0]
    assert criterion.level == 1
    monkeypatch.setattr(LeaveOneOut, "_least_level", lambda *args: 2)
    desired = LeaveOneOut(sample, FAMILIES["gaussian"])(point)[0]
    assert_allclose(value, desired, rtol=0, atol=1e-4)


def test_double_precision_stays_once_it_was_needed():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    sample = Sample(X, np.sin(X[:, :1]), None, np.arange(100))
    criterion = LeaveOneOut(sample, FAMILIES["matern-3/2"])
    points = [np.append(np.full(3, -2.5), log_tau) for log_tau in (-4.0, -12.0)]
    first = criterion(points[0])[0]
    assert criterion.level < 2
    criterion(points[1])
    assert criterion.level == 2
    again = criterion(points[0])[0]
    assert again != first
    assert_allclose(again, first, rtol=0, atol=1e-4)


@pytest.mark.parametrize("family", ["laplacian", "matern-5/2"])
def test_sensitivity_is_the_size_of_the_gradient(family):
    sample, point, step = some_sample(2), some_point(), 1e-5
    criterion = LeaveOneOut(sample, FAMILIES[family])
    actual = criterion.sensitivity(point)
    predict = criterion.predictor(point)
    for k, move in enumerate(step * np.eye(3)):
        slopes = (predict(sample.X + move) - predict(sample.X - move)) / (2 * step)
        desired = np.sqrt(np.square(slopes).sum(axis=1).mean())
        assert_allclose(actual[k], desired, rtol=1e-5)


# the descent ------------------------------------------------------------------------


class Bowl:
    """A long valley, and the points at which it was evaluated."""

    level, error = 0, 0.0

    def __init__(self, curvature):
        self.curvature, self.points = np.asarray(curvature), []

    def __call__(self, point):
        self.points.append(point)
        slope = self.curvature * point
        return float(slope @ point) / 2, slope


def test_gradient_of_the_penalty_of_the_search_is_that_of_finite_differences(rng):
    point, weights = rng.normal(size=5), (0.3, 0.7)

    def value(shift):
        return search.penalized(*weights, point + shift, 2.0, np.ones(5))[0]

    gradient = search.penalized(*weights, point, 2.0, np.ones(5))[1]
    steps = 1e-6 * np.eye(5)
    expected = [1 + (value(step) - value(-step)) / 2e-6 for step in steps]
    assert_allclose(gradient, expected, rtol=1e-7)
    assert value(np.zeros(5)) > 2.0


def test_descent_finds_the_minimum_within_limits():
    limits = np.array([-9.0, -9, 1]), np.array([6.0, 6, 6])
    descent = Descent(Bowl([1.0, 100, 3]), np.array([5.0, -4, 3]), limits)
    descent.run(50, Budget(50, np.inf))
    assert_allclose(descent.point, [0, 0, 1], rtol=0, atol=1e-2)


def test_no_step_is_longer_than_the_bound():
    bowl = Bowl([1e-6, 1e-6])
    limits = np.full(2, -90.0), np.full(2, 90.0)
    descent = Descent(bowl, np.array([60.0, 50]), limits)
    for _ in range(8):
        before = descent.point
        descent.run(1, Budget(1, np.inf))
        assert np.abs(descent.point - before).max() <= LONGEST + 1e-12
    assert np.abs(descent.point - before).max() > 1


def test_curvature_is_that_of_dense_updates(rng):
    curvature, H = Curvature(), None
    A = np.diag([1.0, 3, 9]) + 0.5
    for s in rng.normal(size=(5, 3)):
        d = A @ s
        curvature.update(s, d)
        H = np.eye(3) * (s @ d) / (d @ d) if H is None else H
        left = np.eye(3) - np.outer(s, d) / (s @ d)
        H = left @ H @ left.T + np.outer(s, s) / (s @ d)
    assert_allclose(curvature.solve(np.arange(3.0)), H @ np.arange(3.0), rtol=1e-10)


class Ragged(Bowl):
    """Fails or overflows beyond a point."""

    def __call__(self, point):
        if point[0] < 1:
            raise np.linalg.LinAlgError
        return (np.inf, point) if point[0] > 9 else super().__call__(point)


@pytest.mark.parametrize("start", [0.0, 2.0, 10.0])
def test_failed_evaluations_are_no_progress(start):
    limits = np.full(1, -20.0), np.full(1, 20.0)
    descent = Descent(Ragged([1.0]), np.array([start]), limits)
    descent.run(20, Budget(20, np.inf))
    assert descent.point == start if start != 2 else 1 <= descent.point < 1.5


# the inputs -------------------------------------------------------------------------


def test_standard_scores(rng):
    X = np.column_stack([rng.normal(5, 3, size=200), np.ones(200)])
    Z = fit_scaler(X, "standard").transform(X)
    assert_allclose(Z[:, 0], (X[:, 0] - X[:, 0].mean()) / X[:, 0].std(), rtol=1e-12)
    assert_array_equal(Z[:, 1], 0)


def test_ranks_do_not_change_with_a_monotone_function(rng):
    X = rng.normal(size=(100, 2))
    Z = fit_scaler(X, "rank").transform(X)
    other = np.exp(3 * X)
    assert_allclose(fit_scaler(other, "rank").transform(other), Z, rtol=0, atol=1e-8)
    order = np.argsort(X[:, 0])
    assert_allclose(np.diff(Z[order, 0]), np.diff(Z[order, 0])[0], rtol=1e-8)


def test_equal_values_have_one_rank_and_far_ones_the_last():
    X = np.array([0.0, 0, 0, 1, 2, 2])[:, None]
    scaler = fit_scaler(X, "rank")
    Z = scaler.transform(X)[:, 0]
    assert len(np.unique(Z.round(12))) == 3
    far = scaler.transform(np.array([[-1e9], [1e9]]))[:, 0]
    assert far[0] <= Z.min()
    assert far[1] >= Z.max()


def test_equal_values_have_the_mean_of_their_ranks():
    X = np.array([[0.0], [0.0], [0.0], [1.0], [2.0]])
    scaler = fit_scaler(X, "rank")
    scores = scaler.transform(X) * scaler.width + scaler.center
    assert_allclose(scores[:, 0], [0.25, 0.25, 0.25, 0.75, 1.0], rtol=1e-12)


def test_both_adds_ranks_where_they_differ(rng):
    uniform, binary = rng.uniform(size=500), rng.integers(0, 2, size=500)
    X = np.column_stack([uniform, rng.standard_cauchy(500), binary, np.ones(500)])
    scaler = fit_scaler(X, "both")
    assert scaler.ranked.tolist() == [1]
    assert scaler.transform(X).shape == (500, 5)
    assert scaler.without_ranks().transform(X).shape == (500, 4)


def test_scaler_keeps_the_type_and_refuses_other_columns(rng):
    X = rng.normal(size=(30, 2)).astype(np.float32)
    scaler = fit_scaler(X, "both")
    assert scaler.transform(X).dtype == np.float32
    with pytest.raises(ValueError, match="`X` must have 2 columns"):
        scaler.transform(X[:, :1])
    with pytest.raises(ValueError, match="`preprocessing` must be one of"):
        fit_scaler(X, "log")


# the whole --------------------------------------------------------------------------


def error_of(tuned, X, Y, X_new, Y_new, size=100):
    """Return the mean squared error of a ridge with the kernel of `tuned`."""
    rows = [X, X_new]
    if tuned.scaler is not None:
        rows = [tuned.scaler.transform(part) for part in rows]
    L = rows[0][:size]
    B, C = tuned.kernel(rows[0], L), tuned.kernel(L)
    mean = Y.mean()
    system = B.T @ B + len(X) * tuned.alpha * C + 1e-8 * np.eye(len(L))
    coef = np.linalg.solve(system, B.T @ (Y[:, 0] - mean))
    fitted = tuned.kernel(rows[1], L) @ coef + mean
    return np.mean((Y_new[:, 0] - fitted) ** 2)


def friedman(n, q=10, seed=0, n_outliers=0):
    X, y = make_friedman_outliers(
        n, n_features=q, n_outliers=n_outliers, random_state=seed
    )
    return X, y[:, None]


def wiggle(n=300, q=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, q))
    return X, np.sin(6 * X[:, :1]) + 0.1 * rng.normal(size=(n, 1))


@pytest.fixture
def few_rows(monkeypatch):
    """Searches of a third of the rows in each stage: polished from 1000 rows on."""
    for name in ("_EVIDENCE", "_FURTHER", "_NOISY", "_EXACT"):
        stage = getattr(search, name)
        stage = stage._replace(rows=stage.rows // 3)
        if hasattr(stage, "landmarks"):
            stage = stage._replace(landmarks=tuple(m // 3 for m in stage.landmarks))
        monkeypatch.setattr(search, name, stage)
    for name in ("_CHECK", "_SPARE"):
        monkeypatch.setattr(search, name, getattr(search, name) // 3)


def test_friedman_is_learned():
    X, Y = friedman(3000)
    tuned = tune(X, Y, size=100, rng=0)
    assert error_of(tuned, X, Y, *friedman(3000, seed=1)) < 1.1
    # x_1 and x_2 bend, x_3 to x_5 are linear, the others are nothing
    assert tuned.relevance[:2].min() > 3 * tuned.relevance[5:].max()
    assert tuned.error < 0.9 * tuned.isotropic_error


def test_irrelevant_features_are_found():
    X, Y = friedman(800, q=100)
    tuned = tune(X, Y, size=100, rng=0)
    assert error_of(tuned, X, Y, *friedman(2000, q=100, seed=1)) < 1.3
    assert tuned.error < 0.85 * tuned.isotropic_error


def test_outliers_do_not_own_the_scales(monkeypatch):
    monkeypatch.setattr(search, "_EVIDENCE", search._EVIDENCE._replace(rows=400))
    X, Y = friedman(1000, n_outliers=20)
    X_clean, Y_clean = friedman(1000, seed=1)
    inside = (X <= 1).all(axis=1)
    errors, ratios = [], []
    for seed in range(3):
        tuned = tune(X, Y, size=100, robust=True, rng=seed)
        errors.append(error_of(tuned, X[inside], Y[inside], X_clean, Y_clean))
        ratios.append(tuned.relevance[:2].min() / tuned.relevance[5:].max())
    # noise has variance 1; all but one search find both bent columns
    assert np.median(errors) < 1.1 and max(errors) < 1.4
    assert np.sort(ratios)[1] > 3


def smooth(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 10))
    return X, np.sin(X[:, :1]) + X[:, 1:2] * X[:, 2:3] + 0.05 * rng.normal(size=(n, 1))


def test_searches_agree_whatever_the_seed_and_the_precision(monkeypatch):
    X, Y = smooth(500)
    X_new, Y_new = smooth(500, seed=1)
    monkeypatch.setattr(search, "_EVIDENCE", search._EVIDENCE._replace(rows=350))

    def error(kind, seed):
        tuned = tune(X.astype(kind), Y, rng=seed)
        return error_of(tuned, X, Y, X_new, Y_new, size=400)

    errors = [error(np.float64, seed) for seed in range(3)]
    # the noise has variance .0025; searches that stop early agree on .014
    assert np.median(errors) < 0.01
    assert max(errors) < 1.3 * np.median(errors)
    assert_allclose(error(np.float32, 0), errors[0], rtol=0.05)


@pytest.mark.parametrize("n", [400, 4000])
def test_smooth_targets_have_a_penalty_that_solvers_can_use(n):
    rng = np.random.default_rng(0)
    Z = rng.uniform(-1, 1, size=(n, 3))
    X = np.tanh(Z @ rng.normal(size=(3, 8)))
    Y = Z[:, :1] + 0.3 * Z[:, 1:2] ** 2
    seeds = range(1 if n > 1500 else 2)
    taus = [n * tune(X, Y, preprocessing="standard", rng=k).alpha for k in seeds]
    # conjugate gradients on many rows; few rows have a closed form, for any penalty
    assert (min(taus) > 3e-7) == (n > 1500)


@pytest.mark.parametrize("family", ["laplacian", "matern-3/2"])
def test_a_column_that_begins_without_effect_is_found_again(family):
    X, Y = smooth(600)
    rows = prepare(X, Y, None, fit_scaler(X, "standard"), np.arange(600))
    start = np.full(11, -1.5)
    start[1] -= 4
    budget, rng = Budget(300, np.inf), np.random.default_rng(0)
    found = search.Descents(rows, FAMILIES[family], rng, budget).learn(start)
    assert found[:3].min() > found[3:10].max() + 1


def test_heavy_tails_are_no_harm():
    X, Y = friedman(2000)
    X_new, Y_new = friedman(2000, seed=1)

    def stretched(X):
        return np.tan(np.pi * (X - 0.5))

    tuned = tune(stretched(X), Y, size=100, rng=0)
    assert error_of(tuned, stretched(X), Y, stretched(X_new), Y_new) < 1.25


def test_same_seed_same_result_and_another_one_another():
    X, Y = wiggle()
    first, second = (tune(X, Y, rng=3) for _ in range(2))
    assert first.kernel == second.kernel
    assert (first.alpha, first.error) == (second.alpha, second.error)
    assert tune(X, Y, rng=4).kernel != first.kernel


def test_units_do_not_matter():
    X, Y = wiggle()
    tuned = tune(X, Y, rng=0)
    # a search magnifies rounding: these units have none
    units = 2.0 ** np.array([-10, 0, 6, 20])
    other = tune(X * units, -128 * Y, rng=0)
    assert_allclose(other.kernel.bandwidth, tuned.kernel.bandwidth * units, rtol=1e-6)
    assert_allclose(other.relevance, tuned.relevance, rtol=1e-6)
    assert_allclose(other.error, tuned.error, rtol=1e-6)
    shifted = tune(X + 7, Y - 3, rng=0)
    assert_allclose(shifted.error, tuned.error, rtol=0.02)


def test_order_of_columns_does_not_matter():
    X, Y = wiggle()
    tuned, other = tune(X, Y, rng=0), tune(X[:, ::-1], Y, rng=0)
    assert_allclose(other.relevance[::-1], tuned.relevance, rtol=0, atol=0.1)
    assert_allclose(other.error, tuned.error, rtol=0.02)


def test_weights_of_zero_leave_rows_out():
    X, Y = wiggle(400)
    weights = np.repeat([1.0, 0.0], 200)
    spoilt = np.where(weights[:, None] > 0, Y, 1e6)
    first, second = (tune(X, T, sample_weight=weights, rng=0) for T in (Y, spoilt))
    assert first.kernel == second.kernel


def test_outputs_share_the_scales():
    X, Y = wiggle(400)
    other = np.cos(6 * X[:, 1:2])
    tuned = tune(X, np.hstack([Y, other, np.ones_like(Y)]), rng=0)
    assert tuned.relevance[:2].min() > 3 * tuned.relevance[2:].max()


def test_without_effects_the_kernel_stays_isotropic(rng):
    X, Y = rng.normal(size=(300, 6)), rng.normal(size=(300, 1))
    tuned = tune(X, Y, preprocessing="standard", rng=0)
    assert np.ptp(np.log(tuned.relevance)) < 1e-6
    assert 0.9 < tuned.error < 1.1


@families
def test_family_is_the_one_asked_for(family):
    X, Y = wiggle(100)
    kernel = tune(X, Y, family=family, rng=0).kernel
    new = np.random.default_rng(1).uniform(size=(9, 4))
    assert_allclose(
        kernel(new), KERNELS[family](new, new, kernel.bandwidth), atol=1e-12
    )


def test_noisy_targets_are_polished_if_there_are_rows_to_spare(few_rows, monkeypatch):
    shares = []
    call = LeaveOneOut.__call__

    def record(self, point):
        shares.append(self._share)
        return call(self, point)

    monkeypatch.setattr(LeaveOneOut, "__call__", record)
    for n, noise, is_polished in [(1000, 0.3, 1), (960, 0.3, 0), (1000, 0.01, 0)]:
        shares.clear()
        X, Y = wiggle(n, q=2)
        Y += (noise - 0.1) * (Y - np.sin(6 * X[:, :1])) / 0.1
        tune(X, Y, rng=0)
        assert set(shares) == ({0.8} if is_polished else set())


@pytest.mark.parametrize("is_better", [True, False])
def test_a_polish_is_kept_if_the_error_of_other_rows_falls(
    is_better, few_rows, monkeypatch
):
    X, Y = wiggle(1000, q=2)
    rows = prepare(X, Y, None, fit_scaler(X, "standard"), np.arange(1000))
    calls = iter([0.0, 1.0] if is_better else [1.0, 0.0])  # polished, and before
    monkeypatch.setattr(search, "_lowest", lambda errors, point: next(calls))
    polished = []
    polish = search.Descents.polished

    def record(self, *args):
        polished.append(polish(self, *args))
        return polished[-1]

    monkeypatch.setattr(search.Descents, "polished", record)
    monkeypatch.setattr(search, "_CLEAN", -99.0)
    budget, rng = Budget(300, np.inf), np.random.default_rng(0)
    descents = search.Descents(rows, FAMILIES["matern-3/2"], rng, budget)
    found = descents.learn(np.full(3, -1.0))
    assert (found is polished[0]) == is_better


def test_a_search_no_better_than_its_start_begins_again(few_rows, monkeypatch):
    X, Y = wiggle(300)
    rows = prepare(X, Y, None, fit_scaler(X, "standard"), np.arange(300))
    starts, iterations = [], []
    descended = search.Descents.descended

    def record(self, criterion, sample, point, most, *args):
        starts.append(point)
        iterations.append(most)
        return descended(self, criterion, sample, point, most, *args)

    monkeypatch.setattr(search.Descents, "descended", record)
    monkeypatch.setattr(ExactCriterion, "left_out", lambda *args: 0.0)
    rng, start = np.random.default_rng(0), np.full(5, -1.0)
    budget = Budget(300, np.inf)
    search.Descents(rows, FAMILIES["matern-3/2"], rng, budget).learn(start)
    assert_array_equal(starts[0], start)
    assert (starts[1][:-1] > start[:-1]).all()
    # it is given up early unless it is already better
    assert iterations[1] == search.SHORT.iterations < iterations[0]


def test_caps_are_honoured(monkeypatch):
    X, Y = wiggle()
    calls = []
    evaluate = ExactCriterion.__call__
    monkeypatch.setattr(
        ExactCriterion, "__call__", lambda s, p: calls.append(1) or evaluate(s, p)
    )
    tune(X, Y, rng=0)
    assert 10 < len(calls) < 200
    calls.clear()
    tune(X, Y, max_iter=3, rng=0)
    assert 3 <= len(calls) <= 9
    calls.clear()
    tune(X, Y, max_seconds=0, rng=0)
    assert calls == []
    assert Budget(0, np.inf).is_spent


def test_constants_are_not_taken_for_noise():
    scaler = fit_scaler(np.full((50, 1), 0.1), "both")
    assert_allclose(scaler.transform([[0.1]]), 0, rtol=0, atol=1e-12)
    assert tune(NORMAL, np.full((50, 1), 0.1), rng=0).error < 1e-6


def column(values):
    return np.asarray(values, dtype=float)[:, None]


RNG = np.random.default_rng(5)
NORMAL = RNG.normal(size=(50, 3))
TARGET = NORMAL[:, :1] + 0.1 * RNG.normal(size=(50, 1))
STRANGE = {
    "one row": (NORMAL[:1], TARGET[:1]),
    "two rows": (NORMAL[:2], TARGET[:2]),
    "equal rows": (np.ones((50, 2)), TARGET),
    "repeated rows": (np.tile(NORMAL, (4, 1)), np.tile(TARGET, (4, 1))),
    "constant target": (NORMAL, np.full((50, 1), 0.1)),
    "constant column": (np.hstack([NORMAL, np.full((50, 1), 0.1)]), TARGET),
    "repeated columns": (np.tile(NORMAL, 3), TARGET),
    "no noise": (NORMAL, NORMAL[:, :1]),
    "huge": (NORMAL * 1e150, TARGET * 1e100),
    "tiny": (NORMAL * 1e-150, TARGET * 1e-100),
    "far": (NORMAL + 1e8, TARGET - 1e8),
    "single": (NORMAL.astype(np.float32), TARGET),
    "heavy tails": (RNG.standard_cauchy((300, 4)), column(RNG.standard_cauchy(300))),
    "one-hot": (np.eye(20)[RNG.integers(0, 20, 400)], column(RNG.normal(size=400))),
    "more columns than rows": (RNG.normal(size=(40, 120)), column(RNG.normal(size=40))),
}


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("X, Y", STRANGE.values(), ids=STRANGE)
def test_strange_data_are_survived(X, Y, robust):
    tuned = tune(X, Y, robust=robust, rng=0)
    numbers = [tuned.alpha, tuned.error, tuned.isotropic_error, *tuned.relevance]
    assert np.isfinite(numbers).all()
    assert tuned.alpha > 0
    rows = X if tuned.scaler is None else tuned.scaler.transform(X)
    assert np.isfinite(tuned.kernel(rows)).all()


def test_arguments_are_checked():
    X, Y = wiggle(20)
    with pytest.raises(ValueError, match="`family` must be one of"):
        tune(X, Y, family="linear")
    with pytest.raises(ValueError, match="`preprocessing` must be one of"):
        tune(X, Y, preprocessing="log")
    with pytest.raises(ValueError, match="`max_iter` must be at least 1"):
        tune(X, Y, max_iter=0)


@pytest.mark.parametrize(
    "n, preprocessing", [(60, "standard"), (60, "both"), (700, "standard")]
)
def test_rows_that_coincide_beside_an_outlier(n, preprocessing):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = np.sin(2 * X[:, :1]) + 0.1 * rng.normal(size=(n, 1))
    X[7] = 1e9
    tuned = tune(X, y, preprocessing=preprocessing, size=n, rng=0)
    assert np.isfinite(tuned.error) and tuned.alpha > 0
