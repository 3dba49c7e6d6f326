import sys
import types
import warnings

import numpy as np
import pytest

from nbsketch import (
    JointQuantileRegressor,
    RandomFourierFeatures,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
)

da = pytest.importorskip("dask.array")

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


def test_dask_is_imported_for_its_collections_only(run_python):
    code = "import sys, nbsketch.estimators, nbsketch.structured as _;"
    code += "print([name in sys.modules for name in ('dask', 'distributed')])"
    assert run_python(code).strip() == "[False, False]"


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
