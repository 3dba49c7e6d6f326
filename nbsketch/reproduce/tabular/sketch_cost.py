"""Sketches of the default sizes: test error, time of a fit and time of a prediction.

Not from a paper: this is the measurement behind the sketch that estimators use if none
is given. Each sketch has the same size, with learned length scales and a chosen
penalty; sub-sampling is also measured at one and a half times that size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from nbsketch import estimators, sketches
from nbsketch.datasets import Dataset, make_friedman_outliers
from nbsketch.metrics import pinball_loss
from nbsketch.reproduce import _report
from nbsketch.reproduce._data import MaybePath, load
from nbsketch.reproduce._report import Row, Rows, geometric, summarized, timed
from nbsketch.reproduce.experiment import Experiment, Points
from nbsketch.reproduce.tabular.problems import FRACTIONS

REFERENCE, LARGER, MEAN = "sub-sampling", "sub-sampling, 1.5 s", "geometric mean"
LEVELS = (0.1, 0.5, 0.9)
SYNTHETIC = "friedman"
SYNTHETIC_ROWS = 12_500
_WARM_UP_ROWS, _REPEATS = 200, 3
# A recipe by the size s and the number of rows n.
Recipe = Callable[[int, int], sketches.SketchRecipe]


class Problem(NamedTuple):
    """A set, and a model of a loss with its size s."""

    set: str
    loss: str
    model: Any
    size: int


def quantile_error(y: NDArray, predicted: NDArray) -> float:
    """Return the pinball loss, averaged over the levels."""
    return pinball_loss(y, predicted, LEVELS) / len(LEVELS)


_SQUARE = estimators.SketchedKernelRegressor()
_HUBER = estimators.SketchedKernelRegressor(loss="huber", tol=1e-4)
_QUANTILES = estimators.JointQuantileRegressor(LEVELS, tol=1e-4)
_LOGISTIC = estimators.SketchedKernelClassifier(loss="logistic", tol=1e-4)
_ERRORS: dict[str, Callable[[NDArray, NDArray], float]] = {
    "square": metrics.root_mean_squared_error,
    "huber": metrics.mean_absolute_error,
    "quantiles": quantile_error,
    "logistic": metrics.zero_one_loss,
}
PROBLEMS = (
    Problem("california", "square", _SQUARE, 1000),
    Problem("powerplant", "square", _SQUARE, 1000),
    Problem(SYNTHETIC, "square", _SQUARE, 1000),
    Problem("concrete", "huber", _HUBER, 412),
    Problem("airfoil", "huber", _HUBER, 500),
    Problem(SYNTHETIC, "huber", _HUBER, 500),
    Problem("airfoil", "quantiles", _QUANTILES, 300),
    Problem("concrete", "quantiles", _QUANTILES, 206),
    Problem("california", "logistic", _LOGISTIC, 500),
)
QUICK_PROBLEMS = (PROBLEMS[4], PROBLEMS[6])
RECIPES: dict[str, Recipe] = {
    REFERENCE: lambda s, n: sketches.SubsamplingSketch(s),
    LARGER: lambda s, n: sketches.SubsamplingSketch(min(n, 3 * s // 2)),
    "leverage": lambda s, n: sketches.LeverageSketch(s),
    "accumulation, m = 2": lambda s, n: sketches.AccumulationSketch(s, m=2),
    "p-SR, 2/n": lambda s, n: sketches.PSparsifiedSketch(s, min(1.0, 2 / n)),
    "p-SR, 5/n": lambda s, n: sketches.PSparsifiedSketch(s, min(1.0, 5 / n)),
    "p-SR, 10/n": lambda s, n: sketches.PSparsifiedSketch(s, min(1.0, 10 / n)),
    "p-SR, 20/n": lambda s, n: sketches.PSparsifiedSketch(s, min(1.0, 20 / n)),
}


def points(replicates: int, quick: bool, data_home: MaybePath = None) -> Points:
    """Yield problem, its data and a random split; of two small problems if quick."""
    for problem in QUICK_PROBLEMS if quick else PROBLEMS:
        data = table_of(problem, data_home)
        for split in range(replicates):
            yield problem, data, split


def table_of(problem: Problem, data_home: MaybePath) -> Dataset:
    """Return the rows and targets of a problem."""
    if problem.set == SYNTHETIC:
        X, y = make_friedman_outliers(SYNTHETIC_ROWS, random_state=0)
        names = tuple(f"x{k}" for k in range(X.shape[1]))
        data = Dataset(SYNTHETIC, X, y, names, ("y",))
    else:
        data = load(problem.set, data_home)
    if problem.loss == "logistic":
        data = replace(data, y=data.y > np.median(data.y))
    return data


def measure(problem: Problem, data: Dataset, split: int) -> Iterator[Row]:
    """Yield error and times of every sketch; few rows are fitted first, to compile."""
    if split == 0:
        start = replace(data, X=data.X[:_WARM_UP_ROWS], y=data.y[:_WARM_UP_ROWS])
        list(evaluate(problem._replace(size=20), start, 0))
    yield from evaluate(problem, data, split)


def evaluate(problem: Problem, data: Dataset, seed: int) -> Iterator[Row]:
    """Fit four fifths of the rows with every sketch; yield error and times."""
    (X, y), (X_test, y_test) = data.random_split(seed, FRACTIONS)
    for name, recipe in RECIPES.items():
        model = clone(problem.model).set_params(
            sketch=recipe(problem.size, len(y)), random_state=seed
        )
        with threadpool_limits(limits=1):
            _, seconds = timed(model.fit, X, y)
        predictions = [timed(model.predict, X_test) for _ in range(_REPEATS)]
        yield {
            "set": problem.set,
            "loss": problem.loss,
            "sketch": name,
            "landmarks": len(model.landmarks_),
            "error": float(_ERRORS[problem.loss](y_test, predictions[0][0])),
            "fit": seconds,
            # microseconds of a row
            "predict": 1e6 * min(s for _, s in predictions) / len(X_test),
        }


def summarize(rows: Rows) -> list[Row]:
    """Return a row for each problem and sketch, then the means of each sketch."""
    by = "set", "loss", "sketch"
    statistics = dict.fromkeys(("landmarks", "error", "fit"), np.mean)
    table = summarized(rows, by, statistics | {"predict": min})
    measured = _report.groups(rows, *by)
    for row in table:
        row["landmarks"] = round(row["landmarks"])
        place = row["set"], row["loss"]
        pair = measured[*place, row["sketch"]], measured[*place, REFERENCE]
        for name in ("error", "fit", "predict"):
            values, base = (_report.column(group, name) for group in pair)
            row[f"{name}_ratio"] = geometric(values / base)
    ratios = [name for name in table[0] if name.endswith("_ratio")]
    means = summarized(table, ["sketch"], dict.fromkeys(ratios, geometric))
    empty = dict.fromkeys(table[0]) | {"set": MEAN}
    return table + [empty | mean for mean in means]


run = Experiment("sketch-cost", points, measure, summarize)
