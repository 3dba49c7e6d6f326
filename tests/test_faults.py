"""Errors for missing, infinite and text values: where they are, what to do."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from sklearn.base import is_regressor

from nbsketch import (
    InputOutputKernelRegressor,
    JointQuantileRegressor,
    RandomFourierFeatures,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
    TabularKernelClassifier,
    TabularKernelRegressor,
)
from nbsketch._report.validation import explaining, fault

MODELS = [
    SketchedKernelRegressor(bandwidth=1.0, alpha=1e-2),
    SketchedKernelClassifier(bandwidth=1.0, alpha=1e-2),
    JointQuantileRegressor(bandwidth=1.0, alpha=1e-2),
    SpectralFilterRegressor(bandwidth=1.0, alpha=1e-2),
    SketchedSGDRegressor(bandwidth=1.0),
    SketchedSGDClassifier(bandwidth=1.0),
    InputOutputKernelRegressor(bandwidth=1.0),
    SketchedFeatures(bandwidth=1.0),
    RandomFourierFeatures(bandwidth=1.0),
]
EVERY_MODEL = pytest.mark.parametrize(
    "model", MODELS, ids=lambda model: type(model).__name__
)
TRANSFORMERS = SketchedFeatures, RandomFourierFeatures


def data(model=None):
    X = np.random.default_rng(0).normal(size=(20, 3))
    y = (X[:, 0] > 0).astype(float)
    is_structured = isinstance(model, InputOutputKernelRegressor)
    return X, y[:, None] if is_structured else y


def evaluate(model, X):
    return model.transform(X) if isinstance(model, TRANSFORMERS) else model.predict(X)


@EVERY_MODEL
def test_missing_values_are_located_and_the_model_is_kept(model):
    X, y = data(model)
    model.set_params(random_state=0).fit(X, y)
    expected = evaluate(model, X)
    bad = X.copy()
    bad[[2, 5], 1] = np.nan
    bad[5, 2] = -np.inf
    where = r"Input X contains NaN and infinity, .* in 3 of 60 values, rows 2, 5"
    where += r" and columns 1, 2; impute .*SimpleImputer\(\)"
    for call in (lambda: model.fit(bad, y), lambda: evaluate(model, bad)):
        with pytest.raises(ValueError, match=where):
            call()
    assert_array_equal(evaluate(model, X), expected)


@EVERY_MODEL
def test_text_columns_are_named(model):
    pandas = pytest.importorskip("pandas")
    X, y = data(model)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model.fit(frame, y)
    expected = evaluate(model, frame)
    for kind in (object, "category"):
        bad = frame.copy()
        bad["b"] = pandas.Series(["one", "two"] * 10).astype(kind)
        for call in (lambda bad=bad: model.fit(bad, y),
                     lambda bad=bad: evaluate(model, bad)):  # fmt: skip
            with pytest.raises(ValueError, match=r"column 1 \('b'\)") as error:
                call()
            assert "OneHotEncoder" in str(error.value)
            assert "['b']" in str(error.value)
    assert_array_equal(evaluate(model, frame), expected)


def test_the_remedies_of_the_errors_work():
    pandas = pytest.importorskip("pandas")
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    X, y = data()
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    frame["b"] = ["one", "two"] * 10
    names = {"make_column_transformer": make_column_transformer}
    names |= {"OneHotEncoder": OneHotEncoder, "make_pipeline": make_pipeline}
    names["model"] = SketchedKernelRegressor()
    message = fault("X", frame)
    lines = message.split("scikit-learn:\n")[1].split("\nor with")[0]
    exec("\n".join(line[4:] for line in lines.split("\n")), names)
    assert np.isfinite(names["model"].fit(frame, y).predict(frame)).all()
    X[3, 1] = np.nan
    model = make_pipeline(SimpleImputer(), SketchedKernelRegressor())
    assert np.isfinite(model.fit(X, y).predict(X)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_targets_and_weights(value):
    X, y = data()
    bad = y.copy()
    bad[7] = value
    for model in MODELS[:5]:
        model.fit(X, y)
        coef = model.coef_
        with pytest.raises(
            ValueError, match=r"Input y contains .* in 1 of 20 values, row 7$"
        ):
            model.fit(X, bad)
        with pytest.raises(
            ValueError, match=r"Input sample_weight .*, row 7; use weight 0"
        ):
            model.fit(X, y, sample_weight=bad)
        assert model.coef_ is coef
    validation = {"X_val": X, "y_val": bad}
    with pytest.raises(ValueError, match=r"Input y_val contains .*, row 7$"):
        SpectralFilterRegressor().fit(X, y, **validation)
    bad_rows = np.where(np.arange(20)[:, None] == 4, value, X)
    validation = {"X_val": bad_rows, "y_val": y}
    with pytest.raises(ValueError, match=r"Input X_val contains .*, row 4 and col"):
        SpectralFilterRegressor().fit(X, y, **validation)


def test_text_targets():
    X, y = data()
    labels = np.where(y > 0, "yes", "no")
    SketchedKernelClassifier().fit(X, labels)
    with pytest.raises(
        ValueError, match="could not convert string to float in rows 0, 1, 2"
    ):
        SketchedKernelRegressor().fit(X, labels.astype(object))
    # text in y is not what is wrong here
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN,"):
        SketchedKernelClassifier().fit(X, labels)


def test_sparse_rows_are_located():
    X, y = data()
    X[:, 0] = 0
    X[11, 2] = np.nan
    with pytest.raises(ValueError, match=", row 11 and column 2;"):
        SketchedKernelRegressor().fit(sp.csr_array(X), y)


def test_long_lists_are_cut():
    message = fault("X", np.full((30, 2), np.nan))
    assert "in 60 of 60 values, rows 0, 1, 2, 3, 4, ... (30 in all) and" in message


@pytest.mark.parametrize("value", [None, np.eye(2), [["1", "2.5"]], [1, 2]])
def test_other_errors_are_unchanged(value):
    assert fault("X", value) is None
    error = TypeError("something else")
    with pytest.raises(TypeError) as raised, explaining({"X": value}):
        raise error
    assert raised.value is error


def test_missing_objects():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, None], "b": [pandas.NA, 2]}, dtype=object)
    assert "in 2 of 4 values, rows 0, 1 and columns 0 ('a'), 1 ('b')" in fault(
        "X", frame
    )


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_columns_of_other_libraries_are_named(library):
    columns = {"a": [1.0, 2.0], "b": [np.nan, 3.0]}
    names = {"polars": "DataFrame", "pyarrow": "table"}
    frame = getattr(pytest.importorskip(library), names[library])(columns)
    assert "row 0 and column 1 ('b')" in fault("X", frame)


def test_dates_in_a_frame_are_named():
    pandas = pytest.importorskip("pandas")
    X, y = data()
    frame = pandas.DataFrame(X, columns=list("abc"))
    frame["day"] = pandas.date_range("2020-01-01", periods=len(X))
    with pytest.raises(TypeError, match=r"got datetime64.* in column 3 \('day'\); "):
        SketchedKernelRegressor().fit(frame, y)
    assert "got datetime64" in fault("X", frame[["day"]])


@EVERY_MODEL
def test_magnitudes_whose_squares_overflow_are_refused(model):
    X, y = data(model)
    expected = evaluate(model.set_params(random_state=0).fit(X, y), X)
    match = r"`X` must have magnitudes up to 1e\+140, got .*e\+200"
    for call in (model.fit, lambda X, y: evaluate(model, X)):
        with pytest.raises(ValueError, match=match):
            call(X * 1e200, y)
        with pytest.raises(ValueError, match=match):
            call(sp.csr_array(-1e200 * X), y)
    assert_array_equal(evaluate(model, X), expected)


@pytest.mark.parametrize(
    "model",
    [m for m in MODELS if is_regressor(m)],
    ids=lambda model: type(model).__name__,
)
def test_targets_whose_squares_overflow_are_refused(model):
    X, y = data()
    with pytest.raises(ValueError, match=r"`y` must have magnitudes up to"):
        model.fit(X, y * 1e200)


@pytest.mark.filterwarnings("ignore:the kernel hardly depends on column 2")
@EVERY_MODEL
def test_spreads_whose_squares_underflow_are_refused(model):
    X, y = data(model)
    expected = evaluate(model.set_params(random_state=0).fit(X, y), X)
    message = r"`X` must have a spread of at least 1e-150, got .*e-170 in columns 0, 1"
    for rows in (X * 1e-170, sp.csr_array(X * 1e-170)):
        with pytest.raises(ValueError, match=message):
            model.fit(rows, y)
    scales = [1.0, 1e-170, 1.0]
    with pytest.raises(ValueError, match=r"got .*e-170 in column 1, whose"):
        model.fit(X * scales, y)
    late = np.zeros((200, 2))  # not among the first rows
    late[:, 0] = np.tile(X[:, 0], 10)
    late[150, 1] = 1e-200
    with pytest.raises(ValueError, match=r"got 1e-200 in column 1, whose"):
        model.fit(late, np.tile(y.T, 10).T)
    assert_array_equal(evaluate(model, X), expected)
    evaluate(model, X * 1e-170)  # new rows may be near each other
    model.fit(X * [1.0, 0.0, 1e-140], y)  # constants have no spread


@pytest.mark.parametrize(
    "model",
    [m for m in MODELS if is_regressor(m)],
    ids=lambda model: type(model).__name__,
)
def test_targets_whose_squares_underflow_are_refused(model):
    X, y = data(model)
    with pytest.raises(ValueError, match=r"`[yY]` must have a spread of at least"):
        model.fit(X, y * 1e-170)
    model.fit(X, 0 * y + 3.0)  # a constant has no spread


def test_columns_of_tables_whose_squares_underflow_are_named():
    X, y = data()
    model = TabularKernelRegressor(random_state=0)
    with pytest.raises(ValueError, match=r"got .* in column 1 \('x1'\), whose"):
        model.fit(X * [1.0, 1e-170, 1.0], y)
    with pytest.raises(ValueError, match="`y` must have a spread of at least 1e-150"):
        model.fit(X, y * 1e-170)
    with pytest.raises(ValueError, match="`X` must have a spread of at least 1e-150"):
        TabularKernelClassifier(random_state=0).fit(X * 1e-170, y)


def test_rows_of_dask_whose_squares_underflow_are_refused():
    array = pytest.importorskip("dask.array")
    X, y = data()
    rows = array.from_array(X * 1e-170, chunks=(10, 3))
    with pytest.raises(ValueError, match="`X` must have a spread of at least 1e-150"):
        MODELS[0].fit(rows, array.from_array(y, chunks=10))


def test_weights_must_be_numbers():
    X, y = data()
    message = "`sample_weight` must be an array of numbers, got 'balanced'"
    with pytest.raises(ValueError, match=message):
        SketchedKernelRegressor().fit(X, y, sample_weight="balanced")


@pytest.mark.parametrize("missing", [None, np.nan])
def test_missing_labels_among_text_are_located(missing):
    X, y = data()
    labels = np.where(y > 0, "yes", "no").astype(object)
    labels[7] = missing
    with pytest.raises((TypeError, ValueError), match=r"y contains NaN, .* row 7"):
        SketchedKernelClassifier().fit(X, labels)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_inputs_with_one_axis_are_named_and_not_listed(model):
    X = np.arange(100.0)
    with pytest.raises(
        ValueError, match=r"`X` must have shape \(n, q\), got \(100,\)"
    ) as e:
        model.fit(X, X % 2)
    assert "X.reshape(-1, 1)" in str(e.value) and len(str(e.value)) < 250


@EVERY_MODEL
@pytest.mark.parametrize("kind", ["datetime64[D]", "timedelta64[h]"])
def test_arrays_of_dates_are_refused_as_frames_are(model, kind):
    """NumPy makes integers of them in their own unit, and -2**63 of NaT."""
    X, y = data(model)
    dates = np.arange(20).astype(kind)[:, None]
    message = rf"`X` must hold numbers, got {kind[:8]}.*; convert dates to numbers"
    with pytest.raises(TypeError, match=message):
        model.fit(dates, y)
    model.fit(X, y)
    with pytest.raises(TypeError, match=message):
        evaluate(model, np.tile(dates, 3))


def test_columns_of_other_objects_are_named():
    pandas = pytest.importorskip("pandas")
    X, y = data()
    frame = pandas.DataFrame({"a": X[:, 0], "b": pandas.cut(X[:, 1], 3)})
    with pytest.raises(TypeError, match=r"number, got Interval in column 1 \('b'\)"):
        SketchedKernelRegressor().fit(frame, y)
    objects = np.array([*y[:7].tolist(), {1}, *y[8:].tolist()], dtype=object)
    with pytest.raises(TypeError, match=r"number, got set in row 7"):
        SketchedKernelRegressor().fit(X, objects)
