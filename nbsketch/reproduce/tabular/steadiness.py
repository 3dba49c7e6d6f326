"""Dependence of errors on the random state, on the dtype of the rows, on rounding.

Not from a paper. Rows are fixed; only ``random_state`` changes. Other BLAS kernels
round differently: ``OPENBLAS_CORETYPE=Haswell nbsketch reproduce steadiness`` adds the
results of these kernels to an existing file.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.estimators.regressor import SketchedKernelRegressor
from nbsketch.reproduce import ENTRIES
from nbsketch.reproduce._data import MaybePath, Split, load
from nbsketch.reproduce._report import Row, Rows
from nbsketch.reproduce.experiment import Experiment, Points
from nbsketch.reproduce.tabular.problems import Examples, random_rows

SETS = ENTRIES["steadiness"]["sets"]
REPLICATES = 10  # random states of a set
FEWER = 5  # of a set with LARGE rows or more
FEWEST = 3  # of cases that differ only by rounding
LARGE = 3000
QUICK_ROWS = 600
_ROWS = 4700  # training rows of real sets, at most
_TEST_ROWS = 2500
TYPES = np.float64, np.float32


class Function(NamedTuple):
    """A synthetic set: a function of normal columns, and noise."""

    of: Callable[..., NDArray]
    features: int
    noise: float
    rows: int = 4000
    outlying: int = 0  # rows with far outlying columns and targets


def _wave_and_product(a: NDArray, b: NDArray, c: NDArray, *_: NDArray) -> NDArray:
    return np.sin(2 * a) + b * c


FUNCTIONS = {
    "example": Function(lambda a, b, c, *_: np.sin(a) + b * c, 10, 0.05, rows=6000),
    "noise-free": Function(lambda a, b, c, *_: np.sin(a + b) + c**2, 6, 0.0),
    "product": Function(lambda a, b, c, *_: a * b * c, 5, 0.1),
    "steps": Function(lambda a, b, *_: np.sign(a) + np.floor(b), 6, 0.3),
    "additive": Function(
        lambda a, b, c, *_: np.sin(2 * a) + abs(b) + np.tanh(3 * c), 8, 0.5
    ),
    "outlying": Function(_wave_and_product, 8, 0.3, outlying=60),
    "useless": Function(_wave_and_product, 103, 0.3),
}


def points(
    replicates: int,
    quick: bool,
    data_home: MaybePath = None,
    sets: Sequence[str] | None = None,
) -> Points:
    """Yield set, its data, and the number of random states (0: the set's default).

    If `quick`, only synthetic sets with fewer rows. Unavailable sets are skipped.
    """
    every = tuple(FUNCTIONS) if quick else (*FUNCTIONS, *SETS)
    for name in sets or every:
        split = split_of(name, data_home, QUICK_ROWS if quick else None)
        if split is not None:
            yield name, split, replicates


def worst_first(rows: Rows) -> Rows:
    """Return the rows of the sets with the largest spread first."""
    ascending = sorted(rows, key=lambda row: row["worst"])
    worst = {row["set"]: row["worst"] for row in ascending}  # the last one counts
    return sorted(rows, key=lambda row: (-worst[row["set"]], row["set"]))


def split_of(name: str, data_home: MaybePath, most: int | None) -> Split | None:
    """Return a set, with `most` training rows if given; None if it is unavailable."""
    if name in FUNCTIONS:
        return made(FUNCTIONS[name], most)
    try:
        data = load(name, data_home)
    except FileNotFoundError:
        return None
    X = np.asarray(data.X, dtype=float)
    y = data.y.reshape(len(data.X), -1)[:, 0]
    train, test = random_rows(Examples(X, y), 0)
    train = train[: most or _ROWS]
    test = test[:_TEST_ROWS]
    return Split(X[train], y[train], X[test], y[test])


def made(function: Function, most: int | None) -> Split:
    """Return the rows of a synthetic set."""
    rng = np.random.default_rng(0)
    n = most or function.rows
    X, X_test = (rng.normal(size=(m, function.features)) for m in (n, _TEST_ROWS))
    y = function.of(*X.T) + function.noise * rng.normal(size=n)
    far = function.outlying
    if far:
        X[:far] = rng.normal(6, 0.5, size=X[:far].shape)
        y[:far] += 10
    return Split(X, y, X_test, function.of(*X_test.T))


def measure(
    name: str, split: Split, replicates: int, measured: Any = ()
) -> Iterator[Row]:
    """Yield a row per dtype of the rows: one dtype if BLAS kernels are named."""
    kernels = os.environ.get("OPENBLAS_CORETYPE", "")
    loss = "huber" if name in FUNCTIONS and FUNCTIONS[name].outlying else "square"
    for kind in TYPES[:1] if kernels else TYPES:
        usual = FEWER if len(split.Y_train) >= LARGE else REPLICATES
        count = replicates or (FEWEST if kernels or kind is np.float32 else usual)
        label = ", ".join(filter(None, [np.dtype(kind).name, kernels]))
        X = split.X_train.astype(kind)
        typed = split._replace(X_train=X, X_test=split.X_test.astype(kind))
        yield {"set": name, "type": label} | spread_of(typed, loss, count)


def spread_of(split: Split, loss: str, count: int) -> Row:
    """Return median and spread of the errors of a loss over random states."""
    errors, seconds = np.transpose([fitted(split, loss, seed) for seed in range(count)])
    median = np.median(errors)
    return {
        "rows": len(split.Y_train),
        "features": split.X_train.shape[1],
        "seeds": count,
        "error": median,
        "worst": errors.max() / median,
        "seconds": np.median(seconds),
    }


def fitted(split: Split, loss: str, seed: int) -> tuple[float, float]:
    """Return the error and the processor seconds of a fit."""
    model = SketchedKernelRegressor(loss=loss, random_state=seed)
    predicted, seconds = split.fit(model)
    error = np.sqrt(np.mean((predicted - split.Y_test) ** 2))
    return error / split.Y_train.std(), seconds


run = Experiment("steadiness", points, measure, worst_first, key=("set", "type"))
