"""Estimators that join the machine."""

from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

import fuzz
import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from tables import training
from threadpoolctl import threadpool_info, threadpool_limits

import nbsketch
from nbsketch import TabularKernelClassifier, TabularKernelRegressor
from nbsketch.tabular import _model as model_of_tables
from nbsketch.tabular import boosting as boosted_trees
from nbsketch.tabular import partners
from nbsketch.tabular.boosting import BoostedTrees, affordable_folds, boosting
from nbsketch.tabular.partners import fit_partner, fit_pool, folds_of, pooled


def linear_table(n=150, seed=0):
    """Targets far from zero, linear in five columns, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    return X, 500 + 100 * X @ np.arange(5) + 100 * rng.normal(size=n)


def test_left_out_predictions_are_those_of_refits():
    X, y = linear_table()
    w = np.random.default_rng(1).uniform(0.5, 2, 150)
    Y = np.column_stack([y, -y])
    folds = folds_of(training(X, Y, w), 0, np.random.default_rng(0))
    assert_array_equal(np.sort(np.concatenate(folds)), np.arange(150))
    partner, left_out = fit_partner(Ridge(3.0), training(X, Y, w), folds, 0)
    total = np.zeros((150, 2))
    for fold in folds:
        kept = np.setdiff1d(np.arange(150), fold)
        model = Ridge(3.0).fit(X[kept], Y[kept], w[kept])
        assert_allclose(left_out[fold], model.predict(X[fold]))
        total += model.predict(X) / 5
    assert_allclose(partner.predict(X), total)


def test_threads_of_partners_are_those_of_nbsketch(monkeypatch):
    seen = []

    class Watched(LogisticRegression):
        def fit(self, X, y):
            pools = threadpool_info()
            seen.extend(p["num_threads"] for p in pools if p["user_api"] == "openmp")
            return super().fit(X, y)

    monkeypatch.setattr(partners, "thread_limit", lambda: 1)
    rows = np.arange(20.0)[:, None]
    classes = np.arange(20)[:, None] % 2
    folds = [np.arange(10)]
    with threadpool_limits(3, user_api="openmp"):
        fit_partner(Watched(), training(rows, classes), folds, 2)
    assert set(seen) == {1}


def test_folds_are_whole_blocks_and_stratified():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(-1, 7), 10)
    folds = folds_of(training(np.eye(80), np.zeros((80, 1)), labels=labels), 0, rng)
    assert_array_equal(np.sort(np.concatenate(folds)), np.arange(10, 80))
    for fold in folds:
        others = np.setdiff1d(np.arange(80), fold)
        assert not set(labels[fold]) & set(labels[others])
    classes = np.repeat([0, 1], [90, 10])
    for fold in folds_of(training(np.eye(100), classes[:, None]), 2, rng):
        assert_array_equal(np.bincount(classes[fold]), [18, 2])


@pytest.mark.parametrize("folds", [2, 5])
def test_folds_without_which_all_rows_are_of_one_class_have_no_fit(folds, rng):
    X, y = rng.normal(size=(100, 2)), np.arange(100) >= 80
    model = TabularKernelClassifier(cv=KFold(folds), random_state=0)
    with pytest.warns(UserWarning, match="class True is in one fold"):
        assert model.fit(X, y).predict_proba(X).shape == (100, 2)
    strata = np.repeat([0, 1], 50)
    data = training(X, strata[:, None], labels=strata)
    assert folds_of(data, 2, rng) == []


def test_a_partner_joins_the_stack_in_its_units():
    """A linear function is the better model of linear targets, a constant is not."""
    X, y = linear_table()
    new, expected = linear_table(2000, seed=1)
    alone = TabularKernelRegressor(random_state=0).fit(X, y)
    partners = [LinearRegression(), DummyRegressor()]
    model = TabularKernelRegressor(partners=partners, random_state=0).fit(X, y)
    assert model.partner_weights_[0] > 0.5 > 0.1 > model.partner_weights_[1]
    errors = [
        np.sqrt(np.mean((m.predict(new) - expected) ** 2)) for m in (alone, model)
    ]
    assert errors[1] < errors[0]
    assert_allclose(model.loo_error_, errors[1], rtol=0.2)
    low, high = model.predict_interval(new).T
    assert 0.82 < np.mean((low <= expected) & (expected <= high)) < 0.98
    assert "LinearRegression, weight" in model.summary()
    assert alone.partners_ == ()


def test_the_pool_has_the_least_log_loss(rng):
    logs = np.log(rng.dirichlet(np.ones(3), size=(2, 80)))
    classes = np.array([rng.choice(3, p=p / p.sum()) for p in np.exp(logs[0])])

    def loss(t):
        logp = np.log(pooled(t, logs))
        own, prior = logp[np.arange(80), classes], logp.mean(axis=1)
        loss = -np.mean(80 / 81 * own + 1 / 81 * prior)
        return loss + 1e-4 * np.square(t).sum()

    t = fit_pool(logs, classes, np.ones(len(classes)))[0]
    tried = scipy.optimize.minimize(
        loss, [0.5, 0.5], bounds=[(0, None)] * 2, method="Nelder-Mead"
    )
    assert loss(t) <= tried.fun + 1e-6
    assert_allclose(pooled(t, logs).sum(axis=1), 1)
    logs[0, :5] = np.nan
    assert np.isfinite(fit_pool(logs, classes, np.ones(len(classes)))[0]).all()


def test_few_sure_rows_make_no_surer_pool(rng):
    """All rows are told apart, so that a pool without a prior grows without end."""
    classes = np.arange(60) % 3
    logs = np.log(np.full((2, 60, 3), 0.02))
    logs[:, np.arange(60), classes] = np.log(0.96)
    t = fit_pool(logs, classes, np.ones(len(classes)))[0]
    assert 0.8 < t.sum() < 1.6


def test_classes_are_pooled():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 12))
    labels = np.array(["a", "b"])[(X.sum(axis=1) + rng.logistic(size=900) > 0) * 1]
    train, test = slice(0, 250), slice(250, 900)

    def log_loss(model):
        chances = model.predict_proba(X[test])
        place = np.searchsorted(model.classes_, labels[test])
        return -np.log(chances[np.arange(650), place]).mean()

    alone = TabularKernelClassifier(random_state=0).fit(X[train], labels[train])
    partners = [LogisticRegression(), DummyClassifier()]
    model = TabularKernelClassifier(partners=partners, random_state=0)
    model.fit(X[train], labels[train])
    assert model.partner_weights_.shape == (3,)
    assert log_loss(model) < log_loss(alone) + 0.005
    assert abs(model.loo_log_loss_ - log_loss(model)) < 0.15


@pytest.mark.parametrize(
    ("partners", "error"),
    [(Ridge(), TypeError), ([Ridge], TypeError), ([LogisticRegression()], TypeError)],
)
def test_partners_are_checked(partners, error):
    X, y = linear_table(40)
    with pytest.raises(error, match="`partners` must be None, 'auto', 'large' or a"):
        TabularKernelRegressor(partners=partners).fit(X, y)


def test_partners_take_the_weights():
    X, y = linear_table(60)
    model = TabularKernelRegressor(partners=[KNeighborsRegressor()], random_state=0)
    model.fit(X, y)
    with pytest.raises(ValueError, match="KNeighborsRegressor does not"):
        model.fit(X, y, sample_weight=np.arange(1, 61))
    with pytest.raises(TypeError, match="list of scikit-learn regressors"):
        model.set_params(partners=[KNeighborsClassifier()]).fit(X, y)


@pytest.mark.parametrize(
    ("model", "partner", "types"),
    [
        (TabularKernelRegressor, Ridge(), []),
        (TabularKernelRegressor, KNeighborsRegressor(), ["KDTree"]),
        (TabularKernelClassifier, LogisticRegression(), []),
    ],
)
def test_a_model_with_partners_is_saved_by_skops(model, partner, types, tmp_path):
    """Types that skops does not trust are read if they are named."""
    pytest.importorskip("skops")
    X, y = linear_table(60)
    y = y if model is TabularKernelRegressor else y > 500
    fitted = model(partners=[partner], random_state=0).fit(X, y)
    path = tmp_path / "model.npz"
    fitted.save(path)
    with pytest.raises(ValueError, match="if you trust the file") as error:
        nbsketch.load(path)
    assert all(name in str(error.value) for name in types)
    if types:
        with pytest.raises(ValueError, match=r"`trusted` of .*, got \[\]"):
            nbsketch.load(path, trusted=[])
    trusted = [
        "sklearn.metrics._dist_metrics.EuclideanDistance64",
        "sklearn.neighbors._kd_tree.KDTree",
    ]
    loaded = nbsketch.load(path, trusted=trusted)
    assert_array_equal(loaded.predict(X), fitted.predict(X))
    assert repr(loaded) == repr(fitted)


def test_partners_that_expand_are_refused(tmp_path, monkeypatch):
    """Of a file of unknown origin memory is bounded before skops reads it."""
    io = pytest.importorskip("skops.io")
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as parts:
        parts.writestr("schema.json", " " * 10**6)
    monkeypatch.setattr(io, "dumps", lambda model: packed.getvalue())
    path = tmp_path / "model.npz"
    TabularKernelRegressor(partners=[Ridge()]).save(path)
    for trusted in (None, []):
        with pytest.raises(ValueError, match="must not be compressed, got 1000000"):
            nbsketch.load(path, trusted=trusted)


def test_files_with_wrong_partners_are_refused(tmp_path):
    pytest.importorskip("skops")
    X, y = linear_table(60)
    model = TabularKernelRegressor(partners=[Ridge()], random_state=0).fit(X, y)
    for fits in ([], [[Ridge(), Ridge()]]):
        model.partners_ = (partners.Partner(fits, 0),)
        with pytest.raises(ValueError, match=r"partners_.0"):
            model.save(tmp_path / "model.npz")
    for fits in ([[Ridge()], []], Ridge(), [Ridge()]):
        with pytest.raises(ValueError, match="lists of equal length"):
            partners.Partner(fits, 0)


def test_partners_without_skops_are_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr("nbsketch.files.find_spec", lambda name: None)
    model = TabularKernelRegressor(partners=[Ridge()])
    with pytest.raises(ModuleNotFoundError, match=r"pip install .nbsketch\[skops\]"):
        model.save(tmp_path / "model.npz")
    assert not (tmp_path / "model.npz").exists()


def test_trees_of_several_classes_are_tried_on_two_folds():
    """Trees know steps better than the machine, and nothing of random labels."""
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(300, 8))
    steps = (X[:, 0] > 0.6).astype(int) + (X[:, 1] > 0.3) + (X[:, 2] > 0.5)
    fits = [
        TabularKernelClassifier(random_state=0).fit(X, y).partners_
        for y in (steps, rng.integers(3, size=300))
    ]
    assert [len(trees) for trees in fits] == [1, 0]
    assert len(fits[0][0].baseline) == 5


def test_a_partner_that_is_not_worth_its_time_has_no_fits(rng):
    data = training(rng.normal(size=(30, 2)), rng.normal(size=(30, 1)))
    folds = folds_of(data, 0, rng)
    asked = []

    def is_worth(values):
        asked.append(np.isfinite(values).sum())
        return False

    partner, _ = fit_partner(LinearRegression(), data, folds, 0, is_worth)
    assert partner.fits == [] and asked == [12]


def test_estimators_of_auto():
    none = np.bincount([])
    names = [
        [type(one).__name__ for one in boosting(n, counts, 0)]
        for n, counts in (
            (1500, none), (1501, none),
            (100, np.array([90, 10])), (100, np.array([91, 9])),
        )
    ]  # fmt: skip
    boosted = "HistGradientBoosting"
    assert names == [[], [f"{boosted}Regressor"], [f"{boosted}Classifier"], []]
    leaves = [boosting(n, none, 0)[0].max_leaf_nodes for n in (65_536, 65_537)]
    assert leaves == [15, 63]


@pytest.mark.parametrize(
    ("numbers", "known", "sizes"),
    [(1000, 40, [20] * 5), (1600, 10, [20] * 3), (3001, 10, [10]), (3001, 40, [20])],
)
def test_trees_of_large_tables_are_fitted_without_fewer_folds(
    numbers, known, sizes, monkeypatch, rng
):
    """A single fold is what the machine leaves out, if these are few rows."""
    monkeypatch.setattr(boosted_trees, "_MOST_NUMBERS", 5000)
    folds = [np.arange(k, 100, 5) for k in range(5)]
    data = training(np.zeros((100, 1)), np.zeros((100, 1)))
    data = data._replace(rows=np.zeros((numbers, 1)))
    known = np.arange(known)
    found = affordable_folds(folds, data, 1, known)
    assert list(map(len, found)) == sizes
    labels = np.arange(100) % 5
    found = affordable_folds(folds, data._replace(labels=labels), 1, known)
    assert list(map(len, found)) == [20] * len(sizes)
    assert len(affordable_folds(folds, data, 5, known)) == 1


@pytest.mark.parametrize(
    ("options", "count"),
    [({}, 1), ({"partners": None}, 0), ({"loss": "huber"}, 0), ({"cv": 3}, 1)],
)
def test_large_tables_have_trees_by_default(options, count, monkeypatch, rng):
    """Of other losses, and of 400 rows, they have none."""
    monkeypatch.setattr(model_of_tables, "LARGE", 400)
    monkeypatch.setattr(boosted_trees, "_LEAST_ROWS", 300)
    monkeypatch.setattr(boosted_trees, "_MOST_TREES", 100)
    X = rng.normal(size=(401, 2))
    y = np.floor(3 * X[:, 0]) + 0.1 * rng.normal(size=401)
    model = TabularKernelRegressor(random_state=0, **options)
    assert len(model.fit(X, y).partners_) == count
    if not options:
        assert not model.fit(X[1:], y[1:]).partners_


def test_classes_of_a_large_table_have_trees(monkeypatch, rng):
    """One fit without the rows whose left-out scores the machine has."""
    monkeypatch.setattr(boosted_trees, "_MOST_NUMBERS", 1)
    X = rng.normal(size=(1600, 2))
    y = np.floor(3 * X[:, 0]) % 2 + (X[:, 1] > 0)
    model = TabularKernelClassifier(random_state=0).fit(X[:1510], y[:1510])
    assert len(model.partners_[0].baseline) == 1
    assert (model.predict(X[1510:]) == y[1510:]).mean() > 0.85


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_trees_as_arrays_predict_as_their_estimators(classes, rng):
    X = rng.normal(size=(200, 4))
    y = np.digitize(X[:, 0] + X[:, 1] ** 2, [1, 2])
    y = X[:, 0] ** 2 if classes == 0 else np.minimum(y, classes - 1)
    counts = np.bincount(y) if classes else np.bincount([])
    leaves = {"max_leaf_nodes": 64, "min_samples_leaf": 1}  # every bit of a mask
    model = boosting(2000, counts, 0)[0].set_params(max_iter=20, **leaves)
    folds = [np.arange(50), np.flatnonzero(y == y.max())]  # without a class
    folds = folds[: 1 if classes == 2 else 2]
    partner, _ = fit_partner(model, training(X, y[:, None]), folds, classes)
    trees = BoostedTrees.of(partner.fits, classes)
    is_leaf = trees.feature < 0
    assert classes or np.add.reduceat(is_leaf, trees.roots, dtype=int).max() == 64
    new = rng.normal(size=(1500, 4))
    nodes = np.flatnonzero(~is_leaf)[:1500]  # rows at thresholds go left
    new[np.arange(len(nodes)), trees.feature[nodes]] = trees.threshold[nodes]
    for rows in (new, new[:3]):
        assert_allclose(trees.predict(rows), partner.predict(rows), atol=1e-12)


def test_wrong_trees_are_refused(rng, tmp_path):
    X = rng.normal(size=(100, 3))
    model = TabularKernelClassifier(random_state=0).fit(X, X[:, 0] > 0)
    model.save(tmp_path / "model.npz")
    again = nbsketch.load(tmp_path / "model.npz")
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    content, arrays = fuzz.read(model)
    faults = [(name, 10**6) for name in ("feature", "child", "roots", "column")]
    for name, value in (*faults, ("feature", -1)):  # -1: a leaf with children
        key = f"fitted.partners_.0.{name}"
        wrong = np.array(arrays[key])
        wrong.reshape(-1)[0] = value
        fuzz.write(tmp_path / "wrong.npz", content, arrays | {key: wrong})
        with pytest.raises(ValueError, match="binary" if value < 0 else name):
            nbsketch.load(tmp_path / "wrong.npz")
