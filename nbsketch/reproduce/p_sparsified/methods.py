"""Methods of Tables 1 and 2, the published figures, and a row of these tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nbsketch.reproduce._tools.report import Row, Rows
from nbsketch.reproduce._tools.statistics import column, spread, timing
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

    loss: float | None = None
    seconds: float | None = None


def published(
    losses: Sequence[float], seconds: Sequence[float]
) -> dict[str, Published]:
    """Return the figures of a row of the paper's table by method."""
    pairs = map(Published, losses, seconds)
    return dict(zip(METHODS, pairs, strict=True))


def summary(
    name: str,
    method: str,
    results: Rows,
    typical: Callable[[Any], Any],
    seconds_without: float | None,
) -> Row:
    """Return a row of a table: mean and deviation of each loss, and the time.

    Parameters
    ----------
    name, method : str
        Data set and method.
    results : sequence of dict
        Losses and "seconds" of each replicate.
    typical : callable
        Makes one number of the seconds of all replicates.
    seconds_without : float or None
        Time without a sketch, which the speed-up refers to; None for no speed-up.
    """
    row: Row = {"set": name, "method": method}
    for loss in results[0]:
        if loss != "seconds":
            row |= spread(loss, column(results, loss))
    return row | timing(float(typical(column(results, "seconds"))), seconds_without)
