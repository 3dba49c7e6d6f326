"""Methods of other packages on tables, beside boosted trees of fixed settings."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import _safe_indexing

from nbsketch.conformal import ConformalRegressor
from nbsketch.reproduce.tabular.problems import CLASSIFICATION, QUANTILES, REGRESSION

LEVELS = (0.1, 0.5, 0.9)
TREES, RATE, PATIENCE, HELD_OUT = 500, 0.1, 50, 0.1
# Most trees and share of validation rows of the random search.
MOST_TREES, VALIDATION = 2000, 0.2
_QUIET = {"num_threads": 1, "verbosity": -1}
Predict = Callable[[Any], NDArray]
Objective = dict[str, Any]


def objective(task: str, y: NDArray) -> list[Objective]:
    """Return the objectives of LightGBM for a task, one for each of its models."""
    if task == "quantiles":
        return [{"objective": "quantile", "alpha": level} for level in LEVELS]
    if task == "regression":
        return [{"objective": "regression"}]
    count = int(y.max()) + 1
    if count == 2:
        return [{"objective": "binary"}]
    return [{"objective": "multiclass", "num_class": count}]


def lightgbm_defaults(task: str) -> Callable[[Any, NDArray, int, float], Predict]:
    """Return a fit of LightGBM with 500 trees and early stopping on a tenth."""

    def fit(X: Any, y: NDArray, seed: int, budget: float) -> Predict:
        settings = {"learning_rate": RATE, "seed": seed}
        models = [
            _train(X, y, settings | goal, TREES, HELD_OUT)[0]
            for goal in objective(task, y)
        ]
        return _joined(models, task)

    return fit


def lightgbm_tuned(task: str) -> Callable[[Any, NDArray, int, float], Predict]:
    """Return a fit of LightGBM by random search for `budget` seconds.

    A fifth of the rows chooses settings and number of trees, which are then fitted to
    all rows. The first trial is the default; a trial that began before the end of the
    budget is finished. The time is divided equally among the models of several
    quantiles.
    """

    def fit(X: Any, y: NDArray, seed: int, budget: float) -> Predict:
        goals = objective(task, y)
        rng = np.random.default_rng(seed)
        share = budget / len(goals)
        return _joined([_search(X, y, g, seed, share, rng) for g in goals], task)

    return fit


def _search(
    X: Any, y: NDArray, goal: Objective, seed: int, seconds: float, rng: Any
) -> Any:
    """Return the model of the settings with the least validation loss, of all rows."""
    import lightgbm

    end = time.process_time() + seconds
    settings = best = {"learning_rate": RATE, "seed": seed} | goal
    model, least = _train(X, y, settings, MOST_TREES, VALIDATION)
    trees = model.best_iteration
    while time.process_time() < end:
        drawn = settings | _draw(rng)
        model, loss = _train(X, y, drawn, MOST_TREES, VALIDATION)
        if loss < least:
            best, least, trees = drawn, loss, model.best_iteration
    return lightgbm.train(best | _QUIET, lightgbm.Dataset(X, y), trees)


def _draw(rng: np.random.Generator) -> dict[str, Any]:
    """Return settings drawn from the usual ranges, most of them logarithmic."""
    return {
        "learning_rate": float(np.exp(rng.uniform(np.log(0.01), np.log(0.3)))),
        "num_leaves": int(np.exp(rng.uniform(np.log(4), np.log(256)))),
        "min_child_samples": int(np.exp(rng.uniform(np.log(2), np.log(100)))),
        "feature_fraction": float(rng.uniform(0.4, 1)),
        "bagging_fraction": float(rng.uniform(0.5, 1)),
        "bagging_freq": 1,
        "lambda_l2": float(np.exp(rng.uniform(np.log(1e-3), np.log(30)))),
    }


def _train(
    X: Any, y: NDArray, settings: dict[str, Any], trees: int, held_out: float
) -> tuple[Any, float]:
    """Return a model stopped on held-out rows, and its loss there."""
    import lightgbm

    (X_test, y_test), (X, y) = held_out_rows(X, y, settings["seed"], held_out)
    train = lightgbm.Dataset(X, y, free_raw_data=True)
    test = lightgbm.Dataset(X_test, y_test, reference=train)
    model = lightgbm.train(
        settings | _QUIET,
        train,
        trees,
        [test],
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
    )
    return model, next(iter(model.best_score["valid_0"].values()))


def _joined(models: list[Any], task: str) -> Predict:
    """Return the prediction of one model, or of several side by side."""

    def predict(X: Any) -> NDArray:
        values = [np.asarray(model.predict(X)) for model in models]
        if task == "quantiles":
            return np.column_stack(values)
        if task == "classification" and values[0].ndim == 1:
            return np.column_stack([1 - values[0], values[0]])
        return values[0]

    return predict


def held_out_rows(
    X: Any, y: NDArray, seed: int, share: float
) -> list[tuple[Any, NDArray]]:
    """Return a share of the rows and targets at random, and the others."""
    order = np.random.default_rng(seed).permutation(len(y))
    parts = np.split(order, [max(1, round(share * len(y)))])
    return [(_safe_indexing(X, part), y[part]) for part in parts]


def histograms(task: str) -> Callable[[Any, NDArray, int, float], Predict]:
    """Return a fit of scikit-learn's boosted trees with the same early stopping."""

    def fit(X: Any, y: NDArray, seed: int, budget: float) -> Predict:
        options: dict[str, Any] = {
            "max_iter": TREES,
            "learning_rate": RATE,
            "early_stopping": True,
            "validation_fraction": HELD_OUT,
            "n_iter_no_change": PATIENCE,
            "random_state": seed,
        }
        if task == "classification":
            return HistGradientBoostingClassifier(**options).fit(X, y).predict_proba
        if task == "regression":
            return HistGradientBoostingRegressor(**options).fit(X, y).predict
        predicts = [
            HistGradientBoostingRegressor(loss="quantile", quantile=level, **options)
            .fit(X, y)
            .predict
            for level in LEVELS
        ]
        return lambda X: np.column_stack([predict(X) for predict in predicts])

    return fit


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
