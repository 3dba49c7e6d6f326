"""Losses other than the square without a sketch: what the estimators fit and choose."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

import nbsketch
from nbsketch import SketchedKernelClassifier, SketchedKernelRegressor
from nbsketch.fitting import choice, dual
from nbsketch.kernels import PrecomputedKernel

N = 400


@pytest.fixture
def few(monkeypatch):
    """Let the dual begin at 100 rows, and fit 120 rows of a sample."""
    monkeypatch.setattr(dual, "_LEAST_ROWS", 100)
    monkeypatch.setattr(dual, "_FITTED", 120)
    monkeypatch.setattr(choice, "_VALIDATION", 80)


@pytest.fixture
def data(rng):
    X = rng.uniform(-2, 2, size=(N, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 0] + 0.2 * rng.standard_t(2, size=N)
    return X, y


def options(**more):
    known = {"sketch": "identity", "random_state": 0, "preprocessing": None}
    return known | more


@pytest.mark.parametrize("loss", ["huber", "pinball", "epsilon-insensitive"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_solution_is_that_of_features(loss, fit_intercept, data, rng, monkeypatch):
    X, y = data
    weights = rng.exponential(size=N) * (rng.random(N) < 0.9)
    known = options(loss=loss, bandwidth=1.0, alpha=1e-3, fit_intercept=fit_intercept)
    features = SketchedKernelRegressor(**known).fit(X, y, weights)
    monkeypatch.setattr(dual, "_LEAST_ROWS", 100)
    found = SketchedKernelRegressor(**known).fit(X, y, weights)
    assert found.dual_gap_ <= 1e-4 and found.coef_.shape == (np.sum(weights > 0),)
    assert_allclose(found.objective_, features.objective_, rtol=2e-4)
    scale = np.ptp(y)
    assert_allclose(found.predict(X), features.predict(X), atol=2e-2 * scale)


@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic"])
def test_classes_are_those_of_features(loss, data, monkeypatch):
    X, y = data
    labels = np.digitize(y, [-0.5, 0.5])
    known = options(loss=loss, bandwidth=1.0, alpha=1e-3)
    features = SketchedKernelClassifier(**known).fit(X, labels)
    monkeypatch.setattr(dual, "_LEAST_ROWS", 100)
    found = SketchedKernelClassifier(**known).fit(X, labels)
    assert_allclose(found.objective_, features.objective_, rtol=2e-4)
    assert np.mean(found.predict(X) == features.predict(X)) > 0.99


def test_penalty_and_width_are_chosen_on_a_sample(few, data):
    X, y = data
    model = SketchedKernelRegressor(loss="huber", sketch="identity", random_state=0)
    model.fit(X[:300], y[:300])
    errors = np.abs(y[300:] - model.predict(X[300:]))
    assert np.mean(errors) < 0.75 * np.mean(np.abs(y[300:] - np.median(y)))
    again = SketchedKernelRegressor(loss="huber", sketch="identity", random_state=0)
    assert again.fit(X[:300], y[:300]).alpha_ == model.alpha_ > 0


def test_a_path_is_that_of_single_fits(few, data):
    X, y = data
    known = options(loss="pinball", bandwidth=1.0)
    alphas = [1e-2, 1e-3]
    path = SketchedKernelRegressor(**known).fit_path(X, y, alphas)
    for alpha, model in zip(alphas, path, strict=True):
        single = SketchedKernelRegressor(**known, alpha=alpha).fit(X, y)
        assert_allclose(model.objective_, single.objective_, rtol=2e-4)


def test_a_precomputed_kernel_has_the_same_solution(few, data):
    X, y = data
    known = options(loss="huber", alpha=1e-3)
    kernel = nbsketch.GaussianKernel(1.0)
    rows = SketchedKernelRegressor(kernel, **known).fit(X, y)
    matrix = SketchedKernelRegressor(PrecomputedKernel(), **known).fit(kernel(X), y)
    assert_allclose(matrix.predict(kernel(X)), rows.predict(X), atol=1e-6)
    chosen = options(loss="huber")
    assert SketchedKernelRegressor("precomputed", **chosen).fit(kernel(X), y).alpha_ > 0


def test_a_fit_that_falls_short_warns(few, data):
    X, y = data
    known = options(loss="pinball", bandwidth=1.0, alpha=1e-4, max_iter=2)
    with pytest.warns(ConvergenceWarning, match="relative distance"):
        assert SketchedKernelRegressor(**known).fit(X, y).dual_gap_ > 1e-4


def test_a_callback_stops_the_fit(few, data):
    X, y = data
    known = options(loss="pinball", bandwidth=1.0, alpha=1e-3)
    steps = []

    def third(state):
        steps.append(state.iteration)
        return state.stage == "solver" and state.iteration >= 3

    with pytest.warns(ConvergenceWarning, match="has stopped"):
        SketchedKernelRegressor(**known, callback=third).fit(X, y)
    assert max(steps) == 3


def test_single_precision_that_is_too_coarse_is_left(few, data, monkeypatch):
    monkeypatch.setattr(dual, "_DOUBLE_ROWS", 0)
    X, y = data
    known = options(loss="huber", bandwidth=20.0, alpha=1e-7)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        found = SketchedKernelRegressor(**known).fit(X, y)
    assert found.dual_gap_ <= 1e-4
