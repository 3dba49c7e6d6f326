"""Share of draws of a sketch that are K-satisfiable, against its size.

K-satisfiability is the condition of the theory of sketched kernel ridge regression
(Yang, Pilanci and Wainwright, Ann. Stat. 2017; El Ahmad, Laforgue and d'Alche-Buc, TMLR
2023). It is checked for each draw with `nbsketch.diagnostics.is_k_satisfiable`, on
uniform inputs and on inputs with outliers.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

from nbsketch import diagnostics
from nbsketch.datasets import make_friedman_outliers
from nbsketch.reproduce import ENTRIES
from nbsketch.reproduce._data import sketch_of
from nbsketch.reproduce._figures import Panel, curves_of
from nbsketch.reproduce._report import Row, Rows, groups
from nbsketch.reproduce.experiment import Experiment, Points

N_ROWS = 600
SIZES = ENTRIES["satisfiability"]["sizes"]
# In units where the norm of the regression function is 1, the statistical dimension is
# that of the first block of eigenvalues, and of the outliers if any.
NOISE = 0.5
SETS = {"uniform": 0, "outliers": None}


# The density determines c, for sketches that have one.
SKETCHES = ENTRIES["satisfiability"]["sketches"]


def points(replicates: int, quick: bool) -> Points:
    """Yield set, its spectrum, sketch, size and the number of draws."""
    for name, n_outliers in SETS.items():
        X, _ = make_friedman_outliers(N_ROWS, n_outliers=n_outliers, random_state=0)
        for label, size in product(SKETCHES, SIZES[quick]):
            yield name, diagnostics.spectrum(X), label, size, replicates


def measure(
    name: str, mu: diagnostics.Spectrum, label: str, size: int, replicates: int
) -> Iterator[Row]:
    """Yield the shares over the draws of a sketch."""
    recipe = sketch_of(label, size, mu.n)
    density = getattr(recipe, "density", 1.0)
    draws = [recipe.draw(mu.n, seed) for seed in range(replicates)]
    checks = [
        diagnostics.is_k_satisfiable(draw, mu, density=density, noise=NOISE)
        for draw in draws
    ]
    within = {
        "share": [v.satisfied for v in checks],
        "distortion": [v.distortion <= v.distortion_bound for v in checks],
        "leakage": [v.leakage <= v.leakage_bound for v in checks],
    }
    c = diagnostics.satisfiability_constant(density)
    row = {"set": name, "sketch": label, "size": size, "c": c}
    row |= {key: np.mean(values) for key, values in within.items()}
    yield row | {"draws": replicates, "dimension": checks[0].dimension}


def panels(rows: Rows) -> list[Panel]:
    """Return one panel for each set, with a curve for each sketch."""
    return [
        Panel(
            f"{name}, $d_n = {group[0]['dimension']}$",
            "Sketch size s",
            "Share",
            curves_of(group, "sketch", "size", "share"),
        )
        for (name,), group in groups(rows, "set").items()
    ]


run = Experiment("satisfiability", points, measure, panels=panels)
