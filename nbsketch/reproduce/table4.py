"""Table 4 of the p-sparsified paper: what S K and S K S^T cost, for each sketch.

El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023, compare sketches by the orders in which
time and memory grow with the number of rows n and the size s. Here both are measured,
the exponents fitted, and put beside those of a count of operations.

S K is the fused product of `nbsketch.gram.Gram`, for all rows. S K S^T is computed from
the active columns alone, as where the features of a model are not kept.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from nbsketch import plots
from nbsketch.features import SketchMap
from nbsketch.kernels import GaussianKernel
from nbsketch.reproduce._progress import Progress
from nbsketch.reproduce._publish import Report, publish
from nbsketch.reproduce._report import Rows, as_text
from nbsketch.sketches import (
    AccumulationSketch,
    CountSketch,
    GaussianSketch,
    PSparsifiedSketch,
    Sketch,
    SketchRecipe,
    SparseJLSketch,
    SRHTSketch,
    SubsamplingSketch,
)

N_FEATURES = 10
REPLICATES, QUICK_REPLICATES = 3, 1
PRODUCTS = ("S K", "S K S^T")
SCANS = {"n": "rows n", "s": "size s"}
UNITS = {"seconds": "Processor time (s)", "megabytes": "Peak of memory (MB)"}
_SHORTEST = 0.1  # seconds of one measurement: short products are repeated
NOTES = (
    "exponent of growth ± half-width of a 95 % interval [exponent by the count of "
    "operations], from a straight line through logarithms. The count leaves out "
    "logarithms and all but the largest term; fixed parts of a cost make a measured "
    "exponent smaller.",
    "time: processor seconds of all threads, the least of the replicates, of the "
    "product alone. memory: peak of what Python, NumPy and the compiled code allocate "
    "for it, the result included, the sketch itself not.",
)


class Cost(NamedTuple):
    """Exponents by a count of operations: of time with n and s, of memory with both."""

    time_n: float
    time_s: float
    memory_n: float
    memory_s: float


class Family(NamedTuple):
    """Sketches of one kind, what their products cost, and how they are drawn."""

    recipe: Callable[[int], SketchRecipe]
    costs: dict[str, Cost]
    color: str
    marker: str
    by_columns: bool = False


# Kernel values in the active columns, a number proportional to s, or in all n of them.
_BY_COLUMNS = {"S K": Cost(1, 1, 1, 1), "S K S^T": Cost(0, 2, 0, 2)}
_ALL_COLUMNS = {name: Cost(2, 0, 1, 1) for name in PRODUCTS}
_DENSE = {name: Cost(2, 1, 1, 1) for name in PRODUCTS}
FAMILIES = {
    "sub-sampling": Family(SubsamplingSketch, _BY_COLUMNS, "#d95f02", "v", True),
    "p-SR, p = 20/n": Family(PSparsifiedSketch, _BY_COLUMNS, "#1764ab", "s", True),
    "accumulation": Family(AccumulationSketch, _BY_COLUMNS, "#7570b3", "D", True),
    "CountSketch": Family(CountSketch, _ALL_COLUMNS, "#e6ab02", "^"),
    "sparse JL": Family(SparseJLSketch, _ALL_COLUMNS, "#a6761d", "<"),
    "SRHT": Family(SRHTSketch, _ALL_COLUMNS, "#e7298a", ">"),
    "Gaussian": Family(GaussianSketch, _DENSE, "#1b9e77", "P"),
}


class Grid(NamedTuple):
    """Numbers of rows at one size, and sizes at one number of rows."""

    rows: Sequence[int]
    size: int
    sizes: Sequence[int]
    n: int

    def points(self) -> Iterator[tuple[str, int, int]]:
        """Yield (scan, n, s)."""
        for n in self.rows:
            yield "n", n, self.size
        for size in self.sizes:
            yield "s", self.n, size


# By columns, and by all of them: n^2 values.
GRIDS = {
    True: Grid((10_000, 20_000, 40_000, 80_000), 100, (100, 200, 400, 800), 40_000),
    False: Grid((2000, 4000, 8000, 16_000), 100, (50, 100, 200, 400), 8000),
}
QUICK_GRIDS = {
    True: Grid((2000, 4000, 8000), 20, (20, 40, 80), 4000),
    False: Grid((500, 1000, 2000), 20, (20, 40, 80), 1000),
}


def run(
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    plot_only: bool = False,
) -> list[dict[str, Any]]:
    """Measure and fit the growth; write and print the table, and return its rows.

    Parameters
    ----------
    replicates : int, optional
        Repetitions of each measurement, of which the least counts: 3, or 1 if `quick`.
    quick : bool
        Whether small numbers of rows will do.
    out : Path, optional
        Folder for table4.csv (every measurement), table4.md and table4.png: "results"
        by default.
    plot_only : bool
        Whether to start from table4.csv, without measuring.
    """
    grids = QUICK_GRIDS if quick else GRIDS
    count = replicates or (QUICK_REPLICATES if quick else REPLICATES)
    title = "Cost of sketched products"
    report = Report("table4", title, NOTES, summarize, panels)
    table = publish(report, lambda: measure(grids, count), out, plot_only)
    print(as_text(table))
    return table


def measure(grids: dict[bool, Grid], replicates: int) -> list[dict[str, Any]]:
    """Return a row for each sketch, product, and point of its grid."""
    rows = []
    plan = [
        (name, family, point)
        for name, family in FAMILIES.items()
        for point in grids[family.by_columns].points()
    ]
    with Progress(len(plan)) as progress:
        for name, family, (scan, n, size) in plan:
            X = np.random.default_rng(0).normal(size=(n, N_FEATURES))
            sketch = family.recipe(size).draw(n, 0)
            for product in PRODUCTS:
                task = _task(product, X, sketch)
                cost = {"seconds": _seconds(task, replicates), "megabytes": _peak(task)}
                where = {"product": product, "scan": scan, "n": n, "s": size}
                rows.append({"sketch": name, **where, **cost})
            progress.step(f"{name}, n = {n}, s = {size}")
    return rows


def _task(product: str, X: NDArray, sketch: Sketch) -> Callable[[], NDArray]:
    """Return a function that computes a product."""
    kernel = GaussianKernel(np.sqrt(2 * N_FEATURES))
    sketch_map = SketchMap.of(kernel, X, sketch)
    if product == "S K":
        return lambda: sketch_map(X)
    return lambda: sketch_map(X[sketch.columns]) @ sketch_map.weights.T


def _seconds(task: Callable[[], Any], replicates: int) -> float:
    """Return the least processor time of one call, after one that compiles."""

    def mean_of(count: int) -> float:
        start = time.process_time()
        for _ in range(count):
            task()
        return (time.process_time() - start) / count

    task()
    count = max(1, int(_SHORTEST / max(mean_of(1), 1e-6)))
    return min(mean_of(count) for _ in range(replicates))


def _peak(task: Callable[[], Any]) -> float:
    """Return the peak of memory that a call allocates, in megabytes."""
    tracemalloc.start()
    try:
        task()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def summarize(rows: Rows) -> list[dict[str, Any]]:
    """Return the fitted exponents beside the counted ones, for sketch and product."""
    table = []
    for name, family in FAMILIES.items():
        for product, cost in family.costs.items():
            row: dict[str, Any] = {"sketch": name, "product": product}
            for quantity, unit in (("time", "seconds"), ("memory", "megabytes")):
                for scan in SCANS:
                    x, y = _points(rows, name, product, scan, unit)
                    counted = getattr(cost, f"{quantity}_{scan}")
                    row[f"{quantity}, {scan}"] = _text(*_exponent(x, y), counted)
            table.append(row)
    return table


def _points(
    rows: Rows, name: str, product: str, scan: str, unit: str
) -> tuple[NDArray, NDArray]:
    where = {"sketch": name, "product": product, "scan": scan}
    chosen = [row for row in rows if where.items() <= row.items()]
    x, y = np.array([(row[scan], row[unit]) for row in chosen], dtype=float).T
    return x, y


def _exponent(x: NDArray, y: NDArray) -> tuple[float, float]:
    """Return the slope of log y against log x, and the half-width of its interval."""
    line = stats.linregress(np.log(x), np.log(y))
    # a constant has no error
    error = np.nan_to_num(line.stderr)
    return line.slope, stats.t.ppf(0.975, x.size - 2) * error


def _text(exponent: float, half_width: float, counted: float) -> str:
    return f"{exponent:.2f} ± {half_width:.2f} [{counted:g}]"


def panels(rows: Rows) -> list[plots.Panel]:
    """Return panels of time and memory against n and s, for each product."""
    return [
        plots.Panel(
            f"${product}$",
            SCANS[scan],
            label,
            [_curve(rows, name, product, scan, unit) for name in FAMILIES],
            "xy",
        )
        for product in PRODUCTS
        for unit, label in UNITS.items()
        for scan in SCANS
    ]


def _curve(rows: Rows, name: str, product: str, scan: str, unit: str) -> plots.Curve:
    x, y = _points(rows, name, product, scan, unit)
    return plots.Curve(name, x, y, None, FAMILIES[name].color, FAMILIES[name].marker)
