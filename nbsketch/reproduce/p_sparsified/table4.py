"""Table 4 of the p-sparsified paper: cost of S K and S K S^T for each sketch.

El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023, compare sketches by the orders in which
time and memory grow with the number of rows n and the size s. Here both are measured,
and the fitted exponents are shown next to those of a count of operations.

S K is the fused product of `nbsketch.gram.Gram`, for all rows. S K S^T is computed from
the nonzero columns only, as in a model that does not store its features.
"""

import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from timeit import Timer
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch import sketches
from nbsketch._sketch_map import SketchMap
from nbsketch.kernels import GaussianKernel
from nbsketch.reproduce import ENTRIES
from nbsketch.reproduce._figures import Panel, curves_of
from nbsketch.reproduce._report import Row, Rows, column, groups, log_log_slope, where
from nbsketch.reproduce.experiment import Experiment, Points

N_FEATURES = 10
PRODUCTS = "S K", "S K S^T"
SCANS = {"n": "rows n", "s": "size s"}
# Numbers of rows at one size, and sizes at one number of rows: for products by columns,
# and by all of them, n^2 values.
GRIDS = ENTRIES["table4"]["grids"]
_SHORTEST = 0.1  # seconds of one measurement: short products are repeated


class Family(NamedTuple):
    """Sketches of one kind, and the cost of their products.

    A cost has the exponents by a count of operations: of time with n and s, of memory
    with n and s, for each of the products.
    """

    kind: str
    costs: Sequence[Sequence[int]]
    paper: Sequence[Sequence[int]] = ()
    grid: str = "all"

    def recipe(self, size: int) -> sketches.SketchRecipe:
        """Return the sketch of a size."""
        return getattr(sketches, self.kind)(size)


FAMILIES = {name: Family(**f) for name, f in ENTRIES["table4"]["families"].items()}


def points(replicates: int, quick: bool) -> Points:
    """Yield sketch, scan, n, s, and the number of repetitions of each measurement."""
    for name, family in FAMILIES.items():
        grid = GRIDS[quick][family.grid]
        for n in grid["rows"]:
            yield name, "n", n, grid["size"], replicates
        for size in grid["sizes"]:
            yield name, "s", grid["n"], size, replicates


def measure(name: str, scan: str, n: int, size: int, replicates: int) -> Iterator[Row]:
    """Yield a row for each product, with the minimum of repeated times."""
    X = np.random.default_rng(0).normal(size=(n, N_FEATURES))
    sketch = FAMILIES[name].recipe(size).draw(n, 0)
    for product in PRODUCTS:
        call = _product(product, X, sketch)
        cost = {"seconds": _seconds(call, replicates), "megabytes": _peak(call)}
        point = {"product": product, "scan": scan, "n": n, "s": size}
        yield {"sketch": name, **point, **cost}


def _product(product: str, X: NDArray, sketch: sketches.Sketch) -> Callable[[], Any]:
    """Return a function that computes a product."""
    sketch_map = SketchMap.of(GaussianKernel(np.sqrt(2 * N_FEATURES)), X, sketch)
    if product == "S K":
        return lambda: sketch_map(X)
    return lambda: sketch_map(X[sketch.columns]) @ sketch_map.weights.T


def _seconds(call: Callable[[], Any], replicates: int) -> float:
    """Return the minimum processor time of one call, after one that compiles."""
    call()
    timer = Timer(call, timer=time.process_time)
    count = max(1, int(_SHORTEST / max(timer.timeit(1), 1e-6)))
    return min(timer.repeat(replicates, count)) / count


def _peak(call: Callable[[], Any]) -> float:
    """Return the peak memory allocated by a call, in megabytes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def summarize(rows: Rows) -> Rows:
    """Return the fitted and the counted exponents, for sketch and product."""
    table = []
    for (name, product), group in groups(rows, "sketch", "product").items():
        family = FAMILIES[name]
        k = PRODUCTS.index(product)
        counts = list(zip(family.costs[k], *family.paper[k : k + 1], strict=True))
        row = {"sketch": name, "product": product}
        for quantity, unit in (("time", "seconds"), ("memory", "megabytes")):
            for scan in SCANS:
                scanned = where(group, scan=scan)
                slope, half_width = log_log_slope(
                    column(scanned, scan), column(scanned, unit)
                )
                stated = "; ".join(map(str, counts.pop(0)))
                row[f"{quantity}, {scan}"] = (
                    f"{slope:.2f} ± {half_width:.2f} [{stated}]"
                )
        table.append(row)
    return table


def panels(rows: Rows) -> list[Panel]:
    """Return panels of time and memory against n and s, for each product."""
    return [
        Panel(
            f"${product}$",
            SCANS[scan],
            label,
            curves_of(where(rows, product=product, scan=scan), "sketch", scan, unit),
            "xy",
        )
        for product in PRODUCTS
        for unit, label in ENTRIES["table4"]["units"].items()
        for scan in SCANS
    ]


run = Experiment("table4", points, measure, summarize, panels)
