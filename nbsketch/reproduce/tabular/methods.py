"""Methods of the comparison on tables: nbsketch and other packages."""

import os
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import ensemble
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nbsketch
from nbsketch.conformal import ConformalRegressor
from nbsketch.reproduce import read_toml
from nbsketch.reproduce.tabular import problems
from nbsketch.reproduce.tabular.problems import (
    CLASSIFICATION,
    LEVELS,
    QUANTILES,
    REGRESSION,
)
from nbsketch.tabular.columns import fit_columns
from nbsketch.tabular.reading import is_table
from nbsketch.tabular.regressor import TabularKernelRegressor

TREES = 500
RATE = 0.1
PATIENCE = 50
HELD_OUT = 0.1
MOST_TREES = 2000  # of the random search
VALIDATION = 0.2  # share of validation rows of the random search
_QUIET = {"num_threads": 1, "verbosity": -1}
Settings = dict[str, Any]  # of a method or a model, by name
Predict = Callable[[Any], NDArray]
# Function of a task, rows, targets, a seed and, for tuned methods, a time budget.
Fit = Callable[..., Predict]
# The method whose fit time is the budget of the tuned one.
DEFAULT = "tabular"
WITH_TREES = "tabular, trees"
BLOCKS = "tabular, cv=5"
SKETCHED = "sketched"
EXACT = "exact ridge"
OURS = DEFAULT, WITH_TREES, BLOCKS, SKETCHED, EXACT
LIGHTGBM = "LightGBM"
TUNED = "LightGBM tuned"
HISTOGRAMS = "HistGradientBoosting"


def estimator(
    task: str, X: Any, y: NDArray, seed: int, estimators: Settings
) -> Predict:
    """Fit the estimator of a task: its module, class and parameters.

    A further entry names the parameter for the level of one quantile.
    """
    module, name, options, *level = estimators[task]
    kind = partial(getattr(import_module(module), name), random_state=seed, **options)
    if level:
        return _joined([kind(**{level[0]: tau}).fit(X, y) for tau in LEVELS], task)
    model = kind().fit(X, y)
    if task == QUANTILES:
        return partial(model.predict_quantiles, levels=LEVELS)
    return model.predict_proba if task == CLASSIFICATION else model.predict


def blocks(task: str, X: NDArray, y: NDArray, seed: int, groups: int | None) -> Predict:
    """Fit with blocks of rows left out, or the groups of a column."""
    model = TabularKernelRegressor(cv=5, random_state=seed)
    return model.fit(X, y, groups=None if groups is None else X[:, groups]).predict


def objective(task: str, y: NDArray) -> list[Settings]:
    """Return the objectives of LightGBM for a task, one for each of its models."""
    if task == QUANTILES:
        return [{"objective": "quantile", "alpha": level} for level in LEVELS]
    if task == REGRESSION:
        return [{"objective": "regression"}]
    count = int(y.max()) + 1
    if count == 2:
        return [{"objective": "binary"}]
    return [{"objective": "multiclass", "num_class": count}]


def lightgbm_defaults(task: str, X: Any, y: NDArray, seed: int) -> Predict:
    """Fit LightGBM with 500 trees and early stopping on a tenth."""
    settings = {"learning_rate": RATE, "seed": seed}
    goals = [settings | goal for goal in objective(task, y)]
    return _joined([_train(X, y, g, TREES, HELD_OUT)[0] for g in goals], task)


def lightgbm_tuned(
    task: str, X: Any, y: NDArray, seed: int, budget: float = 0.0
) -> Predict:
    """Fit LightGBM by random search for `budget` seconds.

    A fifth of the rows chooses settings and number of trees, which are then fitted to
    all rows. The first trial is the default; a trial that began before the end of the
    budget is finished. The time is divided equally among the models of several
    quantiles.
    """
    goals = objective(task, y)
    rng = np.random.default_rng(seed)
    share = budget / len(goals)
    return _joined([_search(X, y, g, seed, share, rng) for g in goals], task)


def _search(
    X: Any, y: NDArray, goal: Settings, seed: int, seconds: float, rng: Any
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
            best = drawn
            least = loss
            trees = model.best_iteration
    return lightgbm.train(best | _QUIET, lightgbm.Dataset(X, y), trees)


def _draw(rng: np.random.Generator) -> Settings:
    """Return settings drawn from the usual ranges, most of them logarithmic."""

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    return {
        "learning_rate": between(0.01, 0.3),
        "num_leaves": int(between(4, 256)),
        "min_child_samples": int(between(2, 100)),
        "feature_fraction": float(rng.uniform(0.4, 1)),
        "bagging_fraction": float(rng.uniform(0.5, 1)),
        "bagging_freq": 1,
        "lambda_l2": between(1e-3, 30),
    }


def _train(
    X: Any, y: NDArray, settings: Settings, trees: int, held_out: float
) -> tuple[Any, float]:
    """Return a model stopped on held-out rows, and its loss there."""
    import lightgbm

    (X_test, y_test), (X, y) = held_out_rows(X, y, settings["seed"], held_out)
    train = lightgbm.Dataset(X, y, free_raw_data=True)
    test = lightgbm.Dataset(X_test, y_test, reference=train)
    stopping = lightgbm.early_stopping(PATIENCE, verbose=False)
    model = lightgbm.train(
        settings | _QUIET, train, trees, [test], callbacks=[stopping]
    )
    return model, next(iter(model.best_score["valid_0"].values()))


def _joined(models: list[Any], task: str) -> Predict:
    """Return the prediction of one model, or of several side by side."""

    def predict(X: Any) -> NDArray:
        values = [np.asarray(model.predict(X)) for model in models]
        if task == QUANTILES:
            return np.column_stack(values)
        if task == CLASSIFICATION and values[0].ndim == 1:
            return np.column_stack([1 - values[0], values[0]])
        return values[0]

    return predict


def held_out_rows(
    X: Any, y: NDArray, seed: int, share: float
) -> list[problems.Examples]:
    """Return a share of the rows and targets at random, and the others."""
    table = problems.Examples(X, y)
    return [table.rows(part) for part in problems.random_rows(table, seed, share)]


def catboost(
    task: str, X: Any, y: NDArray, seed: int, is_stopped: bool = False
) -> Predict:
    """Fit CatBoost with its defaults, or stopped on a held-out tenth."""
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
        levels = ",".join(map(str, LEVELS))
        options["loss_function"] = f"MultiQuantile:alpha={levels}"
    kind = CatBoostClassifier if task == CLASSIFICATION else CatBoostRegressor
    stopping = {}
    if is_stopped:
        validation, (rows, y) = held_out_rows(rows, y, seed, HELD_OUT)
        stopping = {"eval_set": validation, "early_stopping_rounds": PATIENCE}
    model = kind(**options).fit(rows, y, **stopping)
    predict = model.predict_proba if task == CLASSIFICATION else model.predict
    return lambda X: np.asarray(predict(_as_text(X)[0]))


def _as_text(X: Any) -> tuple[Any, list[str]]:
    """Return a frame with its categories as text, and their names."""
    if not hasattr(X, "select_dtypes"):
        return X, []
    names = list(X.select_dtypes(exclude="number").columns)
    text = {n: X[n].astype(object).where(X[n].notna(), "").map(str) for n in names}
    return X.assign(**text), names


def extra_trees(task: str, X: NDArray, y: NDArray, seed: int) -> Predict:
    """Fit scikit-learn's randomized trees."""
    if task == REGRESSION:
        return ensemble.ExtraTreesRegressor(random_state=seed).fit(X, y).predict
    trees = ensemble.ExtraTreesClassifier(random_state=seed).fit(X, y)
    k = len(trees.classes_)
    m = len(trees.estimators_)
    # One more tree that knows nothing: no class has probability 0.
    return lambda X: (m * trees.predict_proba(X) + 1 / k) / (m + 1)


def gaussian_process(task: str, X: NDArray, y: NDArray, seed: int) -> Predict:
    """Fit scikit-learn's exact Gaussian process, a length scale for each feature."""
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel()
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    pipeline = make_pipeline(StandardScaler(), model)
    with warnings.catch_warnings():
        # Length scales of irrelevant features end at their bounds.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return pipeline.fit(X, y).predict


def conformalized_trees(task: str, X: Any, y: NDArray, seed: int) -> Predict:
    """Fit LightGBM's quantiles; a quarter of the rows corrects the outer ones."""
    model = ConformalRegressor(
        TreeQuantiles(random_state=seed),
        method="cqr",
        coverage=LEVELS[-1] - LEVELS[0],
        random_state=seed,
    ).fit(X, y)

    def predict(X: Any) -> NDArray:
        low, high = model.predict_interval(X).T
        return np.column_stack([low, model.estimator_.predict(X)[:, 1], high])

    return predict


class TreeQuantiles(RegressorMixin, BaseEstimator):
    """LightGBM for each of several levels."""

    quantiles = LEVELS

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Any, y: NDArray) -> Self:
        """Fit a model of each level."""
        y = np.asarray(y)
        self.predict_ = lightgbm_defaults(QUANTILES, X, y, self.random_state)
        return self

    def predict(self, X: Any) -> NDArray:
        """Return the quantiles."""
        return self.predict_(X)


def xrfm(task: str, X: NDArray, y: NDArray, seed: int) -> Predict:
    """Fit xRFM with its defaults; a fifth of the rows chooses."""
    from xrfm import xRFM

    scaler = StandardScaler().fit(X)
    validation, train = held_out_rows(scaler.transform(X), y, seed, 0.2)
    metric = "mse" if task == REGRESSION else "logloss"
    model = xRFM(device="cpu", tuning_metric=metric)
    model.fit(*train, *validation)
    if task == REGRESSION:
        return lambda X: np.ravel(model.predict(scaler.transform(X)))
    return lambda X: np.asarray(model.predict_proba(scaler.transform(X)))


class BenchmarkMethod(NamedTuple):
    """A method, its package and tasks, the largest n, and the tables that it takes.

    It is given other data frames as numbers: those with a category of as many `levels`
    or more.
    """

    of: Fit
    package: str = "nbsketch"
    tasks: Sequence[str] = problems.TASKS
    levels: float = np.inf
    most_rows: int = 10**9

    def fit(
        self, task: str, X: Any, y: NDArray, seed: int, budget: float = 0.0
    ) -> Predict:
        """Fit it, and return what predicts; a budget is for one that tunes."""
        fit = partial(self.of, budget=budget) if budget else self.of
        if not is_table(X) or _most_levels(X) < self.levels:
            return fit(task, X, y, seed)
        columns, rows = fit_columns(X, y, classification=task == CLASSIFICATION)
        predict = fit(task, rows, y, seed)
        return lambda X: predict(columns.transform(X))


def _most_levels(X: Any) -> int:
    """Return the largest number of levels of the categories of a frame."""
    columns = X.select_dtypes("category").items()
    return max((len(column.cat.categories) for _, column in columns), default=0)


def _method(fit: Settings, **fields: Any) -> BenchmarkMethod:
    """Return the method of an entry of ``methods.toml``."""
    function = globals()[fit.pop("function")]
    return BenchmarkMethod(partial(function, **fit), **fields)


METHODS = {n: _method(**m) for n, m in read_toml("tabular/methods.toml").items()}


def methods(task: str) -> dict[str, BenchmarkMethod]:
    """Return the installed methods of a task by name, in the order of evaluation."""
    of_task = {name: m for name, m in METHODS.items() if task in m.tasks}
    return {name: m for name, m in of_task.items() if is_available(m.package)}


def methods_of(problem: problems.Benchmark) -> dict[str, BenchmarkMethod]:
    """Return those of its task; for dependent rows, also one that is told so."""
    by_blocks = BenchmarkMethod(partial(blocks, groups=problem.groups))
    return methods(problem.task) | ({BLOCKS: by_blocks} if problem.label else {})


def is_available(package: str) -> bool:
    """Return whether a package is installed; of TabPFN, with its weights."""
    installed = find_spec(package.replace("scikit-learn", "sklearn")) is not None
    folder = os.environ.get("TABPFN_MODEL_CACHE_DIR", "~/.cache/tabpfn")
    weights = Path(folder).expanduser().glob("*.ckpt")
    return installed and (package != "tabpfn" or any(weights))


def not_run() -> list[str]:
    """Return the names of the methods that are not available."""
    return [name for name, m in METHODS.items() if not is_available(m.package)]


def release(package: str) -> str:
    """Return name and version of an installed package."""
    # Nbsketch itself need not be installed where it runs.
    ours = package == "nbsketch"
    return f"{package} {nbsketch.__version__ if ours else version(package)}"
