"""Pohlen's evaluation of random sketches for kernel regression.

Pohlen, "Random Sketches for Kernel Regression", seminar report, RWTH Aachen 2015:
sketched kernel ridge regression against averages of models of sub-sampled rows
(bootstrap), on a noisy sine and on four sets of the UCI repository; and how sparse a
sparse Johnson-Lindenstrauss sketch may be. The splits are the report's, 50 % for
training, 30 % to choose bandwidth and penalty, 20 % for testing; the sine and the grids
are ours.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch import plots
from nbsketch.datasets import Dataset
from nbsketch.estimators import SketchedKernelRegressor
from nbsketch.kernels import GaussianKernel, median_distance
from nbsketch.reproduce._progress import Progress
from nbsketch.reproduce._publish import Report, publish
from nbsketch.reproduce._report import Rows, as_text
from nbsketch.reproduce._sets import load
from nbsketch.reproduce._summary import spread
from nbsketch.sketches import (
    GaussianSketch,
    IdentitySketch,
    PSparsifiedSketch,
    SketchRecipe,
    SparseJLSketch,
    SubsamplingSketch,
)

SETS = ("concrete", "airfoil", "autompg", "yacht")
FRACTIONS = (0.5, 0.3, 0.2)
SINE, SINE_ROWS, SINE_NOISE = "sine", 2000, 0.3
SIZES, QUICK_SIZES = (5, 10, 20, 40, 80), (10, 40)
NONZEROS = (1, 2, 4, 8)  # of each column of a sparse JL sketch, at most its size
REPLICATES, QUICK_REPLICATES = 20, 3
MODELS = 10  # of a bootstrap average
BOOTSTRAP, WITHOUT = "bootstrap", "without sketch"


def _sparse_jl(nonzeros: int) -> Callable[[int], SketchRecipe]:
    return lambda size: SparseJLSketch(size, min(nonzeros, size))


FAMILIES: dict[str, Callable[[int], SketchRecipe]] = {
    WITHOUT: lambda size: IdentitySketch(),
    "Gaussian": GaussianSketch,
    "p-SR, p = 20/n": PSparsifiedSketch,
    "sub-sampling": SubsamplingSketch,
    **{f"sparse JL, c = {c}": _sparse_jl(c) for c in NONZEROS},
}
NOTES = (
    "error: root mean squared error on the test rows over the standard deviation of "
    "their targets (sine: of the function itself), mean and deviation over random "
    "splits. seconds: median time of one fit.",
    f"bootstrap: the mean of {MODELS} exact models of rows drawn with replacement, as "
    "many as make their factorizations cost as many operations together as a sketched "
    "fit of that size.",
    "Inputs standardized by the training rows. Bandwidth and penalty of every method "
    "and size are those with the least error on the validation rows.",
)
_BANDWIDTH_FACTORS = 2.0 ** np.arange(-2, 3)
_ALPHAS = 10.0 ** np.arange(-8, 0)
Predict = Callable[[NDArray], NDArray]
_LOOKS = {
    WITHOUT: ("#000000", ""),
    "Gaussian": ("#1b9e77", "P"),
    "p-SR, p = 20/n": ("#1764ab", "s"),
    "sub-sampling": ("#d95f02", "v"),
    BOOTSTRAP: ("#e7298a", "x"),
}


class Parts(NamedTuple):
    """Training, validation and test rows; inputs standardized by the training ones."""

    train: tuple[NDArray, NDArray]
    validation: tuple[NDArray, NDArray]
    test: tuple[NDArray, NDArray]


def run(
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    data_home: Path | None = None,
    plot_only: bool = False,
) -> list[dict[str, Any]]:
    """Repeat the evaluation; write and print the table, and return its rows.

    Parameters
    ----------
    replicates : int, optional
        Random splits, each with a draw of every sketch: 20, or 3 if `quick`.
    quick : bool
        Whether fewer splits and sizes will do.
    out : Path, optional
        Folder for pohlen.csv (every fit), pohlen.md and pohlen.png: "results" by
        default.
    data_home : Path, optional
        Folder of the data sets: see `nbsketch.datasets`.
    plot_only : bool
        Whether to start from pohlen.csv, without fitting.
    """
    count = replicates or (QUICK_REPLICATES if quick else REPLICATES)
    sizes = QUICK_SIZES if quick else SIZES
    title = "Sketches against bootstrap sampling"
    report = Report("pohlen", title, NOTES, summarize, panels)
    table = publish(report, lambda: measure(sizes, count, data_home), out, plot_only)
    largest = max(row["size"] for row in table)
    print(as_text([row for row in table if row["size"] in (0, largest)]))
    return table


def measure(
    sizes: Sequence[int], replicates: int, data_home: Path | None = None
) -> list[dict[str, Any]]:
    """Return a row for each set, split, method and size."""
    sets = {name: load(name, data_home) for name in SETS}
    rows = []
    methods = [*FAMILIES, BOOTSTRAP]
    with Progress((1 + len(sets)) * replicates) as progress:
        for name in (SINE, *sets):
            for replicate in range(replicates):
                parts = (
                    make_sine(replicate)
                    if name == SINE
                    else _split(sets[name], replicate)
                )
                for method in methods:
                    for size in (0,) if method == WITHOUT else sizes:
                        found = _evaluate(parts, method, size, replicate)
                        where = {"set": name, "method": method, "size": size}
                        rows.append({**where, "replicate": replicate, **found})
                progress.step(name)
    return rows


def make_sine(seed: int) -> Parts:
    """Return a noisy sine; the test targets are without noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-np.pi, np.pi, size=(SINE_ROWS, 1))
    f = np.sin(2 * X[:, 0])
    y = f + SINE_NOISE * rng.standard_normal(SINE_ROWS)
    a, b = np.rint(SINE_ROWS * np.cumsum(FRACTIONS[:2])).astype(int)
    return _standardized((X[:a], y[:a]), (X[a:b], y[a:b]), (X[b:], f[b:]))


def _split(data: Dataset, seed: int) -> Parts:
    return _standardized(*data.random_split(seed, FRACTIONS))


def _standardized(*parts: tuple[NDArray, NDArray]) -> Parts:
    X = parts[0][0]
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    deviation[deviation == 0] = 1
    return Parts(*(((X - mean) / deviation, y) for X, y in parts))


def _evaluate(parts: Parts, method: str, size: int, seed: int) -> dict[str, float]:
    """Choose bandwidth and penalty on the validation rows; return error and time."""
    median = median_distance(parts.train[0], rng=0)
    settings = [(b, a) for b in median * _BANDWIDTH_FACTORS for a in _ALPHAS]
    found = [
        _error(predict, *parts.validation)
        for bandwidth in median * _BANDWIDTH_FACTORS
        for predict in fit(parts.train, method, size, bandwidth, _ALPHAS, seed)
    ]
    bandwidth, alpha = settings[int(np.argmin(found))]
    start = time.perf_counter()
    (predict,) = fit(parts.train, method, size, bandwidth, [alpha], seed)
    seconds = time.perf_counter() - start
    return {"error": _error(predict, *parts.test), "seconds": seconds}


def fit(
    train: tuple[NDArray, NDArray],
    method: str,
    size: int,
    bandwidth: float,
    alphas: Iterable[float],
    seed: int,
) -> list[Predict]:
    """Return a function that predicts for each penalty."""
    kernel = GaussianKernel(bandwidth)
    if method == BOOTSTRAP:
        return _bootstrap(train, kernel, size, alphas, seed)
    sketch = FAMILIES[method](size)
    model = SketchedKernelRegressor(kernel, sketch=sketch, random_state=seed)
    return [fitted.predict for fitted in model.fit_path(*train, alphas)]


def _bootstrap(
    train: tuple[NDArray, NDArray],
    kernel: GaussianKernel,
    size: int,
    alphas: Iterable[float],
    seed: int,
) -> list[Predict]:
    X, y = train
    rng = np.random.default_rng(seed)
    model = SketchedKernelRegressor(kernel, sketch=IdentitySketch())
    paths = []
    for _ in range(MODELS):
        rows = rng.integers(len(y), size=rows_of_same_cost(len(y), size))
        paths.append(model.fit_path(X[rows], y[rows], alphas))

    def average(models: Sequence[SketchedKernelRegressor]) -> Predict:
        return lambda X: np.mean([one.predict(X) for one in models], axis=0)

    return [average(models) for models in zip(*paths, strict=True)]


def rows_of_same_cost(n: int, size: int) -> int:
    """Return the rows of a bootstrap model: MODELS m^3 / 3 operations are n s^2."""
    return max(2, round(math.cbrt(3 * n * size**2 / MODELS)))


def _error(predict: Predict, X: NDArray, y: NDArray) -> float:
    """Return the root mean squared error over the deviation of the targets."""
    return float(np.sqrt(np.mean((predict(X) - y) ** 2)) / y.std())


def summarize(rows: Rows) -> list[dict[str, Any]]:
    """Return one row for each set, method and size."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("set", "method", "size"))
        groups.setdefault(key, []).append(row)
    return [
        {
            **dict(zip(("set", "method", "size"), key, strict=True)),
            **spread("error", (row["error"] for row in group)),
            "seconds": float(np.median([row["seconds"] for row in group])),
            "splits": len(group),
        }
        for key, group in groups.items()
    ]


def panels(rows: Rows) -> list[plots.Panel]:
    """Return a panel of errors for each set, and one of sparse JL sketches."""
    table = summarize(rows)
    names = list(dict.fromkeys(row["set"] for row in table))
    result = [
        plots.Panel(name, "Size s", "Relative test error", _curves(table, name), "xy")
        for name in names
    ]
    curves = [_sparsity(table, name, i) for i, name in enumerate(names)]
    label, title = "Nonzeros of each column", "Error of sparse JL over Gaussian"
    return [*result, plots.Panel(title, label, "Ratio, mean over s", curves)]


def _curves(table: Rows, name: str) -> list[plots.Curve]:
    sizes = sorted({row["size"] for row in table} - {0})
    curves = []
    for method, (color, marker) in _LOOKS.items():
        y = _errors(table, name, method)
        exact = method == WITHOUT
        if exact:
            y *= len(sizes)
        curves.append(plots.Curve(method, sizes, y, None, color, marker, exact))
    return curves


def _sparsity(table: Rows, name: str, index: int) -> plots.Curve:
    dense = np.array(_errors(table, name, "Gaussian"))
    ratios = [
        float(np.mean(_errors(table, name, f"sparse JL, c = {c}") / dense))
        for c in NONZEROS
    ]
    return plots.Curve(name, NONZEROS, ratios, color=f"C{index}")


def _errors(table: Rows, name: str, method: str) -> list[float]:
    where = {"set": name, "method": method}
    return [row["error"] for row in table if where.items() <= row.items()]
