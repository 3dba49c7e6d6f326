"""How often a drawn sketch is K-satisfiable, against its size.

What the theory of sketched kernel ridge asks of a sketch (Yang, Pilanci and Wainwright,
Ann. Stat. 2017, and El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023) is checked draw by
draw with `nbsketch.diagnostics.is_k_satisfiable`, on inputs that are uniform and on
inputs with outlying rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nbsketch import plots
from nbsketch.datasets import make_friedman_outliers
from nbsketch.diagnostics import (
    Satisfiability,
    Spectrum,
    is_k_satisfiable,
    satisfiability_constant,
    spectrum,
)
from nbsketch.reproduce._progress import Progress
from nbsketch.reproduce._publish import Report, publish
from nbsketch.reproduce._report import Rows, as_text
from nbsketch.sketches import (
    AccumulationSketch,
    GaussianSketch,
    PSparsifiedSketch,
    SketchRecipe,
    SubsamplingSketch,
)

N_ROWS = 600
SIZES, QUICK_SIZES = (25, 50, 75, 100, 150, 200, 300, 400), (50, 200, 400)
REPLICATES, QUICK_REPLICATES = 200, 10
# In units in which the norm of the regression function is 1: the statistical dimension
# is that of the first block of eigenvalues, and of the outlying rows where there are.
NOISE = 0.5
SETS = {"uniform": 0, "outliers": None}
TITLE = "Share of draws that are K-satisfiable"
NOTES = (
    f"Inputs of nbsketch.datasets.make_friedman_outliers, {N_ROWS} rows: uniform ones "
    "alone, and with outlying rows. Gaussian kernel with the median distance as "
    f"bandwidth, noise {NOISE}.",
    "share: of draws that are K-satisfiable. distortion, leakage: share within the "
    "bound of each of the two norms.",
    "c is (2 / sqrt(p)) (1 + sqrt(log 5)) + 1 with the density p of p-sparsified "
    "sketches, and p = 1 for all others.",
)


class Family(NamedTuple):
    """Sketches of one kind: a recipe for each size, and the density that sets c."""

    recipe: Callable[[int], SketchRecipe]
    density: float
    color: str
    marker: str


def families() -> dict[str, Family]:
    """Return what is compared."""
    sparse = 20 / N_ROWS
    return {
        "Gaussian": Family(GaussianSketch, 1.0, "#1b9e77", "P"),
        "p-SR, p = 0.7": Family(
            lambda s: PSparsifiedSketch(s, 0.7), 0.7, "#9ecae1", "o"
        ),
        "p-SR, p = 20/n": Family(
            lambda s: PSparsifiedSketch(s, sparse), sparse, "#1764ab", "s"
        ),
        "accumulation, m = 30": Family(
            lambda s: AccumulationSketch(s, 30), 1.0, "#7570b3", "D"
        ),
        "sub-sampling": Family(SubsamplingSketch, 1.0, "#d95f02", "v"),
    }


def run(
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    plot_only: bool = False,
) -> list[dict[str, Any]]:
    """Judge draws of every sketch and size; write and print the shares, return them.

    Parameters
    ----------
    replicates : int, optional
        Draws of each sketch: 200, or 10 if `quick`.
    quick : bool
        Whether fewer draws and sizes will do.
    out : Path, optional
        Folder for satisfiability.csv, .md and .png: "results" by default.
    plot_only : bool
        Whether to draw the picture again from the CSV file, without drawing sketches.
    """
    sizes = QUICK_SIZES if quick else SIZES
    count = replicates or (QUICK_REPLICATES if quick else REPLICATES)
    report = Report("satisfiability", TITLE, NOTES, list, panels)
    rows = publish(report, lambda: _measure(sizes, count), out, plot_only)
    print(as_text(rows))
    return rows


def panels(rows: Rows) -> list[plots.Panel]:
    """Return one panel for each set, with a curve for each sketch."""
    result = []
    for name in dict.fromkeys(row["set"] for row in rows):
        one = [row for row in rows if row["set"] == name]
        title = f"{name}, $d_n = {one[0]['dimension']}$"
        curves = [_curve(label, family, one) for label, family in families().items()]
        result.append(plots.Panel(title, "Sketch size s", "Share", curves))
    return result


def _curve(label: str, family: Family, rows: Rows) -> plots.Curve:
    points = [(row["size"], row["share"]) for row in rows if row["sketch"] == label]
    x, y = zip(*points, strict=True)
    return plots.Curve(label, x, y, color=family.color, marker=family.marker)


def _measure(sizes: tuple[int, ...], replicates: int) -> list[dict[str, Any]]:
    rows = []
    with Progress(len(SETS) * len(families()) * len(sizes)) as progress:
        for name, n_outliers in SETS.items():
            X, _ = make_friedman_outliers(N_ROWS, n_outliers=n_outliers, random_state=0)
            for row in judge(spectrum(X), sizes, replicates):
                rows.append({"set": name, **row})
                progress.step(f"{name}, {row['sketch']}, s = {row['size']}")
    return rows


def judge(
    mu: Spectrum, sizes: tuple[int, ...], replicates: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each sketch and size: shares over the draws."""
    for label, family in families().items():
        for size in sizes:
            recipe = family.recipe(size)
            verdicts = [
                is_k_satisfiable(
                    recipe.draw(mu.n, seed), mu, density=family.density, noise=NOISE
                )
                for seed in range(replicates)
            ]
            yield {
                "sketch": label,
                "size": size,
                "c": satisfiability_constant(family.density),
                **_shares(verdicts),
            }


def _shares(verdicts: list[Satisfiability]) -> dict[str, Any]:
    within = [
        (v.satisfied, v.distortion <= v.distortion_bound, v.leakage <= v.leakage_bound)
        for v in verdicts
    ]
    share, distortion, leakage = np.mean(within, axis=0).tolist()
    return {
        "share": share,
        "distortion": distortion,
        "leakage": leakage,
        "draws": len(verdicts),
        "dimension": verdicts[0].dimension,
    }
