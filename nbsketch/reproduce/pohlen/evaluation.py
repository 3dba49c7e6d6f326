"""Pohlen's evaluation of random sketches for kernel ridge regression.

Pohlen, "Random Sketches for Kernel Regression", seminar report, RWTH Aachen 2015,
section 5: sketches against bootstrap sampling, on a noisy sine (his Figure 2, 10 runs)
and on four sets of the UCI repository (Figure 3, 5 runs); and how sparse a sparse
Johnson-Lindenstrauss sketch may be (in the text for the sine, Figure 4, 25 runs).

Sets, splits, kernel, grids, sketches and runs are the report's. It does not state the
sizes tried, nor whether the real sets were standardized: here inputs and targets are,
by the training rows, and the models have no intercept. Methods that are not in the
report are marked "(added)".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nbsketch._progress import Progress
from nbsketch.reproduce._tools.data import load
from nbsketch.reproduce._tools.panels import Curve, Panel
from nbsketch.reproduce._tools.publish import Report, publish
from nbsketch.reproduce._tools.report import Row, Rows
from nbsketch.reproduce._tools.statistics import column, groups, spread, where
from nbsketch.reproduce._tools.style import Style
from nbsketch.reproduce.pohlen.methods import (
    BOOTSTRAP,
    SKETCHES,
    SPARSE,
    WITHOUT,
    Method,
    Parts,
    evaluate,
    make_sine,
    split,
)

SINE = "sine"
# Size of the sparse JL sketch of each set.
SPARSE_SIZES = {SINE: 30, "concrete": 300, "airfoil": 225, "autompg": 125, "yacht": 75}
SIZES, QUICK_SIZES = (5, 10, 20, 40, 80), (10, 40)
NONZEROS, QUICK_NONZEROS = (1, 2, 4, 8, 16), (1, 8)
QUICK_REPLICATES = 2
NOTES = (
    "error: mean squared error on the test rows, mean and deviation over the runs, "
    "each with a random split and a draw of every sketch. The noise of the sine has "
    "variance 0.25; inputs and targets of the real sets are standardized by the "
    "training rows. seconds: median processor time of one fit.",
    "Splits: 50 % training, 30 % test, 20 % evaluation; sine: 100, 1000 and 100 rows. "
    "Kernel exp(-||x - y||^2 / (2 h)); h and the penalty are those of {1e-9, ..., 1e3} "
    "with the least error on the evaluation rows.",
    "bootstrap: one exact model on as many rows, drawn with replacement, as the sketch "
    "has. nonzeros: of each column of a sparse JL sketch. (added): not in the report.",
)


class Scan(NamedTuple):
    """Methods that are compared in the same runs."""

    methods: Sequence[Method]
    replicates: int


def run(
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    data_home: Path | None = None,
    plot_only: bool = False,
) -> list[Row]:
    """Repeat the evaluation (see `nbsketch.reproduce` for the parameters).

    Replicates are runs: 10 on the sine, 5 on a real set and 25 of sparse JL sketches,
    or 2 with fewer sizes if `quick`.
    """
    if quick:
        replicates = replicates or QUICK_REPLICATES
    title = "pohlen: sketches against bootstrap sampling"
    report = Report("pohlen", title, NOTES, panels, summarize, _largest)
    return publish(
        report, lambda: measure(replicates, quick, data_home), out, plot_only
    )


def scans(name: str, replicates: int | None, quick: bool) -> list[Scan]:
    """Return the scans of sizes and of nonzeros on a set."""
    sizes = QUICK_SIZES if quick else SIZES
    nonzeros = QUICK_NONZEROS if quick else NONZEROS
    by_size = [Method(m, s) for m in (*SKETCHES, BOOTSTRAP) for s in sizes]
    by_nonzeros = [Method(SPARSE, SPARSE_SIZES[name], c) for c in nonzeros]
    return [
        Scan([Method(WITHOUT, 0), *by_size], replicates or (10 if name == SINE else 5)),
        Scan(by_nonzeros, replicates or 25),
    ]


def measure(
    replicates: int | None, quick: bool, data_home: Path | None = None
) -> list[Row]:
    """Return a row for each set, method and run."""
    rows: list[Row] = []
    plan = [
        (name, scan) for name in SPARSE_SIZES for scan in scans(name, replicates, quick)
    ]
    with Progress(sum(scan.replicates for _, scan in plan)) as progress:
        for name, scan in plan:
            draw = parts_of(name, data_home)
            for replicate in range(scan.replicates):
                rows += _run(name, draw(replicate), scan.methods, replicate)
                progress.step(f"{name}, {scan.methods[-1].method}")
    return rows


def parts_of(name: str, data_home: Path | None) -> Callable[[int], Parts]:
    """Return a function that draws the parts of a run."""
    if name == SINE:
        return make_sine
    data = load(name, data_home)
    return lambda seed: split(data, seed)


def _run(
    name: str, parts: Parts, methods: Sequence[Method], seed: int
) -> Iterator[Row]:
    for method in methods:
        found = evaluate(parts, method, seed)
        yield {"set": name, **method._asdict(), "replicate": seed, **found}


def summarize(rows: Rows) -> list[Row]:
    """Return one row for each set, method, size and number of nonzeros."""
    names = ("set", *Method._fields)
    return [
        {
            **dict(zip(names, key, strict=True)),
            **spread("error", column(group, "error")),
            "seconds": float(np.median(column(group, "seconds"))),
            "runs": len(group),
        }
        for key, group in groups(rows, *names).items()
    ]


def _largest(table: Rows) -> list[Row]:
    """Return the rows of the largest size of each method, and all of sparse JL."""
    largest = max(row["size"] for row in table if row["nonzeros"] is None)
    return [row for row in table if row["nonzeros"] or row["size"] in (0, largest)]


def panels(rows: Rows) -> list[Panel]:
    """Return a panel of errors for each set, and one of sparse JL sketches."""
    table = summarize(rows)
    result = [
        Panel(name, "Size m", "Test MSE", list(_curves(found)), "xy")
        for (name,), found in groups(table, "set").items()
    ]
    sparse = list(_sparsity(table))
    title = "Sparse JL: test MSE over that of the densest"
    return [*result, Panel(title, "Nonzeros of each column", "Ratio", sparse)]


def _curves(table: Rows) -> Iterator[Curve]:
    sizes = sorted({row["size"] for row in table if row["method"] in SKETCHES})
    for method in (WITHOUT, *SKETCHES, BOOTSTRAP):
        errors = column(where(table, method=method), "error")
        yield Curve(method, sizes, np.broadcast_to(errors, len(sizes)))


def _sparsity(table: Rows) -> Iterator[Curve]:
    found = groups(where(table, method=SPARSE), "set")
    for i, ((name,), one) in enumerate(found.items()):
        errors = column(one, "error")
        nonzeros = column(one, "nonzeros")
        yield Curve(name, nonzeros, errors / errors[-1], style=Style(f"C{i}", "o"))
