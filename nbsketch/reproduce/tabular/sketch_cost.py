"""Sketches of the default sizes: test error, time of a fit and time of a prediction.

Not from a paper: this is the measurement behind the sketch that estimators use if none
is given. Each sketch has the same size, with learned length scales and a chosen
penalty; sub-sampling is also measured at one and a half times that size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from nbsketch._progress import Progress
from nbsketch.datasets import Dataset, make_friedman_outliers
from nbsketch.estimators.classifier import SketchedKernelClassifier
from nbsketch.estimators.quantile import JointQuantileRegressor
from nbsketch.estimators.regressor import SketchedKernelRegressor
from nbsketch.metrics import pinball_loss
from nbsketch.reproduce._data import load
from nbsketch.reproduce._report import Row, Rows, column, groups, timed, where
from nbsketch.reproduce.experiment import publish_table
from nbsketch.reproduce.tabular.problems import FRACTIONS
from nbsketch.sketches import (
    AccumulationSketch,
    LeverageSketch,
    PSparsifiedSketch,
    SketchRecipe,
    SubsamplingSketch,
)

REFERENCE, LARGER, MEAN = "sub-sampling", "sub-sampling, 1.5 s", "geometric mean"
LEVELS = (0.1, 0.5, 0.9)
SYNTHETIC = "friedman"
SYNTHETIC_ROWS = 12_500
REPLICATES, QUICK_REPLICATES = 3, 1
_WARM_UP_ROWS, _REPEATS = 200, 3
NOTES = (
    "error: on the test fifth of a random split, mean over the splits: root mean "
    "squared error (square), mean absolute error (huber), mean pinball loss of three "
    "levels (quantiles), share of wrong labels (logistic, targets above the median).",
    "fit: processor seconds of a fit, with all its choices; predict: processor "
    "microseconds of one row. Ratios are geometric means over the splits, divided by "
    "those of sub-sampling; the last rows are geometric means over the problems.",
    "s is the default size (half the rows where that would be all of them). friedman: "
    "the papers' synthetic data with outlying inputs.",
)

Recipe = Callable[[int, int], SketchRecipe]


class Problem(NamedTuple):
    """A set, a model with its size s, and the error of its predictions."""

    set: str
    loss: str
    model: Any
    size: int
    error: Callable[[NDArray, NDArray], float]


def rmse(y: NDArray, predicted: NDArray) -> float:
    """Return the root mean squared error."""
    return float(np.sqrt(np.mean((y - predicted) ** 2)))


def absolute(y: NDArray, predicted: NDArray) -> float:
    """Return the mean absolute error."""
    return float(np.mean(np.abs(y - predicted)))


def quantile_error(y: NDArray, predicted: NDArray) -> float:
    """Return the pinball loss, averaged over the levels."""
    losses = [
        pinball_loss(y, values, level)
        for level, values in zip(LEVELS, predicted.T, strict=True)
    ]
    return float(np.mean(losses))


def wrong(y: NDArray, predicted: NDArray) -> float:
    """Return the share of wrong labels."""
    return float(np.mean(y != predicted))


_SQUARE = SketchedKernelRegressor()
_HUBER = SketchedKernelRegressor(loss="huber", tol=1e-4)
_QUANTILES = JointQuantileRegressor(LEVELS, tol=1e-4)
_LOGISTIC = SketchedKernelClassifier(loss="logistic", tol=1e-4)
PROBLEMS = (
    Problem("california", "square", _SQUARE, 1000, rmse),
    Problem("powerplant", "square", _SQUARE, 1000, rmse),
    Problem(SYNTHETIC, "square", _SQUARE, 1000, rmse),
    Problem("concrete", "huber", _HUBER, 412, absolute),
    Problem("airfoil", "huber", _HUBER, 500, absolute),
    Problem(SYNTHETIC, "huber", _HUBER, 500, absolute),
    Problem("airfoil", "quantiles", _QUANTILES, 300, quantile_error),
    Problem("concrete", "quantiles", _QUANTILES, 206, quantile_error),
    Problem("california", "logistic", _LOGISTIC, 500, wrong),
)
QUICK_PROBLEMS = (PROBLEMS[4], PROBLEMS[6])


def run(
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    data_home: Path | None = None,
) -> list[Row]:
    """Compare the sketches (see `nbsketch.reproduce` for the parameters).

    Replicates are random splits: 3, or 1 of two small problems if `quick`.
    """
    count = replicates or (QUICK_REPLICATES if quick else REPLICATES)
    problems = QUICK_PROBLEMS if quick else PROBLEMS
    rows: list[Row] = []
    with Progress(len(problems) * count) as progress:
        for problem in problems:
            data = table_of(problem, data_home)
            warm_up(problem, data)
            for split in range(count):
                rows += evaluate(problem, data, split)
                progress.step(f"{problem.set}, {problem.loss}")
    return publish_table(summarize(rows), out, "sketch-cost", "Cost of sketches", NOTES)


def table_of(problem: Problem, data_home: Path | None) -> Dataset:
    """Return the rows and targets of a problem."""
    if problem.set == SYNTHETIC:
        X, y = make_friedman_outliers(SYNTHETIC_ROWS, random_state=0)
        names = tuple(f"x{k}" for k in range(X.shape[1]))
        data = Dataset(SYNTHETIC, X, y, names, ("y",))
    else:
        data = load(problem.set, data_home)
    if problem.error is wrong:
        data = replace(data, y=data.y > np.median(data.y))
    return data


def sketches() -> dict[str, Recipe]:
    """Return the recipes by name: functions of the size s and the number of rows n."""
    recipes: dict[str, Recipe] = {
        REFERENCE: lambda s, n: SubsamplingSketch(s),
        LARGER: lambda s, n: SubsamplingSketch(min(n, 3 * s // 2)),
        "leverage": lambda s, n: LeverageSketch(s),
        "accumulation, m = 2": lambda s, n: AccumulationSketch(s, m=2),
    }
    for count in (2, 5, 10, 20):
        recipes[f"p-SR, {count}/n"] = _sparsified(count)
    return recipes


def warm_up(problem: Problem, data: Dataset) -> None:
    """Fit few rows with every sketch, so that no compilation is timed."""
    few = replace(data, X=data.X[:_WARM_UP_ROWS], y=data.y[:_WARM_UP_ROWS])
    for _ in evaluate(problem._replace(size=20), few, 0):
        pass


def evaluate(problem: Problem, data: Dataset, seed: int) -> Iterator[Row]:
    """Fit four fifths of the rows with every sketch; yield error and times."""
    (X, y), (X_test, y_test) = data.random_split(seed, FRACTIONS)
    for name, recipe in sketches().items():
        model = clone(problem.model).set_params(
            sketch=recipe(problem.size, len(y)), random_state=seed
        )
        with threadpool_limits(limits=1):
            _, seconds = timed(model.fit, X, y)
        predicted, per_row = _predict(model, X_test)
        yield {
            "set": problem.set,
            "loss": problem.loss,
            "sketch": name,
            "landmarks": len(model.landmarks_),
            "error": problem.error(y_test, predicted),
            "fit": seconds,
            "predict": per_row,
        }


def summarize(rows: Rows) -> list[Row]:
    """Return a row for each problem and sketch, then the means of each sketch."""
    table = []
    for (name, loss), problem in groups(rows, "set", "loss").items():
        base = where(problem, sketch=REFERENCE)
        for (sketch,), group in groups(problem, "sketch").items():
            place = {"set": name, "loss": loss, "sketch": sketch}
            table.append(place | _means(group) | _ratios(group, base))
    return table + [_over_problems(*item) for item in groups(table, "sketch").items()]


def _sparsified(count: int) -> Recipe:
    return lambda s, n: PSparsifiedSketch(s, density=min(1.0, count / n))


def _predict(model: Any, X: NDArray) -> tuple[NDArray, float]:
    """Return predictions, and the least processor time of a row in microseconds."""
    seconds = []
    for _ in range(_REPEATS):
        start = time.process_time()
        predicted = model.predict(X)
        seconds.append(time.process_time() - start)
    return predicted, 1e6 * min(seconds) / len(X)


def _means(rows: Rows) -> Row:
    means = {name: float(column(rows, name).mean()) for name in ("error", "fit")}
    return {
        "landmarks": round(column(rows, "landmarks").mean()),
        **means,
        "predict": float(column(rows, "predict").min()),
    }


def _ratios(rows: Rows, base: Rows) -> Row:
    names = ("error", "fit", "predict")
    return {
        f"{name}_ratio": _geometric(column(rows, name) / column(base, name))
        for name in names
    }


def _over_problems(sketch: tuple[Any, ...], rows: Rows) -> Row:
    ratios = [name for name in rows[0] if name.endswith("_ratio")]
    means = {name: _geometric(column(rows, name)) for name in ratios}
    empty = dict.fromkeys(rows[0])
    return {**empty, "set": MEAN, "sketch": sketch[0], **means}


def _geometric(values: NDArray) -> float:
    return float(np.exp(np.log(values).mean()))
