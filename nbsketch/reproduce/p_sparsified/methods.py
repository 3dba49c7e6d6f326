"""Methods of Tables 1 and 2, the published figures, and the rows of these tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nbsketch import sketches
from nbsketch.reproduce._report import Row, Rows, read_csv, summarized, where

WITHOUT = "without sketch"
SPARSIFIED = ("20/n-SR", "20/n-SG")
# End of the names of methods with the settings of the authors' program.
PROGRAM = ", program"
# Rows that a row of an accumulation sketch adds up.
ACCUMULATED = 20
METHODS: dict[str, Callable[[int], sketches.SketchRecipe]] = {
    WITHOUT: lambda size: sketches.IdentitySketch(),
    "20/n-SR": lambda size: sketches.PSparsifiedSketch(size, law="rademacher"),
    "20/n-SG": lambda size: sketches.PSparsifiedSketch(size, law="gaussian"),
    "accumulation": lambda size: sketches.AccumulationSketch(size, ACCUMULATED),
    "CountSketch": sketches.CountSketch,
}
# Mean loss and training time in seconds of the paper's tables.
PAPER = read_csv(Path(__file__).with_name("paper.csv"))


def compare(
    rows: Rows, losses: Sequence[str], typical: Callable[[Any], Any], paper: Rows = ()
) -> list[Row]:
    """Return a row for each set and method: mean and deviation of losses, and times.

    Parameters
    ----------
    rows : sequence of dict
        Losses and "seconds" of each replicate. Speed-ups refer to the time of the
        method without a sketch.
    losses : sequence of str
        The columns with losses.
    typical : callable
        Makes one number of the seconds of all replicates.
    paper : sequence of dict
        `PAPER`, to add its columns; by default there are none.
    """
    table = summarized(rows, ("set", "method"), {"seconds": typical}, losses)
    exact = {row["set"]: row["seconds"] for row in where(table, method=WITHOUT)}
    for row in table:
        name, method = row["set"], row["method"]
        is_compared = method != WITHOUT and name in exact
        row["faster"] = exact[name] / row["seconds"] if is_compared else None
        if paper:
            published = where(paper, set=name, method=method.removesuffix(PROGRAM))
            for key in ("paper", "paper_seconds"):
                row[key] = published[0][key] if published else None
    return table
