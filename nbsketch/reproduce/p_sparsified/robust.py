"""Robust regression on the paper's synthetic data: error and time of many sketches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.datasets import make_friedman_outliers
from nbsketch.estimators import SketchedKernelRegressor
from nbsketch.fitting.stochastic import StochasticSolver
from nbsketch.fourier import RandomFourierFeatures
from nbsketch.kernels import GaussianKernel
from nbsketch.losses import Loss
from nbsketch.reproduce._tools.report import Row, Rows
from nbsketch.reproduce._tools.statistics import column, groups, spread, timed, where
from nbsketch.reproduce.p_sparsified.methods import ACCUMULATED
from nbsketch.sketches import (
    AccumulationSketch,
    CountSketch,
    GaussianSketch,
    PSparsifiedSketch,
    SketchRecipe,
    SubsamplingSketch,
)
from nbsketch.solvers.newton import solve_scalar

N_ROWS = 10_000
SIZES, QUICK_SIZES = tuple(range(40, 141, 10)), (40, 100, 140)
# Sub-sampling with landmarks that take as long as the other sketches, and longer.
MANY_LANDMARKS, QUICK_LANDMARKS = (200, 300, 400, 600, 1000, 1400, 2000), (200, 400)
NONZEROS = (5, 10, 30, 50)  # expected, of a row of a p-sparsified sketch
SUBSAMPLING, GAUSSIAN, ADAM = "sub-sampling", "Gaussian", "Adam"
COUNT, FOURIER = "CountSketch", "random Fourier features"

_KERNEL = GaussianKernel(bandwidth=math.sqrt(1 / 0.2))  # exp(-0.1 ||x - y||^2)
_ADAM = StochasticSolver(
    learning_rate=0.05, n_epochs=25, batch_size=1, schedule="constant", shuffle=False
)
_ADAM_NONZEROS = 30
_FIRST_ROWS = 500


class Problem(NamedTuple):
    """Loss and penalty, and the law of the p-sparsified sketches."""

    title: str
    loss: Loss
    alpha: float
    law: Literal["rademacher", "gaussian"]


class Fitted(NamedTuple):
    """A function that predicts, and the number of training rows that it needs."""

    predict: Callable[[NDArray], NDArray]
    landmarks: int


Data = tuple[NDArray, NDArray]
# Fits a size with a seed.
Fit = Callable[[Problem, int, int, Data], Fitted]


class Series(NamedTuple):
    """A method, and its sizes."""

    fit: Fit
    sizes: Sequence[int]


def series_of(problem: Problem, quick: bool = False) -> dict[str, Series]:
    """Return the methods of a figure by name."""
    sizes = QUICK_SIZES if quick else SIZES
    landmarks = sizes + (QUICK_LANDMARKS if quick else MANY_LANDMARKS)
    few = QUICK_SIZES  # of methods that need all columns
    kind = problem.law[0].upper()
    adam = _sketched(_sparsified(_ADAM_NONZEROS, problem.law), _ADAM)
    return {
        SUBSAMPLING: Series(_sketched(SubsamplingSketch), landmarks),
        **{
            f"{k}/n-S{kind}": Series(_sketched(_sparsified(k, problem.law)), sizes)
            for k in NONZEROS
        },
        f"accumulation, m = {ACCUMULATED}": Series(
            _sketched(lambda size: AccumulationSketch(size, ACCUMULATED)), sizes
        ),
        FOURIER: Series(_fit_fourier, sizes),
        COUNT: Series(_sketched(CountSketch), few),
        GAUSSIAN: Series(_sketched(GaussianSketch), few),
        f"{_ADAM_NONZEROS}/n-S{kind}, {ADAM}": Series(adam, sizes),
    }


def _sparsified(
    nonzeros: int, law: Literal["rademacher", "gaussian"]
) -> Callable[[int], SketchRecipe]:
    return lambda size: PSparsifiedSketch(size, nonzeros / N_ROWS, law)


def _sketched(recipe: Callable[[int], SketchRecipe], solver: Any = "auto") -> Fit:
    """Return a fit with a sketch."""

    def fit(problem: Problem, size: int, seed: int, data: Data) -> Fitted:
        model = SketchedKernelRegressor(
            _KERNEL,
            loss=problem.loss,
            sketch=recipe(size),
            alpha=problem.alpha,
            fit_intercept=False,
            solver=solver,
            random_state=seed,
        ).fit(*data)
        return Fitted(model.predict, int(model.sketch_.columns.size))

    return fit


def _fit_fourier(problem: Problem, size: int, seed: int, data: Data) -> Fitted:
    """Fit a linear model of random Fourier features, which needs no training rows."""
    X, y = data
    features = RandomFourierFeatures(_KERNEL, size=size, random_state=seed).fit(X)
    coef = solve_scalar(
        features.transform(X), y, problem.loss, problem.alpha, fit_intercept=False
    ).coef
    return Fitted(lambda X_new: features.transform(X_new) @ coef, 0)


def measure(
    problem: Problem, series: dict[str, Series], replicates: int
) -> Iterator[Row]:
    """Yield one row for each fit.

    A replicate has its own training and test data, the same for all methods. The
    time is that of the fit: drawing, features and solution; a small fit compiles first.
    """
    for replicate in range(replicates):
        train, test = (
            make_friedman_outliers(N_ROWS, random_state=2 * replicate + part)
            for part in range(2)
        )
        for name, one in series.items():
            if replicate == 0:
                few = train[0][:_FIRST_ROWS], train[1][:_FIRST_ROWS]
                one.fit(problem, min(one.sizes), 0, few)
            for size in one.sizes:
                fitted, seconds = timed(one.fit, problem, size, replicate, train)
                yield {
                    "series": name,
                    "size": size,
                    "replicate": replicate,
                    "error": _error(fitted.predict(test[0]), test[1]),
                    "seconds": seconds,
                    "landmarks": fitted.landmarks,
                }


def _error(predicted: NDArray, y: NDArray) -> float:
    """Return the mean squared error over the range of the test targets."""
    return float(np.mean((y - predicted) ** 2) / np.ptp(y))


def summarize(rows: Rows) -> list[Row]:
    """Return one row for each series and size: mean error and minimal time.

    "subsampling_same_time" is the error of sub-sampling with as many landmarks as take
    the same time, interpolated between sizes; None outside the range of its times.
    """
    table = [
        {
            "series": series,
            "size": size,
            **spread("error", column(group, "error")),
            "replicates": len(group),
            "seconds": min(row["seconds"] for row in group),
            "landmarks": round(float(column(group, "landmarks").mean())),
        }
        for (series, size), group in groups(rows, "series", "size").items()
    ]
    others = where(table, series=SUBSAMPLING)
    for row in table:
        row["subsampling_same_time"] = _error_at(row["seconds"], others)
    return table


def _error_at(seconds: float, table: Rows) -> float | None:
    """Return the error that sub-sampling reaches in a time, on logarithmic scales."""
    known = sorted((row["seconds"], row["error"]) for row in table)
    if not known or not known[0][0] <= seconds <= known[-1][0]:
        return None
    times, errors = np.log(known).T
    return float(np.exp(np.interp(math.log(seconds), times, errors)))
