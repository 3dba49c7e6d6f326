"""Error and time of losses beside those of least squares, as the samples grow.

Not from a paper. All losses are to have the landmarks of least squares, nearly its
error, and at most a few times its time.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch.estimators import (
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
)
from nbsketch.reproduce import ENTRIES
from nbsketch.reproduce._report import Row, timed
from nbsketch.reproduce.experiment import Experiment, Points

ROWS = ENTRIES["losses"]["rows"]
NOISE = 0.1  # in standard deviations of the function
QUANTILES = 0.1, 0.5, 0.9
FUNCTIONS = "arm", "product", "steps"
CLASSES = "square, labels", "logistic", "hinge"
_TEST_ROWS = 4000
_LEAST_ERROR = 1 / _TEST_ROWS  # the share of one wrong class


def drawn(function: str, rng: np.random.Generator, n: int) -> tuple[NDArray, NDArray]:
    """Return n rows, and the values of a function."""
    if function == "arm":
        X = rng.uniform(-0.5 * np.pi, 0.5 * np.pi, size=(n, 8))
        return X, np.abs(np.exp(1j * np.cumsum(X, axis=1)).sum(axis=1) - (4.0 + 2.0j))
    if function == "product":
        X = rng.uniform(-1.7, 1.7, size=(n, 10))
        return X, np.prod(1 + X / 2, axis=1)
    X = rng.uniform(-1, 1, size=(n, 5))
    return X, (X[:, 0] > 0) + 2.0 * (X[:, 1] > 0.3) * (X[:, 2] < 0) + X[:, 3]


def points(replicates: int, quick: bool) -> Points:
    """Yield function, number of training samples and seed; few samples if quick."""
    for n, function, seed in product(ROWS[quick], FUNCTIONS, range(replicates)):
        yield function, n, seed


def measure(function: str, n: int, seed: int, measured: Any = ()) -> Iterator[Row]:
    """Yield error and time of each loss, and their ratios to those of least squares.

    Nothing if the last of them has been measured.
    """
    place = {"function": function, "rows": n, "seed": seed}
    if any(row | place | {"loss": CLASSES[-1]} == row for row in measured):
        return
    rng = np.random.default_rng(seed)
    X, f = drawn(function, rng, n + _TEST_ROWS)
    f = (f - np.median(f[:n])) / f[:n].std()
    y = f[:n] + NOISE * rng.normal(size=n)
    bases: dict[Any, Row] = {}
    for loss, model in models(seed).items():
        are_classes = loss in CLASSES
        _, seconds = timed(model.fit, X[:n], np.sign(y) if are_classes else y)
        found = _central(model, X[n:])
        deviations = np.abs(found - f[n:])
        if are_classes:
            deviations = (found > 0) != (f[n:] > 0)
        mean = float(deviations.mean())
        error = mean if are_classes else float(np.sqrt(np.mean(deviations**2)))
        row = {"error": error, "absolute_error": mean, "seconds": seconds}
        base = bases.setdefault(are_classes, row)
        yield {
            **place,
            "loss": loss,
            "task": "labels" if are_classes else "values",
            "landmarks": len(model.landmarks_),
            **row,
            "error_ratio": error / max(base["error"], _LEAST_ERROR),
            "absolute_ratio": mean / max(base["absolute_error"], _LEAST_ERROR),
            "time_ratio": seconds / bases[False]["seconds"],
            "gap": float(model.dual_gap_),
        }


def models(seed: int) -> dict[str, Any]:
    """Return the models by loss: least squares is first, for values and for labels."""
    names = "square", "huber", "pinball", "epsilon_insensitive"
    found = {loss: SketchedKernelRegressor(loss=loss) for loss in names}
    found["three quantiles"] = JointQuantileRegressor(quantiles=QUANTILES)
    found["square, labels"] = SketchedKernelRegressor()
    for loss in CLASSES[1:]:
        found[loss] = SketchedKernelClassifier(loss=loss)
    return {loss: model.set_params(random_state=seed) for loss, model in found.items()}


def _central(model: Any, X: NDArray) -> NDArray:
    """Return predicted means or medians, or the scores of classes."""
    if isinstance(model, SketchedKernelClassifier):
        return model.decision_function(X)
    values = model.predict(X)
    return values if values.ndim == 1 else values[:, 1]


run = Experiment("losses", points, measure, key=("function", "rows", "seed", "loss"))
