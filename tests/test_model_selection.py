"""Cross-validation against plain refits on the same features."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch import (
    GaussianKernel,
    JointQuantileRegressor,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
)
from nbsketch.losses import HuberLoss
from nbsketch.model_selection import cross_validate
from nbsketch.solvers.newton import solve_scalar

WIDTHS, ALPHAS = [0.3, 1.0], [1e-2, 1e-4]


def make_data(n=120):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n)


def folds(n, cv):
    for left_out in np.array_split(np.arange(n), cv):
        yield np.delete(np.arange(n), left_out), left_out


@pytest.mark.parametrize("loss", ["square", HuberLoss(1.0)])
def test_errors_are_those_of_refits_on_the_same_features(loss):
    X, y = make_data()
    common = {"sketch": "p-sparsified", "size": 15, "random_state": 3}
    model = SketchedKernelRegressor(loss=loss, tol=1e-9, **common)
    result = cross_validate(model, X, y, WIDTHS, ALPHAS, cv=4)
    expected = np.zeros((2, 2))
    for i, width in enumerate(WIDTHS):
        features = SketchedFeatures(bandwidth=width, **common)
        Z = features.fit_transform(X)
        for j, alpha in enumerate(ALPHAS):
            for kept, left_out in folds(len(X), 4):
                fit = solve_scalar(Z[kept], y[kept], loss, alpha, tol=1e-9)
                residual = y[left_out] - Z[left_out] @ fit.coef - fit.intercept
                value = residual**2 if loss == "square" else _huber(residual)
                expected[i, j] += value.sum() / len(X)
    assert_allclose(result.errors[:, :, 0], expected, rtol=1e-5)


def _huber(r):
    return np.where(np.abs(r) <= 1, r * r / 2, np.abs(r) - 0.5)


def test_without_a_sketch_errors_are_those_of_exact_refits():
    X, y = make_data()
    model = SketchedKernelRegressor(sketch="identity")
    result = cross_validate(model, X, y, WIDTHS, ALPHAS, cv=3)
    total = 0.0
    for kept, left_out in folds(len(X), 3):
        fit = SketchedKernelRegressor(
            GaussianKernel(0.3), sketch="identity", alpha=1e-2
        ).fit(X[kept], y[kept])
        total += np.square(y[left_out] - fit.predict(X[left_out])).sum() / len(X)
    assert_allclose(result.errors[0, 0, 0], total, rtol=1e-10)


def test_several_outputs_and_the_scale_of_each():
    X, y = make_data()
    Y = np.column_stack([y, 1000 * X[:, 1] ** 2])
    result = cross_validate(
        SketchedKernelRegressor(size=20, random_state=0), X, Y, WIDTHS, ALPHAS
    )
    assert result.errors.shape == (2, 2, 2)
    width, alpha = result.best(Y.var(axis=0))
    assert width in WIDTHS
    assert alpha in ALPHAS


@pytest.mark.parametrize(
    "model",
    [
        SketchedKernelClassifier(loss="logistic", size=20, random_state=0),
        JointQuantileRegressor(size=20, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_other_estimators_prefer_what_fits(model):
    X, y = make_data(300)
    target = y > 0 if isinstance(model, SketchedKernelClassifier) else y
    result = cross_validate(model, X, target, [1e-3, 1.0], [10.0, 1e-3])
    assert result.best() == (1.0, 1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bandwidths": [-1.0]}, "`bandwidths` must be in"),
        ({"alphas": [0.0]}, "`alphas` must be in"),
        ({"cv": 1}, "`cv` must be at least 2"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    X, y = make_data()
    arguments = {"bandwidths": WIDTHS, "alphas": ALPHAS} | change
    with pytest.raises(ValueError, match=message):
        cross_validate(SketchedKernelRegressor(size=5), X, y, **arguments)
