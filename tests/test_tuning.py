"""The tuner against finite differences, refits, and designs whose answer is known."""

from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import gaussian, laplacian, loo_residuals, matern, ridge_on_landmarks
from tables import Sample, prepare

from nbsketch import (
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    TabularKernelRegressor,
)
from nbsketch._jit.tuning import FAMILIES
from nbsketch.datasets import make_friedman_outliers
from nbsketch.kernels import LEARNABLE
from nbsketch.rows.transform import fit_scaler
from nbsketch.tuning import criterion as criteria
from nbsketch.tuning import rows as tuning_rows
from nbsketch.tuning import search, tune
from nbsketch.tuning.blocks import BlockCriterion
from nbsketch.tuning.criterion import ExactCriterion, _inverse_root
from nbsketch.tuning.descent import Budget, Curvature, Descent, penalized
from nbsketch.tuning.screening import Selection
from nbsketch.tuning.tuner import ScaleSearch

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
    weights = np.ones(m)
    if weighted:
        weights = rng.uniform(size=m) * (np.arange(m) % 5 > 0)
        weights /= weights.mean()
    return Sample(X, Y, weights, np.arange(size), 0, cut)


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
    criterion = sample._replace(family=FAMILIES[family]).by_landmarks()
    actual = criterion.residuals(point)
    if weighted:
        assert_array_equal(actual[sample.weights == 0], 0)
        desired[sample.weights == 0] = 0
    assert_allclose(actual, desired, rtol=0, atol=1e-6)
    path = criterion.path(point[:-1], point[-1:])
    assert_allclose(path, mean_log(sample, desired), rtol=0, atol=1e-6)


def test_columns_far_from_zero_for_their_spread_keep_their_digits():
    sample, point = some_sample(), some_point()
    far = sample._replace(X=sample.X + np.array([0.0, 1e6, 5.0]))
    near, moved = (part.by_landmarks() for part in (sample, far))
    assert_allclose(moved.residuals(point), near.residuals(point), atol=1e-6)
    predict = [criterion.predictor(point) for criterion in (near, moved)]
    assert_allclose(predict[1](far.X), predict[0](sample.X), atol=1e-6)
    exact = [part.by_evidence() for part in (sample, far)]
    point[-1] = -5.0  # in double precision
    assert_allclose(exact[1](point)[1], exact[0](point)[1], atol=1e-6)


@families
@weighted
def test_path_and_predictions_agree_with_the_criterion(family, weighted):
    sample, point = some_sample(2, weighted, cut=0.7), some_point()
    criterion = sample._replace(family=FAMILIES[family]).by_landmarks()
    errors = criterion.path(point[:-1], np.array([0.5, LOG_TAU]))
    desired = mean_log(sample, criterion.residuals(point))
    assert_allclose(errors[1], desired, rtol=0, atol=1e-8)
    new = np.random.default_rng(1).normal(size=(7, 3))
    predict = ridge_on_landmarks(sample, KERNELS[family], point)
    mean = np.average(sample.Y, axis=0, weights=sample.weights)
    assert_allclose(
        criterion.predictor(point)(new) + mean, predict(new), rtol=0, atol=1e-6
    )


@weighted
@pytest.mark.parametrize("family", ["laplacian", "matern-5/2"])
def test_sensitivity_is_the_size_of_the_gradient(family, weighted):
    sample, point, step = some_sample(2, weighted), some_point(), 1e-5
    criterion = sample._replace(family=FAMILIES[family]).by_landmarks()
    actual = criterion.sensitivity(point)
    predict = criterion.predictor(point)
    for k, move in enumerate(step * np.eye(3)):
        slopes = (predict(sample.X + move) - predict(sample.X - move)) / (2 * step)
        squares = np.square(slopes).sum(axis=1)
        desired = np.sqrt(np.average(squares, weights=sample.weights))
        assert_allclose(actual[k], desired, rtol=1e-5)


def test_an_indefinite_matrix_is_raised_until_it_has_a_root(rng, monkeypatch):
    vectors = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    matrix = (vectors * [1.0, 0.5, 1e-3, -1e-7]) @ vectors.T
    root = _inverse_root(matrix)
    raised = np.linalg.inv(root.T @ root) - matrix
    added = raised[0, 0]
    assert_allclose(raised, added * np.eye(4), atol=1e-10)
    assert 1e-7 < added < 30 * 1e-7
    fails = mock.Mock(side_effect=np.linalg.LinAlgError)
    monkeypatch.setattr(criteria, "factor", fails)
    with pytest.raises(np.linalg.LinAlgError):
        _inverse_root(np.full((2, 2), np.nan))


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
    point = rng.normal(size=5)

    def value(shift):
        return penalized(30, point + shift, 2.0, np.ones(5))[0]

    gradient = penalized(30, point, 2.0, np.ones(5))[1]
    steps = 1e-6 * np.eye(5)
    expected = [1 + (value(step) - value(-step)) / 2e-6 for step in steps]
    assert_allclose(gradient, expected, rtol=1e-7)
    assert value(np.zeros(5)) > 2.0


def test_descent_finds_the_minimum_within_limits():
    start = np.array([5.0, -4, 3])
    descent = Descent(Bowl([1.0, 100, 3]), start, np.inf, (1.0, 6.0))
    descent.run(50, Budget(50, np.inf))
    assert_allclose(descent.point, [0, 0, 1], rtol=0, atol=1e-2)
    # Few rows: a penalty toward equal length scales, and toward tau = 0.01.
    pulled = Descent(Bowl([0.0, 0.0, 0.0]), start, 1)
    pulled.run(50, Budget(50, np.inf))
    assert np.ptp(pulled.point[:2]) < 0.1
    assert_allclose(pulled.point[2], np.log(0.01), atol=0.1)


def test_no_step_is_longer_than_the_bound():
    bowl = Bowl([1e-6, 1e-6])
    descent = Descent(bowl, np.array([6.0, 50]), np.inf, (-90.0, 90.0))
    for _ in range(8):
        before = descent.point
        descent.run(1, Budget(1, np.inf))
        assert np.abs(descent.point - before).max() <= 3 + 1e-12
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


class Scripted(Descent):
    """Steps of given gains."""

    def _advance(self):
        self.value -= self.gains.pop(0)
        return True


def test_a_descent_ends_after_two_small_gains_in_turn():
    descent = Scripted(Bowl([1.0, 1.0]), np.ones(2), np.inf)
    descent.gains = [1e-5, 1e-2, 1e-5, 1e-5, 1e-2]
    descent.run(9, Budget(9, np.inf))
    assert descent.gains == [1e-2]


def test_a_share_of_a_budget_is_at_most_what_is_left():
    budget = Budget(5, np.inf)
    assert budget.share(9).iterations == 5
    budget.share(3).spend(0.0)
    assert budget.iterations == 5 and budget.share(3).iterations == 3


class Ragged(Bowl):
    """Fails or overflows beyond a point."""

    def __call__(self, point):
        if point[1] < 1:
            raise np.linalg.LinAlgError
        return (np.inf, point) if point[1] > 9 else super().__call__(point)


@pytest.mark.parametrize("start", [0.0, 2.0, 10.0])
def test_failed_evaluations_are_no_progress(start):
    descent = Descent(Ragged([1.0, 1.0]), np.array([0.0, start]), np.inf)
    descent.run(20, Budget(20, np.inf))
    tau = descent.point[1]
    assert tau == start if start != 2 else 1 <= tau < 1.5


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


@pytest.fixture
def blocks_of_few_rows(monkeypatch):
    """Let 1000 rows suffice for blocks; by default it takes 3000."""
    monkeypatch.setattr(tuning_rows, "_BLOCK_ROWS", 1000)


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


def test_friedman_is_learned():
    X, Y = friedman(2000)
    tuned = tune(X, Y, size=100, rng=0)
    assert error_of(tuned, X, Y, *friedman(2000, seed=1)) < 1.1
    # x_1 and x_2 bend, x_3 to x_5 are linear, the others are nothing
    assert tuned.relevance[:2].min() > 3 * tuned.relevance[5:].max()
    assert tuned.error < 0.9 * tuned.isotropic_error


def test_irrelevant_features_are_found(short_searches):
    X, Y = friedman(600, q=100)
    tuned = tune(X, Y, size=100, rng=0)
    assert error_of(tuned, X, Y, *friedman(2000, q=100, seed=1)) < 1.3
    assert tuned.error < 0.85 * tuned.isotropic_error


@pytest.mark.parametrize("cv", [None, 5])
def test_searches_restart_where_equal_length_scales_learn_little(cv):
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, size=(800, 20))
    y = np.sin(6 * X[:, 0]) + np.cos(4 * X[:, 1]) + 0.5 * X[:, 2]
    y += 0.2 * np.random.default_rng(11).normal(size=800)
    tuned = tune(X, y[:, None], size=300, cv=cv, rng=0)
    assert tuned.error < 0.3 < 0.8 < tuned.isotropic_error
    assert tuned.relevance[:3].min() > 3 * tuned.relevance[3:].max()


def test_steps_and_smoothness_are_seen_from_afar():
    # in small blocks of neighbors, other features look as relevant as these
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(6000, 6))
    f = (X[:, 0] > 0.2) + (X[:, 1] * X[:, 2] > 0) + X[:, 3]
    y = f + 0.1 * f.std() * rng.normal(size=6000)
    model = SketchedKernelRegressor(random_state=0).fit(X[:4000], y[:4000])
    residuals = model.predict(X[4000:]) - f[4000:]
    assert residuals.std() < 0.25 * f.std()


@pytest.mark.parametrize(
    "cls", [SketchedKernelRegressor, TabularKernelRegressor, SketchedKernelClassifier]
)
def test_interactions_of_few_of_many_features_are_learned(cls):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(4500, 30))
    f = np.sin(8 * X[:, 0] * X[:, 1])
    y = f + 0.2 * rng.normal(size=4500)
    is_class = cls is SketchedKernelClassifier
    model = cls(random_state=0).fit(X[:2500], f[:2500] > 0 if is_class else y[:2500])
    score = model.score(X[2500:], f[2500:] > 0 if is_class else f[2500:])
    assert score > 0.95


def test_outliers_do_not_own_the_scales(short_searches):
    X, Y = friedman(800, n_outliers=16)
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


def test_searches_agree_whatever_the_seed_and_the_precision(short_searches):
    X, Y = smooth(500)
    X_new, Y_new = smooth(500, seed=1)

    def error(kind, seed):
        tuned = tune(X.astype(kind), Y, rng=seed)
        return error_of(tuned, X, Y, X_new, Y_new, size=200)

    errors = [error(np.float64, seed) for seed in range(3)]
    # the noise has variance .0025; searches that stop early agree on .014
    assert np.median(errors) < 0.01
    assert max(errors) < 1.3 * np.median(errors)
    assert_allclose(error(np.float32, 0), errors[0], rtol=0.05)


@pytest.mark.parametrize("n", [400, 4000])
def test_smooth_targets_have_a_penalty_that_solvers_can_use(
    n, short_searches, monkeypatch
):
    # clean targets are searched by evidence in the end: blocks are passed over
    monkeypatch.setattr(tuning_rows, "_BLOCK_ROWS", np.inf)
    rng = np.random.default_rng(0)
    Z = rng.uniform(-1, 1, size=(n, 3))
    X = np.tanh(Z @ rng.normal(size=(3, 8)))
    Y = Z[:, :1] + 0.3 * Z[:, 1:2] ** 2
    seeds = range(1 if n > 1500 else 2)
    taus = [n * tune(X, Y, preprocessing="standard", rng=k).alpha for k in seeds]
    # conjugate gradients on many rows; few rows have a closed form, for any penalty
    assert (min(taus) > 3e-7) == (n > 1500)


@pytest.mark.parametrize("family", ["laplacian", "matern-3/2"])
def test_a_column_that_begins_without_effect_is_found_again(family, short_searches):
    X, Y = smooth(300)
    rows = prepare(X, Y, None, fit_scaler(X, "standard"), np.arange(300), family)
    start = np.full(11, -1.5)
    start[1] -= 4
    budget, rng = Budget(300, np.inf), np.random.default_rng(0)
    found = search.Descents(rows, rng, budget).learn(start)
    assert found[:3].min() > found[3:10].max() + 1


def test_heavy_tails_are_no_harm(short_searches):
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


def test_of_equal_errors_one_length_scale_for_all_columns_is_chosen():
    X, Y = wiggle(100)
    rows = prepare(X, Y, None, fit_scaler(X, "standard"), np.arange(100))
    equal = Selection(rows.scaler, np.append(np.full(4, -1.0), -2.0))
    pool = {"isotropic": equal, "learned": equal}
    args = np.random.default_rng(0), Budget(1, np.inf)
    errors, best = ScaleSearch("standard", 100, *args).choose(rows, pool)
    assert errors["isotropic"] == errors["learned"]
    assert best is pool["isotropic"]


@families
def test_family_is_the_one_asked_for(family):
    X, Y = wiggle(100)
    kernel = tune(X, Y, family=family, rng=0).kernel
    new = np.random.default_rng(1).uniform(size=(9, 4))
    assert_allclose(
        kernel(new), KERNELS[family](new, new, kernel.bandwidth), atol=1e-12
    )


@pytest.mark.parametrize(
    ("n", "noise", "expected"),
    [
        (3000, 0.3, {BlockCriterion, ExactCriterion}),
        (2990, 0.3, {ExactCriterion}),
        (3000, 1e-3, {BlockCriterion, ExactCriterion}),
    ],
)
def test_noisy_targets_are_searched_on_blocks_if_there_are_rows_to_spare(
    n, noise, expected, monkeypatch, short_searches
):
    calls = set()
    for kind in (BlockCriterion, ExactCriterion):

        def record(self, point, call=kind.__call__):
            calls.add(type(self))
            return call(self, point)

        monkeypatch.setattr(kind, "__call__", record)
    X, Y = wiggle(n, q=2)
    Y = np.sin(6 * X[:, :1]) + noise * (Y - np.sin(6 * X[:, :1])) / 0.1
    rows = prepare(X, Y, None, fit_scaler(X, "standard"), np.arange(n))
    budget, rng = Budget(300, np.inf), np.random.default_rng(0)
    descents = search.Descents(rows, rng, budget)
    found = descents.learn(np.array([0.0, 0.0, -3.0]))
    assert calls == expected
    assert found[0] > found[1] + 2


def test_many_rows_are_compared_on_blocks(blocks_of_few_rows):
    """Landmarks are too few for length scales that all rows resolve."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1500, 3))
    Y = np.sin(28 * X[:, :1]) * np.sin(28 * X[:, 1:2])
    Y += 0.2 * rng.normal(size=(1500, 1))
    tuned = tune(X, Y, preprocessing="standard", rng=0)
    assert tuned.relevance[:2].min() > 20 * tuned.relevance[2]
    assert tuned.error < 0.6 * tuned.isotropic_error


def test_a_search_no_better_than_its_start_begins_again(monkeypatch):
    X, Y = wiggle(300)
    rows = prepare(X, Y, None, fit_scaler(X, "standard"), np.arange(300))
    starts, iterations = [], []
    by_evidence = search.Descents._by_evidence

    def record(self, drawn, point, stage, *args):
        starts.append(point)
        iterations.append(stage.iterations)
        return by_evidence(self, drawn, point, stage, *args)

    monkeypatch.setattr(search.Descents, "_by_evidence", record)
    monkeypatch.setattr(ExactCriterion, "left_out", lambda *args: 0.0)
    rng, start = np.random.default_rng(0), np.full(5, -1.0)
    budget = Budget(300, np.inf)
    search.Descents(rows, rng, budget).learn(start)
    assert_array_equal(starts[0], start)
    assert (starts[1][:-1] > start[:-1]).all()
    # it is given up early unless it is already better
    assert iterations[1] == search.SHORT.iterations < iterations[0]


@pytest.mark.parametrize("preprocessing", ["standard", "rank"])
def test_searches_of_robust_losses_continue(preprocessing, monkeypatch):
    X, Y = wiggle(700)
    searches = []
    by_evidence = search.Descents._by_evidence

    def record(self, drawn, point, stage, curvature=None):
        found = by_evidence(self, drawn, point, stage, curvature)
        searches.append((len(drawn), point, curvature, found))
        return found

    monkeypatch.setattr(search.Descents, "_by_evidence", record)
    tune(np.exp(X), Y, robust=True, preprocessing=preprocessing, rng=0)
    first, second, learned = searches[:3]
    assert (first[0], second[0]) == (300, 500)
    assert_array_equal(second[1], first[3].point)
    assert second[2] is first[3].curvature
    assert_array_equal(learned[1], second[3].point)


@pytest.mark.parametrize("family", ["gaussian", "laplacian"])
def test_columns_of_a_feature_share_its_length_scale(family):
    features = np.array([0, 1, 2, 1])
    scaler = SimpleNamespace(features=features)
    rows = SimpleNamespace(scaler=scaler, family=FAMILIES[family])
    point = some_point()
    shared = search.shared_start(rows, point)
    X = np.random.default_rng(0).normal(size=(5, 3))
    kernels = [
        replace(LEARNABLE[family], bandwidth=np.exp(-p[:-1])) for p in (shared, point)
    ]
    assert_allclose(kernels[0](X[:, features]), kernels[1](X))


@pytest.mark.parametrize("first, checked", [(200, 100), (290, 290)])
def test_searches_are_checked_on_other_rows_if_they_suffice(
    monkeypatch, first, checked
):
    X, Y = wiggle(300)
    rows = prepare(X, Y, None, fit_scaler(X, "standard"), np.arange(300))
    drawn = []
    exact = search.Descents._exact

    def record(self, index):
        drawn.append(index)
        return exact(self, index)

    monkeypatch.setattr(search.Descents, "_exact", record)
    monkeypatch.setattr(search, "_EVIDENCE", search.Stage(first, 1))
    args = np.random.default_rng(0), Budget(1, np.inf)
    search.Descents(rows, *args).by_evidence(np.full(5, -1.0))
    assert len(drawn[0]) == checked and len(drawn[1]) == first
    assert len(np.intersect1d(drawn[0], drawn[1])) == (checked == first) * first


def test_a_start_of_many_columns_keeps_the_mean_of_squared_scales():
    X, Y = wiggle(300)
    scaler = fit_scaler(X, "standard")
    rows = prepare(X, Y, None, scaler, np.arange(300), "gaussian")
    start = np.append(np.full(4, -0.7), -2.0)
    found = search.outer_product_start(rows, start, np.random.default_rng(0))
    assert_allclose(np.exp(2 * found[:-1]).sum(), 4 * np.exp(2 * -0.7))
    assert found[-1] == start[-1] and np.ptp(found[:-1]) > 0.5


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
    "heavy tails": (RNG.standard_cauchy((150, 4)), column(RNG.standard_cauchy(150))),
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
def test_rows_that_coincide_beside_an_outlier(n, preprocessing, short_searches):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = np.sin(2 * X[:, :1]) + 0.1 * rng.normal(size=(n, 1))
    X[7] = 1e9
    tuned = tune(X, y, preprocessing=preprocessing, size=n, rng=0)
    assert np.isfinite(tuned.error) and tuned.alpha > 0


def test_few_landmarks_get_longer_length_scales(blocks_of_few_rows, short_searches):
    """Blocks see waves of all 1000 rows, and 20 landmarks only what is smooth."""
    X = np.random.default_rng(0).uniform(-2, 2, size=(1500, 2))
    y = X[:, :1] + X[:, 1:] ** 2 + 0.3 * np.sin(7 * X).prod(axis=1, keepdims=True)
    few, many = (tune(X[:1000], y[:1000], size=size, rng=0) for size in (20, 5000))
    assert few.relevance.max() < many.relevance.max() / 2
    errors = []
    for tuned in (few, many):
        model = SketchedKernelRegressor(tuned.kernel, size=20, random_state=0)
        model.fit(X[:1000], y[:1000, 0])
        errors.append(1 - model.score(X[1000:], y[1000:, 0]))
    assert errors[0] < 0.9 * errors[1]


def test_no_longer_length_scales_are_tried_after_the_time(blocks_of_few_rows):
    X = np.random.default_rng(0).uniform(-2, 2, size=(1000, 2))
    y = np.sin(9 * X).prod(axis=1, keepdims=True) + X[:, :1]
    few, many = (tune(X, y, size=k, max_seconds=0, rng=0) for k in (10, 5000))
    assert_array_equal(few.relevance, many.relevance)


@pytest.mark.parametrize("make", [SketchedKernelRegressor, TabularKernelRegressor])
def test_the_direction_of_columns_does_not_matter(make):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(200, 3)), rng.integers(0, 2, 200)])
    y = X[:, 0] + 3 * X[:, 3] * (X[:, 1] > 0) + 0.3 * rng.normal(size=200)
    expected = make(random_state=0).fit(X, y).predict(X)
    turned = X * [1.0, -1.0, -1.0, -1.0]
    found = make(random_state=0).fit(turned, y).predict(turned)
    np.testing.assert_allclose(found, expected, atol=1e-6)
