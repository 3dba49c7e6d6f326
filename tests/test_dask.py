import pickle
import sys
import types
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import nbsketch
from nbsketch import (
    AutoSize,
    GaussianKernel,
    HuberLoss,
    InputOutputKernelRegressor,
    JointQuantileRegressor,
    RandomFourierFeatures,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
    SubsamplingSketch,
    TabularKernelClassifier,
    TabularKernelRegressor,
)
from nbsketch.conformal import ConformalRegressor
from nbsketch.explain import shapley_values
from nbsketch.rows import partitions
from nbsketch.rows.design import PartitionedColumns
from nbsketch.rows.partitions import PartitionedRows, Partitions
from nbsketch.solvers.scratch import ScratchDesign

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
cloudpickle = pytest.importorskip("cloudpickle")

FIXED = {"bandwidth": 1.0, "size": 20, "random_state": 0}
PLAIN = {"alpha": 1e-4, "preprocessing": None} | FIXED


def dask_data(X, *others, rows=70):
    return [da.from_array(a, chunks=(rows, *a.shape[1:])) for a in (X, *others)]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(400, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=400)


ROW_BY_ROW = [
    (SketchedKernelRegressor(**PLAIN), "predict", ()),
    (SpectralFilterRegressor(**PLAIN), "predict", ()),
    (SketchedSGDRegressor(n_epochs=1, **FIXED), "predict", ()),
    (JointQuantileRegressor(calibration=0.2, **PLAIN), "predict", ()),
    (JointQuantileRegressor(calibration=0.2, **PLAIN), "predict_interval", (0.6,)),
    (JointQuantileRegressor(calibration=0.2, **PLAIN), "predict_cdf", ([0.0, 1.0],)),
    (SketchedKernelClassifier(loss="logistic", **PLAIN), "predict", ()),
    (SketchedKernelClassifier(loss="logistic", **PLAIN), "predict_proba", ()),
    (SketchedKernelClassifier(**PLAIN), "decision_function", ()),
    (SketchedFeatures(**FIXED), "transform", ()),
    (RandomFourierFeatures(bandwidth=1.0, random_state=0), "transform", ()),
]


@pytest.mark.parametrize("model, method, args", ROW_BY_ROW)
def test_methods_on_rows_return_lazy_arrays_with_the_chunks_of_X(
    data, model, method, args
):
    X, y = data
    is_classifier = isinstance(model, SketchedKernelClassifier)
    model.fit(X, np.where(y > 0, "up", "down") if is_classifier else y)
    (rows,) = dask_data(X)
    found = getattr(model, method)(rows, *args)
    expected = getattr(model, method)(X, *args)
    assert isinstance(found, da.Array) and found.chunks[0] == rows.chunks[0]
    assert found.shape == expected.shape and found.dtype == expected.dtype
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found.compute(), expected, atol=1e-12)
    else:
        assert (found.compute() == expected).all()


def test_lazy_predictions_are_those_of_the_model_at_the_call(data):
    X, y = data
    model = SketchedKernelRegressor(**PLAIN).fit(X, y)
    expected, lazy = model.predict(X), model.predict(dask_data(X)[0])
    model.fit(X, -y)
    np.testing.assert_allclose(lazy.compute(), expected, atol=1e-12)


def test_rows_of_unknown_and_of_no_number_are_predicted(data):
    X, y = data
    model = SketchedKernelRegressor(**PLAIN).fit(X, y)
    X = np.where(np.arange(400)[:, None] < 70, -2.0, X)
    (rows,) = dask_data(X)
    found = model.predict(rows[rows[:, 1] > -2.0])  # the first chunk keeps none
    np.testing.assert_allclose(found.compute(), model.predict(X[70:]), atol=1e-12)


def test_scores_are_those_of_arrays(data):
    X, y = data
    for model in (
        SketchedKernelRegressor(**PLAIN),
        SketchedKernelClassifier(**PLAIN),
        JointQuantileRegressor(**PLAIN),
    ):
        known = np.where(y > 0, 1, 0) if "Classifier" in type(model).__name__ else y
        score = model.fit(X, known).score(X, known)
        assert model.score(*dask_data(X, known)) == pytest.approx(score, abs=1e-12)


def test_scores_of_weights_and_of_unknown_sizes(data):
    X, y = data
    weights = np.linspace(0, 1, 400)
    for model, known in (
        (SketchedKernelRegressor(**PLAIN), np.column_stack([y, y**2])),
        (SketchedKernelClassifier(**PLAIN), np.where(y > 0, "up", "down")),
        (JointQuantileRegressor(**PLAIN), y),
    ):
        model.fit(X, known)
        rows, targets, lazy = dask_data(X, known, weights)
        expected = model.score(X, known, weights)
        found = model.score(rows, targets, lazy)
        assert found == pytest.approx(expected, abs=1e-12)
        some = X[:, 0] > 0
        expected = model.score(X[some], known[some])
        found = model.score(rows[rows[:, 0] > 0], targets[rows[:, 0] > 0])
        assert found == pytest.approx(expected, abs=1e-12)
        with pytest.raises(TypeError, match="`X` and `y` must both"):
            model.score(rows, known)
        with pytest.raises(ValueError, match="`y` must have 400 rows as `X`, got 399"):
            model.score(rows, targets[1:])


def test_features_in_several_chunks_are_refused(data):
    X, y = data
    model = SketchedKernelRegressor(**PLAIN).fit(X, y)
    with pytest.raises(ValueError, match=r"`X` must have all columns .* 3 chunks of"):
        model.predict(da.from_array(X, chunks=(100, 1)))


def test_wrong_rows_are_refused_at_the_call(data):
    X, y = data
    model = SketchedKernelRegressor(**PLAIN).fit(X, y)
    with pytest.raises(ValueError, match="X has 2 features"):
        model.predict(dask_data(X)[0][:, :2])
    with pytest.raises(ValueError, match=r"`X` must have 2 axes, got shape \(400,\)"):
        model.predict(dask_data(X)[0][:, 0])
    with pytest.raises(TypeError, match="`X` must hold real numbers, got dtype <U"):
        model.predict(dask_data(X)[0].astype(str))


def test_missing_parts_of_dask_are_an_error_with_the_command(data, monkeypatch):
    X, y = data
    model = SketchedKernelRegressor(**PLAIN).fit(X, y)
    other = types.new_class("Frame")  # a collection of a Dask without arrays
    other.__module__, other.__dask_graph__ = "dask.other", lambda self: None
    monkeypatch.setitem(sys.modules, "dask.array", None)
    with pytest.raises(ImportError, match=r"pip install 'nbsketch\[dask\]'"):
        model.predict(other())


def test_data_frames_are_predicted(data):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X, y = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = SketchedKernelRegressor(**PLAIN).fit(frame, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.predict(dd.from_pandas(frame, npartitions=3))
    np.testing.assert_allclose(found.compute(), model.predict(frame), atol=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(dd.from_pandas(frame[["b", "a", "c"]], npartitions=3))


FREE_OF_NUMBERS = {
    TabularKernelRegressor: ("predict", "predict_interval"),
    TabularKernelClassifier: ("predict", "predict_proba"),
}


@pytest.fixture(scope="module")
def tables():
    """Return a model for tables of each kind, and their targets, by class."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-2, 2, size=(120, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=120)
    found = {}
    for kind, targets in (
        (TabularKernelRegressor, y),
        (TabularKernelClassifier, np.where(y > 0, "up", "down")),
    ):
        found[kind] = kind(random_state=0).fit(X, targets), X, targets
    return found


@pytest.mark.parametrize("kind", FREE_OF_NUMBERS)
def test_tables_are_loaded_and_predicted_in_chunks(tables, kind):
    model, X, y = tables[kind]
    rows, targets = dask_data(X, y, rows=50)
    again = clone(model).fit(rows, targets)
    for method in FREE_OF_NUMBERS[kind]:
        expected, lazy = getattr(model, method)(X), getattr(model, method)(rows)
        assert isinstance(lazy, da.Array) and lazy.chunks[0] == rows.chunks[0]
        for found in (lazy.compute(), getattr(again, method)(X)):
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(found, expected, atol=1e-9)
            else:
                assert (found == expected).all()
    assert model.score(rows, targets) == pytest.approx(model.score(X, y), abs=1e-9)
    with pytest.raises(TypeError, match="`X` and `y` must both"):
        clone(model).fit(rows, y)


def test_tables_of_categories_are_data_frames(tables):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    _, X, y = tables[TabularKernelRegressor]
    kinds = pd.Categorical(np.where(X[:, 1] > 0, "a", "b"))
    frame = pd.DataFrame({"number": X[:, 0], "kind": kinds})
    parts = dd.from_pandas(frame.assign(y=y), npartitions=3)
    model = TabularKernelRegressor(random_state=0)
    model.fit(parts[["number", "kind"]], parts["y"])
    found = model.predict_interval(parts[["number", "kind"]], 0.8).compute()
    np.testing.assert_allclose(found, model.predict_interval(frame, 0.8), atol=1e-9)
    found = model.predict_cdf(parts[["number", "kind"]], [0.0, 1.0]).compute()
    np.testing.assert_allclose(found, model.predict_cdf(frame, [0.0, 1.0]), atol=1e-9)
    with pytest.raises(ValueError, match="`y` must be a number or have shape"):
        model.predict_cdf(parts, y[:, None])


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("frame", [False, True])
def test_posteriors_and_shapley_values_are_lazy(data, outputs, frame):
    X, y = data
    X, y = X[:200], y[:200]
    targets = y if outputs == 1 else np.column_stack([y, X[:, 0]])
    pd, dd = (pytest.importorskip(name) for name in ("pandas", "dask.dataframe"))
    given = pd.DataFrame(X).add_prefix("x") if frame else X
    model = SketchedKernelRegressor("gaussian", size=20, random_state=0)
    model.fit(given, targets).fit_posterior(given, targets)
    lazy = dd.from_pandas(given, npartitions=3) if frame else dask_data(X)[0]
    mean, std = model.predict(lazy, return_std=True)
    values = shapley_values(model, lazy, background=given[:5])
    expected = (
        *model.predict(given, return_std=True),
        shapley_values(model, given, background=given[:5]),
    )
    for found, here in zip((mean, std, values), expected, strict=True):
        assert isinstance(found, da.Array) and found.ndim == here.ndim
        np.testing.assert_allclose(found.compute(), here, rtol=1e-9, atol=1e-9)
    with pytest.raises(TypeError, match="`background` must be in memory"):
        shapley_values(model, lazy, background=lazy)


def test_values_of_each_row_are_refused_beside_dask(data):
    X, y = data
    model = JointQuantileRegressor(size=20, alpha=1e-3, random_state=0).fit(X, y)
    rows, targets = dask_data(X, y)
    np.testing.assert_array_equal(
        model.predict_cdf(rows, [0.0, 1.0]).compute(), model.predict_cdf(X, [0.0, 1.0])
    )
    for value in (y[:, None], targets):
        with pytest.raises(ValueError, match=r"`y` must .* the same for all rows"):
            model.predict_cdf(rows, value)


@pytest.mark.parametrize("lazy", ["X", "y", "both"])
def test_conformal_fits_ask_for_rows_in_memory(data, lazy):
    X, y = data
    rows, targets = dask_data(X, y)
    args = (X if lazy == "y" else rows), (y if lazy == "X" else targets)
    with pytest.raises(TypeError, match=r"must be in memory.*\.compute\(\)"):
        ConformalRegressor(SketchedKernelRegressor()).fit(*args)


def test_structured_data_are_loaded():
    rng = np.random.default_rng(0)
    X, Y = rng.uniform(size=(80, 2)), rng.uniform(size=(80, 2))
    model = InputOutputKernelRegressor(bandwidth=1.0, random_state=0)
    expected = clone(model).fit(X, Y)
    rows, outputs = dask_data(X, Y, rows=50)
    found = model.fit(rows, outputs)
    np.testing.assert_allclose(found.predict(rows), expected.predict(X))
    assert found.score(rows, outputs) == pytest.approx(expected.score(X, Y))


# Fits of rows in partitions.


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch):
    """Keep features in partitions, which would be brought together: they are small."""
    monkeypatch.setattr("nbsketch.rows.design._LOCAL_BYTES", 50_000)


@pytest.fixture(scope="module")
def large():
    """Return more rows than are brought together, with heavy tails."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, size=(1500, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_t(3, size=1500)


def regressor(**parameters):
    return SketchedKernelRegressor(**FIXED | parameters)


def quantiles(**parameters):
    joint = JointQuantileRegressor((0.1, 0.5, 0.9), **FIXED)
    return joint.set_params(tol=1e-8, **parameters)


def two_outputs(y):
    return np.column_stack([y, np.cos(y)])


def three_classes(y):
    return np.array(["low", "middle", "high"])[np.digitize(y, [-1.0, 1.0])]


SQUARE = {
    "penalty": regressor(alpha=1e-4),
    "chosen": regressor(),
    "learned": regressor(bandwidth=None),
    "p-sparsified": regressor(sketch="p-sparsified", bandwidth="median"),
    "folds": regressor(cv=3),
    "all rows": regressor(sketch="identity", size=None, alpha=1e-4),
    "grown": regressor(size=AutoSize(start=5, max_size=20), sketch="subsampling"),
    "filter": SpectralFilterRegressor("auto", filter="cutoff", **FIXED),
    "left out": SpectralFilterRegressor(criterion="leave-one-out", **FIXED),
}
OTHERS = {
    "huber": (regressor(loss="huber", tol=1e-6), None),
    "learned": (regressor(loss="huber", bandwidth=None, tol=1e-8), None),
    "pinball": (regressor(loss="pinball", alpha=1e-4, tol=1e-8), None),
    "insensitive": (regressor(loss="epsilon-insensitive", tol=1e-8, alpha=1e-3), None),
    "outputs": (regressor(loss=HuberLoss(1.0), tol=1e-8, alpha=1e-3), two_outputs),
    "square": (regressor(), two_outputs),
    "hinge": (SketchedKernelClassifier(tol=1e-8, alpha=1e-3, **FIXED), three_classes),
    "logistic": (SketchedKernelClassifier(loss="logistic", tol=1e-8, **PLAIN), np.sign),
    "probabilities": (
        SketchedKernelClassifier(loss="logistic", class_weight="balanced", **PLAIN),
        three_classes,
    ),
    "coupled": (regressor(output=[[1.0, 0.5], [0.5, 1.0]]), two_outputs),
    "descent": (SketchedSGDRegressor(n_epochs=1, **FIXED), None),
    "classes": (SketchedSGDClassifier(n_epochs=1, **FIXED), three_classes),
}


# Not in the short run: "huber" and "pinball" take the same ways through a search.
AGAIN = "learned", "hinge", "insensitive"


def in_both(model, X, y, **known):
    """Return fits to arrays and to Dask arrays of the same rows."""
    arrays = dask_data(X, y, rows=600)
    lazy = {k: dask_data(v, rows=500)[0] for k, v in known.items()}
    return clone(model).fit(X, y, **known), clone(model).fit(*arrays, **lazy)


def values(model, X):
    return getattr(model, "decision_function", model.predict)(X)


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("model", SQUARE.values(), ids=SQUARE)
def test_square_loss_in_partitions_is_the_model_of_one_machine(large, model):
    X, y = large
    expected, found = in_both(model, X, y)
    assert found.size_ == expected.size_
    assert (found.sketch_.columns == expected.sketch_.columns).all()
    assert found.alpha_ == pytest.approx(expected.alpha_, rel=1e-6)
    np.testing.assert_allclose(values(found, X), values(expected, X), atol=1e-6)


@pytest.mark.parametrize(
    "model, targets",
    [
        pytest.param(*case, marks=pytest.mark.full if name in AGAIN else ())
        for name, case in OTHERS.items()
    ],
    ids=OTHERS,
)
def test_other_losses_in_partitions_are_the_model_of_one_machine(large, model, targets):
    X, y = large
    expected, found = in_both(model, X, y if targets is None else targets(y))
    scale = np.abs(values(expected, X)).max()
    np.testing.assert_allclose(values(found, X), values(expected, X), atol=1e-3 * scale)


@pytest.mark.parametrize(
    "model", [regressor(), regressor(loss="huber", alpha=1e-3), quantiles(alpha=1e-2)]
)
def test_tasks_are_pickled_for_other_processes(large, monkeypatch, model):
    X, y = large
    computed, sizes = partitions.computed, []

    def travelled(todo):
        message = cloudpickle.dumps(todo)
        sizes.append(len(message))
        return computed(pickle.loads(message))

    expected = clone(model).fit(X, y).predict(X)
    monkeypatch.setattr("nbsketch.rows.partitions.computed", travelled)
    monkeypatch.setattr("nbsketch.rows.design.computed", travelled)
    found = model.fit(*dask_data(X, y, rows=600)).predict(X)
    assert len(sizes) > 2
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.ptp(y))


def test_features_are_computed_where_the_rows_are(large, monkeypatch):
    X, y = large
    brought = []
    gather = Partitions.gather
    monkeypatch.setattr(
        Partitions, "gather", lambda *a: brought.append(len(a[1])) or gather(*a)
    )
    regressor(alpha=1e-4).fit(*dask_data(X, y, rows=400))
    # landmarks, rows near the mean, those in which columns of a small scale are sought,
    # those that tell what varies, those on which rounding is measured
    assert sum(brought) < 1100


def test_weights_and_rows_of_weight_zero(large):
    X, y = large
    weights = np.tile([0.0, 1.0, 2.0], 500)
    expected, found = in_both(regressor(), X, y, sample_weight=weights)
    np.testing.assert_allclose(found.predict(X), expected.predict(X), atol=1e-6)


def test_single_precision_stays(large):
    X, y = large
    expected, found = in_both(regressor(alpha=1e-3), X.astype(np.float32), y)
    assert found.landmarks_.dtype == np.float32
    np.testing.assert_allclose(found.predict(X), expected.predict(X), atol=1e-4)


def test_intervals_are_calibrated_on_the_same_rows(large):
    X, y = large
    expected, found = in_both(quantiles(calibration=0.3, alpha=1e-3), X, y)
    np.testing.assert_allclose(found.predict(X), expected.predict(X), atol=1e-4)
    known = expected.predict_interval(X, 0.8)
    np.testing.assert_allclose(found.predict_interval(X, 0.8), known, atol=1e-4)


def test_transformers_of_partitions(large):
    X, _ = large
    (rows,) = dask_data(X, rows=400)
    for model in (SketchedFeatures(**FIXED), RandomFourierFeatures(random_state=0)):
        expected = clone(model).fit(X).transform(X)
        found = model.fit_transform(rows)
        assert isinstance(found, da.Array)
        np.testing.assert_allclose(found.compute(), expected, atol=1e-9)


def test_length_scales_of_transformers_are_learned(large):
    X, y = large
    model = SketchedFeatures(bandwidth="auto", size=20, random_state=0)
    expected = clone(model).fit(X, y)
    found = model.fit(*dask_data(X, y, rows=400))
    np.testing.assert_allclose(found.length_scales_, expected.length_scales_)
    np.testing.assert_allclose(found.transform(X), expected.transform(X), atol=1e-9)


@pytest.mark.parametrize("kernel", ["sobolev", "tanimoto", "gaussian-tanimoto"])
def test_kernels_of_a_domain(large, kernel):
    X, y = np.abs(large[0]) / 2, large[1]
    model = SketchedKernelRegressor(kernel, size=20, alpha=1e-4, random_state=0)
    expected = clone(model).fit(X, y).predict(X)
    found = model.fit(*dask_data(X, y, rows=400)).predict(X)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_time_of_a_fit_is_limited(large):
    X, y = dask_data(*large, rows=400)
    model = regressor(loss="huber", alpha=1e-6, tol=1e-12)
    whole = clone(model).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="`max_seconds` has stopped the solver"):
        model.set_params(max_seconds=1e-6).fit(X, y)
    assert model.n_iter_ < whole.n_iter_ and model.dual_gap_ > 1e-12
    assert np.isfinite(model.predict(large[0])).all()


def test_descent_beyond_memory_reads_a_file(large, monkeypatch):
    X, y = large
    model = SketchedSGDRegressor(n_epochs=1, **FIXED)
    expected = clone(model).fit(X, y).predict(X)
    made, start = [], ScratchDesign.__init__
    monkeypatch.setattr(
        ScratchDesign,
        "__init__",
        lambda self, source: made.append(source.shape) or start(self, source),
    )
    nbsketch.set_memory_limit(1000)
    try:
        found = model.fit(*dask_data(X, y, rows=400)).predict(X)
    finally:
        nbsketch.set_memory_limit(None)
    assert made == [(1500, 20)]
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("params", [{"early_stopping": True}, {"loss": "huber"}])
def test_descent_in_learned_length_scales(large, params, weighted):
    X, y = large
    model = SketchedSGDRegressor(size=30, n_epochs=1, random_state=0, **params)
    weights = {"sample_weight": np.tile([1.0, 0.0, 2.0], 500)} if weighted else {}
    near, far = in_both(model, X, y, **weights)
    np.testing.assert_allclose(far.predict(X), near.predict(X), atol=1e-4)


def test_descent_by_its_defaults(large):
    X, y = (values[:300] for values in large)
    near, far = in_both(SketchedSGDRegressor(random_state=0), X, y)
    np.testing.assert_allclose(far.predict(X), near.predict(X), atol=1e-4)


def test_classes_by_descent_in_learned_length_scales(large):
    X, y = large
    model = SketchedSGDClassifier(size=30, n_epochs=1, random_state=0)
    near, far = in_both(model, X, three_classes(y))
    assert np.mean(far.predict(X) == near.predict(X)) > 0.999


def test_rows_of_dask_stop_a_descent_on_rows_of_dask(large):
    X, y = large
    model = SketchedSGDRegressor(early_stopping=True, n_epochs=1, **FIXED)
    near = clone(model).fit(X[:1200], y[:1200], X_val=X[1200:], y_val=y[1200:])
    rows, targets = dask_data(X[:1200], y[:1200], rows=400)
    far = model.fit(rows, targets, X_val=dask_data(X[1200:])[0], y_val=y[1200:])
    np.testing.assert_allclose(far.predict(X), near.predict(X), atol=1e-4)


def test_features_that_are_not_kept_are_computed_again(large, monkeypatch):
    X, y = large
    model = regressor(loss="huber", alpha=1e-4, tol=1e-8)
    expected = clone(model).fit(X, y).predict(X)
    monkeypatch.setattr("nbsketch.rows.partitions.fits_workers", lambda nbytes: False)
    monkeypatch.setattr("nbsketch.rows.design.fits_workers", lambda nbytes: False)
    found = model.fit(*dask_data(X, y, rows=400)).predict(X)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("sketch", ["subsampling", "p-sparsified"])
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("alpha", [1e-4, None])
def test_passes_over_landmarks_stay_with_the_rows(
    large, monkeypatch, sketch, kept, alpha
):
    X, y = large
    X = X + np.array([0.0, 1e6, 0.0])  # of which single precision leaves no digits
    monkeypatch.setattr("nbsketch.fitting.plan._LARGE_SIZE", 10)
    monkeypatch.setattr("nbsketch.fitting.plan._LARGE_SEARCH", 10)
    monkeypatch.setattr("nbsketch.rows.design.fits_workers", lambda nbytes: kept)
    model = regressor(sketch=sketch, alpha=alpha, tol=1e-6)
    weights = np.random.default_rng(0).uniform(size=len(X))
    expected, found = in_both(model, X, y, sample_weight=weights)
    assert found.n_iter_ > 1 and found.alpha_ == pytest.approx(expected.alpha_)
    np.testing.assert_allclose(found.predict(X), expected.predict(X), atol=2e-3)


@pytest.mark.parametrize("kept", [True, False])
def test_products_with_columns_are_those_of_one_machine(rng, monkeypatch, kept):
    monkeypatch.setattr("nbsketch.rows.design.fits_workers", lambda nbytes: kept)
    X = rng.normal(size=(90, 2))
    kernel = GaussianKernel(1.0)
    sketch = SubsamplingSketch(6).draw(90, 0)
    rows = PartitionedRows.of(dask_data(X, rows=40)[0])
    columns = PartitionedColumns(kernel, rows, sketch, dtype=np.float64)
    Z = kernel(X, X[sketch.columns]) @ sketch.weights.T
    V, U, w = rng.normal(size=(6, 2)), rng.normal(size=(90, 2)), rng.uniform(size=90)
    some = np.arange(0, 90, 7)
    for found, expected in (
        (columns.times(V), Z @ V),
        (columns.adjoint(U), Z.T @ U),
        (columns.normal(V, w), Z.T @ (w[:, None] * (Z @ V))),
        (columns.exact(some, V), Z[some] @ V),
        (columns.take(some).times(V), Z[some] @ V),
        (columns.core(), sketch.weights @ Z[sketch.columns]),
    ):
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_default_beyond_the_exact_machine_is_that_of_one_machine(
    large, monkeypatch
):
    monkeypatch.setattr("nbsketch.fitting.plan._EXACT_WORK", 1e4)
    monkeypatch.setattr("nbsketch.fitting.plan._VALUES", 2e5)
    monkeypatch.setattr("nbsketch.fitting.plan._LANDMARKS", 100)
    monkeypatch.setattr("nbsketch.fitting.plan._MOST_VALUES", 2e5)
    monkeypatch.setattr("nbsketch.fitting.plan._EXACT_ROWS", 100)
    monkeypatch.setattr("nbsketch.fitting.plan._LEAST_SQUARES_WORK", 1e6)
    X, y = large
    model = SketchedKernelRegressor(bandwidth=1.0, random_state=0)
    expected, found = in_both(model, X, y)
    assert found.size_ == expected.size_ < 500
    np.testing.assert_allclose(found.predict(X), expected.predict(X), atol=1e-3)


@pytest.mark.parametrize("local_bytes", [1000, 10**8])
def test_features_may_all_stay_or_all_be_brought(large, monkeypatch, local_bytes):
    X, y = large
    model = regressor(loss="huber", alpha=1e-3, tol=1e-8)
    expected = clone(model).fit(X, y).predict(X)
    monkeypatch.setattr("nbsketch.rows.design._LOCAL_BYTES", local_bytes)
    found = model.fit(*dask_data(X, y, rows=400)).predict(X)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_unknown_sizes_of_chunks_are_computed(large):
    X, y = large
    rows, targets = dask_data(X, y, rows=400)
    chosen = rows[:, 2] > -1.9
    found = regressor(alpha=1e-3).fit(rows[chosen], targets[chosen])
    some = X[:, 2] > -1.9
    expected = regressor(alpha=1e-3).fit(X[some], y[some])
    np.testing.assert_allclose(found.predict(X), expected.predict(X), atol=1e-6)


def test_streams_are_the_calls_of_their_chunks(large):
    X, y = large
    model = SketchedSGDRegressor(**FIXED)
    expected = clone(model)
    for first in range(0, 1500, 500):
        expected.partial_fit(X[first : first + 500], y[first : first + 500])
    found = model.partial_fit(*dask_data(X, y, rows=500))
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_streams_of_labels_are_the_calls_of_their_chunks(large, loss):
    X, y = large
    y = three_classes(np.sort(y))  # the first chunk lacks two labels
    weights = np.tile([1.0, 2.0, 3.0], 500)
    model = SketchedSGDClassifier(loss=loss, **FIXED)
    expected = clone(model)
    for first in range(0, 1500, 500):
        part = slice(first, first + 500)
        expected.partial_fit(X[part], y[part], ["high", "low", "middle"], weights[part])
    rows, labels, lazy = dask_data(X, y, weights, rows=500)
    found = model.partial_fit(rows, labels, sample_weight=lazy)
    assert found.n_steps_ == expected.n_steps_ > 0
    scores = found.decision_function(X)
    np.testing.assert_array_equal(scores, expected.decision_function(X))
    found.partial_fit(rows[:, :], labels.rechunk(300))
    assert found.n_steps_ > expected.n_steps_


def test_streams_of_data_frames_keep_names(large):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X, y = large
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y)
    parts = dd.from_pandas(frame, npartitions=3)
    model = SketchedSGDRegressor(**FIXED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.partial_fit(parts[["a", "b", "c"]], parts["y"])
        assert found.score(frame[["a", "b", "c"]], y) > 0.5
    assert found.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        found.partial_fit(parts[["b", "a", "c"]], parts["y"])
    with pytest.raises(ValueError, match="`y` must have 1500 rows as `X`, got 1499"):
        found.partial_fit(parts[["a", "b", "c"]], da.from_array(y[1:]))


def test_mixed_and_unequal_data_are_refused_before_any_work(large):
    X, y = large
    rows, targets = dask_data(X, y)

    def never(block):
        raise AssertionError("a block was computed")

    rows = rows.map_blocks(never, dtype=float, meta=np.empty((0, 3)))
    with pytest.raises(TypeError, match="`X` and `y` must both be Dask collections"):
        regressor().fit(rows, y)
    with pytest.raises(TypeError, match="`X` and `sample_weight` must both"):
        regressor().fit(rows, targets, sample_weight=np.ones(1500))
    with pytest.raises(TypeError, match="`X` and `y` must both"):
        regressor().fit(X, targets)
    with pytest.raises(ValueError, match="`y` must have 1500 rows as `X`, got 1499"):
        regressor().fit(rows, targets[1:])
    with pytest.raises(ValueError, match="in one chunk, got 3 chunks of columns"):
        regressor().fit(rows.rechunk((1500, 1)), targets)
    with pytest.raises(ValueError, match="`kernel` must not be 'precomputed'"):
        SketchedKernelRegressor("precomputed").fit(rows, targets)


def test_values_that_are_not_finite_are_found_where_they_are(large):
    X, y = large
    X = X.copy()
    X[801, 1] = np.nan
    model = regressor().fit(*dask_data(*large))
    before = model.coef_
    message = r"X contains NaN.*row 1 and column 1.*counted from row 800"
    with pytest.raises(ValueError, match=message):
        model.fit(*dask_data(X, y, rows=400))
    assert model.coef_ is before
    with pytest.raises(ValueError, match="`sketch` must not be LeverageSketch"):
        regressor(sketch="leverage").fit(*dask_data(*large))


def test_domains_of_kernels_are_checked(large):
    X, y = large
    with pytest.raises(ValueError, match=r"in \[0, 1\] for SobolevKernel"):
        SketchedKernelRegressor("sobolev", size=9).fit(*dask_data(X, y))


def test_fits_of_data_frames(large):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X, y = large
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y)
    parts = dd.from_pandas(frame, npartitions=3)
    found = regressor(alpha=1e-3).fit(parts[["a", "b", "c"]], parts["y"])
    assert found.feature_names_in_.tolist() == ["a", "b", "c"]
    expected = regressor(alpha=1e-3).fit(X, y).predict(X)
    lazy = found.predict(parts[["a", "b", "c"]])
    np.testing.assert_allclose(lazy.compute(), expected, atol=1e-6)


# Rows whose order changes between computations, as after shuffles and joins.


def unsteady(X, y):
    """Return X and y of one Dask array whose blocks are permuted at every call."""

    def permuted(block):
        return np.random.default_rng().permutation(block)

    (table,) = dask_data(np.column_stack([X, y]), rows=400)
    table = table.map_blocks(permuted, dtype=float, meta=np.empty((0, 4)))
    return table[:, :3], table[:, 3]


def shuffled_frame(X, y):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y)
    parts = dd.from_pandas(frame.assign(key=np.arange(len(y)) % 11), npartitions=6)
    table = parts.shuffle("key")
    return table[["a", "b", "c"]], table["y"]


@pytest.mark.parametrize("make", [unsteady, shuffled_frame])
def test_rows_of_changing_order_are_refused_unless_persisted(large, make):
    rows, targets = make(*large)
    kept = dask.persist(rows, targets)
    here = [np.asarray(part) for part in dask.compute(*kept)]
    for model in (regressor(alpha=1e-3), SketchedSGDRegressor(**FIXED)):
        fit = getattr(model, "partial_fit", model.fit)
        try:
            fit(rows, targets)
        except ValueError as error:
            assert "persist X and y in one call" in str(error)
        else:  # a shuffle that happened to give the same order twice
            assert make is shuffled_frame and model.score(*kept) > 0.5
    expected = regressor(alpha=1e-3).fit(*here).score(*here)
    found = regressor(alpha=1e-3).fit(*kept).score(*kept)
    assert expected > 0.5 and found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("transformer", [SketchedFeatures, RandomFourierFeatures])
def test_features_read_their_targets_with_the_rows(large, transformer):
    rows, _ = dask_data(*large, rows=400)
    model = transformer(bandwidth="auto", size=20, random_state=0)
    with pytest.raises(ValueError, match=r"persist X and y in one call"):
        model.fit(rows, unsteady(*large)[1])


@pytest.mark.parametrize("make", [unsteady, shuffled_frame])
def test_scores_of_changing_order_compare_each_row_with_itself(large, make):
    X, y = large
    model = regressor(alpha=1e-3).fit(X, y)
    expected = model.score(X, y)
    rows, targets = make(X, y)
    if make is shuffled_frame:
        model.feature_names_in_ = np.array(["a", "b", "c"], dtype=object)
    assert model.score(rows, targets) == pytest.approx(expected, abs=1e-9)


def test_rows_and_targets_are_computed_together(large):
    X, y = large
    (table,) = dask_data(np.column_stack([X, y]), rows=100)
    calls = []
    table = table.map_blocks(
        lambda block: calls.append(1) or block, dtype=float, meta=np.empty((0, 4))
    )
    regressor(alpha=1e-3).fit(table[:, :3], table[:, 3])
    assert len(calls) <= 15 + 3  # each block, and three to compare


def test_blocks_of_another_length_than_their_chunk_are_refused(large):
    X, y = large
    rows, targets = dask_data(X, y, rows=400)
    short = rows.map_blocks(lambda block: block[:-1], meta=np.empty((0, 3)))
    with pytest.raises(ValueError, match=r"`X` must have .00 rows .* got .99: pass X"):
        regressor(alpha=1e-3).fit(short, targets)
    short = targets.map_blocks(lambda block: block[:-1], meta=np.empty(0))
    with pytest.raises(ValueError, match="`y` must have 1500 rows as `X`, got 1496"):
        regressor(alpha=1e-3).fit(rows, short)


@pytest.mark.parametrize("loss", ["square", "huber"])
@pytest.mark.parametrize("case", ["far", "cut", "float32"])
def test_claims_in_partitions_are_those_of_memory(case, loss):
    """Rounding of predictions, of directions of a sketch, and of features counts."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1400, 1 if case == "cut" else 3))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=1400) + 1e8 * (case == "far")
    X = X.astype(np.float32 if case == "float32" else np.float64)
    model = SketchedKernelRegressor(
        "gaussian", bandwidth=1.0, loss=loss, alpha=1e-5, size=40, tol=1e-3,
        sketch="subsampling", random_state=0,
    )  # fmt: skip
    here = model.fit(X, y).dual_gap_
    there = model.fit(*dask_data(X, y, rows=500)).dual_gap_
    np.testing.assert_allclose(there, here, rtol=0.3)
