"""Steps that are too long are an error, whatever the loss and the method."""

import numpy as np
import pytest

from nbsketch import SketchedSGDClassifier, SketchedSGDRegressor

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
    ("method", "loss", "step"),
    [
        ("projected", "huber", 1e4),
        ("projected", "pinball", 1e4),
        ("projected", "epsilon-insensitive", 1e4),
        ("projected", "squared-epsilon-insensitive", 2.5),
        ("adam", "square", 1e3),
        ("adam", "huber", 1e3),
        ("adam", "pinball", 1e3),
    ],
)
def test_regression(method, loss, step):
    X, y = rows()
    model = SketchedSGDRegressor(loss=loss, method=method, n_epochs=2, **KNOWN)
    model.fit(X, y).set_params(step=step)
    check(lambda: model.fit(X, y), model, X)


@pytest.mark.parametrize(
    ("method", "loss", "step"),
    [
        ("projected", "squared-hinge", 10.0),
        ("projected", "logistic", 1e6),
        ("projected", "hinge", 1e6),
        ("adam", "squared-hinge", 1e4),
        ("adam", "logistic", 1e5),
        ("adam", "hinge", 1e5),
    ],
)
def test_classification(method, loss, step):
    X, y = rows()
    model = SketchedSGDClassifier(loss=loss, method=method, n_epochs=1, **KNOWN)
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
    for method in ("projected", "adam"):
        model = SketchedSGDRegressor(method=method, **KNOWN).fit(X, np.full(50, 3.0))
        assert np.allclose(model.predict(X), 3.0)
