"""Rates of regularized algorithms with random projections, beside those of theory.

Lin and Cevher, "Convergences of Regularized Algorithms and Stochastic Gradient Methods
with Random Projections", JMLR 2020, on problems whose exponents are known: a
`nbsketch.datasets.DiagonalDesign` of capacity gamma = 1/2 and targets of source zeta.
Three quantities are measured against the number n of rows:

- the excess risk of each filter, of order n^(-2 zeta / (2 zeta + gamma)) if zeta is at
  most its qualification (1 for ridge regression, which saturates beyond);
- the dimension of a random projection at which the excess risk of ridge regression is
  1.25 times that without a projection. For zeta <= 1 and up to logarithms, order
  n^(gamma / (2 zeta + gamma)) suffices for randomized sketches (Corollary 3) and
  leverage scores (Corollary 5), n^(1 / (2 zeta + gamma)) for plain Nystrom
  sub-sampling (Corollary 4);
- the excess risk of the projected stochastic gradient method in the four regimes of
  step, batch and number of steps, of the same order as that of the filters.

2 zeta + gamma > 1 in all cases; for zeta = 0.3 the target is outside of the space of
the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nbsketch._progress import Progress
from nbsketch.reproduce._tools.panels import Curve, Panel
from nbsketch.reproduce._tools.publish import Report, publish
from nbsketch.reproduce._tools.report import Row, Rows
from nbsketch.reproduce._tools.statistics import column, groups, log_log_slope
from nbsketch.reproduce.projections.measure import DESIGN, FACTOR, FILTERS, measure

SIZES, QUICK_SIZES = tuple(2**k for k in range(8, 14)), (256, 512, 1024)
REPLICATES, QUICK_REPLICATES = 10, 2
TITLE = "rates: spectral filters and stochastic gradients, capacity 1/2"
NOTES = (
    "slope: of the logarithm of the value against that of n, by least squares for each "
    "replicate; mean over the replicates and its 95 per cent confidence interval. A "
    "replicate has new inputs for every n.",
    "filter: excess risk at the parameter that is best for it; the mean over the noise "
    "and over new inputs is exact. projection: the smallest dimension with an excess "
    f"risk at most {FACTOR} times that without a projection (ridge, the same "
    "parameter). sgm: excess risk at the best number of steps of a regime.",
    "theory: -2 zeta / (2 zeta + gamma), with zeta cut to the qualification of the "
    "filter. Projections: the dimension that suffices, without logarithms, "
    "gamma / (2 zeta + gamma), and for sub-sampling 1 / (2 zeta + gamma). These are "
    "upper bounds: the features of this design are bounded, so that all leverage "
    "scores are similar and sub-sampling needs less.",
)
_QUANTITIES = {
    "filter": "Excess risk",
    "projection": "Dimension needed",
    "sgm": "Excess risk",
}
_PARTS = {"projection": "Projection, ", "sgm": "Stochastic gradients, "}
# Plain Nystrom, by uniform sub-sampling, needs more landmarks than other sketches.
PLAIN = "sub-sampling"


def run(
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    plot_only: bool = False,
) -> list[Row]:
    """Measure the rates (see `nbsketch.reproduce` for the parameters).

    Replicates are draws of the inputs for each number of rows: 10, or 2 of fewer rows
    if `quick`.
    """
    report = Report("rates", TITLE, NOTES, panels, summarize)
    return publish(report, lambda: _measure(replicates, quick), out, plot_only)


def theory(part: str, series: str, source: float) -> float:
    """Return the exponent of n in theory, for projections with a source of at most 1.

    Parameters
    ----------
    part : {"filter", "projection", "sgm"}
        Excess risk of a filter, dimension of a projection, or excess risk of stochastic
        gradients.
    series : str
        Name of the filter, the sketch or the regime.
    source : float
        Exponent zeta of the target.
    """
    gamma = DESIGN.capacity
    if part == "projection":
        return (1 if series == PLAIN else gamma) / (2 * source + gamma)
    if part == "filter":
        source = min(source, FILTERS[series].qualification)
    return -2 * source / (2 * source + gamma)


def summarize(values: Rows) -> list[Row]:
    """Return one row for each part, series and source: slope and theory."""
    table = []
    for (part, series, source), (sizes, curves) in _curves(values):
        slope = log_log_slope(sizes, curves)
        low, high = slope.ends()
        table.append(
            {
                "part": part,
                "series": series,
                "source": source,
                "theory": theory(part, series, source),
                "slope": slope.value,
                "low": low,
                "high": high,
                "first": float(curves[:, 0].mean()),
                "last": float(curves[:, -1].mean()),
            }
        )
    return table


def panels(values: Rows) -> list[Panel]:
    """Return a panel for each part and source."""
    found: dict[tuple[str, float], list[Curve]] = {}
    for (part, series, source), (sizes, curves) in _curves(values):
        label = f"regime {series}" if part == "sgm" else series
        curve = Curve(label, sizes, curves.mean(axis=0))
        found.setdefault((part, source), []).append(curve)
    return [
        Panel(
            f"{_PARTS.get(part, '')}zeta = {source:g}",
            "n",
            _QUANTITIES[part],
            curves + _theory_lines(part, source, curves[-1]),
            "xy",
        )
        for (part, source), curves in found.items()
    ]


def _theory_lines(part: str, source: float, curve: Curve) -> list[Curve]:
    """Return lines of the slopes of theory, through the middle of a curve."""
    x, y = np.log(curve.x), np.log(curve.y)
    series = {"theory": "Gaussian" if part == "projection" else "Landweber"}
    if part == "projection":
        series = {f"theory, {PLAIN}": PLAIN, **series}
    lines = []
    for label, name in series.items():
        slope = theory(part, name, source)
        lines.append(Curve(label, curve.x, np.exp(y.mean() + slope * (x - x.mean()))))
    return lines


def _curves(
    values: Rows,
) -> Iterator[tuple[tuple[str, str, float], tuple[NDArray, NDArray]]]:
    """Yield (part, series, source) with sizes and values (replicates, sizes).

    A size is left out if a value is missing, and a series without two sizes.
    """
    found = groups(values, "part", "series", "source")
    for (part, series, source), rows in found.items():
        sizes = {n: column(one, "value") for (n,), one in groups(rows, "n").items()}
        whole = {n: y for n, y in sizes.items() if not np.isnan(y).any()}
        if len(whole) > 1:
            curves = np.column_stack(list(whole.values()))
            yield (part, series, float(source)), (np.array(list(whole)), curves)


def _measure(replicates: int | None, quick: bool) -> list[Row]:
    sizes = QUICK_SIZES if quick else SIZES
    count = replicates or (QUICK_REPLICATES if quick else REPLICATES)
    values: list[Row] = []
    runs = list(product(range(count), sizes))
    with Progress(len(runs)) as progress:
        for replicate, n in runs:
            values += measure(n, replicate)
            progress.step(f"replicate {replicate + 1}, n = {n}")
    return values
