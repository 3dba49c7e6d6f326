"""Share of draws of a sketch that are K-satisfiable, against its size.

K-satisfiability is the condition of the theory of sketched kernel ridge regression
(Yang, Pilanci and Wainwright, Ann. Stat. 2017; El Ahmad, Laforgue and d'Alche-Buc, TMLR
2023). It is checked for each draw with `nbsketch.diagnostics.is_k_satisfiable`, on
uniform inputs and on inputs with outliers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from nbsketch.datasets import make_friedman_outliers
from nbsketch.diagnostics import (
    Satisfiability,
    Spectrum,
    is_k_satisfiable,
    satisfiability_constant,
    spectrum,
)
from nbsketch.reproduce._figures import Curve, Panel
from nbsketch.reproduce._report import Row, Rows, column, groups, where
from nbsketch.reproduce.experiment import Experiment
from nbsketch.sketches import (
    AccumulationSketch,
    GaussianSketch,
    PSparsifiedSketch,
    SketchRecipe,
    SubsamplingSketch,
)

N_ROWS = 600
SIZES, QUICK_SIZES = (25, 50, 75, 100, 150, 200, 300, 400), (50, 200, 400)
# In units in which the norm of the regression function is 1: the statistical dimension
# is that of the first block of eigenvalues, and of the outliers if any.
NOISE = 0.5
SETS = {"uniform": 0, "outliers": None}
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


def families() -> dict[str, Family]:
    """Return the sketches by name."""
    sparse = 20 / N_ROWS
    return {
        "Gaussian": Family(GaussianSketch, 1.0),
        "p-SR, p = 0.7": Family(lambda s: PSparsifiedSketch(s, 0.7), 0.7),
        "p-SR, p = 20/n": Family(lambda s: PSparsifiedSketch(s, sparse), sparse),
        "accumulation, m = 30": Family(lambda s: AccumulationSketch(s, 30), 1.0),
        "sub-sampling": Family(SubsamplingSketch, 1.0),
    }


def points(replicates: int, quick: bool) -> Iterator[tuple[Any, ...]]:
    """Yield set, its spectrum, sketch, size and the number of draws."""
    for name, n_outliers in SETS.items():
        X, _ = make_friedman_outliers(N_ROWS, n_outliers=n_outliers, random_state=0)
        for label, size in product(families(), QUICK_SIZES if quick else SIZES):
            yield name, spectrum(X), label, size, replicates


def panels(rows: Rows) -> list[Panel]:
    """Return one panel for each set, with a curve for each sketch."""
    result = []
    for (name,), one in groups(rows, "set").items():
        title = f"{name}, $d_n = {one[0]['dimension']}$"
        curves = [_curve(label, where(one, sketch=label)) for label in families()]
        result.append(Panel(title, "Sketch size s", "Share", curves))
    return result


def _curve(label: str, rows: Rows) -> Curve:
    return Curve(label, column(rows, "size"), column(rows, "share"))


def measure(
    name: str, mu: Spectrum, label: str, size: int, replicates: int
) -> Iterator[Row]:
    """Yield the shares over the draws of a sketch."""
    recipe, density = families()[label]
    checks = [
        is_k_satisfiable(
            recipe(size).draw(mu.n, seed), mu, density=density, noise=NOISE
        )
        for seed in range(replicates)
    ]
    c = satisfiability_constant(density)
    yield {"set": name, "sketch": label, "size": size, "c": c, **_summary(checks)}


def _summary(checks: list[Satisfiability]) -> Row:
    within = [
        (v.satisfied, v.distortion <= v.distortion_bound, v.leakage <= v.leakage_bound)
        for v in checks
    ]
    share, distortion, leakage = np.mean(within, axis=0).tolist()
    return {
        "share": share,
        "distortion": distortion,
        "leakage": leakage,
        "draws": len(checks),
        "dimension": checks[0].dimension,
    }


run = Experiment(
    name="satisfiability",
    title="satisfiability: share of draws that are K-satisfiable",
    notes=NOTES,
    replicates=(200, 10),
    points=points,
    measure=measure,
    label="{0}, {2}, s = {3}",
    panels=panels,
)
