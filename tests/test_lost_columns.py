"""Columns that a kernel loses beside columns of a larger scale are told by name."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from nbsketch import (
    GaussianKernel,
    InputOutputKernelRegressor,
    JointQuantileRegressor,
    LaplacianKernel,
    LinearKernel,
    PolynomialKernel,
    RandomFourierFeatures,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
)
from nbsketch.fitting.lost_columns import lost_columns

POLYNOMIAL = {"kernel": PolynomialKernel(degree=2), "random_state": 0}
ALPHA = POLYNOMIAL | {"alpha": 1e-3}
# Rounding decides what is left of these columns.
ROUNDING = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def rows(scale, n=120, q=3):
    """Return rows of which column 1 has another scale than the others."""
    scales = np.ones(q)
    scales[1] = scale
    return np.random.default_rng(0).normal(size=(n, q)) * scales


def inner_products(X, Y):
    return X @ Y.T


@pytest.mark.parametrize("n", [30, 120, 2000])
@pytest.mark.parametrize(
    ("kernel", "scale"),
    [
        (PolynomialKernel(degree=2), 1e3),
        (PolynomialKernel(degree=2), 1e6),
        (PolynomialKernel(degree=2), 1e9),
        (PolynomialKernel(degree=3), 1e3),
        (LinearKernel(), 1e6),
        (LinearKernel(), 1e9),
        (GaussianKernel(bandwidth=1e6), 1e6),
    ],
)
def test_small_columns_are_lost(kernel, scale, n):
    assert lost_columns(kernel, rows(scale, n)).tolist() == [0, 2]
    assert lost_columns(kernel, rows(scale, n) + 1.0).tolist() == [0, 2]
    assert lost_columns(kernel, np.repeat(rows(scale, n), 3, 0)).tolist() == [0, 2]


@pytest.mark.parametrize("n", [12, 120, 2000])
@pytest.mark.parametrize(
    ("kernel", "scale"),
    [
        (PolynomialKernel(degree=1), 1e3),
        (PolynomialKernel(degree=2), 1.0),
        (PolynomialKernel(degree=2), 30.0),
        (PolynomialKernel(degree=5), 1.0),
        (LinearKernel(), 1e3),
        (GaussianKernel(bandwidth=1.0), 1e6),  # rows that are all far from each other
        (GaussianKernel(bandwidth=1e3), 1e3),
        (LaplacianKernel(bandwidth=1e3), 1e3),
    ],
)
def test_other_columns_are_not(kernel, scale, n):
    assert not len(lost_columns(kernel, rows(scale, n)))


def test_constant_columns_are_not_lost():
    X = rows(1e6)
    constants = np.full((len(X), 5), [0.1, 0.3, 1 / 3, 7.7, 1e3 / 7])
    constant = np.column_stack([X[:, 1], constants])
    assert not len(lost_columns(PolynomialKernel(), constant))


@ROUNDING
@pytest.mark.parametrize(
    "model",
    [
        SketchedKernelRegressor(**POLYNOMIAL),
        SketchedKernelRegressor(inner_products, random_state=0),
        SketchedKernelRegressor("gaussian", bandwidth="median", random_state=0),
        SketchedKernelRegressor(size=40, loss="huber", **ALPHA),
        JointQuantileRegressor(quantiles=(0.3, 0.7), size=40, **ALPHA),
        SketchedKernelClassifier(**ALPHA),
        SketchedSGDRegressor(n_epochs=1, **POLYNOMIAL),
        SpectralFilterRegressor(**POLYNOMIAL),
        InputOutputKernelRegressor(size=40, sketch="subsampling", **ALPHA),
        SketchedFeatures(**POLYNOMIAL),
        SketchedFeatures(random_state=0),
        RandomFourierFeatures(random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_estimator_names_them(model):
    X = pd.DataFrame(rows(1e6), columns=["age", "income", "rooms"])
    y = X["age"] > 0 if isinstance(model, SketchedKernelClassifier) else X["age"]
    y = y.to_frame() if isinstance(model, InputOutputKernelRegressor) else y
    with pytest.warns(UserWarning, match=r"columns 0 \('age'\), 2 \('rooms'\)"):
        model.fit(X, y)


@ROUNDING
@pytest.mark.parametrize("kind", ["float32", "sparse", "dask", "memmap"])
def test_containers(kind, tmp_path):
    X = rows(1e6)
    y = X[:, 0]
    if kind == "float32":
        X = X.astype(np.float32)
    elif kind == "sparse":
        X = sp.csr_array(X)
    elif kind == "dask":
        da = pytest.importorskip("dask.array")
        y = da.from_array(y, chunks=40)
        X = da.from_array(X, chunks=(40, 3))
    else:
        stored = np.memmap(tmp_path / "X", dtype=float, mode="w+", shape=X.shape)
        stored[:] = X
        X = stored
    with pytest.warns(UserWarning, match=r"on columns 0, 2 of `X`"):
        SketchedKernelRegressor(sketch="subsampling", size=40, **ALPHA).fit(X, y)


@pytest.mark.filterwarnings("error:the kernel hardly:UserWarning")
@pytest.mark.parametrize(
    "model",
    [
        SketchedKernelRegressor(random_state=0),
        SketchedKernelRegressor("linear", random_state=0),
        SketchedKernelRegressor(preprocessing="standard", **POLYNOMIAL),
        SketchedKernelRegressor(preprocessing="rank", **POLYNOMIAL),
        SketchedFeatures("linear", random_state=0),
        SketchedFeatures(bandwidth="auto", random_state=0),
    ],
)
def test_no_warning_where_scales_do_not_matter(model):
    X = rows(1e6)
    model.fit(X, X[:, 0])


@pytest.mark.parametrize(
    "model",
    [
        SketchedKernelRegressor(**POLYNOMIAL),
        SketchedKernelRegressor(**POLYNOMIAL, loss="huber", size=50),
        JointQuantileRegressor(**POLYNOMIAL),
        SpectralFilterRegressor(**POLYNOMIAL),
    ],
)
@pytest.mark.filterwarnings("ignore:no penalty")
def test_squares_that_are_lost_at_an_offset_are_told_if_targets_depend_on_them(model):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (300, 2))
    noise = 0.05 * rng.normal(size=300)
    shifted = X + np.array([0, 2023])
    lines = X.sum(axis=1) + noise
    with pytest.warns(UserWarning, match="has lost squares of column 1 of `X`"):
        model.fit(shifted, lines + 6 * X[:, 1] ** 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(shifted[:, [1]], X[:, 1] + noise)
        model.fit(X + 20, lines + 6 * X[:, 1] ** 2)


@pytest.mark.parametrize(
    "model",
    [
        SketchedKernelClassifier(**POLYNOMIAL),
        SketchedKernelClassifier(loss="logistic", **POLYNOMIAL),
        SketchedSGDClassifier(**POLYNOMIAL),
        SketchedSGDRegressor(**POLYNOMIAL),
        SketchedKernelRegressor(loss="poisson", **POLYNOMIAL),
    ],
    ids=str,
)
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.filterwarnings("ignore:no penalty")
def test_lost_squares_of_classes_counts_and_steps_are_told(model, container):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (300, 2))
    shifted = X + np.array([0, 2023])
    y = (X[:, 0] + 6 * X[:, 1] ** 2 > 0.5).astype(int)
    if hasattr(model, "loss") and model.loss == "poisson":
        y = rng.poisson(np.exp(X[:, 0] + 12 * X[:, 1] ** 2))
    with pytest.warns(UserWarning, match="has lost squares of column 1 of `X`"):
        model.fit(container(shifted), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(container(X + 2), y)


def test_squares_that_a_penalty_shrinks_are_not_lost(recwarn):
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (300, 1))
    model = SketchedKernelRegressor(**POLYNOMIAL | {"alpha": 1e3})
    model.fit(X, np.square(X[:, 0]))
    assert not recwarn.list
