"""Joint quantile regression with and without a sketch: losses and training time."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from nbsketch.estimators.quantile import JointQuantileRegressor
from nbsketch.fitting.stochastic import StochasticSolver
from nbsketch.kernels import GaussianKernel, median_distance
from nbsketch.metrics import crossing_loss, pinball_loss
from nbsketch.model_selection import cross_validate
from nbsketch.reproduce.multi_output import METHODS, WITHOUT, Split

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)

# Tried as multiples of the median distance between rows, penalties and couplings.
_BANDWIDTH_FACTORS = 2.0 ** np.arange(3)
_ALPHAS = 10.0 ** np.arange(-2.5, -6.5, -0.5)
_GAMMAS = (1.0, 3.0, 10.0)
_FOLDS, _TUNING_TOL = 3, 1e-3
# Without a sketch a fit takes a hundred times as long: one of more rows is tuned.
_STAND_IN, _STAND_IN_SIZE = "20/n-SR", 100
# Rows beyond which a fit without a sketch takes hours, for each Newton step factorizes
# a matrix of five times as many rows: then Adam, the paper's method, stands in.
_MANY_ROWS = 1000


class QuantileSetting(NamedTuple):
    """Bandwidth, penalty and coupling of one method on one data set."""

    bandwidth: float
    alpha: float
    gamma: float


class QuantileResult(NamedTuple):
    """One fit: its losses on the test rows and the seconds of its training."""

    pinball: float
    crossing: float
    seconds: float


def with_scaled_targets(split: Split) -> Split:
    """Return the split with targets of mean 0 and deviation 1 in training."""
    mean, deviation = split.Y_train.mean(), split.Y_train.std()
    return split._replace(
        Y_train=(split.Y_train - mean) / deviation,
        Y_test=(split.Y_test - mean) / deviation,
    )


def tune(split: Split, method: str, size: int) -> QuantileSetting:
    """Choose a setting by 3-fold cross-validation on the shuffled training rows.

    The criterion is the pinball loss. For the method without a sketch a sketch of 100
    rows is tuned.
    """
    if method == WITHOUT:
        method, size = _STAND_IN, _STAND_IN_SIZE
    order = np.random.default_rng(0).permutation(len(split.X_train))
    X, y = split.X_train[order], split.Y_train[order]
    bandwidths = median_distance(X, rng=0) * _BANDWIDTH_FACTORS
    best = (np.inf, np.nan, np.nan, np.nan)
    for gamma in _GAMMAS:
        model = _model(method, size, seed=0, gamma=gamma, tol=_TUNING_TOL)
        found = cross_validate(model, X, y, bandwidths, _ALPHAS, cv=_FOLDS)
        best = min(best, (float(found.errors.min()), *found.best(), gamma))
    return QuantileSetting(*best[1:])


def evaluate(
    split: Split, method: str, size: int, setting: QuantileSetting, seed: int
) -> QuantileResult:
    """Return the result of one draw of the sketch.

    The time is that of ``fit``, drawing the sketch included; one fit on a few rows
    goes before, so that no compilation is timed.
    """
    X, y = split.X_train, split.Y_train
    options: dict[str, Any] = {"alpha": setting.alpha, "gamma": setting.gamma}
    if method == WITHOUT and len(X) > _MANY_ROWS:
        options["solver"] = StochasticSolver()
    kernel = GaussianKernel(setting.bandwidth)
    model = _model(method, size, seed, kernel=kernel, **options)
    model.fit(X[: 2 * size], y[: 2 * size])
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    predicted = model.predict(split.X_test)
    loss = pinball_loss(split.Y_test, predicted, LEVELS)
    return QuantileResult(loss, crossing_loss(predicted), seconds)


def _model(method: str, size: int, seed: int, **options: Any) -> JointQuantileRegressor:
    sketch = METHODS[method](size)
    return JointQuantileRegressor(LEVELS, sketch=sketch, random_state=seed, **options)
