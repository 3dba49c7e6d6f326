"""Joint quantile regression with and without a sketch: losses and training time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nbsketch.estimators.quantile import JointQuantileRegressor
from nbsketch.fitting.stochastic import StochasticSolver
from nbsketch.kernels import GaussianKernel, median_distance
from nbsketch.metrics import crossing_loss, pinball_loss
from nbsketch.model_selection import cross_validate
from nbsketch.reproduce._tools.data import Split
from nbsketch.reproduce._tools.statistics import timed
from nbsketch.reproduce.p_sparsified.methods import METHODS, WITHOUT

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)

# Grids: multiples of the median distance between rows, penalties and couplings.
_BANDWIDTH_FACTORS = 2.0 ** np.arange(3)
_ALPHAS = 10.0 ** np.arange(-2.5, -6.5, -0.5)
_GAMMAS = (1.0, 3.0, 10.0)
_FOLDS, _TUNING_TOL, _TOL = 5, 1e-3, 1e-6
# Without a sketch a fit takes a hundred times as long: a larger sketch is tuned.
_STAND_IN, _STAND_IN_SIZE = "20/n-SR", 100
# Each Newton step without a sketch factorizes a matrix of five times as many rows:
# beyond this number it takes hours, and Adam, the paper's method, is used.
_MANY_ROWS = 1000


class QuantileSetting(NamedTuple):
    """Bandwidth, penalty and coupling of one method on one data set."""

    bandwidth: float
    alpha: float
    gamma: float


def tune(split: Split, method: str, size: int) -> QuantileSetting:
    """Choose a setting by 5-fold cross-validation on the shuffled training rows.

    The criterion is the pinball loss. The setting without a sketch is that of a
    p-sparsified sketch of 100 rows.
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


def is_certified(split: Split, method: str) -> bool:
    """Return whether a method is fitted by Newton's method; by Adam otherwise."""
    return method != WITHOUT or len(split.X_train) <= _MANY_ROWS


def evaluate(
    split: Split, method: str, size: int, setting: QuantileSetting, seed: int
) -> dict[str, float]:
    """Return "pinball" and "crossing" loss on the test rows, times 100, and "seconds".

    The time is that of ``fit``, including the draw; a small fit compiles first.
    """
    options: dict[str, Any] = {"alpha": setting.alpha, "gamma": setting.gamma}
    options["tol"] = _TOL
    if not is_certified(split, method):
        options["solver"] = StochasticSolver()
    kernel = GaussianKernel(setting.bandwidth)
    model = _model(method, size, seed, kernel=kernel, **options)
    model.fit(split.X_train[: 2 * size], split.Y_train[: 2 * size])
    _, seconds = timed(model.fit, split.X_train, split.Y_train)
    predicted = model.predict(split.X_test)
    return {
        "pinball": 100 * pinball_loss(split.Y_test, predicted, LEVELS),
        "crossing": 100 * crossing_loss(predicted),
        "seconds": seconds,
    }


def _model(method: str, size: int, seed: int, **options: Any) -> JointQuantileRegressor:
    """Return a model whose quantiles may cross, as in the paper."""
    sketch = METHODS[method](size)
    return JointQuantileRegressor(
        LEVELS, sketch=sketch, non_crossing=None, random_state=seed, **options
    )
