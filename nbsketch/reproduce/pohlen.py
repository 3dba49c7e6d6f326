"""Pohlen's evaluation of random sketches for kernel ridge regression.

Pohlen, "Random Sketches for Kernel Regression", seminar report, RWTH Aachen 2015,
section 5: sketches against bootstrap sampling, on a noisy sine (his Figure 2, 10 runs)
and on four sets of the UCI repository (Figure 3, 5 runs); and how sparse a sparse
Johnson-Lindenstrauss sketch may be (in the text for the sine, Figure 4, 25 runs).

Sets, splits, kernel, grids, sketches and runs are as in the report. It does not state
the sizes tried, nor whether the real sets were standardized: here inputs and targets
are, by the training rows, and the models have no intercept. Methods that are not in the
report are marked "(added)".
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch import sketches
from nbsketch.datasets import Dataset
from nbsketch.estimators import SketchedKernelRegressor
from nbsketch.kernels import GaussianKernel
from nbsketch.reproduce import ENTRIES, _report
from nbsketch.reproduce._data import WITHOUT, MaybePath, load, sketch_of, standardized
from nbsketch.reproduce._figures import Curve, Panel, Style
from nbsketch.reproduce._report import Row, Rows, column, groups, where
from nbsketch.reproduce.experiment import Experiment, Points

BOOTSTRAP = "bootstrap"
SPARSE = "sparse JL"
# Labels of sketches by name; "(added)": not in the report.
SKETCHES = ENTRIES["pohlen"]["sketches"]
# Shares of training, test and evaluation rows, and these rows of the synthetic set.
FRACTIONS = 0.5, 0.3, 0.2
SINE_ROWS = 100, 1000, 100
SINE_VARIANCE = 0.25
# Values tried for the squared bandwidth h and the penalty.
GRID = 10.0 ** np.arange(-9, 4)

Pair = tuple[NDArray, NDArray]
SINE = "sine"
# Size of the sparse JL sketch of each set.
SPARSE_SIZES = ENTRIES["pohlen"]["sparse_sizes"]
# Sizes up to the number of training rows of a set.
SIZES = ENTRIES["pohlen"]["sizes"]
NONZEROS = ENTRIES["pohlen"]["nonzeros"]


class Parts(NamedTuple):
    """Inputs and targets of the training, test and evaluation rows."""

    train: Pair
    test: Pair
    evaluation: Pair


class PohlenMethod(NamedTuple):
    """A method, its size, and the nonzeros per column of a sparse JL sketch."""

    method: str
    size: int
    nonzeros: int | None = None

    def recipe(self) -> sketches.SketchRecipe:
        """Return the sketch; the identity for methods without one."""
        size = self.size
        if self.nonzeros == size:  # no entry is zero
            return sketches.RademacherSketch(size)
        if self.nonzeros is not None:
            return sketches.SparseJLSketch(size, self.nonzeros)
        return sketch_of(SKETCHES.get(self.method, WITHOUT), size)


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


def evaluate(parts: Parts, method: PohlenMethod, seed: int) -> dict[str, float]:
    """Choose h and penalty on the evaluation rows; return test error and fit time."""
    errors = [
        [_error(model, *parts.evaluation) for model in fits]
        for fits in (fit(parts.train, method, h, GRID, seed) for h in GRID)
    ]
    i, j = np.unravel_index(np.argmin(errors), np.shape(errors))
    (model,), seconds = _report.timed(
        fit, parts.train, method, GRID[i], GRID[[j]], seed
    )
    return {"error": _error(model, *parts.test), "seconds": seconds}


def fit(
    train: Pair, method: PohlenMethod, h: float, alphas: NDArray, seed: int
) -> Sequence[SketchedKernelRegressor]:
    """Return a model for each penalty.

    A bootstrap model is exact, on as many rows (drawn with replacement) as its size.
    """
    X, y = train
    if method.method == BOOTSTRAP:
        rows = np.random.default_rng(seed).integers(len(y), size=method.size)
        X = X[rows]
        y = y[rows]
    return SketchedKernelRegressor(
        GaussianKernel(h**0.5),
        sketch=method.recipe(),
        fit_intercept=False,
        random_state=seed,
    ).fit_path(X, y, alphas)


def _error(model: SketchedKernelRegressor, X: NDArray, y: NDArray) -> float:
    return np.mean((model.predict(X) - y) ** 2)


def methods_of(name: str, quick: bool) -> tuple[list[PohlenMethod], list[PohlenMethod]]:
    """Return the methods of the runs over sizes, and over nonzeros, on a set."""
    nonzeros = *NONZEROS[quick], SPARSE_SIZES[name]
    pairs = product((*SKETCHES, BOOTSTRAP), SIZES[quick])
    by_size = [PohlenMethod(*pair) for pair in pairs]
    by_nonzeros = [PohlenMethod(SPARSE, SPARSE_SIZES[name], c) for c in nonzeros]
    return [PohlenMethod(WITHOUT, 0), *by_size], by_nonzeros


def points(replicates: int, quick: bool, data_home: MaybePath = None) -> Points:
    """Yield set, the function that draws its parts, methods and run."""
    for name in SPARSE_SIZES:
        draw = parts_of(name, data_home)
        runs = replicates or (10 if name == SINE else 5), replicates or 25
        for count, methods in zip(runs, methods_of(name, quick), strict=True):
            for replicate in range(count):
                yield name, draw, methods, replicate


def measure(
    name: str, draw: Callable[[int], Parts], methods: Sequence[PohlenMethod], seed: int
) -> Iterator[Row]:
    """Yield a row for each method in a run."""
    parts = draw(seed)
    for method in methods:
        if method.size > len(parts.train[1]):
            continue
        row = {"set": name, **method._asdict(), "replicate": seed}
        yield row | evaluate(parts, method, seed)


def parts_of(name: str, data_home: MaybePath) -> Callable[[int], Parts]:
    """Return a function that draws the parts of a run."""
    if name == SINE:
        return make_sine
    data = load(name, data_home)
    return lambda seed: split(data, seed)


def summarize(rows: Rows) -> Rows:
    """Return one row for each set, method, size and number of nonzeros."""
    by = "set", *PohlenMethod._fields
    return _report.summarized(rows, by, {"seconds": np.median}, ["error"], "runs")


def _largest(table: Rows) -> Rows:
    """Return the rows of the largest size on each set, and all of sparse JL."""
    results = []
    for group in groups(table, "set").values():
        sizes = 0, max(row["size"] for row in group if row["nonzeros"] is None)
        results += [row for row in group if row["nonzeros"] or row["size"] in sizes]
    return results


def panels(rows: Rows) -> list[Panel]:
    """Return a panel of errors for each set, and one of sparse JL sketches.

    Bands are one standard deviation over the runs wide, as in the report.
    """
    table = summarize(rows)
    result = [
        Panel(name, "Size m", "Test MSE", list(_curves(group)), "xy")
        for (name,), group in groups(table, "set").items()
    ]
    sparse = list(_sparsity(table))
    labels = "Sparse JL sketches", "Nonzeros of each column", "Test MSE / densest"
    return [*result, Panel(*labels, sparse, "x")]


def _curves(table: Rows) -> Iterator[Curve]:
    sizes = sorted({row["size"] for row in table if row["method"] in SKETCHES})
    for method in (WITHOUT, *SKETCHES, BOOTSTRAP):
        rows = where(table, method=method)
        pair = column(rows, "error"), column(rows, "error_deviation")
        errors, spread = (np.broadcast_to(values, len(sizes)) for values in pair)
        yield Curve(method, sizes, errors, spread)


def _sparsity(table: Rows) -> Iterator[Curve]:
    sparse = groups(where(table, method=SPARSE), "set")
    for i, ((name,), group) in enumerate(sparse.items()):
        errors = column(group, "error")
        spread = column(group, "error_deviation") / errors[-1]
        x = column(group, "nonzeros")
        yield Curve(name, x, errors / errors[-1], spread, style=Style(f"C{i}", "o"))


run = Experiment("pohlen", points, measure, summarize, panels, _largest)
