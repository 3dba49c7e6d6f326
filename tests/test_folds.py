"""Errors of left-out blocks of rows against refits, and where leave-one-out fails."""

import os

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import gaussian, laplacian, matern, ridge_on_landmarks
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    RepeatedKFold,
    ShuffleSplit,
    TimeSeriesSplit,
)
from tables import prepare
from test_tuning import mean_log, some_point, some_sample

from nbsketch import DependentRowsWarning, SketchedKernelRegressor
from nbsketch._jit.tuning import FAMILIES
from nbsketch.datasets import load_rf1, load_rf2
from nbsketch.metrics import arrmse
from nbsketch.rows.outliers import inliers
from nbsketch.rows.splits import MOST_BLOCKS, as_folds, block_labels
from nbsketch.rows.transform import fit_scaler
from nbsketch.solvers import left_out
from nbsketch.solvers.design import ArrayDesign
from nbsketch.solvers.filters import LandweberFilter, RidgeFilter
from nbsketch.solvers.left_out import (
    cross_validation,
    fold_errors,
    leave_blocks_out,
    leave_one_out,
    order_effect,
    without_rows,
)
from nbsketch.solvers.spectrum import decompose, ridge_path
from nbsketch.tuning import tune, tuner
from nbsketch.tuning.search import isotropic_start

N, R, D = 29, 6, 3
ALPHAS = np.array([1e-4, 0.05, 2.0])
weighted = pytest.mark.parametrize("weighted", [False, True])
constant = pytest.mark.parametrize("fit_intercept", [False, True])
KERNELS = {"gaussian": (gaussian, ()), "matern-3/2": (matern, (1.5,))}
KERNELS["laplacian"] = laplacian, ()
families = pytest.mark.parametrize("family", KERNELS)


def data(n=N, weighted=False):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(n, R)) * np.linspace(1, 3, R) + 1
    Y = Z @ rng.normal(size=(R, D)) + rng.normal(size=(n, D)) + 2.0
    if not weighted:
        return Z, Y, None
    weights = rng.uniform(size=n) * (np.arange(n) % 5 > 0)
    return Z, Y, weights / weights.mean()


def refitted(Z, Y, weights, folds, fit_intercept, alphas=ALPHAS):
    """Return the errors on the test rows of ridge regressions without others."""
    weights = np.ones(len(Z)) if weights is None else weights
    A = np.hstack([Z, np.ones((len(Z), 1))]) if fit_intercept else Z
    errors, mass = np.zeros(len(alphas)), 0.0
    for test, removed in folds:
        w = np.where(np.isin(np.arange(len(Z)), removed), 0.0, weights)
        for k, alpha in enumerate(alphas):
            penalty = len(Z) * alpha * np.eye(A.shape[1])
            if fit_intercept:
                penalty[-1, -1] = 0
            system = A.T @ (w[:, None] * A) + penalty
            coef = np.linalg.solve(system, A.T @ (w[:, None] * Y))
            residual = Y[test] - A[test] @ coef
            errors[k] += weights[test] @ np.square(residual).sum(axis=1)
        mass += weights[test].sum()
    return errors / mass


def splits(name):
    X, groups = np.zeros((N, 1)), np.arange(N) * 7 % 4
    splitter = {
        "shuffled": KFold(4, shuffle=True, random_state=0),
        "repeated": RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
        "groups": GroupKFold(3),
        "time": TimeSeriesSplit(4, gap=1),
    }[name]
    groups = groups if name == "groups" else None
    return list(splitter.split(X, groups=groups))


CVS = {"two": 2, "many": 9, "rows": N, "uneven": [([0, 1, 2], [3, 28])]}
CVS |= {name: splits(name) for name in ("shuffled", "repeated", "groups", "time")}
cvs = pytest.mark.parametrize("cv", [c for k, c in CVS.items() if k != "rows"])


# solvers ----------------------------------------------------------------------------


@pytest.mark.thin
@cvs
@weighted
@constant
def test_errors_are_those_of_refits(cv, weighted, fit_intercept):
    Z, Y, weights = data(weighted=weighted)
    folds = as_folds(cv, N, sample_weight=weights)
    options = {"sample_weight": weights, "fit_intercept": fit_intercept}
    path = ridge_path(ArrayDesign(Z), Y, **options)
    known = ArrayDesign(Z), Y, ALPHAS, folds, weights
    desired = refitted(Z, Y, weights, folds, fit_intercept)
    by_refit = fold_errors(path, RidgeFilter(), *known)
    assert_allclose(by_refit, desired, rtol=1e-9)
    assert_allclose(cross_validation(path, *known), desired, rtol=1e-9)
    if all(fold.is_block for fold in folds):
        blocks = [fold.test for fold in folds]
        closed = leave_blocks_out(path, RidgeFilter(), *known[:3], blocks, weights)
        assert_allclose(closed, desired, rtol=1e-9)


@weighted
def test_blocks_of_one_row_are_leave_one_out(weighted):
    Z, Y, weights = data(weighted=weighted)
    path = ridge_path(ArrayDesign(Z), Y, sample_weight=weights)
    folds = as_folds(N if weights is None else int((weights > 0).sum()), N,
                     sample_weight=weights)  # fmt: skip
    known = ArrayDesign(Z), Y, ALPHAS
    desired = leave_one_out(path, RidgeFilter(), *known, weights)
    assert_allclose(cross_validation(path, *known, folds, weights), desired, rtol=1e-10)


@constant
def test_output_matrices_and_single_precision(fit_intercept):
    Z, Y, weights = data(weighted=True)
    factor = np.random.default_rng(1).normal(size=(D, D))
    values, rotation = np.linalg.eigh(factor @ factor.T)
    options = {"sample_weight": weights, "fit_intercept": fit_intercept}
    path = ridge_path(ArrayDesign(Z), Y, output=factor @ factor.T, **options)
    folds = as_folds(5, N, sample_weight=weights)
    # each output of the rotated problem has a penalty of its own
    desired = sum(
        refitted(Z, Y @ rotation[:, [j]], weights, folds, fit_intercept, ALPHAS / m)
        for j, m in enumerate(values)
    )
    known = ArrayDesign(Z), Y, ALPHAS
    blocks = [fold.test for fold in folds]
    closed = leave_blocks_out(path, RidgeFilter(), *known, blocks, weights)
    refit = fold_errors(path, RidgeFilter(), *known, folds, weights)
    assert_allclose(closed, desired, rtol=1e-9)
    assert_allclose(refit, desired, rtol=1e-9)
    single = ArrayDesign(Z.astype(np.float32))
    assert_allclose(
        fold_errors(path, RidgeFilter(), single, Y, ALPHAS, folds, weights),
        desired,
        rtol=1e-4,
    )


@weighted
@constant
def test_spectrum_without_rows_is_that_of_the_others(weighted, fit_intercept):
    Z, Y, weights = data(weighted=weighted)
    filter, removed = LandweberFilter(), np.array([1, 2, 7, 20])
    options = {"fit_intercept": fit_intercept}
    spectrum = decompose(ArrayDesign(Z), Y, sample_weight=weights, **options)
    ones = np.ones(N) if weights is None else weights
    rows = ArrayDesign(Z[removed]), Y[removed], ones[removed]
    actual = without_rows(spectrum, *rows)
    zeroed = np.where(np.isin(np.arange(N), removed), 0.0, ones)
    # weights of mean one, and a penalty that is normalized by them
    ratio = zeroed.mean()
    rest = decompose(ArrayDesign(Z), Y, sample_weight=zeroed / ratio, **options)
    assert_allclose(actual.values, ratio * rest.values, rtol=1e-10)
    assert_allclose(actual.y_square, ratio * rest.y_square, rtol=1e-10)
    alpha = 0.01 * spectrum.top
    B, b = actual.coefficients(filter.resolve(rest.top * ratio), alpha)
    desired, c = rest.coefficients(filter.resolve(rest.top), alpha / ratio)
    assert_allclose(B, desired, rtol=1e-9)
    assert_allclose(b, c, rtol=1e-9, atol=1e-12)


def test_small_blocks_are_closed_forms_and_large_ones_are_refits(monkeypatch):
    rng = np.random.default_rng(0)
    Z, Y = rng.normal(size=(200, 60)), rng.normal(size=(200, 1))
    path, called = ridge_path(ArrayDesign(Z), Y), []
    for name in ("leave_blocks_out", "fold_errors"):
        monkeypatch.setattr(left_out, name, lambda *a, name=name: called.append(name))
    for count in (100, 2):
        cross_validation(path, ArrayDesign(Z), Y, ALPHAS, as_folds(count, 200))
    assert called == ["leave_blocks_out", "fold_errors"]


def walk(n=400, seed=0):
    """Return features of a slow walk, and targets with noise that is slow as well."""
    rng = np.random.default_rng(seed)
    time = np.arange(n)[:, None]
    X = np.hstack([np.sin(time / 25 + k) for k in range(3)])
    X += 0.02 * np.cumsum(rng.normal(size=X.shape), axis=0)
    noise = np.convolve(rng.normal(size=n + 19), np.ones(20) / np.sqrt(20), "valid")
    return X, (X[:, :1] + 0.7 * noise[:, None])


def test_blocks_contradict_leave_one_out_where_neighbors_repeat_each_other():
    X, Y = walk()
    alphas = np.logspace(-9, 1, 21)
    for order, contradicted in [(np.arange(400), True), (None, False)]:
        if order is None:
            rng = np.random.default_rng(1)
            X = rng.normal(size=X.shape)
            Y = X[:, :1] + 0.7 * rng.normal(size=Y.shape)
        design = ArrayDesign(gaussian(X, X[::4], 0.5))
        path = ridge_path(design, Y)
        rows = np.sqrt(leave_one_out(path, RidgeFilter(), design, Y, alphas))
        folds = as_folds(5, 400)
        blocks = np.sqrt(cross_validation(path, design, Y, alphas, folds))
        i, j = rows.argmin(), blocks.argmin()
        assert (blocks[i] > 1.1 * blocks[j]) == contradicted
        if contradicted:
            assert alphas[j] > 10 * alphas[i]
            assert rows[i] < 0.5 * blocks[j]


@weighted
def test_orders_are_compared_by_refits(weighted):
    Z, Y, weights = data(60, weighted)
    path = decompose(ArrayDesign(Z), Y, sample_weight=weights)
    found = order_effect(path, RidgeFilter(), ArrayDesign(Z), Y, 0.05, weights)
    w = np.ones(60) if weights is None else weights
    rows = np.flatnonzero(w)
    # Blocks have equally many rows.
    parts = np.array_split(rows, 20)
    rows = np.concatenate([part[: len(rows) // 20] for part in parts])

    def errors(order):
        folds = [[(part, part)] for part in order.reshape(20, -1)]
        return [refitted(Z, Y, weights, f, True, [0.05])[0] for f in folds]

    rng = np.random.default_rng(0)
    random = [np.mean(errors(rows[rng.permutation(len(rows))])) for _ in range(3)]
    assert_allclose(found.random**2, max(random))
    # without the two blocks of largest error
    assert_allclose(found.contiguous**2, np.mean(np.sort(errors(rows))[:-2]))
    centered = Y - np.average(Y, axis=0, weights=w)
    assert_allclose(found.spread**2, w @ np.square(centered).sum(axis=1) / 60)


# folds ------------------------------------------------------------------------------


def test_integers_are_contiguous_blocks_of_rows_of_positive_weight():
    folds = as_folds(3, 10)
    assert [f.test.tolist() for f in folds] == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert all(fold.is_block for fold in folds)
    weights = np.array([0, 1, 1, 0, 1, 1.0])
    tests = [f.test.tolist() for f in as_folds(2, 6, sample_weight=weights)]
    assert tests == [[1, 2], [4, 5]]
    assert as_folds(None, 10) is None


def test_groups_stay_together():
    groups = np.array(list("bbaacadbd"))
    tests = [f.test.tolist() for f in as_folds(None, 9, groups)]
    assert tests == [[0, 1, 7], [2, 3, 5], [4], [6, 8]]
    halves = [f.test.tolist() for f in as_folds(2, 9, groups)]
    assert halves == [[0, 1, 7], [2, 3, 4, 5, 6, 8]]


@pytest.mark.parametrize("count", [2, 3, 7, 20])
def test_blocks_of_groups_cover_all_rows_and_none_is_empty(count):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(20), rng.integers(1, 1 + 50 ** rng.uniform(), 20))
        groups = rng.permutation(groups)
        blocks = [f.test for f in as_folds(count, len(groups), groups)]
        assert len(blocks) == count
        assert_array_equal(np.sort(np.concatenate(blocks)), np.arange(len(groups)))
        inside = [set(groups[block]) for block in blocks]
        assert sum(map(len, inside)) == 20


def test_blocks_of_groups_are_as_equal_as_their_sizes_allow():
    groups = np.repeat(["a", "b", "c", "d"], [1, 5, 5, 1])
    assert [len(fold.test) for fold in as_folds(2, 12, groups)] == [6, 6]


def test_pairs_of_indices_are_used_unchanged():
    pairs = splits("time")
    folds = as_folds(pairs, N)
    for (train, test), fold in zip(pairs, folds, strict=True):
        assert_array_equal(fold.test, test)
        assert_array_equal(np.setdiff1d(np.arange(N), fold.removed), train)
    assert not folds[0].is_block


def test_labels_are_those_of_the_first_test_set():
    pairs = [*TimeSeriesSplit(4, gap=1).split(np.zeros(200))]
    labels = block_labels(as_folds(pairs, 200), 200)
    assert (labels == -1).sum() == len(pairs[0][0]) + 1  # and the gap
    many = block_labels(as_folds(25, 100), 100)
    assert_array_equal(np.unique(many), np.arange(MOST_BLOCKS))
    assert (np.diff(many) >= 0).all()
    repeated = block_labels(as_folds(splits("repeated"), N), N)
    assert set(repeated) == {0, 1, 2}


def test_few_left_out_rows_are_joined_by_blocks_of_the_others():
    rest, few = np.arange(190), np.arange(190, 200)
    labels = block_labels(as_folds([(rest, few)], 200), 200)
    assert_array_equal(np.bincount(labels), np.full(MOST_BLOCKS, 20))
    assert len(np.unique(labels[few])) == 1
    enough = block_labels(as_folds([(rest[:90], np.arange(90, 200))], 200), 200)
    assert_array_equal(enough, np.repeat([-1, 0], [90, 110]))


@pytest.mark.parametrize("loss", ["square", "huber"])
def test_ten_left_out_rows_do_not_choose_the_scales_alone(loss):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(1000, 6))
    y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + 0.2 * rng.normal(size=1000)
    cv = [(np.arange(990), np.arange(990, 1000))]
    model = SketchedKernelRegressor(loss=loss, cv=cv, alpha=1e-3, random_state=0)
    scales = model.fit(X, y).length_scales_
    assert scales[:2].max() < 0.15 * scales[2:].min()


@pytest.mark.parametrize(
    "cv, error, match",
    [
        (1, ValueError, "`cv` must be at least 2"),
        (30, ValueError, "at least 30 rows of positive weight .* got 29"),
        (True, TypeError, "`cv` must be an integer"),
        ([], ValueError, "at least one"),
        ([([0, 1], [1, 2])], ValueError, "disjoint"),
        ([([0, 1], [29])], ValueError, "indices of the 29 rows"),
        ([([0, 1], [0.5])], ValueError, "indices of the 29 rows"),
        ([([0, 1], [])], ValueError, "samples of positive weight"),
    ],
)
def test_folds_are_checked(cv, error, match):
    with pytest.raises(error, match=match):
        as_folds(cv, N)


def test_a_single_group_has_no_folds():
    with pytest.raises(ValueError, match=r"at least 2 groups .* cv=None, got 1"):
        as_folds(None, 3, np.zeros(3))


# the criterion ----------------------------------------------------------------------


def blocked_sample(n_outputs=1, weighted=False, cut=np.inf, with_rest=False):
    sample = some_sample(n_outputs, weighted, cut)
    labels = np.arange(len(sample.X)) * 5 // len(sample.X)
    return sample._replace(blocks=labels - 1 if with_rest else labels)


@pytest.mark.thin
@families
@weighted
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("with_rest", [False, True])
def test_residuals_are_those_of_refits(family, n_outputs, weighted, with_rest):
    sample, point = blocked_sample(n_outputs, weighted, np.inf, with_rest), some_point()
    profile, nu = KERNELS[family]
    desired = np.zeros_like(sample.Y)
    for k in range(sample.blocks.max() + 1):
        rows = np.flatnonzero(sample.blocks == k)
        kernel = lambda X, Y, bandwidth: profile(X, Y, bandwidth, *nu)  # noqa: E731
        fit = ridge_on_landmarks(sample, kernel, point, rows)
        desired[rows] = sample.Y[rows] - fit(sample.X[rows])
    criterion = sample._replace(family=FAMILIES[family]).by_landmarks()
    if weighted:
        desired[sample.weights == 0] = 0
    assert_allclose(criterion.residuals(point), desired, rtol=0, atol=1e-6)
    used = sample.blocks >= 0
    some = sample._replace(weights=None if not weighted else sample.weights[used])
    value = mean_log(some, desired[used])
    path = criterion.path(point[:-1], np.array([0.5, point[-1]]))
    assert_allclose(path[1], value, rtol=0, atol=1e-6)


@weighted
def test_blocks_of_one_row_are_the_leave_one_out_criterion(weighted):
    sample, point = some_sample(2, weighted, cut=0.7), some_point()
    blocks = sample._replace(blocks=np.arange(len(sample.X)))
    args = point[:-1], point[-1:]
    pair = [part.by_landmarks().path(*args) for part in (sample, blocks)]
    assert_allclose(*pair, rtol=1e-8)


# the search -------------------------------------------------------------------------


def repeated_rows(n=1200, seed=0):
    """Return neighbors that nearly repeat each other, with one error for each ten."""
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.normal(size=(n // 10, 4)), 10, axis=0)
    noise = np.repeat(rng.normal(size=(n // 10, 1)), 10, axis=0)
    return X + 1e-3 * rng.normal(size=X.shape), np.sin(X[:, :1]) + 0.6 * noise


@pytest.mark.parametrize("robust", [False, pytest.param(True, marks=pytest.mark.full)])
def test_blocks_choose_smooth_models_where_rows_choose_interpolation(
    robust, short_searches
):
    X, Y = repeated_rows(200)
    groups = np.arange(200) // 10
    rows = tune(X, Y, robust=robust, rng=0)
    assert rows.error < 0.1
    for cv, some in [(5, None), (8, groups), (None, groups)]:
        blocks = tune(X, Y, robust=robust, cv=cv, groups=some, rng=0)
        assert 0.5 < blocks.error < 0.85
        assert blocks.alpha > 100 * rows.alpha


def test_deviations_are_those_of_left_out_rows():
    # With one fold of few rows, the residuals of the others are not held out.
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(120, 3))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(120, 1))
    Y[5] += 50
    indices = rng.permutation(np.delete(np.arange(120), 5))
    with np.errstate(all="raise", under="ignore"):
        tuned = tune(X, Y, robust=True, cv=[(indices[40:], indices[:40])], rng=0)
    # Error and length scales of a fit to the inliers, not to the outlier.
    assert tuned.error < 0.3
    scales = tuned.length_scales
    assert scales[0] < scales[1] and scales[0] < scales[2]


def test_left_out_rows_are_no_outliers_among_fitted_ones(rng):
    """Training residuals are far smaller: only their own gap is one of them."""
    residuals = np.append(rng.normal(size=12), 1e-3 * rng.normal(size=48))[:, None]
    residuals[[3, 40]] = 90.0
    counted = np.arange(60) < 12
    usual = inliers(residuals, rng.normal(size=(60, 1)), 4.0, counted)
    assert_array_equal(np.flatnonzero(~usual), [3, 40])


def test_a_robust_loss_searches_by_the_rows_that_are_left_out():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 3))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=60)
    cv = ShuffleSplit(2, random_state=1)
    with np.errstate(invalid="raise"):  # no row was left out
        tune(X, y[:, None], cv=list(cv.split(X)), robust=True, rng=0)


def test_splitters_are_their_index_arrays():
    X, Y = repeated_rows(200)
    cvs = 5, list(KFold(5).split(X)), TimeSeriesSplit(4).split(X)
    first, second, third = (tune(X, Y, cv=cv, max_iter=20, rng=0) for cv in cvs)
    assert first.kernel == second.kernel
    assert third.kernel != first.kernel
    assert 0.4 < third.error < 1.0


def test_blocks_reach_the_selection_of_features(short_searches):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 60))
    Y = np.sin(2 * X[:, :1]) + X[:, 1:2] * X[:, 2:3] + 0.1 * rng.normal(size=(300, 1))
    tuned = tune(X, Y, cv=4, rng=0)
    assert np.flatnonzero(tuned.relevance).tolist() == [0, 1, 2]
    assert tuned.error < 0.3


@pytest.mark.parametrize("q", [4, 60])
def test_rows_of_weight_zero_are_in_no_block(q):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, q))
    Y = X[:, :1] * X[:, 1:2] + 0.1 * rng.normal(size=(300, 1))
    weights = (np.arange(300) % 3 > 0).astype(float)
    there = weights > 0
    options = {"cv": 4, "max_iter": 20, "rng": 0}
    desired = tune(X[there], Y[there], **options)
    X[~there], Y[~there] = 1e3, -1e3
    actual = tune(X, Y, sample_weight=weights, **options)
    assert actual.kernel == desired.kernel
    assert (actual.alpha, actual.error) == (desired.alpha, desired.error)


def test_left_out_blocks_allow_for_nearly_linear_models():
    rng = np.random.default_rng(0)
    X = np.cumsum(rng.normal(size=(600, 4)), axis=0)
    Y = X @ np.ones((4, 1)) + rng.normal(size=(600, 1))
    scaler = fit_scaler(X, "standard")
    starts = []
    for labels in (None, block_labels(as_folds(5, 600), 600)):
        rows = prepare(X, Y, None, scaler, np.arange(600), labels=labels)
        starts.append(isotropic_start(rows, np.random.default_rng(0))[0])
    assert starts[1] < starts[0] - 1


def test_left_out_blocks_search_all_features_as_well(monkeypatch):
    pools = []
    choose = tuner.ScaleSearch.choose

    def record(self, rows, pool):
        pools.append(list(pool))
        return choose(self, rows, pool)

    monkeypatch.setattr(tuner.ScaleSearch, "choose", record)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 120))
    for cv in (None, 3):
        Y = X[:, :1] + 0.1 * rng.normal(size=(200, 1))
        tune(X, Y, cv=cv, max_iter=20, rng=0)
    assert pools == [["isotropic", "selected"], ["isotropic", "selected", "learned"]]


@pytest.mark.full
@pytest.mark.skipif("NBSKETCH_DATA" not in os.environ, reason="needs the data sets")
@pytest.mark.parametrize(("load", "published"), [(load_rf1, 0.575), (load_rf2, 0.578)])
def test_left_out_blocks_reach_the_published_errors(load, published):
    """Table 2 of El Ahmad et al. (TMLR 2023): time series, files in their order.

    Every sixth training row is enough. Errors on rf2, which has 576 features, are 0.54
    to 0.74 for five random states.
    """
    data = load()
    mean = data.y_train.mean(axis=0)
    errors = []
    for seed in range(3):
        model = SketchedKernelRegressor(cv=5, random_state=seed)
        model.fit(data.X_train[::6], data.y_train[::6])
        errors.append(arrmse(data.y_test, model.predict(data.X_test), mean))
    assert np.median(errors) < 1.1 * published


@pytest.mark.full
@pytest.mark.skipif("NBSKETCH_DATA" not in os.environ, reason="needs the data sets")
def test_leave_one_out_does_not_and_says_so():
    data = load_rf1()
    X, y = data.X_train[::4], data.y_train[::4]  # a part, as above
    with pytest.warns(DependentRowsWarning):
        model = SketchedKernelRegressor(random_state=0).fit(X, y)
    mean = data.y_train.mean(axis=0)
    assert arrmse(data.y_test, model.predict(data.X_test), mean) > 1.05 * 0.575
