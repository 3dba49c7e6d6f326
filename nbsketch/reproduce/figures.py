"""Figures 1 to 4 of the p-sparsified paper: robust regression with outlying inputs.

El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023, section 5 and appendix: test error and
training time against the size of the sketch, on the synthetic problem of
`nbsketch.datasets.make_friedman_outliers` with 10,000 training and 10,000 test rows.

=======  =====================  =====================
Command  Loss                   p-sparsified sketches
=======  =====================  =====================
figure1  kappa-Huber            p-SR (Rademacher)
figure2  epsilon-insensitive    p-SR (Rademacher)
figure3  kappa-Huber            p-SG (Gaussian)
figure4  epsilon-insensitive    p-SG (Gaussian)
figure5  square                 p-SR (Rademacher)
=======  =====================  =====================

figure5 is not in the paper: the same experiment with the loss of kernel ridge.

Kernel, losses and penalties are the paper's: exp(-0.1 ||x - y||^2), kappa = 100 with
alpha = 1e-7, epsilon = 4.64 with alpha = 1e-8, and no intercept; the square loss has
the penalty of the Huber loss. In the paper's program, which scales S K S^T by p^2,
alpha acts on p-sparsified sketches as a far smaller one; here it means the same for
every sketch, and smaller ones hardly change the test errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbsketch import plots
from nbsketch.losses import EpsilonInsensitiveLoss, HuberLoss, SquareLoss
from nbsketch.reproduce._progress import Progress
from nbsketch.reproduce._publish import Report, publish
from nbsketch.reproduce._report import Rows, as_text
from nbsketch.reproduce.robust import (
    ADAM,
    GAUSSIAN,
    SUBSAMPLING,
    Problem,
    measure,
    series_of,
    summarize,
)

_HUBER = "Huber loss (kappa = 100)", HuberLoss(100.0), 1e-7
_TUBE = "Epsilon-insensitive loss (epsilon = 4.64)", EpsilonInsensitiveLoss(4.64), 1e-8
_SQUARE = "Square loss", SquareLoss(), 1e-7
FIGURES = {
    "figure1": Problem(*_HUBER, "rademacher"),
    "figure2": Problem(*_TUBE, "rademacher"),
    "figure3": Problem(*_HUBER, "gaussian"),
    "figure4": Problem(*_TUBE, "gaussian"),
    "figure5": Problem(*_SQUARE, "rademacher"),
}
REPLICATES, QUICK_REPLICATES = 30, 2
NOTES = (
    "Error: mean squared error on the test rows over the range of their targets, mean "
    "and deviation over the replicates, of which each has data of its own.",
    "Seconds: one `fit`, drawing the sketch included, the best over the replicates. "
    "Every solution but Adam's is certified to be within 1e-6 of the minimum. The "
    "paper reports 5.6 to 6.6 seconds at size 100.",
    "Landmarks: mean number of training rows that the sketch touches. "
    "subsampling_same_time: error of sub-sampling with as many landmarks as take the "
    "same time, interpolated between sizes.",
    "Adam: the paper's method (25 epochs, one row at a time in fixed order, constant "
    "rate 0.05), compiled.",
)

_COLOURS = ("#9ecae1", "#4a98c9", "#1764ab", "#08306b")
_MARKERS = ("o", "s", "^", "D")
_LABELS = {
    "error": "Test MSE / range of y",
    "size": "Sketch size s",
    "seconds": "Training time (s)",
}
# The size at which the figures are summed up on the terminal.
_TYPICAL_SIZE = 100


def run(
    name: str,
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    plot_only: bool = False,
) -> list[dict[str, Any]]:
    """Reproduce a figure; write and print it, and return the rows of its table.

    Parameters
    ----------
    name : str
        "figure1" to "figure5".
    replicates : int, optional
        Data sets, each with a draw of every sketch: 30, or 2 if `quick`.
    quick : bool
        Whether fewer replicates and sizes will do.
    out : Path, optional
        Folder for NAME.csv (every fit), NAME.md (the table) and NAME.png: "results" by
        default.
    plot_only : bool
        Whether to draw the picture again from NAME.csv, without fitting anything.
    """
    title = f"{FIGURES[name].title}, 10,000 rows with outlying inputs"
    report = Report(name, title, NOTES, summarize, lambda fits: panels(summarize(fits)))
    table = publish(report, lambda: _measure(name, replicates, quick), out, plot_only)
    print(as_text(_typical(table)))
    return table


def panels(table: Rows) -> list[plots.Panel]:
    """Return the paper's three panels, and a fourth with more landmarks."""
    largest = max(row["size"] for row in table if row["series"] != SUBSAMPLING)
    same = [row for row in table if row["size"] <= largest]
    fast = [row for row in table if row["series"] != GAUSSIAN]
    more = f"(d) Sub-sampling up to s = {max(row['size'] for row in table)}"
    return [
        _panel("(a) Error", same, "size", "error"),
        _panel("(b) Time", same, "size", "seconds", "y"),
        _panel("(c) Error against time", same, "seconds", "error", "xy"),
        _panel(more, fast, "seconds", "error", "xy"),
    ]


def _panel(title: str, rows: Rows, x: str, y: str, log: str = "") -> plots.Panel:
    return plots.Panel(title, _LABELS[x], _LABELS[y], _curves(rows, x, y), log)


def _curves(rows: Rows, x: str, y: str) -> list[plots.Curve]:
    """Return a curve for each series; around errors a band of one standard error."""
    names = list(dict.fromkeys(row["series"] for row in rows))
    dense = [n for n in names if n not in (SUBSAMPLING, GAUSSIAN) and ADAM not in n]
    looks = dict(zip(dense, zip(_COLOURS, _MARKERS, strict=True), strict=False))
    looks |= {SUBSAMPLING: ("#d95f02", "v"), GAUSSIAN: ("#1b9e77", "P")}
    curves = []
    for name in names:
        one = [row for row in rows if row["series"] == name]
        color, marker = looks.get(name, ("#888888", "x"))
        band = _standard_errors(one) if (x, y) == ("size", "error") else None
        points = [row[x] for row in one], [row[y] for row in one]
        curves.append(plots.Curve(name, *points, band, color, marker, ADAM in name))
    return curves


def _standard_errors(rows: Rows) -> list[float]:
    return [row["error_deviation"] / row["replicates"] ** 0.5 for row in rows]


def _measure(name: str, replicates: int | None, quick: bool) -> list[dict[str, Any]]:
    problem = FIGURES[name]
    count = replicates or (QUICK_REPLICATES if quick else REPLICATES)
    series = series_of(problem, quick)
    fits = []
    with Progress(count * sum(len(one.sizes) for one in series.values())) as progress:
        for fit in measure(problem, series, count):
            fits.append(fit)
            progress.step(f"{fit['series']}, s = {fit['size']}")
    return fits


def _typical(table: Rows) -> Sequence[dict[str, Any]]:
    """Return the row of each series at the typical size, or the next to it."""
    nearest: dict[str, dict[str, Any]] = {}
    for row in table:
        best = nearest.setdefault(row["series"], row)
        if abs(row["size"] - _TYPICAL_SIZE) < abs(best["size"] - _TYPICAL_SIZE):
            nearest[row["series"]] = row
    return list(nearest.values())
