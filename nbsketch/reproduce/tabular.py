"""Regression by defaults on tabular sets, beside boosted trees and other kernels.

No paper's table: what `SketchedKernelRegressor` does untouched, measured against
LightGBM, scikit-learn's gradient boosting, exact kernel ridge and a Nystroem pipeline
on random splits of public sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nbsketch import plots
from nbsketch.datasets import Dataset
from nbsketch.reproduce._progress import Progress
from nbsketch.reproduce._publish import Report, publish
from nbsketch.reproduce._report import Rows, as_text
from nbsketch.reproduce._rivals import (
    BOOSTING,
    DEFAULTS,
    EXACT,
    EXACT_ROWS,
    ISOTROPIC,
    LIGHTGBM,
    NYSTROEM,
    regressors,
    timed,
    warm_up,
)
from nbsketch.reproduce._sets import load
from nbsketch.reproduce._summary import spread

SETS = (
    "concrete",
    "airfoil",
    "autompg",
    "yacht",
    "boston",
    "powerplant",
    "california",
)
QUICK_SETS = ("autompg", "yacht")
REPLICATES, QUICK_REPLICATES = 5, 1
FRACTIONS = (0.8, 0.2)
MEAN, WITHOUT_YACHT = "geometric mean", "geometric mean without yacht"
NOTES = (
    "rmse: root mean squared error on the test fifth of a random split, mean and "
    "deviation over the splits. seconds: median processor time of one fit, all choices "
    "that the method makes for itself included.",
    "ratio, times: mean rmse and seconds over those of LightGBM; where it is not "
    'installed (pip install "nbsketch[compare]") its rows are missing, and '
    "scikit-learn's gradient boosting takes its place. Geometric means: of methods "
    "that ran on all sets.",
    "nbsketch: SketchedKernelRegressor(). One length-scale: bandwidth='median', "
    "preprocessing='standard'; exact ridge: the same without a sketch, up to "
    f"{EXACT_ROWS} training rows. Boosting: 500 trees at learning rate 0.1, stopped "
    "when 50 trees do not help on a held-out tenth. Nystroem: scikit-learn's pipeline "
    "of StandardScaler, Nystroem with 1000 landmarks, and RidgeCV.",
)
# In the order of drawing: the last lies on top.
_LOOKS = {
    LIGHTGBM: ("#000000", "s"),
    BOOSTING: ("#969696", "s"),
    EXACT: ("#d95f02", "v"),
    NYSTROEM: ("#1b9e77", "P"),
    ISOTROPIC: ("#9ecae1", "o"),
    DEFAULTS: ("#1764ab", "o"),
}


def run(
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    data_home: Path | None = None,
    plot_only: bool = False,
) -> list[dict[str, Any]]:
    """Compare the methods; write and print the table, and return its rows.

    Parameters
    ----------
    replicates : int, optional
        Random splits: 5, or 1 if `quick`.
    quick : bool
        Whether two small sets will do.
    out : Path, optional
        Folder for tabular.csv (every fit), tabular.md and tabular.png: "results" by
        default.
    data_home : Path, optional
        Folder of the data sets: see `nbsketch.datasets`.
    plot_only : bool
        Whether to start from tabular.csv, without fitting.
    """
    count = replicates or (QUICK_REPLICATES if quick else REPLICATES)
    names = QUICK_SETS if quick else SETS
    title = "Defaults on tabular data"
    report = Report("tabular", title, NOTES, summarize, panels)
    table = publish(report, lambda: measure(names, count, data_home), out, plot_only)
    print(as_text(table))
    return table


def measure(
    names: Sequence[str], replicates: int, data_home: Path | None = None
) -> list[dict[str, Any]]:
    """Return a row for each set, split and method."""
    sets = {name: load(name, data_home) for name in names}
    warm_up(regressors(), next(iter(sets.values())))
    rows = []
    with Progress(len(sets) * replicates) as progress:
        for name, data in sets.items():
            for split in range(replicates):
                where = {"set": name, "split": split}
                rows += [where | found for found in evaluate(data, split)]
                progress.step(name)
    return rows


def evaluate(data: Dataset, seed: int) -> Iterator[dict[str, Any]]:
    """Fit every method to four fifths of the rows; yield error and time."""
    (X, y), (X_test, y_test) = data.random_split(seed, FRACTIONS)
    for method, fit in regressors().items():
        if method == EXACT and len(y) > EXACT_ROWS:
            continue
        predict, seconds = timed(fit, X, y, seed)
        rmse = float(np.sqrt(np.mean((predict(X_test) - y_test) ** 2)))
        yield {"method": method, "rmse": rmse, "seconds": seconds}


def summarize(rows: Rows) -> list[dict[str, Any]]:
    """Return a row for each set and method, then the geometric means."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["set"], row["method"]), []).append(row)
    table = [
        {
            "set": name,
            "method": method,
            **spread("rmse", (row["rmse"] for row in group)),
            "seconds": float(np.median([row["seconds"] for row in group])),
        }
        for (name, method), group in groups.items()
    ]
    table = _compared(table)
    return [*table, *_means(table, MEAN), *_means(table, WITHOUT_YACHT, "yacht")]


def _compared(table: Rows) -> list[dict[str, Any]]:
    """Return rows with their ratios to the reference on the same set."""
    methods = {row["method"] for row in table}
    reference = LIGHTGBM if LIGHTGBM in methods else BOOSTING
    base = {row["set"]: row for row in table if row["method"] == reference}
    return [
        {
            **row,
            "ratio": row["rmse"] / base[row["set"]]["rmse"],
            "times": row["seconds"] / base[row["set"]]["seconds"],
        }
        for row in table
    ]


def _means(table: Rows, label: str, without: str = "") -> list[dict[str, Any]]:
    """Return the geometric means of the ratios of every method that ran everywhere."""
    kept = [row for row in table if row["set"] != without]
    n_sets = len({row["set"] for row in kept})
    result = []
    for method in dict.fromkeys(row["method"] for row in kept):
        found = [row for row in kept if row["method"] == method]
        if len(found) == n_sets:
            means = {name: _geometric(found, name) for name in ("ratio", "times")}
            result.append(dict.fromkeys(table[0]) | {"set": label, "method": method})
            result[-1] |= means
    return result


def _geometric(rows: Rows, name: str) -> float:
    return float(np.exp(np.mean(np.log([row[name] for row in rows]))))


def panels(rows: Rows) -> list[plots.Panel]:
    """Return dots of errors and of times, over those of LightGBM, for each set."""
    table = [row for row in summarize(rows) if row["rmse"] is not None]
    names = tuple(dict.fromkeys(row["set"] for row in table))
    places = {name: i for i, name in enumerate(names)}
    titles = {
        "ratio": "Test error over LightGBM's",
        "times": "Fit time over LightGBM's",
    }
    return [
        plots.Panel(title, "", "Ratio", _dots(table, column, places), "y", names)
        for column, title in titles.items()
    ]


def _dots(table: Rows, column: str, places: dict[str, int]) -> list[plots.Curve]:
    curves = []
    for method, (color, marker) in _LOOKS.items():
        found = [row for row in table if row["method"] == method]
        x = [places[row["set"]] for row in found]
        y = [row[column] for row in found]
        if found:
            curve = plots.Curve(method, x, y, None, color, marker, joined=False)
            curves.append(curve)
    return curves
