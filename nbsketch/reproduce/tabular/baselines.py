"""Regressors of tabular data with fixed settings: nbsketch and the baselines."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from nbsketch.datasets import Dataset
from nbsketch.estimators import SketchedKernelRegressor
from nbsketch.estimators.quantile import JointQuantileRegressor

DEFAULTS, ISOTROPIC = "nbsketch", "one length-scale"
EXACT, NYSTROEM = "exact ridge", "Nystroem"
LIGHTGBM, BOOSTING = "LightGBM", "HistGradientBoosting"
TREES, RATE, PATIENCE, HELD_OUT = 500, 0.1, 50, 0.1
LANDMARKS = 1000
# Largest number of rows for the exact method.
EXACT_ROWS = 2000
_WARM_UP_ROWS = 200
_PENALTIES = 10.0 ** np.arange(-6, 4)

Predict = Callable[[NDArray], NDArray]
Fit = Callable[[NDArray, NDArray, int], Predict]


def regressors() -> dict[str, Fit]:
    """Return the installed methods: functions of rows, targets and a seed."""
    fits: dict[str, Fit] = {DEFAULTS: _defaults, ISOTROPIC: _isotropic}
    if has_lightgbm():
        fits[LIGHTGBM] = boosted_trees
    return fits | {BOOSTING: _histograms, EXACT: _exact, NYSTROEM: _nystroem}


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


def _defaults(X: NDArray, y: NDArray, seed: int) -> Predict:
    return SketchedKernelRegressor(random_state=seed).fit(X, y).predict


def _isotropic(X: NDArray, y: NDArray, seed: int, **options: Any) -> Predict:
    """Fit with the median distance between standardized rows as the bandwidth."""
    model = SketchedKernelRegressor(
        bandwidth="median", preprocessing="standard", random_state=seed, **options
    )
    return model.fit(X, y).predict


def _exact(X: NDArray, y: NDArray, seed: int) -> Predict:
    return _isotropic(X, y, seed, sketch="identity")


def _histograms(X: NDArray, y: NDArray, seed: int) -> Predict:
    """Fit scikit-learn's boosted trees with the same early stopping as LightGBM."""
    model = HistGradientBoostingRegressor(
        max_iter=TREES,
        learning_rate=RATE,
        early_stopping=True,
        validation_fraction=HELD_OUT,
        n_iter_no_change=PATIENCE,
        random_state=seed,
    )
    return model.fit(X, y).predict


def _nystroem(X: NDArray, y: NDArray, seed: int) -> Predict:
    size = min(LANDMARKS, len(y))
    features = Nystroem(n_components=size, random_state=seed)
    model = make_pipeline(StandardScaler(), features, RidgeCV(_PENALTIES))
    return model.fit(X, y).predict
