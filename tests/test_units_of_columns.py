"""Linear kernels on columns in units of their own, and on columns far from zero."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch import (
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
)
from nbsketch.fitting.objectives import ScalarObjective
from nbsketch.fitting.penalty import LeftOutErrors
from nbsketch.losses import HuberLoss
from nbsketch.solvers.design import ArrayDesign, centered
from nbsketch.solvers.spectrum import extended

SCALES = [[1, 1e6, 1], [1, 1e3, 1e-3]]
RESIDUALS = ["huber", "pinball", "epsilon-insensitive", "poisson"]
MARGINS = ["hinge", "squared-hinge", "logistic"]


def columns(scales, n=100):
    """Return columns of some scales, and their sum in units of deviations."""
    X = np.random.default_rng(0).normal(size=(n, len(scales)))
    return X * scales, X.sum(axis=1)


def correlation(fitted, signal):
    return np.corrcoef(fitted, signal)[0, 1]


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("loss", RESIDUALS)
def test_a_path_reaches_the_smallest_column(loss, scales):
    X, signal = columns(scales)
    counts = np.random.default_rng(1).poisson(np.exp(1 + signal / 2))
    y = counts if loss == "poisson" else signal
    model = SketchedKernelRegressor("linear", loss=loss, random_state=0).fit(X, y)
    fitted = model.predict(X)
    fitted = np.log(fitted) if loss == "poisson" else fitted
    assert correlation(fitted, signal) > 0.99  # .6 to .8


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("loss", MARGINS)
def test_a_path_of_labels_reaches_the_smallest_column(loss, dtype):
    X, signal = columns(SCALES[0])
    X = X.astype(dtype)
    model = SketchedKernelClassifier("linear", loss=loss, random_state=0)
    assert model.fit(X, signal > 0).score(X, signal > 0) > 0.96  # .7


@pytest.mark.parametrize("scales", SCALES)
def test_a_path_of_quantiles_reaches_the_smallest_column(scales):
    """Newton steps are exact: the solver converges, in 20 steps instead of 1000."""
    X, signal = columns(scales, 200)
    y = signal + 0.1 * np.random.default_rng(1).normal(size=200)
    model = JointQuantileRegressor(kernel="linear", random_state=0).fit(X, y)
    assert correlation(model.predict(X)[:, 0], signal) > 0.99  # .6
    assert model.n_iter_ < 100


def path_of(Z):
    y = np.linspace(-1, 1, len(Z))[:, None]
    design = ArrayDesign._trusted(Z, is_graded=True)
    objective = ScalarObjective(y, None, True, HuberLoss(1.0))
    return LeftOutErrors(objective, design, np.random.default_rng(0)).default_alphas()


def test_a_constant_column_is_no_small_one():
    """What rounding leaves of its variance does not make the path longer."""
    Z, _ = columns([1, 1])
    constant = np.full((len(Z), 1), 0.1)
    assert len(path_of(np.hstack([Z, constant]))) == len(path_of(Z))
    assert len(path_of(Z * [1, 1e-3])) > len(path_of(Z)) + 10


def test_a_small_column_far_from_zero_is_centered():
    """Beside a larger one whose deviation exceeds its mean; the units stay its own."""
    Z, _ = columns([1, 1e6])
    found = centered(ArrayDesign._trusted(Z + np.array([1e3, 0]), is_graded=True))
    assert found.origin is not None and found.is_graded
    assert np.abs(found.Z.mean(axis=0)).max() < 1e-6


def streamed(model, X, y, **options):
    for start in range(0, len(X), 50):
        rows = slice(start, start + 50)
        model.partial_fit(X[rows], y[rows], **options)
    return model


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("scales", SCALES)
def test_stochastic_steps_reach_the_smallest_column(scales, dtype):
    X, signal = columns(scales)
    X = X.astype(dtype)
    model = SketchedSGDRegressor("linear", random_state=0)
    assert model.fit(X, signal).score(X, signal) > 0.99  # .36
    stream = streamed(SketchedSGDRegressor("linear", random_state=0), X, signal)
    assert stream.score(X, signal) > 0.98
    labels = SketchedSGDClassifier("linear", random_state=0)
    assert labels.fit(X, signal > 0).score(X, signal > 0) > 0.96  # .7


OFFSETS = [("linear", 100.0), ("linear", 1e6), ("polynomial", 100.0)]


@pytest.mark.parametrize("step", [None, 1.0])
@pytest.mark.parametrize(("kernel", "offset"), OFFSETS)
def test_stochastic_steps_see_rows_far_from_zero(kernel, offset, step):
    X, signal = columns([1, 1])
    X = X + offset
    model = SketchedSGDRegressor(kernel, step=step, random_state=0)
    assert model.fit(X, signal).score(X, signal) > 0.99  # .01
    X_val = {"X_val": X[:50], "y_val": signal[:50]}
    early = SketchedSGDRegressor(kernel, step=step, early_stopping=True, random_state=0)
    assert early.fit(X, signal, **X_val).score(X, signal) > 0.98


@pytest.mark.parametrize(("kernel", "offset"), OFFSETS)
def test_streams_see_rows_far_from_zero(kernel, offset):
    X, signal = columns([1, 1], 400)
    X = X + offset
    model = streamed(SketchedSGDRegressor(kernel, random_state=0), X, signal)
    assert model.score(X, signal) > 0.9
    labels = SketchedSGDClassifier(kernel, random_state=0)
    options = {"classes": [False, True]}
    assert streamed(labels, X, signal > 0, **options).score(X, signal > 0) > 0.9  # .5


def test_a_constant_column_of_stochastic_steps_is_not_scaled():
    X, signal = columns([1, 1, 1])
    X = np.hstack([X, np.full((len(X), 1), 0.1), np.zeros((len(X), 1))])
    model = SketchedSGDRegressor("linear", random_state=0).fit(X, signal)
    assert model.score(X, signal) > 0.99 and np.abs(model.coef_).max() < 1.5


def test_features_without_an_intercept_are_not_centered():
    X, signal = columns([1, 1])
    model = SketchedSGDRegressor("linear", fit_intercept=False, random_state=0)
    model.fit(X, signal)
    assert model.intercept_ == 0.0 and model.score(X, signal) > 0.99


@pytest.mark.parametrize("share", [1.0, 0.05, 0.1, 1e-7])
def test_a_path_ends_at_the_share_of_the_smallest_column(share):
    path = np.array([1.0, 0.3, 0.09])
    longer = extended(path, share)
    assert_allclose(longer, 0.3 ** np.arange(len(longer)), rtol=1e-12)
    assert longer[-1] <= share * path[-1] * (1 + 1e-9) and (
        len(longer) == 3 or longer[-2] > share * path[-1]
    )
