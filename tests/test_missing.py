"""Missing values in any container: an error with their places, or a missing value."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone, is_classifier

from nbsketch import (
    GaussianKernel,
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
from nbsketch.conformal import ConformalClassifier, ConformalRegressor
from nbsketch.metrics import pinball_loss

N = 40
HOLES = np.isin(np.arange(N), [3, 7])
GIVEN = {"bandwidth": 1.0, "random_state": 0}
RIDGE = SketchedKernelRegressor(alpha=1e-2, **GIVEN)
KERNEL_MODELS = [
    RIDGE,
    SketchedKernelRegressor(loss="huber", alpha=1e-2, **GIVEN),
    JointQuantileRegressor(alpha=1e-2, **GIVEN),
    SpectralFilterRegressor(alpha=1e-2, **GIVEN),
    SketchedSGDRegressor(**GIVEN),
    ConformalRegressor(RIDGE, random_state=0),
    ConformalRegressor(RIDGE, method="cv+", random_state=0),
    SketchedKernelClassifier(alpha=1e-2, **GIVEN),
    SketchedSGDClassifier(**GIVEN),
]
TABLES = [
    TabularKernelRegressor(random_state=0),
    TabularKernelClassifier(random_state=0),
    ConformalRegressor(TabularKernelRegressor(random_state=0), random_state=0),
    ConformalClassifier(TabularKernelClassifier(random_state=0), random_state=0),
]
TRANSFORMERS = [SketchedFeatures(**GIVEN), RandomFourierFeatures(**GIVEN)]


def names(model):
    inner = getattr(model, "estimator", None)
    return type(model).__name__ + (f"-{type(inner).__name__}" if inner else "")


def each(models):
    return pytest.mark.parametrize("model", models, ids=names)


def data(model):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=N)
    return X, np.where(y > 0, 1.0, 0.0) if is_classifier(model) else y


def with_holes(values, container):
    """Return values of which those at rows 3 and 7 are missing."""
    objects = np.where(HOLES, None, values.astype(object))
    if container == "masked":
        return np.ma.masked_array(np.where(HOLES, -999.0, values), HOLES)
    if container == "list":
        return objects.tolist()
    if container == "dask":
        array = pytest.importorskip("dask.array")
        return array.from_array(objects, chunks=20)
    if container == "dask-masked":
        array = pytest.importorskip("dask.array")
        return array.ma.masked_array(array.from_array(values, chunks=20), HOLES)
    if container in ("Float64", "NA"):
        pandas = pytest.importorskip("pandas")
        series = pandas.Series(np.where(HOLES, np.nan, values)).astype("Float64")
        return series if container == "Float64" else series.to_numpy(dtype=object)
    return objects


CONTAINERS = "objects", "list", "masked", "Float64", "NA", "dask", "dask-masked"


@pytest.mark.parametrize("container", CONTAINERS)
@each(KERNEL_MODELS + TABLES)
def test_missing_targets_are_located(model, container):
    X, y = data(model)
    targets = with_holes(y, container)
    if container.startswith("dask"):
        if not hasattr(model, "estimator"):
            X = pytest.importorskip("dask.array").from_array(X, chunks=(20, 3))
        else:
            targets = targets.compute()
    where = r"Input y contains NaN.* in 2 of 40 values, rows 3, 7$"
    with pytest.raises(ValueError, match=where):
        clone(model).fit(X, targets)


@pytest.mark.parametrize("container", ["objects", "list", "NA", "masked"])
def test_missing_outputs_of_structures_are_located(container):
    X, y = data(RIDGE)
    Y = y[:, None]
    holes = HOLES[:, None]
    column = np.where(holes, None, Y.astype(object))
    if container == "list":
        column = column.tolist()
    if container == "NA":
        column[holes] = pytest.importorskip("pandas").NA
    if container == "masked":
        column = np.ma.masked_array(Y, holes)
    model = InputOutputKernelRegressor(bandwidth=1.0, output_bandwidth=1.0)
    with pytest.raises(ValueError, match=r" in 2 of 40 values, rows 3, 7 and column 0"):
        model.fit(X, column)


def masked_rows(X):
    bad = X.copy()
    bad[HOLES, 1] = -999.0
    mask = np.zeros(X.shape, dtype=bool)
    mask[HOLES, 1] = True
    return np.ma.masked_array(bad, mask)


@each(KERNEL_MODELS + TRANSFORMERS)
def test_masked_rows_are_located(model):
    X, y = data(model)
    masked = masked_rows(X)
    where = r"Input X contains NaN \(masked values\), .* rows 3, 7 and column 1; impute"
    with pytest.raises(ValueError, match=where):
        clone(model).fit(masked, y)
    model = clone(model).fit(X, y)
    apply = getattr(model, "transform", None) or model.predict
    with pytest.raises(ValueError, match=where):
        apply(masked)
    assert_array_equal(apply(np.ma.masked_array(X)), apply(X))


@each([RIDGE, SketchedKernelClassifier(alpha=1e-2, **GIVEN)])
def test_masked_rows_of_dask_are_located(model):
    array = pytest.importorskip("dask.array")
    X, y = data(model)
    masked = masked_rows(X)
    rows = array.ma.masked_array(
        array.from_array(masked.data, chunks=(20, 3)), masked.mask
    )
    with pytest.raises(ValueError, match=r"\(masked values\), .* rows 3, 7 and col"):
        clone(model).fit(rows, array.from_array(y, chunks=20))
    predictions = clone(model).fit(X, y).predict(rows)
    with pytest.raises(ValueError, match=r"\(masked values\), .* rows 3, 7 and col"):
        predictions.compute()


@each(KERNEL_MODELS + TABLES)
def test_masked_weights_groups_and_scored_targets_are_located(model):
    X, y = data(model)
    holes = np.ma.masked_array(np.ones(N), HOLES)
    with pytest.raises(ValueError, match=r"Input sample_weight .*, rows 3, 7; use"):
        clone(model).fit(X, y, sample_weight=holes)
    with pytest.raises(ValueError, match=r"Input groups .*, rows 3, 7$"):
        clone(model).set_params(cv=2).fit(X, y, groups=holes)
    text = np.where(HOLES, None, np.array(["a", "b"], dtype=object)[np.arange(N) % 2])
    with pytest.raises(ValueError, match=r"Input groups .*, rows 3, 7$"):
        clone(model).set_params(cv=2).fit(X, y, groups=text)
    model = clone(model).fit(X, y)
    with pytest.raises(ValueError, match=r"Input y .*, rows 3, 7$"):
        model.score(X, np.ma.masked_array(y, HOLES))


def masked_table(kind):
    """Return two columns of one kind; two values of the first are masked."""
    rng = np.random.default_rng(0)
    columns = {
        "numbers": rng.normal(size=N),
        "integers": rng.integers(9, size=N),
        "text": np.array(["a", "b", "c"])[np.arange(N) % 3],
        "dates": np.datetime64("2024-01-01") + np.arange(N),
        "numbers as text": np.arange(N).astype(str),
    }
    values = np.stack([columns[kind], columns[kind][::-1]], axis=1)
    mask = np.zeros(values.shape, dtype=bool)
    mask[HOLES, 0] = True
    return np.ma.masked_array(values, mask)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("kind", ["numbers", "integers", "text", "dates"])
@each(TABLES)
def test_masked_values_of_tables_are_missing(model, kind):
    y = data(model)[1]
    masked = masked_table(kind)
    gaps = np.where(masked.mask, None, masked.data.astype(object))
    expected = clone(model).fit(gaps, y)
    model = clone(model).fit(masked, y)
    assert_array_equal(model.predict(masked), expected.predict(gaps))


def test_masked_text_of_numbers_is_read_as_numbers():
    y = data(RIDGE)[1]
    masked = masked_table("numbers as text")
    model = TabularKernelRegressor(random_state=0).fit(masked, y)
    numbers = np.ma.masked_array(masked.data.astype(float), masked.mask).filled(np.nan)
    expected = TabularKernelRegressor(random_state=0).fit(numbers, y)
    assert model.columns_.feature_names.tolist() == ["x0", "x0_missing", "x1"]
    assert_array_equal(model.predict(masked), expected.predict(numbers))


def test_objects_of_numbers_are_targets_of_learned_features():
    X, y = data(RIDGE)
    given = {"bandwidth": "auto", "size": 20, "random_state": 0}
    expected = SketchedFeatures(**given).fit(X, y).length_scales_
    learned = SketchedFeatures(**given).fit(X, y.astype(object)).length_scales_
    assert_array_equal(learned, expected)
    with pytest.raises(ValueError, match=r"Input y contains NaN, .* rows 3, 7$"):
        SketchedFeatures(**given).fit(X, with_holes(y, "objects"))


@pytest.mark.parametrize(
    "model", [SketchedKernelClassifier(**GIVEN), *TABLES[1::2]], ids=names
)
def test_labels_of_several_types_are_refused(model):
    X, y = data(model)
    labels = np.array(["yes" if label else 0 for label in y], dtype=object)
    with pytest.raises(TypeError, match="`y` must hold labels of one type, got int, s"):
        clone(model).fit(X, labels)


@pytest.mark.parametrize("order", [1, -1])
def test_masked_arrays_of_kernels_and_metrics_are_refused(order):
    X = np.arange(6.0).reshape(3, 2)
    masked = np.ma.masked_array(X, mask=X == 3)
    with pytest.raises(ValueError, match=r"contains NaN \(masked values\).* row 1 and"):
        GaussianKernel(1.0)(*(masked, X)[::order])
    pair = (np.ma.masked_array(X[:, 0], mask=X[:, 0] == 2), X[:, 0])[::order]
    with pytest.raises(ValueError, match=r"contains NaN \(masked values\).*row"):
        pinball_loss(*pair, 0.5)
