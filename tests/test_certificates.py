"""Certificates of fitted models, and fits in which rounding decides."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch import (
    InputOutputKernelRegressor,
    SketchedFeatures,
    SketchedKernelRegressor,
    SpectralFilterRegressor,
)


def scaled_columns(scales, n=300, noise=0.01, seed=0):
    """Return columns of given scales and targets to which each adds one unit."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, len(scales)))
    y = X.sum(axis=1) + noise * rng.normal(size=n)
    return X * scales, y


@pytest.mark.parametrize("scales", [[1, 1e6, 1], [1e-6, 1, 1e3], [1, 1e9, 1]])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sketch": "identity"},
        {"size": 50},
        {"size": "auto"},
        {"sketch": "p-sparsified", "size": 50, "cv": 5},
        {"alpha": 1e-16},
        {"max_seconds": 60},
    ],
    ids=str,
)
def test_a_linear_kernel_keeps_columns_of_any_scale(scales, options):
    X, y = scaled_columns(scales)
    model = SketchedKernelRegressor("linear", random_state=0, **options).fit(X, y)
    assert model.score(X, y) > 0.9999
    assert model.rank_ == 3
    assert_allclose(model.coef_ * scales, 1, rtol=0.01)


def test_filters_features_and_structured_outputs_keep_columns_of_any_scale():
    X, y = scaled_columns([1, 1e6, 1])
    model = SpectralFilterRegressor("linear", random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9999
    Z = SketchedFeatures("linear", random_state=0).fit_transform(X)
    assert_allclose(Z, X)
    Y = np.column_stack([y, 2 * y])
    structured = InputOutputKernelRegressor("linear", "linear", alpha=1e-9)
    assert_allclose(structured.fit(X, Y).predict(X), Y, atol=0.2)


@pytest.mark.parametrize("alpha", [1e-8, 1e-12, 1e-14])
@pytest.mark.parametrize("sketch", [None, "identity"])
def test_a_linear_kernel_keeps_its_digits_for_a_given_penalty(sketch, alpha):
    rng = np.random.default_rng(0)
    X = np.column_stack([100 * rng.normal(size=(400, 4)), 1.7e9 + np.arange(400) * 1e4])
    y = X[:, :4] @ np.arange(1.0, 5.0) + (X[:, 4] - 1.7e9) / 1e6
    options = {"sketch": sketch, "alpha": alpha}
    model = SketchedKernelRegressor("linear", **options).fit(X, y)
    assert_allclose(model.predict(X), y, atol=1e-6)


def test_a_linear_kernel_with_more_columns_than_rows_is_sketched():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 60))
    model = SketchedKernelRegressor("linear", alpha=1e-3, sketch="identity")
    model.fit(X, X[:, 0])
    assert model.sketch_.is_identity
    assert len(model.landmarks_) == 40


def test_the_summary_names_the_columns_of_a_linear_kernel():
    X, y = scaled_columns([1, 1e6, 1])
    text = SketchedKernelRegressor("linear", random_state=0).fit(X, y).summary()
    assert "the columns of X" in text
    assert "exact, closed form" in text
