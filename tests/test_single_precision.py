"""Rows in single precision: the model of double precision, and float32 storage."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from nbsketch import (
    GaussianKernel,
    InputOutputKernelRegressor,
    LaplacianKernel,
    MaternKernel,
    PolynomialKernel,
    PSparsifiedSketch,
    SketchedFeatures,
    SketchedKernelRegressor,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
    SubsamplingSketch,
    TanimotoKernel,
    load,
)
from nbsketch._sketch_map import SketchMap, sketched_design
from nbsketch.gram import SketchedColumns, SymmetricGram

# Largest ratio of the errors of the two types.
RATIO = 1.03


def friedman(n, seed=0):
    """Return X (n, 5), a smooth function of it, and noisy targets."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 5))
    f = 2 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 4 * (X[:, 2] - 0.5) ** 2 + X[:, 3]
    return X, f, f + 0.05 * rng.normal(size=n)


def error(model, dtype, n=400):
    """Return the root mean squared error on new rows of a fit in a type."""
    X, _, y = friedman(n)
    new, f, _ = friedman(1000, seed=1)
    model.fit(X.astype(dtype), y)
    return np.sqrt(np.square(model.predict(new.astype(dtype)) - f).mean())


@pytest.mark.parametrize(
    "model",
    [
        SketchedKernelRegressor(random_state=0),
        pytest.param(
            SketchedKernelRegressor(size=200, random_state=0), marks=pytest.mark.full
        ),
        pytest.param(
            SketchedKernelRegressor(loss="huber", size=200, random_state=0),
            marks=pytest.mark.full,
        ),
        SketchedKernelRegressor(sketch="identity", bandwidth=1.0, alpha=1e-7),
        SketchedKernelRegressor(bandwidth=2.0, size="auto", random_state=0),
        SpectralFilterRegressor(bandwidth=2.0, size=200, random_state=0),
        SketchedSGDRegressor(bandwidth=0.5, size=100, random_state=0),
    ],
    ids=["default", "square", "huber", "exact", "auto", "spectral", "sgd"],
)
def test_errors_are_those_of_double_precision(model):
    assert error(model, np.float32) <= RATIO * error(model, np.float64)


def test_long_length_scales_keep_their_rank():
    # Eigenvalues of S K S^T fall to 1e-12 of the largest: single precision has 1e-7.
    X, _, y = friedman(500)
    fits = {}
    for dtype in (np.float64, np.float32):
        model = SketchedKernelRegressor(
            bandwidth=4.0, size=150, alpha=1e-9, random_state=0
        )
        fits[dtype] = model.fit(X.astype(dtype), y)
    ranks = [fits[dtype].rank_ for dtype in (np.float32, np.float64)]
    assert abs(ranks[0] - ranks[1]) <= 1 and ranks[1] > 50


def test_structured_scores_are_those_of_double_precision():
    X, f, _ = friedman(300)
    Y = (f[:, None] > np.quantile(f, [0.2, 0.4, 0.6, 0.8])).astype(float)
    options = {"sketch": PSparsifiedSketch(80), "output_sketch": SubsamplingSketch(20)}
    model = InputOutputKernelRegressor("gaussian", bandwidth=1.0, **options)
    model.set_params(random_state=0, alpha=1e-6)
    predictions = [
        np.asarray(model.fit(X[:200].astype(dtype), Y[:200]).predict(X[200:]))
        for dtype in (np.float32, np.float64)
    ]
    assert (predictions[0] == predictions[1]).mean() > 0.99


def test_a_saved_model_predicts_the_same(tmp_path):
    X, _, y = friedman(400)
    rows = X.astype(np.float32)
    model = SketchedKernelRegressor(size=100, random_state=0).fit(rows, y)
    model.save(tmp_path / "model.npz")
    assert_array_equal(load(tmp_path / "model.npz").predict(rows), model.predict(rows))


def test_rows_and_features_are_stored_in_their_type():
    X = friedman(300)[0].astype(np.float32)
    model = SketchedFeatures(bandwidth=1.0, size=40, random_state=0)
    assert model.fit_transform(X).dtype == model.transform(X).dtype == np.float32
    assert model.landmarks_.dtype == np.float32
    kernel, sketch = GaussianKernel(1.0), PSparsifiedSketch(30).draw(300, 0)
    sketch_map = SketchMap.of(kernel, X, sketch)
    P, design = sketched_design(sketch_map, X, keep=True)
    assert design.dtype == np.float32 and P.dtype == np.float64
    double_map = SketchMap.of(kernel, X.astype(float), sketch)
    double = sketched_design(double_map, X.astype(float))
    assert_allclose(design.Z @ design.Z.T, double[1].Z @ double[1].Z.T, atol=1e-5)


@pytest.mark.parametrize("n_features", [5, 40])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    "kernel", [GaussianKernel(1.5), MaternKernel(2.0), TanimotoKernel()], ids=repr
)
def test_kernel_values_are_those_of_double_precision(kernel, form, n_features, rng):
    X, L = (rng.random((n, n_features)).astype(np.float32) for n in (60, 30))
    double = kernel(form(X.astype(float)), form(L.astype(float)))
    assert_array_equal(kernel(form(X), form(L)), double.astype(np.float32))
    weights = rng.standard_normal((4, 30))
    product = SketchMap(kernel, form(L), weights)(form(X))
    assert_allclose(product, weights @ double.T, rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_rows_are_solved_in_double_precision_and_certified(dtype, rng):
    X = rng.uniform(-1, 1, size=(300, 3)).astype(np.float32).astype(dtype)
    y, options = np.sin(X.sum(axis=1)), {"bandwidth": 2.0, "preprocessing": None}
    known = options | {"sketch": "identity", "alpha": 1e-11}
    model = SketchedKernelRegressor(**known).fit(X, y)
    assert 0 < model.dual_gap_ < 1e-4  # it is computed from residuals
    double = SketchedKernelRegressor(**known).fit(X.astype(np.float64), y)
    assert_allclose(model.objective_, double.objective_, rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-140, 1e-44, 1e-39, 1e38, 1e39, 1e140])
@pytest.mark.parametrize("kernel", [GaussianKernel, LaplacianKernel, MaternKernel])
def test_rows_beyond_single_precision_are_evaluated_in_double(kernel, unit, rng):
    X = rng.uniform(-1, 1, size=(60, 2))
    V = rng.normal(size=(60, 1))
    sketch = SubsamplingSketch(9).draw(60, 0)
    K = kernel(1.0)(X)
    assert_allclose(SymmetricGram(kernel(unit), unit * X) @ V, K @ V, rtol=1e-9)
    columns = SketchedColumns(kernel(unit), unit * X, sketch, dtype=np.float32)
    assert_allclose(columns.times(np.eye(9)), (sketch @ K).T, rtol=1e-9)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_values_beyond_single_precision_are_evaluated_in_double(make, rng):
    X = 1e4 * rng.uniform(-1, 1, size=(60, 2))
    kernel = PolynomialKernel(degree=6)
    gram = SymmetricGram(kernel, make(X))
    V = rng.normal(size=(60, 1))
    assert gram.dtype == np.float64
    assert_allclose(gram @ V, kernel(X) @ V, rtol=1e-9)


@pytest.mark.parametrize("loss", ["square", "huber"])
@pytest.mark.parametrize("unit", [1e-60, 1e39])
def test_fits_do_not_depend_on_huge_and_tiny_units(loss, unit, monkeypatch):
    monkeypatch.setattr("nbsketch.fitting.plan._DENSE_ROWS", 0)
    X, _, y = friedman(400)
    params = {"bandwidth": "median", "loss": loss, "alpha": 1e-4, "random_state": 0}
    model = SketchedKernelRegressor(**params).fit(X, y)
    scaled = SketchedKernelRegressor(**params).fit(unit * X, y)
    assert_allclose(scaled.predict(unit * X), model.predict(X), atol=1e-3)


@pytest.mark.parametrize(
    "kernel, unit",
    [("linear", 1e17), ("linear", 1e37), ("polynomial", 1e17), ("gaussian", 1e37)],
)
def test_large_rows_in_single_precision_are_those_in_double(kernel, unit, rng):
    X = (unit * rng.uniform(-1, 1, size=(300, 3))).astype(np.float32)
    y = X[:, 0] / unit + 0.1 * rng.normal(size=300)
    params = {"kernel": kernel, "random_state": 0}
    many = [
        SketchedKernelRegressor(loss=loss, **params) for loss in ("square", "huber")
    ]
    many += [SketchedSGDRegressor(size=9, **params), SpectralFilterRegressor(**params)]
    for model in many:
        found = model.fit(X, y).predict(X)
        expected = clone(model).fit(X.astype(float), y).predict(X.astype(float))
        assert_array_equal(found, expected)
    features = SketchedFeatures(kernel, size=9, random_state=0)
    assert features.fit_transform(X).dtype == np.float64
    assert features.fit_transform(X / np.float32(unit)).dtype == np.float32


def test_an_excessive_distance_from_the_optimum_is_unknown(rng):
    X = 1e39 * rng.uniform(-1, 1, size=(300, 3))
    model = SketchedKernelRegressor("linear", loss="huber", alpha=1e-3)
    with pytest.warns(ConvergenceWarning, match="the optimum is unknown. Raise"):
        model.fit(X, X[:, 0] / 1e39 + 0.1 * rng.normal(size=300))
