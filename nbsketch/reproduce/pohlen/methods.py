"""Pohlen's data and methods: splits, sketched and bootstrap models, grids."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.datasets import Dataset
from nbsketch.estimators import SketchedKernelRegressor
from nbsketch.kernels import GaussianKernel
from nbsketch.reproduce._tools.data import standardized
from nbsketch.reproduce._tools.statistics import timed
from nbsketch.sketches import (
    GaussianSketch,
    IdentitySketch,
    PSparsifiedSketch,
    RademacherSketch,
    SketchRecipe,
    SparseJLSketch,
    SubsamplingSketch,
)

WITHOUT, BOOTSTRAP, SPARSE = "without sketch", "bootstrap", "sparse JL"
# "(added)": not in the report.
SKETCHES: dict[str, Callable[[int], SketchRecipe]] = {
    "Gaussian": GaussianSketch,
    "Rademacher": RademacherSketch,
    "p-SR, p = 20/n (added)": PSparsifiedSketch,
    "sub-sampling (added)": SubsamplingSketch,
}
# Shares of training, test and evaluation rows, and these rows of the synthetic set.
FRACTIONS = (0.5, 0.3, 0.2)
SINE_ROWS = (100, 1000, 100)
SINE_VARIANCE = 0.25
# Tried for the squared bandwidth h and the penalty.
GRID = 10.0 ** np.arange(-9, 4)

Pair = tuple[NDArray, NDArray]
Predict = Callable[[NDArray], NDArray]


class Parts(NamedTuple):
    """Inputs and targets of the training, test and evaluation rows."""

    train: Pair
    test: Pair
    evaluation: Pair


class Method(NamedTuple):
    """A method, its size, and the nonzeros of each column of a sparse JL sketch."""

    method: str
    size: int
    nonzeros: int | None = None

    def recipe(self) -> SketchRecipe:
        """Return the sketch; all rows for the methods without one."""
        if self.nonzeros is not None:
            return SparseJLSketch(self.size, self.nonzeros)
        if self.method in SKETCHES:
            return SKETCHES[self.method](self.size)
        return IdentitySketch()


def make_sine(seed: int) -> Parts:
    """Draw y = sin(2 pi x) + normal noise with x uniform on [-1, 1]."""
    rng = np.random.default_rng(seed)
    n = sum(SINE_ROWS)
    X = rng.uniform(-1, 1, size=(n, 1))
    y = np.sin(2 * np.pi * X[:, 0]) + SINE_VARIANCE**0.5 * rng.standard_normal(n)
    cuts = np.cumsum(SINE_ROWS[:2])
    return Parts(*zip(np.split(X, cuts), np.split(y, cuts), strict=True))


def split(data: Dataset, seed: int) -> Parts:
    """Return a random split, standardized by the training rows."""
    inputs, targets = zip(*data.random_split(seed, FRACTIONS), strict=True)
    return Parts(*zip(standardized(*inputs), standardized(*targets), strict=True))


def evaluate(parts: Parts, method: Method, seed: int) -> dict[str, float]:
    """Choose h and penalty on the evaluation rows; return test error and fit time."""
    errors = [
        [_error(predict, *parts.evaluation) for predict in found]
        for found in (fit(parts.train, method, h, GRID, seed) for h in GRID)
    ]
    i, j = np.unravel_index(np.argmin(errors), np.shape(errors))
    (predict,), seconds = timed(fit, parts.train, method, GRID[i], [GRID[j]], seed)
    return {"error": _error(predict, *parts.test), "seconds": seconds}


def fit(
    train: Pair, method: Method, h: float, alphas: Iterable[float], seed: int
) -> list[Predict]:
    """Return a function that predicts for each penalty.

    A bootstrap model is exact, on as many rows drawn with replacement as its size.
    """
    X, y = train
    if method.method == BOOTSTRAP:
        rows = np.random.default_rng(seed).integers(len(y), size=method.size)
        X, y = X[rows], y[rows]
    model = SketchedKernelRegressor(
        GaussianKernel(h**0.5),
        sketch=method.recipe(),
        fit_intercept=False,
        random_state=seed,
    )
    return [fitted.predict for fitted in model.fit_path(X, y, alphas)]


def _error(predict: Predict, X: NDArray, y: NDArray) -> float:
    """Return the mean squared error."""
    return float(np.mean((predict(X) - y) ** 2))
