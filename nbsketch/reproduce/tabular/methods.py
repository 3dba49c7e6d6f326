"""Methods of the comparison on tables, by task and name."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

import nbsketch
from nbsketch.estimators import (
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
)
from nbsketch.reproduce.tabular import rivals
from nbsketch.reproduce.tabular.problems import (
    CLASSIFICATION,
    QUANTILES,
    REGRESSION,
    Problem,
)
from nbsketch.reproduce.tabular.rivals import (
    LEVELS,
    Fit,
    Predict,
    histograms,
    lightgbm_defaults,
    lightgbm_tuned,
)
from nbsketch.tabular.classifier import TabularKernelClassifier
from nbsketch.tabular.columns import fit_columns
from nbsketch.tabular.reading import is_table
from nbsketch.tabular.regressor import TabularKernelRegressor

EFFORTS = ("fast", "high")
# The method whose fit time is the budget of the tuned one.
DEFAULT, BLOCKS = "tabular, fast", "tabular, fast, cv=5"
SKETCHED, EXACT = "sketched", "exact ridge"
OURS = (*(f"tabular, {effort}" for effort in EFFORTS), BLOCKS, SKETCHED, EXACT)
LIGHTGBM, TUNED, CONFORMAL = "LightGBM", "LightGBM tuned", "LightGBM, CQR"
CATBOOST, STOPPED = "CatBoost", "CatBoost, stopped"
HISTOGRAMS, EXTRA_TREES = "HistGradientBoosting", "ExtraTrees"
GAUSSIAN_PROCESS, REALMLP, XRFM, TABPFN = "exact GP", "RealMLP", "xRFM", "TabPFN"
# Largest numbers of rows of methods whose time or memory grows too fast.
EXACT_ROWS, XRFM_ROWS, REALMLP_ROWS, ANY = 2000, 5000, 10_000, 10**9
_SKLEARN = "scikit-learn"


class Method(NamedTuple):
    """A fit of (X, y, seed, seconds of the budget), its package and largest n."""

    fit: Fit
    package: str = "nbsketch"
    most_rows: int = ANY


def methods(task: str) -> dict[str, Method]:
    """Return the installed methods of a task by name, in the order of evaluation."""
    every = (_ours(task) | _others(task)).items()
    return {name: method for name, method in every if is_available(method.package)}


def methods_of(problem: Problem) -> dict[str, Method]:
    """Return those of its task; for dependent rows, also one that is told so."""
    blocks = {BLOCKS: Method(_blocks(problem.groups))} if problem.label else {}
    return methods(problem.task) | blocks


def _ours(task: str) -> dict[str, Method]:
    efforts = EFFORTS[:1] if task == QUANTILES else EFFORTS
    methods = {
        f"tabular, {effort}": Method(_tabular(task, effort)) for effort in efforts
    }
    methods[SKETCHED] = _numbers(_sketched(task), task)
    if task == REGRESSION:
        methods[EXACT] = _numbers(_exact, task, most_rows=EXACT_ROWS)
    return methods


def _others(task: str) -> dict[str, Method]:
    methods = {
        LIGHTGBM: Method(lightgbm_defaults(task), "lightgbm"),
        TUNED: Method(lightgbm_tuned(task), "lightgbm"),
        CATBOOST: Method(rivals.catboost(task, False), "catboost"),
        STOPPED: Method(rivals.catboost(task, True), "catboost"),
        HISTOGRAMS: Method(histograms(task), _SKLEARN),
    }
    if task == QUANTILES:
        return methods | {CONFORMAL: Method(rivals.conformalized_trees, "lightgbm")}
    methods |= {
        EXTRA_TREES: _numbers(rivals.extra_trees(task), task, _SKLEARN),
        REALMLP: _numbers(rivals.realmlp(task), task, "pytabkit", REALMLP_ROWS),
        XRFM: _numbers(rivals.xrfm(task), task, "xrfm", XRFM_ROWS),
        TABPFN: _numbers(rivals.tabpfn(task), task, "tabpfn"),
    }
    if task == REGRESSION:
        fit = rivals.gaussian_process
        methods[GAUSSIAN_PROCESS] = _numbers(fit, task, _SKLEARN, EXACT_ROWS)
    return methods


def is_available(package: str) -> bool:
    """Return whether a package is installed; of TabPFN, with its weights."""
    installed = find_spec(package.replace(_SKLEARN, "sklearn")) is not None
    return installed and (package != "tabpfn" or any(_weights().glob("*.ckpt")))


def not_run() -> list[str]:
    """Return the names of the methods that are not available."""
    every = _others(QUANTILES) | _others(REGRESSION)
    return [name for name, m in every.items() if not is_available(m.package)]


def release(package: str) -> str:
    """Return name and version of an installed package."""
    # Nbsketch itself need not be installed where it runs.
    ours = package == "nbsketch"
    return f"{package} {nbsketch.__version__ if ours else version(package)}"


def _weights() -> Path:
    folder = os.environ.get("TABPFN_MODEL_CACHE_DIR", "~/.cache/tabpfn")
    return Path(folder).expanduser()


def _numbers(
    fit: Fit, task: str, package: str = "nbsketch", most_rows: int = ANY
) -> Method:
    """Return a method that is given data frames as numbers."""

    def fit_encoded(X: Any, y: NDArray, seed: int, budget: float) -> Predict:
        if not is_table(X):
            return fit(X, y, seed, budget)
        columns, rows = fit_columns(X, y, classification=task == CLASSIFICATION)
        predict = fit(rows, y, seed, budget)
        return lambda X: predict(columns.transform(X))

    return Method(fit_encoded, package, most_rows)


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


def _blocks(groups: int | None) -> Fit:
    """Return a fit that leaves out blocks of rows, or the groups of a column."""

    def fit(X: NDArray, y: NDArray, seed: int, budget: float) -> Predict:
        model = TabularKernelRegressor(EFFORTS[0], cv=5, random_state=seed)
        labels = None if groups is None else X[:, groups]
        return model.fit(X, y, groups=labels).predict

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
