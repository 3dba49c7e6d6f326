"""Methods of the comparison on tables, by task and name."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.estimators import (
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
)
from nbsketch.reproduce.tabular.baselines import BOOSTING as HISTOGRAMS
from nbsketch.reproduce.tabular.baselines import (
    EXACT,
    EXACT_ROWS,
    LIGHTGBM,
    has_lightgbm,
)
from nbsketch.reproduce.tabular.boosting import (
    LEVELS,
    Predict,
    histograms,
    lightgbm_defaults,
    lightgbm_tuned,
)
from nbsketch.reproduce.tabular.problems import CLASSIFICATION, QUANTILES, REGRESSION
from nbsketch.tabular.classifier import TabularKernelClassifier
from nbsketch.tabular.columns import fit_columns
from nbsketch.tabular.reading import is_table
from nbsketch.tabular.regressor import TabularKernelRegressor

TUNED = "LightGBM tuned"
SKETCHED, XRFM, TABPFN = "sketched", "xRFM", "TabPFN"
EFFORTS = ("fast", "high")
# The method whose fit time is the budget of the tuned one.
DEFAULT = "tabular, fast"
# Largest number of rows for xRFM, whose time grows with their cube.
XRFM_ROWS = 5000
Fit = Callable[[Any, NDArray, int, float], Predict]
ANY = 10**9


class Method(NamedTuple):
    """A fit of (X, y, seed, seconds of the budget), and its largest number of rows."""

    fit: Fit
    most_rows: int = ANY


def methods(task: str) -> dict[str, Method]:
    """Return the installed methods of a task by name, in the order of evaluation."""
    efforts = EFFORTS[:1] if task == QUANTILES else EFFORTS
    found = {f"tabular, {effort}": Method(_tabular(task, effort)) for effort in efforts}
    found[SKETCHED] = Method(_encoded(_sketched(task), task))
    if has_lightgbm():
        found[LIGHTGBM] = Method(lightgbm_defaults(task))
        found[TUNED] = Method(lightgbm_tuned(task))
    found[HISTOGRAMS] = Method(histograms(task))
    if task == REGRESSION:
        found[EXACT] = Method(_encoded(_exact, task), EXACT_ROWS)
    if task != QUANTILES:
        others = {XRFM: _xrfm(task), TABPFN: _tabpfn(task)}
        most = {XRFM: XRFM_ROWS, TABPFN: ANY}
        found |= {
            name: Method(_encoded(fit, task), most[name])
            for name, fit in others.items()
            if is_available(name)
        }
    return found


def is_available(name: str) -> bool:
    """Return whether the package of a method is installed; of TabPFN, its weights."""
    installed = find_spec(name.lower()) is not None
    return installed and (name != TABPFN or any(_weights().glob("*.ckpt")))


def not_run() -> list[str]:
    """Return the names of the methods that are not available."""
    return [name for name in (LIGHTGBM, XRFM, TABPFN) if not is_available(name)]


def _weights() -> Path:
    folder = os.environ.get("TABPFN_MODEL_CACHE_DIR", "~/.cache/tabpfn")
    return Path(folder).expanduser()


def _encoded(fit: Fit, task: str) -> Fit:
    """Return a fit that is given data frames as numbers."""

    def fit_encoded(X: Any, y: NDArray, seed: int, budget: float) -> Predict:
        if not is_table(X):
            return fit(X, y, seed, budget)
        columns, rows = fit_columns(X, y, classification=task == CLASSIFICATION)
        predict = fit(rows, y, seed, budget)
        return lambda X: predict(columns.transform(X))

    return fit_encoded


def _tabular(task: str, effort: str) -> Fit:
    def fit(X: Any, y: NDArray, seed: int, budget: float) -> Predict:
        if task == CLASSIFICATION:
            classes = TabularKernelClassifier(effort, random_state=seed)
            return classes.fit(X, y).predict_proba
        model = TabularKernelRegressor(effort, random_state=seed).fit(X, y)
        if task == REGRESSION:
            return model.predict
        return lambda X: model.predict_quantiles(X, LEVELS)

    return fit


def _sketched(task: str) -> Fit:
    """Return the fit of the sketched machine with defaults; logistic for classes."""

    def fit(X: NDArray, y: NDArray, seed: int, budget: float) -> Predict:
        if task == CLASSIFICATION:
            model = SketchedKernelClassifier(loss="logistic", random_state=seed)
            return model.fit(X, y).predict_proba
        if task == QUANTILES:
            joint = JointQuantileRegressor(LEVELS, random_state=seed)
            return joint.fit(X, y).predict
        return SketchedKernelRegressor(random_state=seed).fit(X, y).predict

    return fit


def _exact(X: NDArray, y: NDArray, seed: int, budget: float) -> Predict:
    """Fit exact kernel ridge regression with the median bandwidth."""
    model = SketchedKernelRegressor(
        sketch="identity",
        bandwidth="median",
        preprocessing="standard",
        random_state=seed,
    )
    return model.fit(X, y).predict


def _xrfm(task: str) -> Fit:
    """Return the fit of xRFM's defaults; a fifth of the rows chooses."""

    def fit(X: NDArray, y: NDArray, seed: int, budget: float) -> Predict:
        from xrfm import xRFM

        order = np.random.default_rng(seed).permutation(len(y))
        validation, kept = np.split(order, [round(0.2 * len(y))])
        center, width = X.mean(axis=0), X.std(axis=0)
        rows = (X - center) / np.where(width > 0, width, 1)
        metric = "mse" if task == REGRESSION else "logloss"
        model = xRFM(device="cpu", tuning_metric=metric)
        model.fit(rows[kept], y[kept], rows[validation], y[validation])
        predict = model.predict if task == REGRESSION else model.predict_proba

        def predict_rows(X: NDArray) -> NDArray:
            new = (X - center) / np.where(width > 0, width, 1)
            values = np.asarray(predict(new))
            return values.ravel() if task == REGRESSION else values

        return predict_rows

    return fit


def _tabpfn(task: str) -> Fit:
    """Return the fit of TabPFN, whose weights must be on disk."""

    def fit(X: NDArray, y: NDArray, seed: int, budget: float) -> Predict:
        import tabpfn

        if task == REGRESSION:
            model = tabpfn.TabPFNRegressor(device="cpu", random_state=seed)
            return model.fit(X, y).predict
        classes = tabpfn.TabPFNClassifier(device="cpu", random_state=seed)
        return classes.fit(X, y).predict_proba

    return fit
