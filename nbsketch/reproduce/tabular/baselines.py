"""Boosted trees and joint quantiles with fixed settings, and their times."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from nbsketch.datasets import Dataset
from nbsketch.estimators.quantile import JointQuantileRegressor

DEFAULTS, EXACT = "nbsketch", "exact ridge"
LIGHTGBM, BOOSTING = "LightGBM", "HistGradientBoosting"
TREES, RATE, PATIENCE, HELD_OUT = 500, 0.1, 50, 0.1
# Largest number of rows for the exact method.
EXACT_ROWS = 2000
_WARM_UP_ROWS = 200

Predict = Callable[[NDArray], NDArray]
Fit = Callable[[NDArray, NDArray, int], Predict]


def has_lightgbm() -> bool:
    """Return whether LightGBM is installed."""
    return find_spec("lightgbm") is not None


def timed(fit: Fit, X: NDArray, y: NDArray, seed: int) -> tuple[Predict, float]:
    """Fit with one thread of BLAS and OpenMP; return predictor and processor time."""
    with threadpool_limits(limits=1):
        start = time.process_time()
        predict = fit(X, y, seed)
        return predict, time.process_time() - start


def warm_up(fits: dict[str, Fit], data: Dataset) -> None:
    """Fit a few rows by every method, so that no compilation is timed."""
    for fit in fits.values():
        fit(data.X[:_WARM_UP_ROWS], data.y[:_WARM_UP_ROWS], 0)


def boosted_trees(
    X: NDArray, y: NDArray, seed: int, quantile: float | None = None
) -> Predict:
    """Fit LightGBM to the square loss, or to the pinball loss of a quantile.

    A tenth of the rows is held out: training stops after 50 trees without progress
    there, and the best number of trees is kept.
    """
    import lightgbm

    order = np.random.default_rng(seed).permutation(len(y))
    held_out, kept = np.split(order, [max(1, round(HELD_OUT * len(y)))])
    settings = {
        "objective": "regression" if quantile is None else "quantile",
        "learning_rate": RATE,
        "num_threads": 1,
        "seed": seed,
        "verbosity": -1,
    }
    if quantile is not None:
        settings["alpha"] = quantile
    train = lightgbm.Dataset(X[kept], y[kept])
    validation = lightgbm.Dataset(X[held_out], y[held_out], reference=train)
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    return lightgbm.train(
        settings, train, TREES, [validation], callbacks=[stop]
    ).predict


def tree_quantiles(levels: tuple[float, ...]) -> Fit:
    """Return a fit of LightGBM to each level by itself."""

    def fit(X: NDArray, y: NDArray, seed: int) -> Predict:
        models = [boosted_trees(X, y, seed, level) for level in levels]
        return lambda X: np.column_stack([predict(X) for predict in models])

    return fit


def joint_quantiles(levels: tuple[float, ...], size: int | None = None) -> Fit:
    """Return a fit of all levels at once, sorted in each row."""

    def fit(X: NDArray, y: NDArray, seed: int) -> Predict:
        rows = None if size is None else min(size, len(y))
        model = JointQuantileRegressor(
            levels, size=rows, non_crossing="sort", random_state=seed
        )
        return model.fit(X, y).predict

    return fit
