"""Methods of Tables 1 and 2, the published figures, and the rows of these tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nbsketch.reproduce._report import Row, Rows, column, groups, spread
from nbsketch.sketches import (
    AccumulationSketch,
    CountSketch,
    IdentitySketch,
    PSparsifiedSketch,
    SketchRecipe,
)

WITHOUT = "without sketch"
SPARSIFIED = ("20/n-SR", "20/n-SG")
# Rows that a row of an accumulation sketch adds up.
ACCUMULATED = 20
METHODS: dict[str, Callable[[int], SketchRecipe]] = {
    WITHOUT: lambda size: IdentitySketch(),
    "20/n-SR": lambda size: PSparsifiedSketch(size, law="rademacher"),
    "20/n-SG": lambda size: PSparsifiedSketch(size, law="gaussian"),
    "accumulation": lambda size: AccumulationSketch(size, ACCUMULATED),
    "CountSketch": CountSketch,
}


class Published(NamedTuple):
    """The paper's mean loss and training time in seconds."""

    paper: float | None = None
    paper_seconds: float | None = None


def published(
    losses: Sequence[float], seconds: Sequence[float]
) -> dict[str, Published]:
    """Return the figures of a row of the paper's table by method."""
    pairs = map(Published, losses, seconds)
    return dict(zip(METHODS, pairs, strict=True))


def compare(
    rows: Rows,
    losses: Sequence[str],
    typical: Callable[[Any], Any],
    paper: dict[str, dict[str, Published]],
) -> list[Row]:
    """Return a row for each set and method: mean and deviation of losses, and times.

    Parameters
    ----------
    rows : sequence of dict
        Losses and "seconds" of each replicate. In each set the method without a sketch
        comes first: speed-ups refer to its time.
    losses : sequence of str
        The columns with losses.
    typical : callable
        Makes one number of the seconds of all replicates.
    paper : dict
        The figures of the paper by set and method; without a set, none are added.
    """
    table: list[Row] = []
    exact: dict[str, float] = {}
    for (name, method), group in groups(rows, "set", "method").items():
        row: Row = {"set": name, "method": method}
        for loss in losses:
            row |= spread(loss, column(group, loss))
        row |= {"seconds": float(typical(column(group, "seconds"))), "faster": None}
        if method == WITHOUT:
            exact[name] = row["seconds"]
        elif name in exact:
            row["faster"] = exact[name] / row["seconds"]
        if paper:
            row |= paper.get(name, {}).get(method, Published())._asdict()
        table.append(row)
    return table
