"""Methods of other packages on tables, beside boosted trees of fixed settings."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nbsketch.conformal import ConformalRegressor
from nbsketch.reproduce.tabular.boosting import (
    HELD_OUT,
    LEVELS,
    PATIENCE,
    Predict,
    held_out_rows,
    lightgbm_defaults,
)
from nbsketch.reproduce.tabular.problems import CLASSIFICATION, QUANTILES, REGRESSION

Fit = Callable[[Any, NDArray, int, float], Predict]


def catboost(task: str, is_stopped: bool) -> Fit:
    """Return a fit of CatBoost's defaults, or stopped on a held-out tenth."""

    def fit(X: Any, y: NDArray, seed: int, budget: float) -> Predict:
        from catboost import CatBoostClassifier, CatBoostRegressor

        rows, categories = _as_text(X)
        options = {
            "random_seed": seed,
            "thread_count": 1,
            "verbose": False,
            "allow_writing_files": False,
            "cat_features": categories,
        }
        if task == QUANTILES:
            options["loss_function"] = f"MultiQuantile:alpha={_listed(LEVELS)}"
        kind = CatBoostClassifier if task == CLASSIFICATION else CatBoostRegressor
        model = kind(**options)
        if is_stopped:
            validation, train = held_out_rows(rows, y, seed, HELD_OUT)
            model.fit(*train, eval_set=validation, early_stopping_rounds=PATIENCE)
        else:
            model.fit(rows, y)
        predict = model.predict_proba if task == CLASSIFICATION else model.predict
        return lambda X: np.asarray(predict(_as_text(X)[0]))

    return fit


def _listed(values: tuple[float, ...]) -> str:
    return ",".join(map(str, values))


def _as_text(X: Any) -> tuple[Any, list[str]]:
    """Return a frame with its categories as text, and their names."""
    if not hasattr(X, "select_dtypes"):
        return X, []
    names = list(X.select_dtypes(exclude="number").columns)
    text = {n: X[n].astype(object).where(X[n].notna(), "").map(str) for n in names}
    return X.assign(**text), names


def extra_trees(task: str) -> Fit:
    """Return a fit of scikit-learn's randomized trees."""

    def fit(X: NDArray, y: NDArray, seed: int, budget: float) -> Predict:
        if task == REGRESSION:
            return ExtraTreesRegressor(random_state=seed).fit(X, y).predict
        trees = ExtraTreesClassifier(random_state=seed).fit(X, y)
        k, m = len(trees.classes_), len(trees.estimators_)
        # One more tree that knows nothing: no class has probability 0.
        return lambda X: (m * trees.predict_proba(X) + 1 / k) / (m + 1)

    return fit


def gaussian_process(X: NDArray, y: NDArray, seed: int, budget: float) -> Predict:
    """Fit scikit-learn's exact Gaussian process, a length scale for each feature."""
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel()
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    pipeline = make_pipeline(StandardScaler(), model)
    with warnings.catch_warnings():
        # Length scales of irrelevant features end at their bounds.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return pipeline.fit(X, y).predict


def conformalized_trees(X: Any, y: NDArray, seed: int, budget: float) -> Predict:
    """Fit LightGBM's quantiles; a quarter of the rows corrects the outer ones."""
    coverage = LEVELS[-1] - LEVELS[0]
    model = ConformalRegressor(
        TreeQuantiles(random_state=seed),
        method="cqr",
        coverage=coverage,
        random_state=seed,
    ).fit(X, y)

    def predict(X: Any) -> NDArray:
        low, high = model.predict_interval(X).T
        return np.column_stack([low, model.estimator_.predict(X)[:, 1], high])

    return predict


class TreeQuantiles(RegressorMixin, BaseEstimator):
    """LightGBM for each of several levels."""

    def __init__(
        self, quantiles: tuple[float, ...] = LEVELS, random_state: int = 0
    ) -> None:
        self.quantiles = quantiles
        self.random_state = random_state

    def fit(self, X: Any, y: NDArray) -> Self:
        """Fit a model of each level."""
        fit = lightgbm_defaults(QUANTILES)
        self.predict_ = fit(X, np.asarray(y), self.random_state, 0.0)
        return self

    def predict(self, X: Any) -> NDArray:
        """Return the quantiles."""
        return self.predict_(X)


def realmlp(task: str) -> Fit:
    """Return a fit of RealMLP with its tuned defaults, on one thread."""

    def fit(X: NDArray, y: NDArray, seed: int, budget: float) -> Predict:
        import pytabkit

        options = {"device": "cpu", "n_threads": 1, "random_state": seed}
        if task == REGRESSION:
            model = pytabkit.RealMLP_TD_Regressor(**options).fit(X, y)
            return lambda X: np.ravel(model.predict(X))
        classes = pytabkit.RealMLP_TD_Classifier(**options)
        return classes.fit(X, y).predict_proba

    return fit


def xrfm(task: str) -> Fit:
    """Return the fit of xRFM's defaults; a fifth of the rows chooses."""

    def fit(X: NDArray, y: NDArray, seed: int, budget: float) -> Predict:
        from xrfm import xRFM

        scaler = StandardScaler().fit(X)
        validation, train = held_out_rows(scaler.transform(X), y, seed, 0.2)
        metric = "mse" if task == REGRESSION else "logloss"
        model = xRFM(device="cpu", tuning_metric=metric)
        model.fit(*train, *validation)
        if task == REGRESSION:
            return lambda X: np.ravel(model.predict(scaler.transform(X)))
        return lambda X: np.asarray(model.predict_proba(scaler.transform(X)))

    return fit


def tabpfn(task: str) -> Fit:
    """Return the fit of TabPFN, whose weights must be on disk."""

    def fit(X: NDArray, y: NDArray, seed: int, budget: float) -> Predict:
        import tabpfn

        if task == REGRESSION:
            model = tabpfn.TabPFNRegressor(device="cpu", random_state=seed)
            return model.fit(X, y).predict
        classes = tabpfn.TabPFNClassifier(device="cpu", random_state=seed)
        return classes.fit(X, y).predict_proba

    return fit
