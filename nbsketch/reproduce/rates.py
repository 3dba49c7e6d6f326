"""Rates of regularized algorithms on sketched subspaces, beside those of theory.

Lin and Cevher, "Convergences of Regularized Algorithms and Stochastic Gradient Methods
with Random Projections", JMLR 2020, on problems where the exponents of its conditions
are known: `nbsketch.datasets.DiagonalDesign` with capacity gamma = 1/2 and a target of
source zeta. Three things are measured against the number n of rows:

- the excess risk of each filter, of order n^(-2 zeta / (2 zeta + gamma)) where zeta is
  at most its qualification (1 for ridge regression, which saturates beyond);
- the dimension of a random projection at which the excess risk of ridge regression is
  1.25 times that without a projection, of order n^(gamma / (2 zeta + gamma)) but for
  logarithms;
- the excess risk of the projected stochastic gradient method in the four regimes of
  step, batch and number of steps, of the same order as that of the filters.

2 zeta + gamma > 1 throughout, zeta = 0.3 included, where the target is not in the space
of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from nbsketch import plots
from nbsketch.reproduce._progress import Progress
from nbsketch.reproduce._publish import Report, publish
from nbsketch.reproduce._report import Rows, as_text
from nbsketch.reproduce.rates_measure import DESIGN, FACTOR, FILTERS, measure

SIZES, QUICK_SIZES = tuple(2**k for k in range(8, 14)), (256, 512, 1024)
REPLICATES, QUICK_REPLICATES = 10, 2
TITLE = "Rates of spectral filters and stochastic gradients, capacity 1/2"
NOTES = (
    "slope: of the logarithm of the value against that of n, by least squares for each "
    "replicate; mean over the replicates and its 95 per cent confidence interval. A "
    "replicate has inputs of its own for every n.",
    "filter: excess risk at the parameter that is best for it; the mean over the noise "
    "and over new inputs is exact. projection: the smallest dimension with an excess "
    f"risk at most {FACTOR} times that without a projection (ridge, the same "
    "parameter). sgm: excess risk at the best number of steps of a regime.",
    "theory: -2 zeta / (2 zeta + gamma), with zeta cut to the qualification of the "
    "filter; for projections gamma / (2 zeta + gamma), without its logarithms.",
)

_COLOURS = {
    "filter": ("#1764ab", "#d95f02", "#1b9e77", "#7b3294"),
    "projection": ("#a6611a", "#e7298a", "#4d4d4d", "#80b1d3"),
    "sgm": ("#66a61e", "#e6ab02", "#8da0cb", "#e34a33"),
}
_MARKERS = {"filter": "os^v", "projection": "DPXd", "sgm": "<>ph"}
_QUANTITIES = {
    "filter": "Excess risk",
    "projection": "Dimension needed",
    "sgm": "Excess risk",
}
_PARTS = {"projection": "Projection", "sgm": "Stochastic gradients"}


class Slope(NamedTuple):
    """A slope with the ends of its confidence interval, if there are replicates."""

    value: float
    low: float | None
    high: float | None


def run(
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    plot_only: bool = False,
) -> list[dict[str, Any]]:
    """Measure the rates; write and print them, and return the rows of the table.

    Parameters
    ----------
    replicates : int, optional
        Draws of the inputs for each number of rows: 10, or 2 if `quick`.
    quick : bool
        Whether fewer replicates and rows will do.
    out : Path, optional
        Folder for rates.csv (every value), rates.md (the table) and rates.png:
        "results" by default.
    plot_only : bool
        Whether to draw the picture again from rates.csv, without measuring anything.
    """
    report = Report("rates", TITLE, NOTES, summarize, panels)
    table = publish(report, lambda: _measure(replicates, quick), out, plot_only)
    print(as_text(table))
    return table


def theory(part: str, series: str, source: float) -> float:
    """Return the exponent of n that theory gives."""
    gamma = DESIGN.capacity
    if part == "projection":
        return gamma / (2 * source + gamma)
    if part == "filter":
        source = min(source, FILTERS[series].qualification)
    return -2 * source / (2 * source + gamma)


def summarize(values: Rows) -> list[dict[str, Any]]:
    """Return one row for each part, series and source: slope and theory."""
    table = []
    for (part, series, source), (sizes, curves) in _curves(values):
        slope = fit_slope(sizes, curves)
        table.append(
            {
                "part": part,
                "series": series,
                "source": source,
                "theory": theory(part, series, source),
                "slope": slope.value,
                "low": slope.low,
                "high": slope.high,
                "first": float(curves[0].mean()),
                "last": float(curves[-1].mean()),
            }
        )
    return table


def fit_slope(sizes: NDArray, curves: NDArray) -> Slope:
    """Return the mean log-log slope of curves (sizes, replicates), and its interval."""
    slopes = np.polyfit(np.log(sizes), np.log(curves), 1)[0]
    mean, count = float(slopes.mean()), len(slopes)
    if count == 1:
        return Slope(mean, None, None)
    error = float(slopes.std(ddof=1)) / count**0.5 * student.ppf(0.975, count - 1)
    return Slope(mean, mean - float(error), mean + float(error))


def panels(values: Rows) -> list[plots.Panel]:
    """Return a panel for each part and source."""
    groups: dict[tuple[str, float], list[plots.Curve]] = {}
    for (part, series, source), (sizes, curves) in _curves(values):
        group = groups.setdefault((part, source), [])
        color, marker = _COLOURS[part][len(group)], _MARKERS[part][len(group)]
        mean = curves.mean(axis=1)
        label = f"regime {series}" if part == "sgm" else series
        points = sizes.tolist(), mean.tolist()
        group.append(plots.Curve(label, *points, None, color, marker))
    for (part, source), group in groups.items():
        group.append(_theory_line(part, source, group[-1]))
    return [_panel(*key, group) for key, group in groups.items()]


def _panel(part: str, source: float, curves: Sequence[plots.Curve]) -> plots.Panel:
    title = f"zeta = {source:g}"
    if part in _PARTS:
        title = f"{_PARTS[part]}, {title}"
    return plots.Panel(title, "n", _QUANTITIES[part], curves, "xy")


def _theory_line(part: str, source: float, curve: plots.Curve) -> plots.Curve:
    """Return a line of the slope of theory, through the middle of a curve."""
    slope = theory(part, "Landweber", source)
    x, y = np.log(curve.x), np.log(curve.y)
    line = np.exp(y.mean() + slope * (x - x.mean()))
    return plots.Curve(
        "theory", curve.x, line.tolist(), None, "#888888", "", dashed=True
    )


def _curves(
    values: Rows,
) -> Iterator[tuple[tuple[str, str, float], tuple[NDArray, NDArray]]]:
    """Yield (part, series, source) with sizes and values (sizes, replicates).

    A size is left out where a value is missing, and a series without two sizes.
    """
    groups: dict[tuple[str, str, float], dict[int, list[float | None]]] = {}
    for row in values:
        key = row["part"], row["series"], float(row["source"])
        groups.setdefault(key, {}).setdefault(row["n"], []).append(row["value"])
    for key, group in groups.items():
        whole = {n: column for n, column in group.items() if None not in column}
        if len(whole) > 1:
            curves = np.array(list(whole.values()), dtype=float)
            yield key, (np.array(list(whole)), curves)


def _measure(replicates: int | None, quick: bool) -> list[dict[str, Any]]:
    sizes = QUICK_SIZES if quick else SIZES
    count = replicates or (QUICK_REPLICATES if quick else REPLICATES)
    values: list[dict[str, Any]] = []
    runs = list(product(range(count), sizes))
    with Progress(len(runs)) as progress:
        for replicate, n in runs:
            values += measure(n, replicate)
            progress.step(f"replicate {replicate + 1}, n = {n}")
    return values
