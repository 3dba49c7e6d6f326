"""Conformal intervals and sets: closed forms, MAPIE, and coverage over many seeds."""

from functools import cache

import mapie.regression
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_iris
from sklearn.dummy import DummyRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nbsketch import (
    GaussianKernel,
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    TabularKernelRegressor,
)
from nbsketch._quantiles import between_levels, conformal_quantile
from nbsketch.conformal import ConformalClassifier, ConformalRegressor
from nbsketch.reproduce import coverage

SEEDS = 60


def make_rows(n, seed, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X @ [1.0, -2.0] + noise * rng.normal(size=n)


def covered(ends, y):
    return float(np.mean((ends[:, 0] <= y) & (y <= ends[:, 1])))


def mean_coverage(model, *, make=make_rows, seeds=SEEDS, options=({},)):
    """Coverage of new rows in the mean over many draws, for each of the options."""
    shares = []
    for seed in range(seeds):
        X, y = make(160, seed)
        new, target = make(400, 1000 + seed)
        fitted = clone(model).set_params(random_state=seed).fit(X, y)
        ends = [fitted.predict_interval(new, **each) for each in options]
        shares.append([covered(each, target) for each in ends])
    return np.mean(shares, axis=0)


@pytest.mark.parametrize("m", [1, 9, 10, 99])
@pytest.mark.parametrize("share", [0.5, 0.8, 0.9, 0.95])
def test_quantile_is_the_order_statistic(m, share):
    scores = np.random.default_rng(m).normal(size=m)
    rank = int(np.ceil(round((m + 1) * share, 9)))
    expected = np.sort(scores)[rank - 1] if rank <= m else np.inf
    assert conformal_quantile(scores, share) == expected
    tiled = conformal_quantile(np.tile(scores, (3, 1)), share)
    np.testing.assert_array_equal(tiled, expected)


def test_integer_weights_repeat_scores():
    rng = np.random.default_rng(0)
    scores, weights = rng.normal(size=30), rng.integers(1, 4, size=30)
    repeated = np.repeat(scores, weights)
    for share in (0.3, 0.6, 0.9):
        found = conformal_quantile(scores, share, weights.astype(float), 1.0)
        assert found == conformal_quantile(repeated, share)


def test_between_levels_interpolates_and_stops_at_the_ends():
    levels, values = np.array([0.1, 0.5, 0.9]), np.array([[0.0, 4.0, 5.0]])
    found = between_levels(levels, values, [0.05, 0.2, 0.7, 0.95])
    np.testing.assert_allclose(found, [[0.0, 1.0, 4.5, 5.0]])


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
@pytest.mark.parametrize("method", ["split", "cv+"])
def test_agrees_with_mapie(method, coverage):
    X, y = make_rows(200, 0)
    new, _ = make_rows(50, 1)
    model = ConformalRegressor(LinearRegression(), method=method, coverage=coverage)
    if method == "split":
        fitted, held = next(ShuffleSplit(1, test_size=0.3, random_state=0).split(X))
        judge = mapie.regression.SplitConformalRegressor(
            LinearRegression(), confidence_level=coverage, prefit=False
        )
        judge.fit(X[fitted], y[fitted]).conformalize(X[held], y[held])
        model.set_params(cv=[(fitted, held)])
    else:
        judge = mapie.regression.CrossConformalRegressor(
            LinearRegression(), confidence_level=coverage, method="plus", cv=KFold(5)
        )
        judge.fit_conformalize(X, y)
        model.set_params(cv=5)
    _, expected = judge.predict_interval(new)
    found = model.fit(X, y).predict_interval(new)
    np.testing.assert_allclose(found, expected[:, :, 0], atol=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_jackknife_is_that_of_n_refits(fit_intercept, weighted):
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(25, 1)), rng.normal(size=(6, 1))
    y, w = np.sin(X[:, 0]) + 3, rng.uniform(0.5, 2, size=25) if weighted else None
    known = {"kernel": GaussianKernel(1.0), "alpha": 0.01, "sketch": "identity"}
    base = SketchedKernelRegressor(**known, fit_intercept=fit_intercept, tol=1e-10)
    model = ConformalRegressor(base, method="jackknife+", coverage=0.8)
    model.fit(X, y, sample_weight=w)
    left_out = np.array(
        [brute_left_out(X, y, w, k, new, fit_intercept) for k in range(25)]
    )
    np.testing.assert_allclose(
        model.models_.predict(new)[:, :, 0], left_out.T, atol=1e-6
    )
    own = [
        brute_left_out(X, y, w, k, X[k : k + 1], fit_intercept)[0] for k in range(25)
    ]
    np.testing.assert_allclose(model.values_[:, 0], own, atol=1e-6)
    if w is None:
        size = np.abs(y - own)
        low = np.sort(left_out.T - size, axis=1)[:, int(np.floor(26 * 0.2 + 1e-9)) - 1]
        high = np.sort(left_out.T + size, axis=1)[:, int(np.ceil(26 * 0.8 - 1e-9)) - 1]
        found = model.predict_interval(new)
        np.testing.assert_allclose(found, np.stack([low, high], axis=1), atol=1e-6)


def brute_left_out(X, y, w, k, new, fit_intercept):
    """Predict by kernel ridge regression without row k, the penalty being that of n."""
    kept = np.arange(len(y)) != k
    w = np.ones(len(y)) if w is None else w / w.mean()
    kernel = GaussianKernel(1.0)
    K = kernel(X[kept])
    if not fit_intercept:
        judge = KernelRidge(alpha=len(y) * 0.01, kernel="precomputed")
        judge.fit(K, y[kept], sample_weight=w[kept])
        return judge.predict(kernel(new, X[kept]))
    # bordered system of ridge regression with a constant
    m = kept.sum()
    system = np.zeros((m + 1, m + 1))
    system[:m, :m] = K + np.diag(len(y) * 0.01 / w[kept])
    system[m, :m] = system[:m, m] = 1.0
    solved = np.linalg.solve(system, np.append(y[kept], 0.0))
    return kernel(new, X[kept]) @ solved[:m] + solved[m]


@pytest.mark.parametrize(
    ("method", "low", "high"), [("split", 0.885, 0.935), ("cv+", 0.885, 0.935)]
)
def test_coverage_of_any_regressor(method, low, high):
    model = ConformalRegressor(LinearRegression(), method=method)
    assert low <= mean_coverage(model, seeds=25)[0] <= high


def test_coverage_of_the_jackknife():
    known = {"kernel": GaussianKernel(2.0), "alpha": 1e-3, "size": 20}
    base = SketchedKernelRegressor(**known, random_state=0)
    model = ConformalRegressor(base, method="jackknife+", coverage=0.8)
    assert 0.77 <= mean_coverage(model, seeds=20)[0] <= 0.85


def test_refitting_by_jackknife_covers_where_residuals_of_training_do_not():
    """Nearly interpolating models: errors of training say nothing of new ones."""
    known = {"kernel": GaussianKernel(0.3), "alpha": 1e-6, "sketch": "identity"}
    base = SketchedKernelRegressor(**known)
    model = ConformalRegressor(base, method="jackknife+", coverage=0.8)
    assert mean_coverage(model, seeds=12)[0] >= 0.77


def make_skewed(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, size=(n, 1))
    return X, X[:, 0] * rng.exponential(size=n)


def test_coverage_around_quantiles():
    base = JointQuantileRegressor(
        (0.1, 0.5, 0.9), kernel=GaussianKernel(0.5), alpha=1e-3, size=10, random_state=0
    )
    model = ConformalRegressor(base, method="cqr", coverage=0.8, cv=2)
    options = [{"symmetric": True}, {"symmetric": False}]
    shares = mean_coverage(model, make=make_skewed, seeds=20, options=options)
    assert (shares >= 0.78).all() and (shares <= 0.84).all()


QUANTILES = {"kernel": GaussianKernel(0.5), "size": 10, "random_state": 0}


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda base: make_pipeline(StandardScaler(), base),
        lambda base: GridSearchCV(
            base, {"alpha": [1e-3]}, cv=2, scoring=lambda model, X, y: 0.0
        ),
        lambda base: make_pipeline(
            StandardScaler(),
            GridSearchCV(base, {"alpha": [1e-3]}, cv=2, scoring=lambda *args: 0.0),
        ),
    ],
    ids=["pipeline", "search", "search in a pipeline"],
)
def test_quantiles_may_be_those_of_the_last_step(wrapped):
    X, y = make_skewed(300, 0)
    base = JointQuantileRegressor((0.1, 0.5, 0.9), alpha=1e-3, **QUANTILES)
    model = ConformalRegressor(wrapped(base), method="cqr", coverage=0.8, cv=2)
    ends = model.fit(X, y).predict_interval(X)
    found = np.sort(model.estimator_.predict(X), axis=1)[:, [0, 2]]
    # Both ends move by one distance.
    moved = ends - found
    np.testing.assert_allclose(moved[:, 0], -moved[:, 1])
    np.testing.assert_allclose(moved, moved[:1].repeat(len(X), axis=0), atol=1e-12)


@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_intervals_of_tables_are_calibrated(coverage):
    """Quantiles of any level are there, also for a coverage that is asked for later."""
    X, y = make_skewed(400, 0)
    table = TabularKernelRegressor(random_state=0)
    model = ConformalRegressor(table, method="cqr", coverage=0.5, cv=2).fit(X, y)
    ends = model.predict_interval(X, coverage)
    tails = [(1 - coverage) / 2, (1 + coverage) / 2]
    moved = ends - model.estimator_.predict_quantiles(X, tails)
    np.testing.assert_allclose(moved[:, 1], moved[0, 1])
    np.testing.assert_allclose(moved[:, 0], -moved[:, 1])
    new, target = make_skewed(2000, 1)
    low, high = model.predict_interval(new, coverage).T
    assert abs(np.mean((low <= target) & (target <= high)) - coverage) < 0.05


def test_tables_of_several_outputs_have_no_conformal_quantiles():
    X, y = make_skewed(100, 0)
    model = ConformalRegressor(TabularKernelRegressor(random_state=0), method="cqr")
    with pytest.raises(TypeError, match="quantiles of one output"):
        model.fit(X, np.column_stack([y, y[::-1]]))


def test_each_end_of_an_asymmetric_interval_is_missed_alike():
    misses = np.zeros(2)
    for seed in range(SEEDS):
        X, y = make_skewed(300, seed)
        new, target = make_skewed(400, 1000 + seed)
        model = ConformalRegressor(LinearRegression(), coverage=0.8, cv=2).fit(X, y)
        ends = model.predict_interval(new, symmetric=False)
        misses += [np.mean(target < ends[:, 0]), np.mean(target > ends[:, 1])]
    np.testing.assert_allclose(misses / SEEDS, 0.1, atol=0.02)


def test_each_group_is_covered():
    """One group has ten times the noise of the other."""
    shares = {}
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        groups = np.where(rng.random(400) < 0.3, "loud", "calm")
        X = rng.normal(size=(400, 1))
        y = X[:, 0] + np.where(groups == "loud", 10.0, 1.0) * rng.normal(size=400)
        model = ConformalRegressor(LinearRegression(), coverage=0.8, random_state=seed)
        model.fit(X[:200], y[:200], groups=groups[:200])
        inside = model.predict_interval(X[200:], groups=groups[200:])
        pooled = model.predict_interval(X[200:])
        for name in ("loud", "calm"):
            rows = groups[200:] == name
            entry = shares.setdefault(name, [])
            target = y[200:][rows]
            entry.append([covered(inside[rows], target), covered(pooled[rows], target)])
    by_group = {name: np.mean(values, axis=0) for name, values in shares.items()}
    assert 0.77 < by_group["calm"][0] < 0.87 and 0.77 < by_group["loud"][0] < 0.9
    assert by_group["calm"][1] > 0.95 and by_group["loud"][1] < 0.6


def test_weights_cover_under_covariate_shift():
    """New rows have more noise than those of training."""
    weighted, plain = [], []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        X = rng.uniform(0, 1, size=(600, 1))
        noise = rng.normal(size=1000)
        y = X[:, 0] + X[:, 0] * noise[:600]
        new = np.sqrt(rng.uniform(0, 1, size=(400, 1)))  # density 2 x
        target = new[:, 0] + new[:, 0] * noise[600:]
        model = ConformalRegressor(LinearRegression(), coverage=0.8, cv=2)
        model.fit(X, y, sample_weight=2 * X[:, 0])
        ends = model.predict_interval(new, sample_weight=2 * new[:, 0])
        weighted.append(covered(ends, target))
        ends = clone(model).fit(X, y).predict_interval(new)
        plain.append(covered(ends, target))
    assert 0.78 <= np.mean(weighted) <= 0.84
    assert np.mean(plain) < 0.77


@pytest.mark.parametrize(
    "method", ["split", pytest.param("cv+", marks=pytest.mark.full), "jackknife+"]
)
def test_vectors_are_covered_as_a_whole(method):
    shares = []
    for seed in range(15):
        rng = np.random.default_rng(seed)
        X, noise = rng.normal(size=(400, 1)), rng.normal(size=(400, 3)) * [1, 10, 100]
        Y = X * [1.0, 2.0, 3.0] + noise
        known = {"kernel": GaussianKernel(2.0), "alpha": 1e-2, "size": 10}
        base = SketchedKernelRegressor(**known, random_state=0)
        model = ConformalRegressor(base, method=method, coverage=0.8, random_state=seed)
        ends = model.fit(X[:160], Y[:160]).predict_interval(X[160:])
        inside = (ends[..., 0] <= Y[160:]) & (Y[160:] <= ends[..., 1])
        shares.append(inside.all(axis=1).mean())
        width = (ends[..., 1] - ends[..., 0]).mean(axis=0)
        np.testing.assert_allclose(width / width[0], [1, 10, 100], rtol=0.4)
    assert 0.77 <= np.mean(shares) <= 0.85


def test_update_keeps_the_coverage_under_drift():
    rng = np.random.default_rng(0)
    X, n = rng.normal(size=(2400, 1)), 2400
    noise = np.linspace(1.0, 6.0, n) * rng.normal(size=n)
    y = X[:, 0] + noise
    model = ConformalRegressor(LinearRegression(), cv=4).fit(X[:400], y[:400])
    frozen = covered(model.predict_interval(X[400:]), y[400:])
    inside = []
    for start in range(400, n, 50):
        part = slice(start, start + 50)
        inside.append(covered(model.predict_interval(X[part]), y[part]))
        model.update(X[part], y[part])
    assert frozen < 0.7
    assert abs(np.mean(inside) - 0.9) < 0.02 and abs(np.mean(inside[-10:]) - 0.9) < 0.04


def test_an_output_that_is_predicted_exactly_has_exact_intervals():
    X, y = make_rows(80, 0)
    Y = np.column_stack([y, np.zeros(80)])
    model = ConformalRegressor(LinearRegression(), random_state=0).fit(X, Y)
    ends = model.predict_interval(X)
    alone = ConformalRegressor(LinearRegression(), random_state=0).fit(X, y)
    assert_allclose(ends[:, 0], alone.predict_interval(X))
    assert model.scale_[1] == 1.0 and np.isfinite(ends).all()


def test_new_rows_weigh_as_the_others_do_unless_they_have_weights():
    X, y = make_rows(40, 0)
    weights = np.linspace(1, 4, 40)
    model = ConformalRegressor(LinearRegression(), random_state=0).fit(X, y, weights)
    before = model.weights_.copy()
    model.update(X[:1], y[:1])
    assert_allclose(model.weights_, [*before[1:], before.mean()])
    model.update(X[:1], y[:1], [7.0])
    assert_allclose(model.weights_, [*before[2:], before.mean(), 7.0])


@pytest.mark.parametrize("cv", [None, ShuffleSplit(1, test_size=0.3, random_state=1)])
def test_an_update_replaces_the_oldest_sample_of_a_random_part(cv):
    X, _ = make_rows(80, 0)
    y = np.arange(80.0)  # in the order of time
    model = ConformalRegressor(LinearRegression(), cv=cv, random_state=0).fit(X, y)
    before = np.sort(model.targets_[:, 0])
    model.update(X[:3], [80.0, 81.0, 82.0])
    assert_array_equal(model.targets_[:, 0], [*before[3:], 80, 81, 82])


def test_rows_at_once_and_one_by_one_are_the_same_update():
    X, y = make_rows(300, 0)
    models = [
        ConformalRegressor(LinearRegression(), cv=2).fit(
            X[:100], y[:100], groups=np.arange(100) % 2
        )
        for _ in range(2)
    ]
    groups = np.arange(200) % 2
    models[0].update(X[100:], y[100:], groups=groups)
    for k in range(200):
        models[1].update(X[100 + k][None], y[100 + k][None], groups=groups[k : k + 1])
    assert models[0].shift_ == models[1].shift_
    np.testing.assert_allclose(models[0].values_, models[1].values_, atol=1e-12)


def test_a_frozen_estimator_is_calibrated_by_all_rows():
    X, y = make_rows(300, 0)
    fitted = LinearRegression().fit(X[:100], y[:100])
    model = ConformalRegressor(FrozenEstimator(fitted)).fit(X[100:], y[100:])
    assert len(model.values_) == 200
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))
    assert 0.85 < covered(model.predict_interval(X[100:]), y[100:]) < 0.95


def test_calibration_rows_of_the_last_split():
    X, y = make_rows(90, 0)
    model = ConformalRegressor(LinearRegression(), cv=3).fit(X, y)
    np.testing.assert_array_equal(model.targets_[:, 0], y[60:])
    model.set_params(cv=TimeSeriesSplit(8)).fit(X, y)
    np.testing.assert_array_equal(model.targets_[:, 0], y[80:])


def test_tables_and_frames():
    pandas = pytest.importorskip("pandas")
    X, y = make_rows(200, 0)
    frame = pandas.DataFrame(X, columns=["a", "b"])
    model = ConformalRegressor(TabularKernelRegressor(random_state=0), random_state=0)
    ends = model.fit(frame[:150], y[:150]).predict_interval(frame[150:])
    assert 0.75 < covered(ends, y[150:]) <= 1.0


def make_classes(n, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=n)
    centers = np.array([[0, 0], [2, 0], [0, 2], [1, 1]])
    return centers[labels] + rng.normal(size=(n, 2)), np.array(list("abcd"))[labels]


@pytest.mark.parametrize("method", ["lac", "aps"])
def test_coverage_of_classes(method):
    shares, sizes = [], []
    for seed in range(SEEDS // 2):
        X, y = make_classes(300, seed)
        new, labels = make_classes(400, 1000 + seed)
        model = ConformalClassifier(
            LogisticRegression(), method=method, coverage=0.8, random_state=seed
        ).fit(X, y)
        sets = model.predict_set(new)
        shares.append(sets[np.arange(400), np.searchsorted(model.classes_, labels)])
        sizes.append(sets.sum(axis=1))
    assert 0.78 <= np.mean(shares) <= (0.84 if method == "lac" else 0.95)
    assert method == "lac" or np.min(sizes) >= 1
    assert np.mean(sizes) < 3.5


def test_lac_is_a_threshold_and_aps_takes_the_most_probable():
    X, y = load_iris(return_X_y=True)
    for method in ("lac", "aps"):
        model = ConformalClassifier(LogisticRegression(), method=method, random_state=0)
        sets, values = model.fit(X, y).predict_set(X), model.predict_proba(X)
        inside = np.where(sets, values, np.inf).min(axis=1)
        outside = np.where(sets, -np.inf, values).max(axis=1)
        assert (inside >= outside).all()
        if method == "lac":
            assert inside.min() >= outside.max()


def test_scores_of_aps_are_the_probabilities_of_likelier_classes():
    model = ConformalClassifier(LogisticRegression(), method="aps")
    values = np.array([[0.2, 0.5, 0.3], [0.25, 0.5, 0.25]])
    expected = [[0.8, 0.0, 0.5], [0.5, 0.0, 0.75]]
    assert_allclose(model._all_scores(values), expected)


@cache
def frozen_classifier(names):
    X, index = load_iris(return_X_y=True)
    return FrozenEstimator(
        LogisticRegression(max_iter=1000).fit(X, np.array(names)[index])
    )


@pytest.mark.parametrize("method", ["lac", "aps"])
@pytest.mark.parametrize("rows", [[0, 1], [1, 2], [0], [2]], ids=str)
@pytest.mark.parametrize("names", [[0, 1, 2], ["a", "b", "c"]], ids=["int", "text"])
def test_a_frozen_classifier_keeps_its_classes(method, rows, names):
    X, index = load_iris(return_X_y=True)
    y = np.array(names)[index]
    frozen = frozen_classifier(tuple(names))
    held = np.isin(index, rows)
    model = ConformalClassifier(frozen, method=method).fit(X[held], y[held])
    assert model.classes_.tolist() == names
    assert_allclose(model.predict_proba(X), frozen.predict_proba(X))
    every = ConformalClassifier(frozen, method=method).fit(X, y)
    assert model.predict_set(X).shape == every.predict_set(X).shape
    assert model.predict_set(X[held])[np.arange(held.sum()), index[held]].mean() >= 0.9
    model.update(X, y)  # labels that no calibration row had


def test_a_frozen_classifier_may_lack_classes():
    X, y = load_iris(return_X_y=True)
    fitted = LogisticRegression(max_iter=1000).fit(X[50:], y[50:])
    model = ConformalClassifier(FrozenEstimator(fitted)).fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2]
    assert_array_equal(model.predict_proba(X)[:, 1:], fitted.predict_proba(X))
    assert not model.predict_proba(X)[:, 0].any()
    with pytest.raises(TypeError, match="`y` must hold labels of one type, got int, s"):
        ConformalClassifier(FrozenEstimator(fitted)).fit(X, y.astype(str))


def test_an_integer_cv_is_stratified_by_class():
    X, y = load_iris(return_X_y=True)  # sorted by class
    for labels in (y, np.array(["a", "b", "c"])[y]):
        model = ConformalClassifier(LogisticRegression(max_iter=1000), cv=3)
        model.fit(X, labels)
        # two rows of the third class are equal, so that one of them calibrates
        assert np.bincount(model.targets_).tolist() == [16, 17, 16]
        assert len(model.estimator_.classes_) == 3
        assert model.predict_set(X).sum(axis=1).mean() < 1.5


def test_classes_without_a_training_row_are_warned_of():
    X, y = load_iris(return_X_y=True)
    model = ConformalClassifier(LogisticRegression(max_iter=1000), cv=KFold(3))
    with pytest.warns(
        UserWarning, match="class 2 has calibration samples but no train"
    ):
        model.fit(X, y)


def test_update_of_classes():
    X, y = make_classes(600, 0)
    model = ConformalClassifier(LogisticRegression(), cv=3).fit(X[:300], y[:300])
    shift = model.shift_
    model.update(X[300:], y[300:])
    assert model.shift_ != shift and len(model.values_) == 100


@pytest.mark.parametrize(
    ("options", "call", "message"),
    [
        ({"method": "lasso"}, {}, "`method` must be one of"),
        ({"coverage": 1.0}, {}, "`coverage` must be in"),
        ({"method": "jackknife+"}, {}, "`estimator` must be a SketchedKernelRegressor"),
        ({"method": "cqr"}, {}, "`estimator` must predict quantiles"),
        ({}, {"sample_weight": np.full(60, -1.0)}, "sample_weight"),
        ({}, {"groups": np.zeros(3)}, "`groups` must have shape .60,., got .3,."),
    ],
)
def test_errors_of_fit_name_the_argument(options, call, message):
    X, y = make_rows(60, 0)
    with pytest.raises((TypeError, ValueError), match=message):
        ConformalRegressor(LinearRegression(), **options).fit(X, y, **call)


@pytest.mark.parametrize("method", ["split", "cv+"])
def test_a_fit_of_quantiles_names_the_method_for_them(method):
    X, y = make_rows(60, 0)
    base = JointQuantileRegressor((0.1, 0.9), size=10, alpha=1e-3, random_state=0)
    model = ConformalRegressor(base, method=method, random_state=0)
    with pytest.raises(ValueError, match=r"must have 2 outputs.* 1: .* method='cqr'"):
        model.fit(X, y)
    frozen = FrozenEstimator(base.fit(X, y))
    with pytest.raises(ValueError, match="method='cqr'"):
        ConformalRegressor(frozen).fit(X, y)


def test_errors_of_use_name_the_argument_and_keep_the_model():
    X, y = make_rows(60, 0)
    model = ConformalRegressor(LinearRegression(), cv=2).fit(X, y, groups=y > 0)
    before = model.predict_interval(X)
    calls = [
        ({"groups": np.full(60, 7)}, "`groups` must be groups of calibration samples"),
        ({"sample_weight": np.ones(60)}, "`sample_weight` must be None"),
        ({"coverage": 2}, "`coverage` must be in"),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            model.predict_interval(X, **call)
    with pytest.raises(ValueError, match="`groups` must be passed"):
        model.update(X, y)
    with pytest.raises((TypeError, ValueError), match="sample_weight"):
        model.fit(X, y, sample_weight="heavy")
    np.testing.assert_array_equal(model.predict_interval(X), before)
    crossed = ConformalRegressor(LinearRegression(), method="cv+").fit(X, y)
    with pytest.raises(ValueError, match="`method` must be 'split' or 'cqr'"):
        crossed.update(X, y)


def test_the_experiment_measures_each_setting(monkeypatch, tmp_path):
    monkeypatch.setattr(coverage, "_ROWS", 84)  # MAPIE needs 21 of calibration
    monkeypatch.setattr(coverage, "_TEST_ROWS", 25)
    rows = coverage.run(replicates=1, out=tmp_path)
    assert len(rows) == 3 * len(coverage.SETTINGS)
    for row in rows:
        assert 0 <= row["coverage"] <= 1 and row["width"] > 0
        in_mapie = coverage.SETTINGS[row["setting"]].in_mapie
        assert (row["mapie"] is not None) == in_mapie
    assert (tmp_path / "coverage.csv").exists()


@pytest.mark.parametrize("method", ["split", "cv+"])
def test_rows_and_targets_of_different_lengths_are_refused(method):
    X, y = np.arange(40.0)[:, None], np.arange(40.0)
    regressor = ConformalRegressor(LinearRegression(), method=method, random_state=0)
    classifier = ConformalClassifier(LogisticRegression(), random_state=0)
    for rows, targets in ((X, y[1:]), (X[1:], y), (X.tolist(), y[:-1])):
        for model, values in ((regressor, targets), (classifier, targets > 20)):
            with pytest.raises(ValueError, match="inconsistent numbers of samples"):
                model.fit(rows, values)
    with pytest.raises(ValueError, match="`y` must have 40 entries, got 39"):
        ConformalRegressor(LinearRegression(), random_state=0).fit(X, y).update(
            X, y[1:]
        )


def test_a_pipeline_routes_weights_and_groups():
    X, y = make_rows(90, 0)
    weights = np.random.default_rng(0).uniform(0.1, 1, size=90)
    groups = np.arange(90) // 10
    model = SketchedKernelRegressor(bandwidth=1.0, cv=3, random_state=0)
    requests = {"sample_weight": True, "groups": True}
    options = {"sample_weight": weights, "groups": groups}
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(model.set_fit_request(**requests))
        routed = ConformalRegressor(pipeline, random_state=0).fit(X, y, **options)
        expected = ConformalRegressor(model, random_state=0).fit(X, y, **options)
        assert_array_equal(routed.predict(X), expected.predict(X))
        refused = make_pipeline(LinearRegression().set_fit_request(sample_weight=False))
        with pytest.raises(TypeError, match="`sample_weight` must be None for an est"):
            ConformalRegressor(refused).fit(X, y, sample_weight=weights)


class Grouped(LinearRegression):
    """A regressor whose fit takes groups, without a parameter `cv`."""

    def fit(self, X, y, groups):
        self.groups_ = groups
        return super().fit(X, y)


def test_an_estimator_without_folds_may_take_groups():
    X, y = make_rows(60, 0)
    groups = np.repeat(["a", "b"], 30)
    model = ConformalRegressor(Grouped(), cv=3).fit(X, y, groups=groups)
    assert_array_equal(model.estimator_.groups_, groups[:40])


class Given(ClassifierMixin, BaseEstimator):
    """A classifier whose probabilities are the first columns of X."""

    classes_ = np.array([0, 1])

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        return np.asarray(X)[:, :2]


@pytest.mark.parametrize(
    "method, symmetric",
    [("split", True), ("split", False), ("cv+", True), ("cqr", True), ("cqr", False)],
)
def test_equal_targets_are_not_missed_by_rounding(method, symmetric):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 1))
    y = np.where(rng.random(400) < 0.05, rng.gamma(2.0, 500.0, 400), 0.3)
    estimator = DummyRegressor()
    if method == "cqr":
        estimator = JointQuantileRegressor((0.1, 0.9), size=10, alpha=1e9)
    model = ConformalRegressor(estimator, method=method, coverage=0.8, random_state=0)
    low, high = model.fit(X, y).predict_interval(X, symmetric=symmetric).T
    assert ((low <= 0.3) & (high >= 0.3)).all()


def test_a_class_at_the_limit_is_in_the_set():
    calibration = np.column_stack([np.tile([0.25, 0.75], (40, 1)), np.arange(40)])
    model = ConformalClassifier(FrozenEstimator(Given()), coverage=0.9)
    model.fit(calibration, np.zeros(40, dtype=int))  # every score is 0.75
    rounded = 0.25 - 1e-14
    new = np.array([[0.25, 0.75], [rounded, 1 - rounded], [0.24, 0.76]])
    assert model.predict_set(new)[:, 0].tolist() == [True, True, False]


def test_a_classifier_without_probabilities_is_refused_by_name():
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = ConformalClassifier(SketchedKernelClassifier(loss="hinge"))
    with pytest.raises(TypeError, match=r"must have predict_proba, got Sk.*'logistic'"):
        model.fit(X, X[:, 0] > 0)


@pytest.mark.parametrize("method", ["split", "cv+", "jackknife+"])
def test_precomputed_kernels_are_refused_by_name(method):
    X = np.random.default_rng(0).normal(size=(60, 2))
    K = GaussianKernel(1.0)(X)
    model = SketchedKernelRegressor("precomputed", random_state=0)
    with pytest.raises(ValueError, match="`kernel` must be computed from samples"):
        ConformalRegressor(model, method=method).fit(K, X[:, 0])
    part = FrozenEstimator(model.fit(K[:30, :30], X[:30, 0]))
    frozen = ConformalRegressor(part).fit(K[30:, :30], X[30:, 0])
    assert frozen.predict_interval(K[:3, :30]).shape == (3, 2)
