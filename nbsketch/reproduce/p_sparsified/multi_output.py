"""Multi-output kernel ridge with and without a sketch: error and training time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.estimators import SketchedKernelRegressor
from nbsketch.kernels import GaussianKernel, median_distance
from nbsketch.metrics import arrmse
from nbsketch.model_selection import cross_validate
from nbsketch.reproduce._tools.data import Split
from nbsketch.reproduce._tools.report import Row
from nbsketch.reproduce._tools.statistics import timed
from nbsketch.reproduce.p_sparsified.methods import METHODS, WITHOUT
from nbsketch.sketches import IdentitySketch
from nbsketch.solvers.exact import solve_exact

# All rows by conjugate gradients, in contrast to the Cholesky decomposition.
ITERATIVE = "without sketch, iterative"

# Grids: multiples of the median distance between rows, and penalties; wide enough that
# no choice is at an end. Without a sketch each penalty is a factorization.
_BANDWIDTH_FACTORS = 2.0 ** np.arange(-1, 11)
_ALPHAS = 10.0 ** np.arange(-12, -1.5, 0.5)
_COARSE_ALPHAS = 10.0 ** np.arange(-10, -2)
_TUNING_DRAWS = 5


class Setting(NamedTuple):
    """Bandwidth and penalty of one method on one data set."""

    bandwidth: float
    alpha: float

    def model(self, method: str, size: int, seed: int) -> Any:
        """Return an estimator of a method."""
        if method == WITHOUT:
            return ClosedForm(self)
        recipe = IdentitySketch() if method == ITERATIVE else METHODS[method](size)
        return SketchedKernelRegressor(
            GaussianKernel(self.bandwidth),
            sketch=recipe,
            alpha=self.alpha,
            random_state=seed,
        )


class ClosedForm:
    """Kernel ridge regression by a Cholesky decomposition of the Gram matrix."""

    def __init__(self, setting: Setting) -> None:
        self._kernel, self._alpha = GaussianKernel(setting.bandwidth), setting.alpha

    def fit(self, X: NDArray, Y: NDArray) -> ClosedForm:
        """Solve for the coefficients of all rows."""
        self._X = X
        self._coef, self._intercept, _ = solve_exact(self._kernel(X), Y, self._alpha)
        return self

    def predict(self, X: NDArray) -> NDArray:
        """Return the predictions for new rows."""
        return self._kernel(X, self._X) @ self._coef + self._intercept


def tune(split: Split, method: str, size: int) -> Setting:
    """Choose a setting by 5-fold cross-validation on the training rows.

    The criterion is the aRRMSE, averaged over five draws of the sketch.
    """
    exact = method == WITHOUT
    median = median_distance(split.X_train, rng=0)
    runs = [
        cross_validate(
            SketchedKernelRegressor(sketch=METHODS[method](size), random_state=seed),
            split.X_train,
            split.Y_train,
            median * _BANDWIDTH_FACTORS,
            _COARSE_ALPHAS if exact else _ALPHAS,
        )
        for seed in range(1 if exact else _TUNING_DRAWS)
    ]
    mean = runs[0]._replace(errors=np.mean([run.errors for run in runs], axis=0))
    return Setting(*mean.best(split.Y_train.var(axis=0)))


def evaluate(
    split: Split, method: str, size: int, setting: Setting, replicates: int
) -> Iterator[Row]:
    """Yield the "arrmse" on the test rows and "seconds" of each draw of the sketch.

    The time is that of ``fit``, including the draw; a small fit compiles first.
    """
    for seed in range(replicates):
        model = setting.model(method, size, seed)
        if seed == 0:
            model.fit(split.X_train[: 2 * size], split.Y_train[: 2 * size])
        _, seconds = timed(model.fit, split.X_train, split.Y_train)
        predicted = model.predict(split.X_test)
        reference = split.Y_train.mean(axis=0)
        error = arrmse(split.Y_test, predicted, reference)
        yield {"arrmse": error, "seconds": seconds}
