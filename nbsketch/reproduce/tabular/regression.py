"""Regression with default settings on tabular sets, beside boosted trees and kernels.

Not from a paper: `SketchedKernelRegressor` with its defaults is compared with LightGBM,
scikit-learn's gradient boosting, exact kernel ridge regression and a Nystroem pipeline
on random splits of public sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from nbsketch._progress import Progress
from nbsketch.datasets import Dataset
from nbsketch.reproduce._tools.data import load
from nbsketch.reproduce._tools.panels import Curve, Panel
from nbsketch.reproduce._tools.publish import Report, publish
from nbsketch.reproduce._tools.report import Row, Rows
from nbsketch.reproduce._tools.statistics import column, groups, spread, where
from nbsketch.reproduce.tabular.baselines import (
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
    "deviation over the splits. seconds: median processor time of one fit, including "
    "all choices of hyperparameters.",
    "ratio, times: mean rmse and seconds over those of LightGBM. If LightGBM is not "
    'installed (pip install "nbsketch[compare]"), scikit-learn\'s gradient boosting is '
    "the reference. Geometric means: of methods that ran on all sets.",
    "nbsketch: SketchedKernelRegressor(). One length-scale: bandwidth='median', "
    "preprocessing='standard'; exact ridge: the same without a sketch, up to "
    f"{EXACT_ROWS} training rows. Boosting: 500 trees at learning rate 0.1, stopped "
    "when 50 trees do not help on a held-out tenth. Nystroem: scikit-learn's pipeline "
    "of StandardScaler, Nystroem with 1000 landmarks, and RidgeCV.",
)
# In the order of drawing: the last lies on top.
_DRAWN = (LIGHTGBM, BOOSTING, EXACT, NYSTROEM, ISOTROPIC, DEFAULTS)


def run(
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    data_home: Path | None = None,
    plot_only: bool = False,
) -> list[Row]:
    """Compare the methods (see `nbsketch.reproduce` for the parameters).

    Replicates are random splits: 5, or 1 of two small sets if `quick`.
    """
    count = replicates or (QUICK_REPLICATES if quick else REPLICATES)
    names = QUICK_SETS if quick else SETS
    report = Report(
        "tabular", "tabular: defaults on tabular data", NOTES, panels, summarize
    )
    return publish(report, lambda: measure(names, count, data_home), out, plot_only)


def measure(
    names: Sequence[str], replicates: int, data_home: Path | None = None
) -> list[Row]:
    """Return a row for each set, split and method."""
    sets = {name: load(name, data_home) for name in names}
    warm_up(regressors(), next(iter(sets.values())))
    rows = []
    with Progress(len(sets) * replicates) as progress:
        for name, data in sets.items():
            for split in range(replicates):
                place = {"set": name, "split": split}
                rows += [place | found for found in evaluate(data, split)]
                progress.step(name)
    return rows


def evaluate(data: Dataset, seed: int) -> Iterator[Row]:
    """Fit every method to four fifths of the rows; yield error and time."""
    (X, y), (X_test, y_test) = data.random_split(seed, FRACTIONS)
    for method, fit in regressors().items():
        if method == EXACT and len(y) > EXACT_ROWS:
            continue
        predict, seconds = timed(fit, X, y, seed)
        rmse = float(np.sqrt(np.mean((predict(X_test) - y_test) ** 2)))
        yield {"method": method, "rmse": rmse, "seconds": seconds}


def summarize(rows: Rows) -> list[Row]:
    """Return a row for each set and method, then the geometric means."""
    table = [
        {
            "set": name,
            "method": method,
            **spread("rmse", column(group, "rmse")),
            "seconds": float(np.median(column(group, "seconds"))),
        }
        for (name, method), group in groups(rows, "set", "method").items()
    ]
    table = _compared(table)
    return [*table, *_means(table, MEAN), *_means(table, WITHOUT_YACHT, "yacht")]


def _compared(table: Rows) -> list[Row]:
    """Return rows with their ratios to the reference on the same set."""
    methods = {row["method"] for row in table}
    reference = LIGHTGBM if LIGHTGBM in methods else BOOSTING
    base = {row["set"]: row for row in where(table, method=reference)}
    return [
        {
            **row,
            "ratio": row["rmse"] / base[row["set"]]["rmse"],
            "times": row["seconds"] / base[row["set"]]["seconds"],
        }
        for row in table
    ]


def _means(table: Rows, label: str, without: str = "") -> list[Row]:
    """Return the geometric means of the ratios of every method that ran everywhere."""
    kept = [row for row in table if row["set"] != without]
    n_sets = len({row["set"] for row in kept})
    empty = dict.fromkeys(table[0])
    return [
        {**empty, "set": label, "method": method, **_geometric_means(found)}
        for (method,), found in groups(kept, "method").items()
        if len(found) == n_sets
    ]


def _geometric_means(rows: Rows) -> dict[str, float]:
    names = ("ratio", "times")
    return {name: float(np.exp(np.log(column(rows, name)).mean())) for name in names}


def panels(rows: Rows) -> list[Panel]:
    """Return dots of errors and of times, over those of LightGBM, for each set."""
    table = [row for row in summarize(rows) if row["rmse"] is not None]
    names = tuple(dict.fromkeys(row["set"] for row in table))
    titles = {
        "ratio": "Test error over LightGBM's",
        "times": "Fit time over LightGBM's",
    }
    return [
        Panel(title, "", "Ratio", _dots(table, name, names), "y", names)
        for name, title in titles.items()
    ]


def _dots(table: Rows, name: str, sets: Sequence[str]) -> list[Curve]:
    found = {method: where(table, method=method) for method in _DRAWN}
    return [
        Curve(
            method,
            [sets.index(row["set"]) for row in rows],
            [row[name] for row in rows],
            joined=False,
        )
        for method, rows in found.items()
        if rows
    ]
