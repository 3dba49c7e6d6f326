"""Conditional quantiles with default settings on California housing, beside LightGBM's.

Not from a paper: all levels of `JointQuantileRegressor` in one fit are
compared with one LightGBM for each level, both with their defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from nbsketch._progress import Progress
from nbsketch.datasets import Dataset
from nbsketch.metrics import pinball_loss
from nbsketch.reproduce._data import load
from nbsketch.reproduce._report import Row, Rows, column, groups, spread, where
from nbsketch.reproduce.experiment import publish_table
from nbsketch.reproduce.tabular.baselines import (
    DEFAULTS,
    LIGHTGBM,
    Fit,
    has_lightgbm,
    joint_quantiles,
    timed,
    tree_quantiles,
    warm_up,
)
from nbsketch.reproduce.tabular.problems import FRACTIONS

SET = "california"
LEVELS = (0.1, 0.5, 0.9)
# A smaller sketch than the default, for the trade-off of time and loss.
SIZE = 200
SMALLER = f"nbsketch, size={SIZE}"
REPLICATES, QUICK_REPLICATES, QUICK_ROWS = 3, 1, 1000
NOTES = (
    "pinball: mean pinball loss of the level on the test fifth of a random split, mean "
    "and deviation over the splits. below: share of test targets at most the predicted "
    "quantile. ratio: mean pinball loss over that of LightGBM.",
    "crossing: share of test rows whose predicted quantiles are out of order. seconds: "
    "median processor time of all levels together.",
    "nbsketch: JointQuantileRegressor((0.1, 0.5, 0.9), non_crossing='sort'). LightGBM: "
    "500 trees at learning rate 0.1 for each level, stopped when 50 trees do not help "
    "on a held-out tenth.",
)


def run(
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    data_home: Path | None = None,
) -> list[Row]:
    """Compare the quantiles (see `nbsketch.reproduce` for the parameters).

    Replicates are random splits: 3, or 1 of the first 1000 rows if `quick`.
    """
    data = load(SET, data_home)
    if quick:
        data = replace(data, X=data.X[:QUICK_ROWS], y=data.y[:QUICK_ROWS])
    warm_up(methods(), data)
    rows: list[Row] = []
    count = replicates or (QUICK_REPLICATES if quick else REPLICATES)
    with Progress(count) as progress:
        for split in range(count):
            rows += evaluate(data, split)
            progress.step(data.name)
    name, title = "tabular-quantiles", "Quantiles with default settings"
    return publish_table(summarize(rows), out, name, title, NOTES)


def methods() -> dict[str, Fit]:
    """Return the installed methods by name."""
    ours = {DEFAULTS: joint_quantiles(LEVELS), SMALLER: joint_quantiles(LEVELS, SIZE)}
    return ours | ({LIGHTGBM: tree_quantiles(LEVELS)} if has_lightgbm() else {})


def evaluate(data: Dataset, seed: int) -> Iterator[Row]:
    """Fit four fifths of the rows; yield a row for each method and level."""
    (X, y), (X_test, y_test) = data.random_split(seed, FRACTIONS)
    for method, fit in methods().items():
        predict, seconds = timed(fit, X, y, seed)
        values = predict(X_test)
        crossing = float(np.mean(np.any(np.diff(values, axis=1) < 0, axis=1)))
        for level, predicted in zip(LEVELS, values.T, strict=True):
            yield {
                "method": method,
                "level": level,
                "pinball": pinball_loss(y_test, predicted, level),
                "below": float(np.mean(y_test <= predicted)),
                "crossing": crossing,
                "seconds": seconds,
            }


def summarize(rows: Rows) -> list[Row]:
    """Return a row for each method and level."""
    table = [
        {
            "method": method,
            "level": level,
            **spread("pinball", column(group, "pinball")),
            "below": float(column(group, "below").mean()),
            "crossing": float(column(group, "crossing").mean()),
            "seconds": float(np.median(column(group, "seconds"))),
        }
        for (method, level), group in groups(rows, "method", "level").items()
    ]
    base = {row["level"]: row["pinball"] for row in where(table, method=LIGHTGBM)}
    for row in table:
        row["ratio"] = row["pinball"] / base[row["level"]] if base else None
    return table
