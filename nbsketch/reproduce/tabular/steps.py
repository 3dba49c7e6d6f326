"""Jumps of error and time when the number of rows, or the size, passes a threshold.

Not from a paper. A fit changes at some numbers of rows and sizes of a sketch: one
additional row should change neither its error nor its time by much. Rows of one draw
are fitted without and with the row above the threshold.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.estimators import SketchedKernelClassifier, SketchedKernelRegressor
from nbsketch.reproduce import ENTRIES
from nbsketch.reproduce._report import Row, Rows, timed
from nbsketch.reproduce.experiment import Experiment, Points

# By loss; others have no known ones. Above 5152, 8121 and 17,320 rows of three columns,
# pinball, smooth and square losses use a sketch.
ROWS = ENTRIES["steps"]["rows"]
SIZES = 1000, 1500  # of sketches
KERNELS = "auto", "gaussian", "laplacian"
NOISES = 0.0, 0.01, 0.3
# Maximum ratios of errors for noisy targets, for nearly noise-free ones, and of times.
LARGEST = 1.03
LARGEST_CLEAN = 1.3
LARGEST_TIME = 1.5
# Below this noise, targets are nearly noise-free.
_CLEAN = 0.05
# Rows of a fit whose size has the threshold, and rows on which errors are measured.
_SIZED_ROWS = 3000
_TEST_ROWS = 2000
_FEATURES = 3
# Rows of a first fit, which compiles.
_WARM_UP_ROWS = 100
KEY = "threshold", "value", "kernel", "loss", "noise"


class Threshold(NamedTuple):
    """A number after which a fit changes: of rows, or of the size of a sketch."""

    threshold: str
    value: int

    def settings(self) -> Iterator[tuple[int, dict[str, int]]]:
        """Yield the rows and parameters of the fits at the threshold and above it."""
        for value in (self.value, self.value + 1):
            if self.threshold == "rows":
                yield value, {}
            else:
                yield _SIZED_ROWS, {"size": value}


def function(X: NDArray) -> NDArray:
    """Return the targets of rows, without noise."""
    return np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + X[:, 2]


def points(
    replicates: int, quick: bool, methods: tuple[str, ...] | None = None
) -> Points:
    """Yield threshold, kernel, loss, noise and the number of draws.

    If `quick`, only the square loss with few rows; only the losses `methods`, if given.
    """
    for loss in methods or (["square"] if quick else ROWS):
        rows = ROWS.get(loss, [])[: 2 if quick else None]
        thresholds = [Threshold("rows", n) for n in rows]
        thresholds += [] if quick else [Threshold("size", size) for size in SIZES]
        for threshold, kernel, noise in product(thresholds, KERNELS, NOISES):
            yield threshold, kernel, loss, noise, replicates


def measure(
    threshold: Threshold,
    kernel: str,
    loss: str,
    noise: float,
    replicates: int,
    measured: Any = (),
) -> Iterator[Row]:
    """Yield the ratios of errors and times, medians over the draws."""
    fitted(kernel, loss, noise, 0, _WARM_UP_ROWS, {})
    logs = [
        np.log([fitted(kernel, loss, noise, seed, *at) for at in threshold.settings()])
        for seed in range(replicates)
    ]
    largest = LARGEST_CLEAN if noise < _CLEAN else LARGEST
    changes = np.diff(logs, axis=1)[:, 0]
    steps = np.exp(np.median(changes, axis=0))
    yield {
        **threshold._asdict(),
        "kernel": kernel,
        "loss": loss,
        "noise": noise,
        "error": np.exp(np.median(logs, axis=0)[0, 0]),
        "step": steps[0],
        # Of the mean of the paired changes; 0 for a single draw.
        "standard_error": changes[:, 0].std() / max(1, replicates - 1) ** 0.5,
        "time_step": steps[1],
        "exceeds": steps[0] > largest or steps[1] > LARGEST_TIME,
    }


def fitted(
    kernel: str, loss: str, noise: float, seed: int, n: int, parameters: dict[str, int]
) -> tuple[float, float]:
    """Return the error and the processor seconds of a fit to the first n rows."""
    rng = np.random.default_rng(seed)
    X_test = rng.uniform(-2, 2, (_TEST_ROWS, _FEATURES))
    X = rng.uniform(-2, 2, (n, _FEATURES))  # a longer draw begins with a shorter one
    y: Any = function(X) + noise * np.random.default_rng([seed, 1]).normal(size=n)
    truth = function(X_test)
    model: Any = SketchedKernelRegressor(kernel)
    if loss == "logistic":
        model = SketchedKernelClassifier(kernel)
        y = y > 0
    model.set_params(loss=loss, random_state=seed, **parameters)
    _, seconds = timed(model.fit, X, y)
    if loss != "logistic":
        return np.sqrt(np.mean(np.square(model.predict(X_test) - truth))), seconds
    scores = model.decision_function(X_test)
    return np.mean(np.logaddexp(0, -np.where(truth > 0, scores, -scores))), seconds


def largest_first(rows: Rows) -> Rows:
    """Return the rows with the largest steps of the error first."""
    return sorted(rows, key=lambda row: -row["step"])


run = Experiment("steps", points, measure, largest_first, key=KEY)
