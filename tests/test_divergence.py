"""Steps that are too long are an error, whatever the loss and the method."""

import numpy as np
import pytest

from nbsketch import (
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
    StochasticSolver,
)

KNOWN = {"kernel": "gaussian", "bandwidth": 1.0, "random_state": 0}


def rows(n=300):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)


def check(fit, model, X):
    """Check that a fit is an error that names the step, and changes no model."""
    before = model.predict(X)
    with pytest.raises(FloatingPointError, match="`step` must be smaller"):
        fit()
    assert np.array_equal(model.set_params(step=None).predict(X), before)


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("step", [2.1, 3.0])
def test_square_loss(step, early_stopping):
    X, y = rows()
    model = SketchedSGDRegressor(n_epochs=5, **KNOWN).fit(X, y)
    model.set_params(step=step, early_stopping=early_stopping)
    if early_stopping:  # an iterate before the divergence is kept
        assert model.fit(X, y).score(X, y) > 0
    else:
        check(lambda: model.fit(X, y), model, X)


@pytest.mark.parametrize(
    ("loss", "step"),
    [
        ("huber", 1e4),
        ("pinball", 1e4),
        ("epsilon-insensitive", 1e4),
        ("squared-epsilon-insensitive", 2.5),
    ],
)
def test_regression(loss, step):
    X, y = rows()
    model = SketchedSGDRegressor(loss=loss, n_epochs=2, **KNOWN)
    model.fit(X, y).set_params(step=step)
    check(lambda: model.fit(X, y), model, X)


@pytest.mark.parametrize(
    ("loss", "step"), [("squared-hinge", 10.0), ("logistic", 1e6), ("hinge", 1e6)]
)
def test_classification(loss, step):
    X, y = rows()
    model = SketchedSGDClassifier(loss=loss, n_epochs=1, **KNOWN)
    model.fit(X, y > 0.5).set_params(step=step)
    check(lambda: model.fit(X, y > 0.5), model, X)


@pytest.mark.parametrize("size", [1, 7, 100])
def test_streams(size):
    X, y = rows()
    model = SketchedSGDRegressor(**KNOWN).partial_fit(X, y).set_params(step=3.0)

    def follow():
        for start in range(0, 300, size):
            part = slice(start, start + size)
            model.partial_fit(X[part], y[part])

    with pytest.raises(FloatingPointError, match="`step` must be smaller"):
        follow()
    assert model.score(X, y) > -1000


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_targets_that_drift_are_no_divergence(size, shift):
    X, y = rows()
    model = SketchedSGDRegressor(**KNOWN).partial_fit(X, y)
    for start in range(0, 300, size):
        part = slice(start, start + size)
        model.partial_fit(X[part], y[part] + shift)


def test_constant_targets_are_no_divergence():
    X, _ = rows(50)
    model = SketchedSGDRegressor(**KNOWN).fit(X, np.full(50, 3.0))
    assert np.allclose(model.predict(X), 3.0)


@pytest.mark.parametrize("loss", ["square", "huber", "pinball"])
def test_targets_far_from_zero_without_an_intercept_do_not_diverge(loss):
    X, y = rows()
    model = SketchedSGDRegressor(loss=loss, **KNOWN)
    model.set_params(fit_intercept=False, step=1e-6, n_epochs=1).fit(X, y + 1e3)
    assert np.abs(model.predict(X)).max() < 500.0


ADAM = {"alpha": 1e-3, "sketch": "identity"} | KNOWN


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("weights", [None, np.linspace(0.0, 2.0, 300)])
@pytest.mark.parametrize(
    "loss", ["square", "huber", "pinball", "epsilon-insensitive", "joint"]
)
def test_adam_of_regressors(loss, weights):
    X, y = rows()
    model = SketchedKernelRegressor(loss=loss, **ADAM)
    if loss == "joint":
        model = JointQuantileRegressor(quantiles=(0.2, 0.8), **ADAM)
    check_adam(model, X, y + 100.0, weights)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared-hinge"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_adam_of_classifiers(loss, n_classes):
    X, y = rows()
    labels = np.digitize(y, [0.5] if n_classes == 2 else [-0.5, 0.5])
    check_adam(SketchedKernelClassifier(loss=loss, **ADAM), X, labels)


def test_adam_of_several_outputs():
    X, y = rows()
    check_adam(SketchedKernelRegressor(loss="huber", **ADAM), X, np.c_[y, y[::-1]])


def check_adam(model, X, y, weights=None):
    """Check that long steps are an error, whose default length is none."""
    for method, rate in (("adam", 1e4), ("adam", 1e100), ("sgd", 1e6)):
        model.set_params(solver="adam").fit(X, y, sample_weight=weights)
        before = model.predict(X)
        steps = StochasticSolver(method=method, learning_rate=rate, n_epochs=2)
        with pytest.raises(FloatingPointError, match="`learning_rate` must be smaller"):
            model.set_params(solver=steps).fit(X, y, sample_weight=weights)
        assert np.array_equal(model.predict(X), before)
