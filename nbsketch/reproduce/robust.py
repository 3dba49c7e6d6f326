"""Robust regression on the papers' synthetic data: error and time of many sketches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.datasets import make_friedman_outliers
from nbsketch.estimators import SketchedKernelRegressor
from nbsketch.fitting.stochastic import StochasticSolver
from nbsketch.kernels import GaussianKernel
from nbsketch.losses import Loss
from nbsketch.reproduce._report import Rows
from nbsketch.reproduce._summary import spread
from nbsketch.sketches import (
    GaussianSketch,
    PSparsifiedSketch,
    SketchRecipe,
    SubsamplingSketch,
)

N_ROWS = 10_000
SIZES, QUICK_SIZES = tuple(range(40, 141, 10)), (40, 100, 140)
# Sub-sampling with landmarks that take as long as the other sketches, and longer.
MANY_LANDMARKS, QUICK_LANDMARKS = (200, 300, 400, 600, 1000, 1400, 2000), (200, 400)
NONZEROS = (5, 10, 30, 50)  # a row of a p-sparsified sketch, on average
SUBSAMPLING, GAUSSIAN, ADAM = "sub-sampling", "Gaussian", "Adam"

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


class Series(NamedTuple):
    """Sketches of one kind in several sizes, and the solver."""

    recipe: Callable[[int], SketchRecipe]
    sizes: Sequence[int]
    solver: Any = "auto"


def series_of(problem: Problem, quick: bool = False) -> dict[str, Series]:
    """Return what a figure compares."""
    sizes = QUICK_SIZES if quick else SIZES
    more = QUICK_LANDMARKS if quick else MANY_LANDMARKS
    kind = problem.law[0].upper()

    def sparsified(nonzeros: int) -> Callable[[int], SketchRecipe]:
        density = nonzeros / N_ROWS
        return lambda size: PSparsifiedSketch(size, density, problem.law)

    return {
        SUBSAMPLING: Series(SubsamplingSketch, sizes + more),
        **{f"{k}/n-S{kind}": Series(sparsified(k), sizes) for k in NONZEROS},
        # Slow: three sizes will do.
        GAUSSIAN: Series(GaussianSketch, sizes[:: max(1, (len(sizes) - 1) // 2)]),
        f"{_ADAM_NONZEROS}/n-S{kind}, {ADAM}": Series(
            sparsified(_ADAM_NONZEROS), sizes, _ADAM
        ),
    }


def measure(
    problem: Problem, series: dict[str, Series], replicates: int
) -> Iterator[dict[str, Any]]:
    """Yield one row for each fit.

    A replicate has training and test data of its own, the same for all sketches. The
    time is that of ``fit``: drawing the sketch, features and the certified solution;
    fits on a few rows go before, so that no compilation is timed.
    """
    for replicate in range(replicates):
        train, test = (
            make_friedman_outliers(N_ROWS, random_state=2 * replicate + part)
            for part in range(2)
        )
        for name, one in series.items():
            if replicate == 0:
                _fit(problem, one, min(one.sizes), 0, *_first(train))
            for size in one.sizes:
                model, seconds = _fit(problem, one, size, replicate, *train)
                yield {
                    "series": name,
                    "size": size,
                    "replicate": replicate,
                    "error": _error(model, *test),
                    "seconds": seconds,
                    "landmarks": int(model.sketch_.columns.size),
                }


def summarize(rows: Rows) -> list[dict[str, Any]]:
    """Return one row for each series and size: mean error and best time.

    Beside them stands the error of sub-sampling with as many landmarks as take the same
    time, interpolated between sizes; none where no size is that fast or that slow.
    """
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["series"], row["size"]), []).append(row)
    table = [_summary(*key, group) for key, group in groups.items()]
    others = [row for row in table if row["series"] == SUBSAMPLING]
    for row in table:
        row["subsampling_same_time"] = _error_at(row["seconds"], others)
    return table


def _summary(series: str, size: int, group: Rows) -> dict[str, Any]:
    return {
        "series": series,
        "size": size,
        **spread("error", (row["error"] for row in group)),
        "replicates": len(group),
        "seconds": min(row["seconds"] for row in group),
        "landmarks": round(float(np.mean([row["landmarks"] for row in group]))),
    }


def _error_at(seconds: float, table: Rows) -> float | None:
    """Return the error that sub-sampling reaches in a time, on logarithmic scales."""
    known = sorted((row["seconds"], row["error"]) for row in table)
    if not known or not known[0][0] <= seconds <= known[-1][0]:
        return None
    times, errors = np.log(known).T
    return float(np.exp(np.interp(math.log(seconds), times, errors)))


def _first(data: tuple[NDArray, NDArray]) -> tuple[NDArray, NDArray]:
    return data[0][:_FIRST_ROWS], data[1][:_FIRST_ROWS]


def _fit(
    problem: Problem, one: Series, size: int, seed: int, X: NDArray, y: NDArray
) -> tuple[SketchedKernelRegressor, float]:
    """Return a fitted model and the seconds that it took."""
    model = SketchedKernelRegressor(
        _KERNEL,
        loss=problem.loss,
        sketch=one.recipe(size),
        alpha=problem.alpha,
        fit_intercept=False,
        solver=one.solver,
        random_state=seed,
    )
    start = time.perf_counter()
    model.fit(X, y)
    return model, time.perf_counter() - start


def _error(model: SketchedKernelRegressor, X: NDArray, y: NDArray) -> float:
    """Return the mean squared error over the range of the test targets."""
    return float(np.mean((y - model.predict(X)) ** 2) / np.ptp(y))
