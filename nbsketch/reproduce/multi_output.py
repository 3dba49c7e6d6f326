"""Multi-output kernel ridge with and without a sketch: error and training time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.estimators import SketchedKernelRegressor
from nbsketch.kernels import GaussianKernel, median_distance
from nbsketch.metrics import arrmse
from nbsketch.model_selection import cross_validate
from nbsketch.sketches import (
    AccumulationSketch,
    CountSketch,
    IdentitySketch,
    PSparsifiedSketch,
    SketchRecipe,
)

WITHOUT = "without sketch"
METHODS: dict[str, Callable[[int], SketchRecipe]] = {
    WITHOUT: lambda size: IdentitySketch(),
    "20/n-SR": lambda size: PSparsifiedSketch(size, law="rademacher"),
    "20/n-SG": lambda size: PSparsifiedSketch(size, law="gaussian"),
}
ALL_METHODS: dict[str, Callable[[int], SketchRecipe]] = METHODS | {
    "accumulation": AccumulationSketch,
    "CountSketch": CountSketch,
}

# Tried around the median distance between rows, and as penalties.
_BANDWIDTH_FACTORS = 2.0 ** np.arange(0, 8)
_ALPHAS = 10.0 ** np.arange(-9, -2.5, 0.5)
_COARSE_ALPHAS = 10.0 ** np.arange(-8, -3)
_TUNING_DRAWS = 5


class Split(NamedTuple):
    """Training and test data; the inputs standardized by the training rows."""

    X_train: NDArray
    Y_train: NDArray
    X_test: NDArray
    Y_test: NDArray

    @classmethod
    def standardized(
        cls, X_train: NDArray, Y_train: NDArray, X_test: NDArray, Y_test: NDArray
    ) -> Split:
        """Return a split with inputs of mean 0 and deviation 1 in training."""
        mean, deviation = X_train.mean(axis=0), X_train.std(axis=0)
        deviation[deviation == 0] = 1
        scaled = [
            np.ascontiguousarray((X - mean) / deviation) for X in (X_train, X_test)
        ]
        return cls(scaled[0], Y_train, scaled[1], Y_test)

    @classmethod
    def of(cls, dataset: Any) -> Split:
        """Return the published split of a data set."""
        return cls.standardized(
            dataset.X_train, dataset.y_train, dataset.X_test, dataset.y_test
        )


class Setting(NamedTuple):
    """Bandwidth and penalty of one method on one data set."""

    bandwidth: float
    alpha: float


class Result(NamedTuple):
    """One fit: its error on the test rows and the seconds of its training."""

    arrmse: float
    seconds: float


def tune(split: Split, method: str, size: int) -> Setting:
    """Choose a setting by 5-fold cross-validation on the training rows.

    The criterion is the aRRMSE, averaged over five draws of the sketch.
    """
    exact = method == WITHOUT
    median = median_distance(split.X_train, rng=0)
    runs = [
        cross_validate(
            SketchedKernelRegressor(
                sketch=ALL_METHODS[method](size), random_state=seed
            ),
            split.X_train,
            split.Y_train,
            median * _BANDWIDTH_FACTORS,
            _COARSE_ALPHAS if exact else _ALPHAS,
        )
        for seed in range(1 if exact else _TUNING_DRAWS)
    ]
    mean = runs[0]._replace(errors=np.mean([run.errors for run in runs], axis=0))
    return Setting(*mean.best(split.Y_train.var(axis=0)))


def evaluate(
    split: Split, method: str, size: int, setting: Setting, replicates: int
) -> Iterator[Result]:
    """Yield the result of each replicate, a fresh draw of the sketch.

    The time is that of ``fit``, drawing the sketch included; one fit on a few rows
    goes before, so that no compilation is timed.
    """
    for seed in range(replicates):
        model = SketchedKernelRegressor(
            GaussianKernel(setting.bandwidth),
            sketch=ALL_METHODS[method](size),
            alpha=setting.alpha,
            random_state=seed,
        )
        if seed == 0:
            model.fit(split.X_train[: 2 * size], split.Y_train[: 2 * size])
        start = time.perf_counter()
        model.fit(split.X_train, split.Y_train)
        seconds = time.perf_counter() - start
        predicted = model.predict(split.X_test)
        reference = split.Y_train.mean(axis=0)
        yield Result(arrmse(split.Y_test, predicted, reference), seconds)
