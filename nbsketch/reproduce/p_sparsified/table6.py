"""Table 6 of the p-sparsified paper: Table 2 for each of its 48 targets.

El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023, appendix H.2: relative root mean squared
errors on the test rows, and the range of those that Spyromitros-Xioufis et al. (2016)
have with other methods. Data, sketches and settings are those of `table2`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbsketch.reproduce._data import Split
from nbsketch.reproduce._report import Row, Rows, column, groups, read_csv, where
from nbsketch.reproduce.experiment import Experiment
from nbsketch.reproduce.p_sparsified import table2
from nbsketch.reproduce.p_sparsified.methods import METHODS

# Targets in the order of the columns of the data, and their figures in the paper.
PAPER = read_csv(Path(__file__).with_name("table6_paper.csv"))
NOTES = (
    "Relative root mean squared error of each target on the published test rows, mean "
    "over the draws of the sketch; paper: that of Table 6.",
    "low, high: the range over other methods that the paper cites.",
)


def points(
    replicates: int, quick: bool, data_home: Path | None = None
) -> Iterator[tuple[Any, ...]]:
    """Yield those points of Table 2 whose methods are in Table 6."""
    for point in table2.points(replicates, quick, data_home=data_home):
        if point[1] in METHODS:
            yield point


def measure(
    name: str, method: str, split: Split, setting: table2.Setting, seed: int
) -> Iterator[Row]:
    """Yield the error of each target in one fit."""
    errors, _ = table2.errors_of(split, method, table2.SIZE, setting, seed)
    for known, error in zip(where(PAPER, set=name), errors, strict=True):
        yield {**known, "method": method, "error": float(error)}


def summarize(rows: Rows) -> list[Row]:
    """Return a row for each target, each method beside its figure in the paper."""
    table = []
    for (name, target), found in groups(rows, "set", "target").items():
        row: Row = {"set": name, "target": target}
        for (method,), one in groups(found, "method").items():
            row[method] = float(column(one, "error").mean())
            row[f"{method}, paper"] = one[0][method]
        table.append(row | {"low": found[0]["low"], "high": found[0]["high"]})
    return table


run = Experiment(
    name="table6",
    title=f"Table 6: errors of the targets, s = {table2.SIZE}",
    notes=NOTES,
    replicates=(30, 3),
    points=points,
    measure=measure,
    label="{0} {1}",
    summarize=summarize,
)
