"""Rows that are left out together: `cv` and `groups` of the estimators."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    StratifiedKFold,
    TimeSeriesSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nbsketch
from nbsketch import (
    DependentRowsWarning,
    JointQuantileRegressor,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
    TabularKernelClassifier,
)
from nbsketch.fitting.objectives import JointQuantileObjective
from nbsketch.model_selection import cross_validate
from nbsketch.rows.splits import _is_sorted, resolve_folds, split_last
from nbsketch.solvers.design import ArrayDesign
from nbsketch.solvers.filters import RidgeFilter
from nbsketch.solvers.left_out import order_effect
from nbsketch.solvers.newton import solve_scalar
from nbsketch.solvers.spectrum import decompose

WIDTH = {"bandwidth": 1.0, "sketch": "p-sparsified", "size": 15, "random_state": 0}


def data(n=120):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)


def blocks(n, count):
    """Return (train, test) of contiguous blocks."""
    parts = np.array_split(np.arange(n), count)
    return [(np.delete(np.arange(n), part), part) for part in parts]


def series(n, seed=0):
    """Return (X, y) whose neighboring rows nearly repeat each other."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(n, 6))
    for t in range(1, n):
        steps[t] = 0.99 * steps[t - 1] + np.sqrt(1 - 0.99**2) * steps[t]
    return steps[:, :5], np.sin(steps[:, 0]) + steps[:, 5]


MODELS = {
    "square": SketchedKernelRegressor(**WIDTH),
    "huber": SketchedKernelRegressor(loss="huber", **WIDTH),
    "labels": SketchedKernelClassifier(loss="logistic", **WIDTH),
    "quantiles": JointQuantileRegressor((0.25, 0.75), tol=1e-3, **WIDTH),
    "filter": SpectralFilterRegressor(filter="landweber", **WIDTH),
    "descent": SketchedSGDRegressor(early_stopping=True, n_epochs=3, **WIDTH),
}
each_model = pytest.mark.parametrize("name", MODELS)


def fitted(name, cv, **known):
    X, y = data()
    y = y > 0 if name == "labels" else y
    return clone(MODELS[name]).set_params(cv=cv).fit(X, y, **known)


# what is chosen --------------------------------------------------------------------


def ridge_errors(Z, y, folds, alphas):
    """Return the mean squared errors of refits with the penalty n alpha."""
    errors, count, n = np.zeros(len(alphas)), 0, len(y)
    for train, test in folds:
        mean = Z[train].mean(axis=0)
        A = Z[train] - mean
        for k, alpha in enumerate(alphas):
            gram = A.T @ A + n * alpha * np.eye(A.shape[1])
            w = np.linalg.solve(gram, A.T @ (y[train] - y[train].mean()))
            residual = y[test] - (Z[test] - mean) @ w - y[train].mean()
            errors[k] += residual @ residual
        count += len(test)
    return errors / count


@pytest.mark.parametrize(
    ("cv", "splitter"),
    [(4, KFold(4)), (KFold(3, shuffle=True, random_state=0),) * 2,
     (TimeSeriesSplit(3, gap=2),) * 2],
    ids=["blocks", "shuffled", "time"],
)  # fmt: skip
def test_alpha_of_least_squares_is_that_of_refits(cv, splitter):
    X, y = data()
    model = SketchedKernelRegressor(cv=cv, **WIDTH).fit(X, y)
    Z = SketchedFeatures(**WIDTH).fit_transform(X)
    alphas = np.array([0.1, 1 / 3, 1.0, 3.0, 10.0]) * model.alpha_
    errors = ridge_errors(Z, y, list(splitter.split(X)), alphas)
    assert errors.argmin() == 2
    # a path of 53 penalties has neighbors at a factor of 1.8
    near = np.array([1 / 1.8, 1.0, 1.8]) * model.alpha_
    assert ridge_errors(Z, y, list(splitter.split(X)), near).argmin() == 1


def test_alpha_of_other_losses_is_that_of_refits():
    X, y = data()
    model = SketchedKernelRegressor(loss="huber", cv=4, **WIDTH).fit(X, y)
    Z = SketchedFeatures(**WIDTH).fit_transform(X)
    losses = []
    for alpha in np.array([1 / np.sqrt(10), 1.0, np.sqrt(10)]) * model.alpha_:
        total = 0.0
        for train, test in blocks(len(X), 4):
            fit = solve_scalar(Z[train], y[train], "huber", alpha, tol=1e-9)
            r = np.abs(y[test] - Z[test] @ fit.coef - fit.intercept)
            total += np.where(r <= 1, r * r / 2, r - 0.5).sum()
        losses.append(total)
    assert np.argmin(losses) == 1


def test_a_filter_is_chosen_by_folds():
    X, y = data()
    model = SpectralFilterRegressor(cv=4, **WIDTH).fit(X, y)
    Z = SketchedFeatures(**WIDTH).fit_transform(X)
    expected = ridge_errors(Z, y, blocks(len(X), 4), model.path_["alpha"])
    assert_allclose(model.path_["error"], expected, rtol=1e-6)
    best = model.path_["alpha"][expected.argmin()]
    assert model.alpha_ == best


def test_size_is_chosen_by_folds():
    X, y = data()
    options = {"bandwidth": 1.0, "size": "auto", "random_state": 0}
    model = SketchedKernelRegressor(cv=4, **options).fit(X, y)
    size = int(model.size_path_["size"][0])
    Z = SketchedFeatures(bandwidth=1.0, size=size, random_state=0).fit_transform(X)
    known = SpectralFilterRegressor(cv=4, bandwidth=1.0, size=size, random_state=0)
    least = known.fit(X, y).path_["error"].min()
    assert Z.shape[0] == len(X)
    assert_allclose(model.size_path_["loss"][0], least, rtol=1e-6)


def test_early_stopping_holds_out_the_last_fold():
    X, y = data()
    options = WIDTH | {"n_epochs": 5, "early_stopping": True, "sketch": "identity"}
    del options["size"]
    model = SketchedSGDRegressor(cv=TimeSeriesSplit(4), **options).fit(X, y)
    train, test = list(TimeSeriesSplit(4).split(X))[-1]
    assert model.path_["n_steps"][-1] <= 5 * len(train)
    # the targets of the last fold choose an iterate, and take no part in the steps
    moved = y.copy()
    moved[test] += 100.0
    other = SketchedSGDRegressor(cv=TimeSeriesSplit(4), **options).fit(X, moved)
    first = model.path_["n_steps"][0]
    assert other.path_["n_steps"][0] == first
    assert other.path_["error"][0] > 1000


def test_calibration_rows_are_the_last_folds():
    X, y = data(100)
    options = WIDTH | {"calibration": 0.2, "alpha": 0.01}
    model = JointQuantileRegressor((0.1, 0.5, 0.9), cv=5, **options)
    assert_array_equal(model.fit(X, y).calibration_[:, -1], y[80:])
    model.set_params(calibration=0.25)
    assert_array_equal(model.fit(X, y).calibration_[:, -1], y[60:])
    groups = np.arange(100) % 10
    model.set_params(calibration=0.1, cv=GroupKFold(10)).fit(X, y, groups=groups)
    rows = np.flatnonzero(np.isin(y, model.calibration_[:, -1]))
    assert len(rows) == 10
    assert len(set(groups[rows])) == 1


def test_folds_of_the_rows_that_are_not_calibrated_on():
    X, y = data(40)
    folds = resolve_folds(TimeSeriesSplit(3), None, X, y, None)
    kept, held_out, rest = split_last(folds, 40, 1)
    assert_array_equal(kept, np.arange(30))
    assert_array_equal(held_out, np.arange(30, 40))
    for fold, (train, test) in zip(rest, TimeSeriesSplit(3).split(X), strict=False):
        assert_array_equal(fold.test, test)
        assert_array_equal(fold.kept(30), train)
    assert len(rest) == 2


# what cv may be --------------------------------------------------------------------


@pytest.mark.thin(times=1)
@each_model
@pytest.mark.parametrize(
    "cv",
    [KFold(4), blocks(120, 4), (pair for pair in blocks(120, 4))],
    ids=["splitter", "arrays", "generator"],
)
def test_blocks_have_several_spellings(name, cv):
    X, _ = data()
    cv = blocks(120, 4) if hasattr(cv, "send") else cv  # clone needs a copy
    first, second = fitted(name, 4), fitted(name, cv)
    assert_array_equal(first.predict(X), second.predict(X))


@each_model
def test_groups_are_left_out_whole(name):
    X, _ = data()
    groups = np.repeat(np.arange(12), 10)[np.random.default_rng(3).permutation(120)]
    model = fitted(name, GroupKFold(4), groups=groups)
    arrays = list(GroupKFold(4).split(X, groups=groups))
    assert_array_equal(model.predict(X), fitted(name, arrays).predict(X))
    # an integer makes blocks of neighboring groups
    labels = np.repeat(np.arange(4), 30)
    known = fitted(name, 4, groups=labels).predict(X)
    assert_array_equal(known, fitted(name, 4).predict(X))


def test_labels_are_stratified_by_the_splitter():
    X, y = data()
    arrays = list(StratifiedKFold(4).split(X, y > 0))
    first, second = fitted("labels", StratifiedKFold(4)), fitted("labels", arrays)
    assert first.alpha_ == second.alpha_


def test_rows_of_weight_zero_are_in_no_fold():
    X, y = data()
    weights = (np.arange(120) % 3 > 0).astype(float)
    folds = resolve_folds(4, None, X, y, weights)
    rows = np.concatenate([fold.test for fold in folds])
    assert_array_equal(np.sort(rows), np.flatnonzero(weights))


def test_groups_pass_through_a_pipeline():
    X, y = data()
    groups = np.arange(120) // 10
    with config_context(enable_metadata_routing=True):
        model = SketchedKernelRegressor(cv=GroupKFold(3), **WIDTH)
        pipeline = make_pipeline(StandardScaler(), model.set_fit_request(groups=True))
        pipeline.fit(X, y, groups=groups)
        direct = clone(model).fit(StandardScaler().fit_transform(X), y, groups=groups)
        assert_array_equal(pipeline[-1].coef_, direct.coef_)


def test_groups_pass_through_a_grid_search():
    X, y = data()
    groups = np.arange(120) // 10
    with config_context(enable_metadata_routing=True):
        model = SketchedKernelRegressor(cv=GroupKFold(3), **WIDTH)
        model.set_fit_request(groups=True)
        grid = {"bandwidth": [0.3, 1.0]}
        search = GridSearchCV(model, grid, cv=GroupKFold(2)).fit(X, y, groups=groups)
        best = clone(model).set_params(**search.best_params_)
        best.fit(X, y, groups=groups)
    assert search.best_estimator_.alpha_ == best.alpha_


@each_model
@pytest.mark.parametrize(
    ("cv", "groups", "error", "message"),
    [
        ("five", None, TypeError, "`cv` must be None, an integer, a splitter"),
        (2.5, None, TypeError, "`cv` must be None, an integer, a splitter"),
        (True, None, TypeError, "`cv` must be an integer"),
        (1, None, ValueError, "`cv` must be at least 2, got 1"),
        (121, None, ValueError, "at least 121 rows of positive weight .*, got 120"),
        ([1, 2], None, TypeError, "`cv` must split 120 rows into"),
        ([([0, 1], [1, 2])], None, ValueError, "`cv` must yield disjoint"),
        (GroupKFold(3), None, ValueError, "`cv` must split .* and no `groups`"),
        (4, np.arange(3), ValueError, r"`groups` must have shape \(120,\)"),
        (4, np.arange(120) % 2, ValueError, "at least 4 groups .* got 2"),
        (None, np.arange(120), ValueError, "`cv` must not be None with `groups`"),
    ],
)  # fmt: skip
def test_errors_name_the_argument(name, cv, groups, error, message):
    with pytest.raises(error, match=message):
        fitted(name, cv, groups=groups)


def test_calibration_leaves_a_fold():
    X, y = data()
    model = JointQuantileRegressor((0.1, 0.9), calibration=0.2, cv=2, **WIDTH)
    with pytest.raises(ValueError, match="`cv` must have a fold in addition"):
        model.fit(X, y)


# what it is good for ---------------------------------------------------------------


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("cv", [5, TimeSeriesSplit(5)], ids=["blocks", "time"])
@pytest.mark.parametrize("loss", ["square", "huber"])
@pytest.mark.filterwarnings("ignore::nbsketch.DependentRowsWarning")
def test_blocks_beat_single_rows_on_a_series(cv, loss):
    options = {"loss": loss, "size": 150, "bandwidth": "median", "random_state": 0}
    errors = {None: [], cv: []}
    for seed in (0, 2):
        X, y = series(900, seed)
        for choice, found in errors.items():
            model = SketchedKernelRegressor(cv=choice, **options)
            predicted = model.fit(X[:600], y[:600]).predict(X[600:])
            found.append(np.mean((predicted - y[600:]) ** 2))
    assert np.mean(errors[cv]) < 0.5 * np.mean(errors[None])


# the warning -----------------------------------------------------------------------

WARNED = {
    "square": SketchedKernelRegressor(bandwidth="median", size=150, random_state=0),
    "filter": SpectralFilterRegressor(bandwidth="median", size=150, random_state=0),
}
each_warned = pytest.mark.parametrize("name", WARNED)


@each_warned
def test_a_series_is_warned_of_once_and_shuffled_rows_are_not(name):
    X, y = series(600)
    model = WARNED[name]
    with pytest.warns(DependentRowsWarning, match="Pass cv=5") as caught:
        clone(model).fit(X, y)
    assert len(caught) == 1
    assert caught[0].filename == __file__ or "estimators" in caught[0].filename
    order = np.random.default_rng(0).permutation(600)
    clone(model).fit(X[order], y[order])


@each_warned
def test_no_warning_where_single_rows_have_chosen_nothing(name):
    X, y = series(600)
    clone(WARNED[name]).set_params(cv=5).fit(X, y)
    clone(WARNED[name]).set_params(alpha=1e-3).fit(X, y)


def test_a_sorted_grid_is_not_warned_of():
    X = np.linspace(0, 1, 200)[:, None]
    noise = np.random.default_rng(0).normal(size=200)
    for sigma in (0.0, 0.1, 1.0):
        SketchedKernelRegressor(random_state=0).fit(
            X, np.sin(6 * X[:, 0]) + sigma * noise
        )


LAWS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "heavy": lambda rng, shape: rng.standard_t(2, size=shape),
    "levels": lambda rng, shape: rng.integers(0, 4, size=shape) * 1.0,
}


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("seed", range(3))
def test_independent_rows_are_not_warned_of(law, seed):
    rng = np.random.default_rng(seed)
    for _ in range(5):
        n, q = int(np.exp(rng.uniform(np.log(50), np.log(400)))), rng.integers(1, 8)
        X = LAWS[law](rng, (n, q))
        noise = rng.choice([0.0, 1e-6, 0.1, 2.0]) * rng.standard_t(1.5, size=n)
        y = rng.choice([0, 1]) * np.sin(2 * X[:, 0]) + X @ rng.normal(size=q) + noise
        SketchedKernelRegressor(bandwidth="median", random_state=0).fit(X, y)


def test_errors_of_blocks_are_those_of_refits():
    X, y = series(100)
    Z = SketchedFeatures(**WIDTH).fit_transform(X)
    design, Y = ArrayDesign(Z), y[:, None]
    known = decompose(design, Y), RidgeFilter(), design, Y
    found = order_effect(*known, 1e-3)
    errors = [ridge_errors(Z, y, [pair], [1e-3])[0] for pair in blocks(100, 20)]
    assert_allclose(found.contiguous, np.sqrt(np.sort(errors)[:18].mean()), rtol=1e-7)
    assert_allclose(found.spread, y.std(), rtol=1e-12)
    # rows of weight zero are as absent
    some = np.append(np.ones(90), np.zeros(10)) / 0.9
    known = decompose(design, Y, sample_weight=some), *known[1:3], Y * 1.0
    first = order_effect(*known, 1e-3, some)
    known[-1][90:] = 1e6
    assert first == order_effect(*known, 1e-3, some)


# other places ----------------------------------------------------------------------


def test_a_file_has_integers_and_no_splitters(tmp_path):
    X, _ = data()
    for cv, stored in [(4, 4), (KFold(4), None), (blocks(120, 4), None)]:
        model = fitted("square", cv)
        model.save(tmp_path / "model.npz")
        again = nbsketch.load(tmp_path / "model.npz")
        assert again.cv == stored
        assert_array_equal(again.predict(X), model.predict(X))


def test_cross_validation_takes_splitters_groups_and_weights():
    X, y = data()
    groups, weights = np.arange(120) // 8, np.arange(120) % 4 + 1.0
    model = SketchedKernelRegressor(sketch="p-sparsified", size=15, random_state=0)
    known = {"cv": GroupKFold(3), "groups": groups, "sample_weight": weights}
    found = cross_validate(model, X, y, [1.0], [1e-2, 1e-3], **known)
    Z = SketchedFeatures(bandwidth=1.0, size=15, random_state=0).fit_transform(X)
    expected = np.zeros(2)
    for train, test in GroupKFold(3).split(X, groups=groups):
        w = weights[train]
        mean, y_mean = w @ Z[train] / w.sum(), w @ y[train] / w.sum()
        A = Z[train] - mean
        for k, alpha in enumerate([1e-2, 1e-3]):
            gram = A.T @ (w[:, None] * A) + w.sum() * alpha * np.eye(A.shape[1])
            coef = np.linalg.solve(gram, A.T @ (w * (y[train] - y_mean)))
            residual = y[test] - (Z[test] - mean) @ coef - y_mean
            expected[k] += weights[test] @ residual**2
    assert_allclose(found.errors[0, :, 0], expected / weights.sum(), rtol=1e-7)
    with pytest.raises(TypeError, match="`cv` must be an integer"):
        cross_validate(model, X, y, [1.0], [1e-2], cv=None)


def test_an_objective_on_some_rows_has_no_folds():
    X, y = data(20)
    folds = resolve_folds(4, None, X, y, None)
    known = y[:, None], None, True, (0.5,), np.eye(1)
    objective = JointQuantileObjective(*known, folds=folds)
    assert objective.take(np.arange(5)).folds is None


# classes -----------------------------------------------------------------------------

CLASSIFIERS = [
    SketchedKernelClassifier(bandwidth=1.0, alpha=0.01, random_state=0),
    SketchedSGDClassifier(bandwidth=1.0, early_stopping=True, random_state=0),
    TabularKernelClassifier(random_state=0),
]
each_classifier = pytest.mark.parametrize(
    "model", CLASSIFIERS, ids=lambda model: type(model).__name__
)


def sorted_classes(n=120, n_classes=3, rare=None):
    """Return rows sorted by class; of two classes the second has `rare` rows."""
    if rare is None:
        labels = np.arange(n) * n_classes // n
    else:
        labels = (np.arange(n) >= n - rare).astype(int)
    X = np.random.default_rng(0).normal(size=(n, 2))
    X[:, 0] += 10.0 * labels
    return X, labels


@pytest.mark.thin(times=1)
@each_classifier
@pytest.mark.parametrize(
    ("cv", "n_classes", "rare", "lost"),
    [(3, 3, None, 0), (3, 2, 30, 1), (np.int64(5), 2, 20, 1)],
)
def test_blocks_that_hold_a_whole_class_are_refused(model, cv, n_classes, rare, lost):
    X, labels = sorted_classes(n_classes=n_classes, rare=rare)
    names = np.array(["first", "second", "third"])
    for y, name in ((labels, lost), (names[labels], names[lost])):
        message = rf"class {name} is in one block of `cv` only.* cv=StratifiedKFold\(\)"
        with pytest.raises(ValueError, match=message):
            clone(model).set_params(cv=cv).fit(X, y)
        groups = np.arange(len(y)) // 10
        if rare != 20:
            with pytest.raises(ValueError, match=r"cv=StratifiedGroupKFold\(\) and `g"):
                clone(model).set_params(cv=cv).fit(X, y, groups=groups)
    fitted = clone(model).set_params(cv=StratifiedKFold(3)).fit(X, labels)
    assert fitted.score(X, labels) > 0.95
    order = np.random.default_rng(0).permutation(len(X))
    fitted = clone(model).set_params(cv=cv).fit(X[order], labels[order])
    assert fitted.score(X, labels) > 0.95


@pytest.mark.filterwarnings("ignore:no penalty from")
@each_classifier
def test_folds_of_a_splitter_that_hold_a_whole_class_are_warned_of(model):
    _, y = sorted_classes()
    X = np.random.default_rng(0).normal(size=(120, 2))  # tells nothing: short searches
    thirds = np.array_split(np.arange(120), 3)
    pairs = [(np.setdiff1d(np.arange(120), test), test) for test in thirds]
    for cv in (KFold(3), pairs):
        with pytest.warns(UserWarning, match="class 0 is in one fold of `cv` only"):
            clone(model).set_params(cv=cv).fit(X, y)


@each_classifier
def test_rows_of_weight_zero_keep_no_class(model):
    X, y = sorted_classes()
    X = np.r_[X, X[:2]]
    y = np.r_[y, 0, 0]
    weights = np.r_[np.ones(120), 0.0, 0.0]
    with pytest.raises(ValueError, match="class 0 is in one block"):
        clone(model).set_params(cv=3).fit(X, y, sample_weight=weights)


def test_rows_sorted_by_class_are_not_sent_to_blocks():
    X, y = sorted_classes(200, 20)
    with pytest.warns(DependentRowsWarning, match="sorted by class") as caught:
        TabularKernelClassifier(random_state=0).fit(X, y)
    assert "cv=5" not in str(caught[0].message)


@pytest.mark.parametrize(
    "model", [SketchedKernelRegressor(cv=2), TabularKernelClassifier(cv=2)]
)
def test_a_single_row_has_no_folds(model):
    with pytest.raises(ValueError, match=r"at least 2 rows .* got 1"):
        model.fit([[1.0]], [1])


def test_labels_are_sorted_if_a_fifth_of_the_rows_has_all_of_one():
    labels = np.tile(["a", "c"], 50)
    assert _is_sorted(np.sort(labels)) and not _is_sorted(labels)
    labels[[0, 5, 19]] = "b"
    assert _is_sorted(labels)
    labels[20] = "b"
    assert not _is_sorted(labels)
