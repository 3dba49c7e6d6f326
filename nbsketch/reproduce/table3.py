"""Table 3 of the p-sparsified paper: how hard three kernels are, as rows grow.

El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023, after Yang, Pilanci and Wainwright, Ann.
Stat. 2017: the orders of the squared critical radius and of the statistical dimension
for Gaussian, polynomial and first-order Sobolev kernels. Here both are measured on
uniform inputs in [0, 1], and the growth is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from nbsketch import plots
from nbsketch.diagnostics import critical_radius, spectrum, statistical_dimension
from nbsketch.kernels import GaussianKernel, Kernel, PolynomialKernel, SobolevKernel
from nbsketch.reproduce._progress import Progress
from nbsketch.reproduce._publish import Report, publish
from nbsketch.reproduce._report import Rows, as_text

ROWS, QUICK_ROWS = tuple(100 * 2**k for k in range(8)), (100, 200, 400, 800)
LANDMARKS = 1600
# In units in which the norm of the regression function is 1.
NOISE = 0.3
REPLICATES, QUICK_REPLICATES = 10, 3
DEGREE = 3
QUANTITIES = {"radius": r"$\delta_n^2$", "dimension": "$d_n$"}
NOTES = (
    "exponent: slope of the logarithm against log n, mean over draws of the inputs, "
    "with the half-width of a 95 % interval. stated_exponent: that of the stated "
    "function over the same n, which is no power where it holds a logarithm.",
    "drift: by which factor measured over stated changes from the least n to the "
    "largest. 1: no difference in growth is seen.",
    "d_n is the index of the first eigenvalue below: one more than the number above, "
    f"{DEGREE + 2} where all {DEGREE + 1} of a polynomial are.",
    f"n from {ROWS[0]} to {ROWS[-1]}; noise {NOISE}; spectra exact up to "
    f"{LANDMARKS} rows, beyond by as many landmarks.",
)


class Order(NamedTuple):
    """A stated order of growth: its text and the function."""

    text: str
    function: Callable[[NDArray], NDArray]


class Case(NamedTuple):
    """A kernel and the orders stated for it, of the squared radius and d_n."""

    kernel: Kernel
    radius: Order
    dimension: Order
    color: str
    marker: str


CASES = {
    "Gaussian": Case(
        GaussianKernel(0.25),
        Order("sqrt(log n) / n", lambda n: np.sqrt(np.log(n)) / n),
        Order("sqrt(log n)", lambda n: np.sqrt(np.log(n))),
        "#1b9e77",
        "P",
    ),
    f"polynomial, degree {DEGREE}": Case(
        PolynomialKernel(DEGREE),
        Order("1 / n", lambda n: 1 / n),
        Order(f"at most {DEGREE + 1}", lambda n: np.full(n.shape, DEGREE + 1.0)),
        "#1764ab",
        "s",
    ),
    "Sobolev, first order": Case(
        SobolevKernel(),
        Order("n^(-2/3)", lambda n: n ** (-2 / 3)),
        Order("n^(1/3)", lambda n: n ** (1 / 3)),
        "#d95f02",
        "v",
    ),
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
        Draws of the inputs: 10, or 3 if `quick`.
    quick : bool
        Whether fewer draws and at most 800 rows will do.
    out : Path, optional
        Folder for table3.csv (every draw), table3.md and table3.png: "results" by
        default.
    plot_only : bool
        Whether to start from table3.csv, without measuring.
    """
    sizes = QUICK_ROWS if quick else ROWS
    count = replicates or (QUICK_REPLICATES if quick else REPLICATES)
    title = "Critical radius and statistical dimension"
    report = Report("table3", title, NOTES, summarize, panels)
    table = publish(report, lambda: measure(sizes, count), out, plot_only)
    print(as_text(table))
    return table


def measure(sizes: Sequence[int], replicates: int) -> list[dict[str, Any]]:
    """Return a row for each kernel, draw and number of rows."""
    rows = []
    with Progress(len(CASES) * replicates * len(sizes)) as progress:
        for name, case in CASES.items():
            for replicate in range(replicates):
                for n in sizes:
                    seed = (replicate, n)
                    X = np.random.default_rng(seed).uniform(size=(n, 1))
                    size = min(n, LANDMARKS)
                    mu = spectrum(X, case.kernel, size=size, random_state=replicate)
                    rows.append(
                        {
                            "kernel": name,
                            "n": n,
                            "replicate": replicate,
                            "radius": critical_radius(mu, noise=NOISE) ** 2,
                            "dimension": statistical_dimension(mu, noise=NOISE),
                        }
                    )
                    progress.step(f"{name}, n = {n}")
    return rows


def summarize(rows: Rows) -> list[dict[str, Any]]:
    """Return the fitted growth beside the stated one, for each kernel and quantity."""
    table = []
    for name, case in CASES.items():
        for quantity in QUANTITIES:
            n, values = _by_size(rows, name, quantity)
            stated: Order = getattr(case, quantity)
            exponent, half_width = _exponent(n, values)
            ratios = values.mean(axis=0) / stated.function(n)
            table.append(
                {
                    "kernel": name,
                    "quantity": {"radius": "delta_n^2", "dimension": "d_n"}[quantity],
                    "stated": stated.text,
                    "stated_exponent": _slopes(n, stated.function(n)[None])[0],
                    "exponent": exponent,
                    "half_width": half_width,
                    "drift": ratios[-1] / ratios[0],
                    "first": values[:, 0].mean(),
                    "last": values[:, -1].mean(),
                }
            )
    return table


def _by_size(rows: Rows, kernel: str, quantity: str) -> tuple[NDArray, NDArray]:
    """Return the numbers of rows, and the values (replicates, sizes)."""
    one = [row for row in rows if row["kernel"] == kernel]
    n = np.array(list(dict.fromkeys(row["n"] for row in one)), dtype=float)
    values = np.array([row[quantity] for row in one], dtype=float)
    return n, values.reshape(-1, n.size)


def _slopes(n: NDArray, values: NDArray) -> NDArray:
    """Return the least-squares slope of log values against log n, row by row."""
    x = np.log(n) - np.log(n).mean()
    return np.log(values) @ x / (x @ x)


def _exponent(n: NDArray, values: NDArray) -> tuple[float, float | None]:
    """Return the mean slope and the half-width of its interval over the replicates."""
    slopes = _slopes(n, values)
    if slopes.size == 1:
        return float(slopes[0]), None
    quantile = stats.t.ppf(0.975, slopes.size - 1)
    # draws often agree on an integer: what rounding leaves is no width
    half_width = round(float(quantile * stats.sem(slopes)), 9)
    return float(slopes.mean()), half_width


def panels(rows: Rows) -> list[plots.Panel]:
    """Return a panel for each quantity: measured, and the stated order dashed."""
    result = []
    for quantity, label in QUANTITIES.items():
        curves = []
        for name, case in CASES.items():
            n, values = _by_size(rows, name, quantity)
            mean, stated = values.mean(axis=0), getattr(case, quantity).function(n)
            level = math.exp(np.log(mean / stated).mean())
            measured = plots.Curve(name, n, mean, None, case.color, case.marker)
            order = plots.Curve(
                "stated order", n, level * stated, None, case.color, "", True
            )
            curves += [measured, order]
        result.append(plots.Panel("", "Rows n", label, curves, "xy"))
    return result
