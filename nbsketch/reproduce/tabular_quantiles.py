"""Conditional quantiles by defaults on California housing, beside LightGBM's.

No paper's table: all levels of `JointQuantileRegressor` in one fit, against one
LightGBM for each level, both untouched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nbsketch.datasets import Dataset
from nbsketch.metrics import pinball_loss
from nbsketch.reproduce._progress import Progress
from nbsketch.reproduce._report import Rows, as_text, write
from nbsketch.reproduce._rivals import (
    DEFAULTS,
    LIGHTGBM,
    Fit,
    has_lightgbm,
    joint_quantiles,
    timed,
    tree_quantiles,
    warm_up,
)
from nbsketch.reproduce._sets import load
from nbsketch.reproduce._summary import spread
from nbsketch.reproduce.tabular import FRACTIONS

SET = "california"
LEVELS = (0.1, 0.5, 0.9)
# What a smaller sketch than the default costs, and saves.
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
) -> list[dict[str, Any]]:
    """Compare the quantiles; print the table, write it, and return its rows.

    Parameters
    ----------
    replicates : int, optional
        Random splits: 3, or 1 if `quick`.
    quick : bool
        Whether the first 1000 rows will do.
    out : Path, optional
        Folder for tabular-quantiles.csv and tabular-quantiles.md.
    data_home : Path, optional
        Folder of the data sets: see `nbsketch.datasets`.
    """
    data = load(SET, data_home)
    if quick:
        data = replace(data, X=data.X[:QUICK_ROWS], y=data.y[:QUICK_ROWS])
    warm_up(methods(), data)
    rows: list[dict[str, Any]] = []
    count = replicates or (QUICK_REPLICATES if quick else REPLICATES)
    with Progress(count) as progress:
        for split in range(count):
            rows += evaluate(data, split)
            progress.step(data.name)
    table = summarize(rows)
    print(as_text(table))
    if out is not None:
        write(table, out, "tabular-quantiles", "Quantiles by default", NOTES)
    return table


def methods() -> dict[str, Fit]:
    """Return what is at hand."""
    ours = {DEFAULTS: joint_quantiles(LEVELS), SMALLER: joint_quantiles(LEVELS, SIZE)}
    return ours | ({LIGHTGBM: tree_quantiles(LEVELS)} if has_lightgbm() else {})


def evaluate(data: Dataset, seed: int) -> Iterator[dict[str, Any]]:
    """Fit four fifths of the rows; yield a row for each method and level."""
    (X, y), (X_test, y_test) = data.random_split(seed, FRACTIONS)
    for method, fit in methods().items():
        predict, seconds = timed(fit, X, y, seed)
        values = predict(X_test)
        crossing = float(np.mean(np.any(np.diff(values, axis=1) < 0, axis=1)))
        for level, column in zip(LEVELS, values.T, strict=True):
            yield {
                "method": method,
                "level": level,
                "pinball": pinball_loss(y_test, column, level),
                "below": float(np.mean(y_test <= column)),
                "crossing": crossing,
                "seconds": seconds,
            }


def summarize(rows: Rows) -> list[dict[str, Any]]:
    """Return a row for each method and level."""
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["method"], row["level"]), []).append(row)
    table = [
        _summary(method, level, group) for (method, level), group in groups.items()
    ]
    base = {row["level"]: row["pinball"] for row in table if row["method"] == LIGHTGBM}
    for row in table:
        row["ratio"] = row["pinball"] / base[row["level"]] if base else None
    return table


def _summary(method: str, level: float, group: Rows) -> dict[str, Any]:
    return {
        "method": method,
        "level": level,
        **spread("pinball", (row["pinball"] for row in group)),
        "below": float(np.mean([row["below"] for row in group])),
        "crossing": float(np.mean([row["crossing"] for row in group])),
        "seconds": float(np.median([row["seconds"] for row in group])),
    }
