"""Linear kernels on columns in units of their own, and on columns far from zero."""

import numpy as np
import pytest

from nbsketch import (
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
)
from nbsketch.fitting.objective import LeftOutErrors
from nbsketch.fitting.objectives import ScalarObjective
from nbsketch.losses import HuberLoss
from nbsketch.solvers.design import ArrayDesign, centered

SCALES = [[1, 1e6, 1], [1, 1e3, 1e-3]]
RESIDUALS = ["huber", "pinball", "epsilon-insensitive", "poisson"]
MARGINS = ["hinge", "squared-hinge", "logistic"]


def columns(scales, n=150):
    """Return columns of some scales, and their sum in units of deviations."""
    X = np.random.default_rng(0).normal(size=(n, len(scales)))
    return X * scales, X.sum(axis=1)


def correlation(fitted, signal):
    return np.corrcoef(fitted, signal)[0, 1]


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


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("loss", MARGINS)
def test_a_path_of_labels_reaches_the_smallest_column(loss, dtype):
    X, signal = columns(SCALES[0])
    X = X.astype(dtype)
    model = SketchedKernelClassifier("linear", loss=loss, random_state=0)
    assert model.fit(X, signal > 0).score(X, signal > 0) > 0.96  # .7


def test_a_path_of_quantiles_reaches_the_smallest_column():
    X, signal = columns([1, 1e3, 1])
    levels = {"quantiles": (0.25, 0.75), "random_state": 0}
    model = JointQuantileRegressor(kernel="linear", **levels).fit(X, signal)
    assert correlation(model.predict(X)[:, 0], signal) > 0.99


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
