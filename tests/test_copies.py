"""Equal rows of X and y are one row of their weight wherever rows are left out."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import BaggingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

import nbsketch
from nbsketch import (
    DependentRowsWarning,
    InputOutputKernelRegressor,
    JointQuantileRegressor,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
    TabularKernelClassifier,
    TabularKernelRegressor,
)
from nbsketch.conformal import ConformalClassifier, ConformalRegressor
from nbsketch.model_selection import cross_validate
from nbsketch.rows import copies
from nbsketch.rows.copies import merged_weights, representatives
from nbsketch.rows.partitions import PartitionedRows
from nbsketch.rows.transform import fit_scaler
from nbsketch.tuning import tune

N = 60
MODELS = [
    SketchedKernelRegressor(),
    SketchedKernelRegressor(loss="huber"),
    SketchedKernelRegressor(loss="pinball", size="auto", bandwidth=1.0),
    SketchedKernelRegressor(cv=4),
    SketchedKernelRegressor(bandwidth="median", preprocessing="rank", size=20),
    SketchedKernelRegressor("precomputed"),
    SketchedKernelClassifier(loss="logistic", class_weight="balanced", bandwidth=1.0),
    SketchedKernelClassifier(cv=4, bandwidth=1.0),
    JointQuantileRegressor((0.1, 0.9), calibration=0.3, bandwidth=1.0),
    SpectralFilterRegressor(),
    SpectralFilterRegressor(filter="landweber", criterion="leave-one-out"),
    SketchedSGDRegressor(early_stopping=True),
    SketchedSGDClassifier(),
    TabularKernelRegressor(),
    TabularKernelClassifier(cv=4),
]
# Rows of which a fit gets copies, in an order in which first occurrences ascend.
REPEATED = {
    "twice": np.r_[np.arange(N), np.arange(N)],
    "some": np.repeat(np.arange(N), np.random.default_rng(7).integers(1, 4, N)),
    "bootstrap": np.sort(np.random.default_rng(8).integers(0, N, N)),
}


def data(model=None, n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = X[:, 0] + rng.normal(size=n)
    if model is not None and is_classifier(model):
        y = np.where(y > 0, "high", "low")
    return X, y


def gram(A, B):
    return np.exp(-np.square(A[:, None] - B[None]).sum(axis=2) / 4)


@pytest.mark.thin(times=1)
@pytest.mark.filterwarnings("ignore:no penalty:UserWarning")  # half of y is noise
@pytest.mark.parametrize("kind", REPEATED)
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_copies_are_one_row_of_their_weight(model, kind):
    """Fits are equal bit for bit, however many copies there are of a row."""
    (X, y), rows = data(model), REPEATED[kind]
    count = np.bincount(rows, minlength=N).astype(float)
    new = np.random.default_rng(1).normal(size=(9, 3))
    A, B, new_A, new_B = X, X[rows], new, new
    if getattr(model, "kernel", None) == "precomputed":
        A, B, new_A, new_B = gram(A, A), gram(B, B), gram(new, A), gram(new, B)
    one, two = (clone(model).set_params(random_state=0) for _ in "12")
    weights = None if kind == "twice" else count
    expected = one.fit(A, y, weights).predict(new_A)
    assert_array_equal(two.fit(B, y[rows]).predict(new_B), expected)
    for name in ("alpha_", "loo_error_", "loo_log_loss_", "objective_"):
        if hasattr(one, name):
            assert_array_equal(getattr(two, name), getattr(one, name), err_msg=name)


def test_a_file_that_is_read_twice_keeps_its_error_and_its_coverage():
    (X, y), (T, t) = data(None, 200), data(None, 1000, seed=1)
    model = TabularKernelRegressor(random_state=0)
    model.fit(np.vstack([X, X]), np.r_[y, y])
    low, high = model.predict_interval(T, 0.9).T
    assert 0.85 < np.mean((low <= t) & (t <= high)) < 0.95
    assert_allclose(model.loo_error_, np.std(model.predict(T) - t), rtol=0.1)


def test_an_oversampled_class_is_one_of_larger_weight():
    X, y = data(SketchedKernelClassifier(), 80)
    rows = np.r_[np.arange(80), np.random.default_rng(1).choice(80, 50)]
    weights = np.bincount(rows).astype(float)
    for model in (TabularKernelClassifier(), SketchedKernelClassifier(bandwidth=1.0)):
        model.set_params(random_state=0)
        found = model.fit(X[rows], y[rows]).predict(X)
        assert_array_equal(found, model.fit(X, y, weights).predict(X))


def test_bagging_does_not_interpolate():
    (X, y), (T, t) = data(None, 100), data(None, 500, seed=1)
    one = SketchedKernelRegressor(random_state=0)
    bagged = BaggingRegressor(one, 3, random_state=0).fit(X, y)
    error = np.std(one.fit(X, y).predict(T) - t)
    assert np.std(bagged.predict(T) - t) < 1.1 * error


def test_tuning_and_cross_validation_leave_copies_out_together():
    (X, y), rows = data(), REPEATED["some"]
    weights = np.bincount(rows).astype(float)
    one, two = (
        tune(X, y[:, None], sample_weight=weights, rng=0),
        tune(X[rows], y[rows, None], rng=0),
    )
    assert_array_equal(one.relevance, two.relevance)
    features = SketchedFeatures(bandwidth="auto", random_state=0)
    one = features.fit(X, y).length_scales_
    assert_array_equal(features.fit(np.vstack([X, X]), np.r_[y, y]).length_scales_, one)
    structured = InputOutputKernelRegressor(bandwidth="auto", random_state=0)
    outputs = np.column_stack([y > 0, X[:, 1] > 0]).astype(float)
    one = structured.fit(X, outputs, weights).length_scales_
    two = structured.fit(X[rows], outputs[rows]).length_scales_
    assert_array_equal(one, two)
    model = SketchedKernelRegressor(size=20, random_state=0)
    grid = [1.0], [1e-2, 1e-4]
    expected = cross_validate(model, X, y, *grid, cv=4, sample_weight=weights)
    found = cross_validate(model, X[rows], y[rows], *grid, cv=4)
    assert_array_equal(found.errors, expected.errors)


def test_copies_are_looked_for_once(monkeypatch):
    """A fit merges them before length scales are learned; a stream has none."""
    found = []
    search = copies.representatives

    def counted(*args):
        found.append(len(args[0]))
        return search(*args)

    monkeypatch.setattr(copies, "representatives", counted)
    X, y = data()
    SketchedKernelRegressor(random_state=0).fit(X, y)
    SketchedFeatures(bandwidth="auto", random_state=0).fit(X, y)
    SketchedSGDRegressor(random_state=0).fit(X, y)
    SketchedSGDRegressor(random_state=0).partial_fit(X, y)
    assert found == [N] * 4


# which rows are copies ----------------------------------------------------------------


def table(n=400, levels=4, columns=3):
    rng = np.random.default_rng(0)
    return rng.integers(0, levels, (n, columns)).astype(float), rng


def n_distinct(X, y):
    weights = merged_weights(X, y, None)
    return len(y) if weights is None else np.count_nonzero(weights)


def test_observations_that_agree_by_chance_are_no_copies():
    X, rng = table()
    claims = rng.poisson(0.05, 400)
    assert n_distinct(X, claims) == 400
    assert n_distinct(X, np.where(claims > 0, rng.gamma(2.0, size=400), 0.0)) == 400
    assert n_distinct(X, rng.random(400) < 0.3) == 400
    assert n_distinct(X[:, :1] > 1, np.array(["no", "yes"])[1 * (X[:, 1] > 2)]) == 400
    assert n_distinct(np.ones((400, 1)), claims) == 400
    # a file of observations that is read thrice is read once
    assert n_distinct(np.vstack([X, X, X]), np.r_[claims, claims, claims]) == 400


def test_copies_are_told_from_observations():
    X, rng = table()
    smooth = X + rng.normal(size=(64, 3))[(X @ [16, 4, 1]).astype(int)]
    assert n_distinct(smooth, X[:, 0] > X[:, 1]) == 64  # without noise
    y = rng.normal(size=400)
    assert n_distinct(X, y) == 400  # several values at equal rows of X
    assert n_distinct(np.vstack([X, X[:50]]), np.r_[y, y[:50]]) == 400
    assert n_distinct(np.vstack([X, X]), np.r_[y, y]) == 400
    assert n_distinct(X.repeat(25, axis=0), y.repeat(25)) == 400
    X = rng.normal(size=(400, 2))
    assert n_distinct(X[:40].repeat(25, axis=0), y[:40].repeat(25)) == 40
    labels = X[:, 0] + y > 0
    assert n_distinct(np.vstack([X, X[:50]]), np.r_[labels, labels[:50]]) == 400
    # two labels at a few rows
    labels = np.r_[labels, labels, ~labels[:9]]
    assert n_distinct(np.vstack([X, X, X[:9]]), labels) == 409


@pytest.mark.parametrize("kind", [np.array, np.float32, sp.csr_array, "dask"])
def test_columns_of_few_values_make_rows_equal_by_chance(kind):
    X, _ = table(levels=2)
    y = X.max(axis=1)
    if kind == "dask":
        rows = pytest.importorskip("dask.array").from_array(X, chunks=(100, 3))
        X = PartitionedRows.of(rows)
    else:
        X = kind(X)
    assert n_distinct(X, y) == 400
    assert n_distinct(X, np.where(np.arange(400) == 7, 1 - y, y)) == 400


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize(
    "model",
    [
        SketchedKernelRegressor(),
        SketchedKernelRegressor(loss="huber"),
        SketchedKernelClassifier(loss="logistic"),
        JointQuantileRegressor((0.4, 0.5)),
        SpectralFilterRegressor(),
        SketchedSGDRegressor(),
        TabularKernelRegressor(),
        TabularKernelClassifier(),
    ],
    ids=str,
)
def test_exact_functions_of_flags_are_learned(columns, model):
    X, _ = table(levels=2, columns=columns)
    y = X.max(axis=1)  # a constant where the zeros are left out together
    values = clone(model).set_params(random_state=0).fit(X, y).predict(X)
    assert_allclose(values if values.ndim == 1 else values[:, 1], y, atol=0.02)


def test_codes_make_rows_equal_by_chance():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 50, 300)
    X, y = codes[:, None] / 7.0, rng.normal(size=50)[codes]
    assert n_distinct(X, y) == 300
    values = SketchedKernelRegressor(random_state=0).fit(X, y).predict(X)
    assert_allclose(values, y, atol=0.01)  # R2 was 0
    sample = rng.integers(0, 300, 300)  # a bootstrap sample of numbered rows
    assert n_distinct(sample[:, None] * 1.0, y[sample]) == len(np.unique(sample))
    visits = rng.integers(0, 60, 300)  # uneven numbers of copies of 60 rows
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    for rows in (X[:, :1], np.c_[X[:, 0], X[:, 1] > 0], X):
        assert n_distinct(rows[visits], y[visits]) == len(np.unique(visits))


def test_one_binary_column_has_the_penalty_of_its_observations():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (200, 1)).astype(float)
    y = rng.random(200) < 0.2 + 0.5 * X[:, 0]
    model = TabularKernelClassifier(random_state=0).fit(X, y)
    share = [y[X[:, 0] == k].mean() for k in (0, 1)]
    assert_allclose(model.predict_proba([[0.0], [1.0]])[:, 1], share, atol=0.05)
    error = -np.mean(np.log(np.where(y, *[(p := model.predict_proba(X)[:, 1]), 1 - p])))
    assert_allclose(model.loo_log_loss_, error, rtol=0.05)


@pytest.mark.parametrize("kind", ["float32", "sparse", "zeros", "nan", "memory map"])
def test_rows_of_any_kind_are_compared(kind, tmp_path):
    X, rng = table(50)
    X[:, 0] += rng.normal(size=50)
    y = X[:, :1].sum(axis=1)
    rows = REPEATED["twice"][:100] % 50
    X = np.where(X > 0, X, {"nan": np.nan}.get(kind, 0.0))[rows]
    if kind == "zeros":
        X[50:][X[50:] == 0] = -0.0
    elif kind == "float32":
        X = X.astype(np.float32)
    elif kind == "sparse":
        X = sp.csr_array(X)
    elif kind == "memory map":
        np.save(tmp_path / "X.npy", X)
        X = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert_array_equal(representatives(X, y[rows]), rows)
    weights = np.where(np.arange(100) == 3, 0.0, 1.0)
    place = representatives(X, y[rows], weights)
    assert place[3] == 3  # of weight zero
    assert place[53] == 53


def test_equal_hashes_of_different_rows_are_no_copies(monkeypatch):
    X, y = data()
    monkeypatch.setattr(copies, "_hashes", lambda X, units: np.zeros(len(X), np.uint64))
    assert representatives(X, y) is None


def test_small_numbers_and_texts_have_different_hashes():
    X = np.stack(np.meshgrid(*3 * [np.arange(40.0)]), -1).reshape(-1, 3)
    assert len(np.unique(copies._hashes(X, np.zeros(3)))) == 40**3
    assert len(np.unique(copies._hashes(X.astype(np.float32), np.zeros(3)))) == 40**3


def test_what_files_round_is_equal():
    """Rows far from the others, gaps and columns of few values do not change this."""
    rng = np.random.default_rng(0)
    X = np.c_[data()[0], rng.integers(0, 2, N), np.full(N, np.nan)]
    X[0, 1] = 1e4
    y = data()[1]
    rows = REPEATED["twice"]
    near = X[rows] * (1 + 1e-13 * rng.normal(size=(2 * N, X.shape[1])))
    assert_array_equal(representatives(near, y[rows]), rows)
    near[N:, 0] += 1e-6  # far more than a file rounds
    assert representatives(near, y[rows]) is None
    assert representatives(near.astype(np.float32), y[rows]) is None


def test_a_fit_merges_what_files_round():
    X, y = data()
    rows = REPEATED["twice"]
    model = SketchedKernelRegressor(random_state=0)
    expected = model.fit(X, y).predict(X)
    near = X[rows] * (1 + 1e-13 * np.random.default_rng(1).normal(size=(2 * N, 1)))
    assert_allclose(model.fit(near, y[rows]).predict(X), expected, rtol=1e-6)


def test_tables_are_compared_with_their_categories_dates_and_gaps():
    X, y = data()
    names = np.array(["a", "b", None], dtype=object)
    frame = pd.DataFrame(X, columns=list("xyz")).assign(
        c=names[np.arange(N) % 3], d=pd.Timestamp("2024-01-01"), gap=np.nan
    )
    twice = pd.concat([frame, frame], ignore_index=True)
    model = TabularKernelRegressor(random_state=0)
    expected = model.fit(frame, y).predict(frame)
    assert_array_equal(model.fit(twice, np.r_[y, y]).predict(frame), expected)


# folds of the user, streams -----------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [SketchedKernelRegressor(bandwidth=1.0), TabularKernelRegressor()],
    ids=repr,
)
def test_a_splitter_is_obeyed_and_copies_in_several_folds_are_a_warning(model):
    (X, y), rows = data(), REPEATED["twice"]
    model.set_params(random_state=0, cv=KFold(2, shuffle=True, random_state=0))
    with pytest.warns(
        DependentRowsWarning, match="samples of a test set of `cv` are eq"
    ):
        model.fit(X[rows], y[rows])
    with warnings.catch_warnings():
        warnings.simplefilter("error", DependentRowsWarning)
        model.fit(X, y)
        model.set_params(cv=GroupKFold(2)).fit(X[rows], y[rows], groups=rows)


@pytest.mark.parametrize(
    "model",
    [
        SketchedKernelClassifier(bandwidth=1.0, alpha=0.1, random_state=0),
        SketchedSGDClassifier(bandwidth=1.0, size=20, random_state=0),
    ],
    ids=repr,
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classifiers_warn_of_copies_in_several_folds(model, n_classes):
    (X, y), rows = data(), REPEATED["twice"]
    labels = np.digitize(y, [0.0, 0.5][: n_classes - 1])
    model.set_params(cv=StratifiedKFold(4, shuffle=True, random_state=0))
    with pytest.warns(
        DependentRowsWarning, match="samples of a test set of `cv` are eq"
    ):
        model.fit(X[rows], labels[rows])


@pytest.mark.parametrize("method", ["split", "cv+", "jackknife+"])
@pytest.mark.parametrize("cv", [None, 4])
def test_conformal_models_have_no_rows_of_weight_zero(method, cv):
    X, y = data()
    inner = SketchedKernelRegressor(bandwidth=1.0, alpha=0.1, random_state=0)
    model = ConformalRegressor(inner, method=method, cv=cv, random_state=0)
    used = np.arange(N) % 3 > 0
    expected = model.fit(X[used], y[used]).predict_interval(X)
    model.fit(X, y, sample_weight=used.astype(float))
    assert_array_equal(model.predict_interval(X), expected)


@pytest.mark.thin(every=2)
@pytest.mark.parametrize(
    "model",
    [
        SketchedKernelRegressor(),
        SketchedKernelRegressor(loss="huber", bandwidth=1.0),
        JointQuantileRegressor(quantiles=(0.3, 0.7), bandwidth=1.0, alpha=0.1),
        SketchedKernelClassifier(bandwidth=1.0),
        SpectralFilterRegressor(),
        SketchedSGDRegressor(),
        SketchedSGDClassifier(),
        TabularKernelRegressor(),
    ],
    ids=repr,
)
def test_copies_of_dask_arrays_are_weights(model):
    da = pytest.importorskip("dask.array")
    (X, y), rows = data(), REPEATED["twice"]
    y = y > 0 if is_classifier(model) else y
    model.set_params(random_state=0)
    twice = [da.from_array(a[rows], chunks=(50, *a.shape[1:])) for a in (X, y)]
    once = [da.from_array(a, chunks=(50, *a.shape[1:])) for a in (X, y)]
    weights = da.full(N, 2.0, chunks=50)
    expected = model.fit(*once, sample_weight=weights).predict(X)
    assert_array_equal(model.fit(*twice).predict(X), expected)


def test_copies_in_a_stream_are_steps():
    X, y = data()
    rows = REPEATED["twice"]
    model = SketchedSGDRegressor(bandwidth=1.0, size=20, random_state=0)
    assert model.partial_fit(X[rows], y[rows]).n_steps_ == 2 * N


def test_the_posterior_of_copies_is_that_of_their_weights():
    (X, y), rows = data(), REPEATED["twice"]
    model = SketchedKernelRegressor(random_state=0)
    expected = model.fit(X, y).fit_posterior(X, y).predict(X, return_std=True)[1]
    model.fit(X[rows], y[rows]).fit_posterior(X[rows], y[rows])
    assert_array_equal(model.predict(X, return_std=True)[1], expected)


# preprocessing ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["standard", "rank", "both"])
def test_preprocessing_uses_weights(kind):
    X, _ = data()
    X[:, 1] = np.exp(2 * X[:, 1])
    counts = np.random.default_rng(3).integers(1, 6, N)
    found = fit_scaler(X, kind, weights=counts / 3)
    expected = fit_scaler(X.repeat(counts, axis=0), kind)
    assert_array_equal(found.features, expected.features)
    if kind == "standard":
        assert_allclose(found.center, expected.center, rtol=1e-12)
        assert_allclose(found.width, expected.width, rtol=1e-12)
    assert_allclose(found.transform(X), expected.transform(X), atol=0.06)
    plain = fit_scaler(X, kind)
    assert np.abs(plain.transform(X) - expected.transform(X)).max() > 0.1
    equal = fit_scaler(X, kind, weights=np.full(N, 7.0))
    assert_array_equal(equal.transform(X), plain.transform(X))


@pytest.mark.parametrize("kind", ["standard", "rank", "both"])
def test_the_preprocessing_of_a_fit_uses_weights(kind):
    X, y = data()
    weights = np.where(X[:, 0] > 0, 1.0, 0.3)
    options = {"bandwidth": 1.0, "alpha": 1e-2, "random_state": 0}
    model = SketchedKernelRegressor(preprocessing=kind, **options).fit(X, y, weights)
    scores = model.scaler_.transform(X)[:, 0]
    assert abs(np.average(scores, weights=weights)) < 1e-12
    assert_allclose(np.average(scores**2, weights=weights), 1.0, rtol=0.05)


# conformal ----------------------------------------------------------------------------


def conformal_data(classification=False, n=120):
    X, y = data(SketchedKernelClassifier() if classification else None, n)
    return X, y, np.random.default_rng(1).normal(size=(9, 3))


@pytest.mark.parametrize("cv", [None, 4])
@pytest.mark.parametrize("method", ["split", "cqr", "cv+", "jackknife+"])
def test_conformal_intervals_calibrate_on_distinct_rows(method, cv):
    X, y, new = conformal_data()
    if method == "cqr":
        inner = JointQuantileRegressor((0.1, 0.9), bandwidth=1.0, alpha=0.1, size=20)
    else:
        inner = SketchedKernelRegressor(bandwidth=1.0, alpha=0.1, size=40)
    model = ConformalRegressor(
        inner.set_params(random_state=0), method=method, cv=cv, coverage=0.8,
        random_state=0,
    )  # fmt: skip
    expected = model.fit(X, y).predict_interval(new)
    found = model.fit(np.vstack([X, X]), np.r_[y, y]).predict_interval(new)
    assert_array_equal(found, expected)


@pytest.mark.parametrize("container", ["array", "frame", "sparse", "list", "texts"])
@pytest.mark.parametrize("method", ["split", "cv+"])
def test_copies_lie_on_one_side_of_a_conformal_split(container, method):
    """An estimator that knows its training rows by heart has no error of zero."""
    X, y, _ = conformal_data()
    rows = np.r_[np.arange(120), np.arange(40), np.arange(40)]
    X, y = X[rows], y[rows]
    inner = KNeighborsRegressor(1)
    if container == "frame":
        X = pd.DataFrame(X, columns=list("abc"))
    elif container == "sparse":
        X = sp.csr_matrix(X)
    elif container == "list":
        X = X.tolist()
    elif container == "texts":
        X = pd.DataFrame({"c": [f"{v:.1f}" for v in X[:, 0]], "x": X[:, 1]})
        inner = make_pipeline(OrdinalEncoder(handle_unknown="use_encoded_value",
                                             unknown_value=-1), inner)  # fmt: skip
    model = ConformalRegressor(inner, method=method, random_state=0).fit(X, y)
    assert np.abs(model.values_ - model.targets_).min() > 0
    assert len(np.unique(model.targets_)) == len(model.targets_)
    assert set(np.unique(model.weights_)) == {1.0, 3.0}
    ends = model.predict_interval(X[:3] if container != "frame" else X.iloc[:3])
    assert (ends[:, 0] < ends[:, 1]).all()


@pytest.mark.parametrize("cv", [None, 4, StratifiedKFold(4)])
def test_conformal_sets_calibrate_on_distinct_rows(cv):
    X, y, _ = conformal_data(classification=True)
    inner = SketchedKernelClassifier(
        loss="logistic", bandwidth=1.0, alpha=0.1, random_state=0
    )
    model = ConformalClassifier(inner, cv=cv, coverage=0.7, random_state=0)
    expected = model.fit(X, y).values_
    X, y = np.vstack([X, X]), np.r_[y, y]
    if isinstance(cv, StratifiedKFold):
        with pytest.warns(DependentRowsWarning, match="samples of a test set of `cv`"):
            model.fit(X, y)
        assert len(model.values_) == 2 * len(expected)
    else:
        assert_array_equal(model.fit(X, y).values_, expected)


def test_a_frozen_estimator_calibrates_on_distinct_rows():
    X, y, new = conformal_data()
    inner = FrozenEstimator(KNeighborsRegressor(3).fit(X, y + 1))
    model = ConformalRegressor(inner, random_state=0)
    expected = model.fit(X, y).predict_interval(new)
    found = model.fit(np.vstack([X, X]), np.r_[y, y]).predict_interval(new)
    assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "model", [SketchedKernelRegressor(size=20), TabularKernelRegressor()], ids=repr
)
def test_summary_and_file_tell_how_many_rows_are_merged(model, tmp_path):
    X, y = data()
    model.fit(np.vstack([X, X[:7]]), np.r_[y, y[:7]])
    model.save(tmp_path / "model.npz")
    for fitted in (model, nbsketch.load(tmp_path / "model.npz")):
        assert fitted.n_copies_ == 7
        assert ", 7 copies merged" in fitted.summary()
    assert "copies" not in model.fit(X, y, np.arange(N)).summary()
    assert model.n_copies_ == 0


def test_a_conformal_estimator_is_fitted_to_all_copies_of_its_rows():
    X, y, _ = conformal_data()
    rows = np.r_[np.arange(120), np.arange(40), np.arange(40)]
    model = ConformalRegressor(DummyRegressor(), random_state=0).fit(X[rows], y[rows])
    fitted = y[rows][~np.isin(y[rows], model.targets_)]
    assert_allclose(model.estimator_.predict(X[:1]), fitted.mean())


@pytest.mark.parametrize("ones", [10, 5])
def test_rows_that_differ_in_their_target_alone_tell_observations(ones):
    """Pairs of a draw that differ are 18 % and 10 %, less than those of equal rows."""
    cells = np.repeat(np.arange(20), 5)
    y = np.zeros(100, int)
    y[: 10 * ones : 10] = 1  # in every second cell, one of five
    counts = np.unique(cells * 2 + y, return_counts=True)[1]
    pairs = zip(cells, y, strict=True)
    differ = np.mean([np.sum((cells == c) & (y != t)) for c, t in pairs])
    assert 2 * ones * (100 - ones) / 1e4 < differ < 0.81
    assert copies._are_observations(cells, y, counts)
