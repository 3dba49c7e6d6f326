"""Figures 1 to 4 of the p-sparsified paper: robust regression with outlying inputs.

El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023, section 4.1 and appendix H.1: test error
and training time against the size of the sketch, on the synthetic problem of
`nbsketch.datasets.make_friedman_outliers` with 10,000 training and 10,000 test rows.

=======  =====================  =====================
Command  Loss                   p-sparsified sketches
=======  =====================  =====================
figure1  kappa-Huber            p-SR (Rademacher)
figure2  kappa-Huber            p-SG (Gaussian)
figure3  epsilon-insensitive    p-SR (Rademacher)
figure4  epsilon-insensitive    p-SG (Gaussian)
figure5  square                 p-SR (Rademacher)
=======  =====================  =====================

figure5 is not in the paper: the same experiment with the loss of kernel ridge.

Kernel, losses and penalties are the paper's: exp(-0.1 ||x - y||^2), kappa = 100 with
alpha = 1e-7, epsilon = 4.64 with alpha = 1e-8, and no intercept; the square loss has
the penalty of the Huber loss. The paper's program scales S K S^T by p^2, so that its
alpha acts on p-sparsified sketches as a far smaller one; here it means the same for
every sketch, and smaller ones hardly change the test errors.
"""

from __future__ import annotations

from pathlib import Path

from nbsketch._progress import Progress
from nbsketch.losses import EpsilonInsensitiveLoss, HuberLoss, SquareLoss
from nbsketch.reproduce._tools.panels import Curve, Panel
from nbsketch.reproduce._tools.publish import Report, publish
from nbsketch.reproduce._tools.report import Row, Rows
from nbsketch.reproduce._tools.statistics import column, groups
from nbsketch.reproduce.p_sparsified.robust import (
    COUNT,
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
    "figure2": Problem(*_HUBER, "gaussian"),
    "figure3": Problem(*_TUBE, "rademacher"),
    "figure4": Problem(*_TUBE, "gaussian"),
    "figure5": Problem(*_SQUARE, "rademacher"),
}
REPLICATES, QUICK_REPLICATES = 30, 2
NOTES = (
    "error: mean squared error on the test rows over the range of their targets, mean "
    "and deviation over the replicates, each with its own data.",
    "seconds: processor time of `fit` (all threads), including the draw, the minimum "
    "over the replicates. Every solution "
    "except Adam's is certified to be within 1e-6 of the minimum. The paper reports "
    "5.6 to 6.6 seconds for p-SR sketches of error at most 0.05.",
    "landmarks: mean number of training rows in the model. subsampling_same_time: "
    "error of sub-sampling with as many landmarks as take the same time, interpolated "
    "between sizes.",
    "accumulation: m = 20, as in the paper's tables. Random Fourier features: as many "
    "as the sketch has rows.",
    "Adam: the paper's method (25 epochs, one row at a time in fixed order, constant "
    "rate 0.05), compiled.",
)

_LABELS = {
    "error": "Test MSE / range of y",
    "size": "Sketch size s",
    "seconds": "Training time (s)",
}
# The size that is printed.
_TYPICAL_SIZE = 100


def run(
    name: str,
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    plot_only: bool = False,
) -> list[Row]:
    """Reproduce a figure (see `nbsketch.reproduce` for the other parameters).

    Replicates are data sets, each with a draw of every sketch: 30, or 2 of fewer sizes
    if `quick`. NAME.csv has every fit.

    Parameters
    ----------
    name : str
        "figure1" to "figure5".
    """
    title = f"{name}: {FIGURES[name].title}, 10,000 rows with outlying inputs"
    report = Report(name, title, NOTES, panels, summarize, _typical)
    return publish(report, lambda: _measure(name, replicates, quick), out, plot_only)


def panels(fits: Rows) -> list[Panel]:
    """Return the paper's three panels, and a fourth with more landmarks."""
    table = summarize(fits)
    largest = max(row["size"] for row in table if row["series"] != SUBSAMPLING)
    same = [row for row in table if row["size"] <= largest]
    fast = [row for row in table if row["series"] not in (GAUSSIAN, COUNT)]
    more = f"(d) Sub-sampling up to s = {max(row['size'] for row in table)}"
    return [
        _panel("(a) Error", same, "size", "error"),
        _panel("(b) Time", same, "size", "seconds", "y"),
        _panel("(c) Error against time", same, "seconds", "error", "xy"),
        _panel(more, fast, "seconds", "error", "xy"),
    ]


def _panel(title: str, rows: Rows, x: str, y: str, log: str = "") -> Panel:
    """Return a curve for each series; around errors a band of one standard error."""
    curves = []
    for (name,), one in groups(rows, "series").items():
        band = None
        if (x, y) == ("size", "error"):
            band = column(one, "error_deviation") / column(one, "replicates") ** 0.5
        curves.append(Curve(name, column(one, x), column(one, y), band))
    return Panel(title, _LABELS[x], _LABELS[y], curves, log)


def _measure(name: str, replicates: int | None, quick: bool) -> list[Row]:
    problem = FIGURES[name]
    count = replicates or (QUICK_REPLICATES if quick else REPLICATES)
    series = series_of(problem, quick)
    fits = []
    with Progress(count * sum(len(one.sizes) for one in series.values())) as progress:
        for fit in measure(problem, series, count):
            fits.append(fit)
            progress.step(f"{fit['series']}, s = {fit['size']}")
    return fits


def _typical(table: Rows) -> list[Row]:
    """Return the row of each series at the typical size, or nearest to it."""
    return [
        min(group, key=lambda row: abs(row["size"] - _TYPICAL_SIZE))
        for group in groups(table, "series").values()
    ]
