"""Shapley values: brute force over all coalitions, and shap's exact explainer."""

import warnings
from itertools import product
from math import factorial

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from nbsketch import (
    GaussianKernel,
    JointQuantileRegressor,
    LaplacianKernel,
    PSparsifiedSketch,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
)
from nbsketch.explain import expected_value, shapley_values

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
Y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
PLAIN = {"alpha": 1e-3, "size": 30, "random_state": 0}


def brute_force(model, row, background):
    """Sum over all coalitions; absent features are drawn independently."""
    q = len(row)
    grid = np.array(list(product(*background.T)))
    value = {}
    for members in product([False, True], repeat=q):
        rows = np.where(members, row, grid)
        value[members] = model.predict(rows).mean(axis=0)
    out = []
    for j in range(q):
        total = 0.0
        for members in value:
            if not members[j]:
                k = sum(members)
                joined = tuple(m or i == j for i, m in enumerate(members))
                share = factorial(k) * factorial(q - 1 - k) / factorial(q)
                total = total + share * (value[joined] - value[members])
        out.append(total)
    return np.array(out), grid


MODELS = {
    "gaussian": SketchedKernelRegressor(GaussianKernel(1.0), **PLAIN),
    "lengths": SketchedKernelRegressor(GaussianKernel([1.0, 2.0, 0.5, 3.0]), **PLAIN),
    "laplacian": SketchedKernelRegressor(LaplacianKernel(2.0), **PLAIN),
    "matern": SketchedKernelRegressor("gaussian", preprocessing="both", **PLAIN),
    "sparse": SketchedKernelRegressor(
        GaussianKernel(1.0), alpha=1e-3, sketch=PSparsifiedSketch(20), random_state=0
    ),
    "all rows": SketchedKernelRegressor("laplacian", alpha=1e-3, sketch="identity"),
    "quantiles": JointQuantileRegressor(
        (0.2, 0.5, 0.8), kernel="gaussian", alpha=1e-3, size=20, non_crossing=None
    ),
    "spectral": SpectralFilterRegressor(kernel="gaussian", size=20, random_state=0),
    "sgd": SketchedSGDRegressor(kernel="gaussian", size=20, random_state=0),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_values_are_sums_over_all_coalitions(model):
    model.fit(X, Y)
    background = X[:3]
    values = shapley_values(model, X[:2], background)
    base = expected_value(model, background)
    for row, found in zip(X[:2], values, strict=True):
        expected, grid = brute_force(model, row, background)
        np.testing.assert_allclose(found, expected, atol=1e-9)
        np.testing.assert_allclose(base, model.predict(grid).mean(axis=0), atol=1e-9)


@pytest.mark.parametrize("name", ["lengths", "matern", "quantiles"])
def test_values_and_expectation_add_up_to_the_prediction(name):
    model = MODELS[name].fit(X, Y)
    total = shapley_values(model, X).sum(axis=1) + expected_value(model)
    np.testing.assert_allclose(total, model.predict(X), atol=1e-8)


@pytest.mark.parametrize("q", [1, 2, 3, 5])
def test_quadrature_is_exact_for_any_number_of_features(q):
    rng = np.random.default_rng(q)
    rows = rng.normal(size=(60, q))
    model = SketchedKernelRegressor(GaussianKernel(0.7), **PLAIN)
    model.fit(rows, np.sin(3 * rows).sum(axis=1))
    expected, _ = brute_force(model, rows[0], rows[1:3])
    found = shapley_values(model, rows[:1], rows[1:3])[0]
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_values_of_log_links_add_up_to_the_logarithm(loss):
    model = SketchedKernelRegressor(GaussianKernel(1.0), loss=loss, **PLAIN)
    model.fit(X, np.exp(Y))
    total = shapley_values(model, X).sum(axis=1) + expected_value(model)
    np.testing.assert_allclose(total, np.log(model.predict(X)), atol=1e-8)
    for function in (shapley_values, expected_value):
        assert "logarithm" in function.__doc__


def test_values_of_quantiles_add_up_to_those_before_they_are_sorted():
    model = JointQuantileRegressor(
        (0.4, 0.5, 0.6), kernel="gaussian", gamma=1e4, alpha=1e-5, size=20
    )
    model.fit(X, np.random.default_rng(0).normal(size=len(X)))
    total = shapley_values(model, X).sum(axis=1) + expected_value(model)
    assert (np.diff(total, axis=1) < 0).any()
    np.testing.assert_allclose(np.sort(total, axis=1), model.predict(X), atol=1e-8)
    model.set_params(non_crossing=None)
    np.testing.assert_allclose(total, model.predict(X), atol=1e-8)


def test_many_features_add_up():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(200, 61))
    model = SketchedKernelRegressor(GaussianKernel(12.0), **PLAIN)
    model.fit(rows, rows[:, 0] + np.sin(rows[:, 1]))
    total = shapley_values(model, rows).sum(axis=1) + expected_value(model)
    np.testing.assert_allclose(total, model.predict(rows), atol=1e-8)


@pytest.mark.full
def test_shap_agrees_for_one_background_row():
    model = MODELS["lengths"].fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, of matplotlib
        shap = pytest.importorskip("shap")
    explainer = shap.explainers.Exact(model.predict, X[:1])
    expected = explainer(X[:20])
    np.testing.assert_allclose(shapley_values(model, X[:20], X[:1]), expected.values)
    np.testing.assert_allclose(expected_value(model, X[:1]), expected.base_values[0])


def test_classifiers_explain_their_decision():
    model = SketchedKernelClassifier(kernel="gaussian", size=30, random_state=0)
    model.fit(X, Y > 0)
    total = shapley_values(model, X).sum(axis=1) + expected_value(model)
    np.testing.assert_allclose(total, model.decision_function(X), atol=1e-8)


def test_dropped_and_constant_features_have_no_value():
    rng = np.random.default_rng(0)
    rows = np.hstack([rng.normal(size=(400, 12)), np.ones((400, 1))])
    model = SketchedKernelRegressor("gaussian", random_state=0)
    model.fit(rows, np.sin(rows[:, 0]))
    values = shapley_values(model, rows[:50])
    assert (values[:, 12] == 0).all()
    assert abs(values[:, 1:]).max() < 0.1 * abs(values[:, 0]).max()


def test_other_models_are_refused_by_name():
    model = SketchedKernelRegressor(lambda A, B: A @ B.T, size=5).fit(X, Y)
    with pytest.raises(TypeError, match="kernel='gaussian' or kernel='laplacian'"):
        shapley_values(model, X)
    with pytest.raises(TypeError, match=r"must be a sketched kernel model, .* got R"):
        shapley_values(Ridge(), X)
    with pytest.raises(ValueError, match="4 features"):
        shapley_values(MODELS["gaussian"].fit(X, Y), X[:, :2])
