"""Methods of Tables 1 and 2, the published figures, and the rows of these tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from nbsketch._progress import Progress
from nbsketch.reproduce._tools.report import Row
from nbsketch.reproduce._tools.statistics import column, spread
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


def compare(
    name: str,
    methods: Iterable[str],
    evaluate: Callable[[str], Iterable[Row]],
    typical: Callable[[Any], Any],
    progress: Progress,
) -> list[Row]:
    """Return a row for each method: mean and deviation of each loss, and the time.

    Parameters
    ----------
    name : str
        Data set.
    methods : iterable of str
        The method without a sketch comes first: speed-ups refer to its time.
    evaluate : callable
        Yields losses and "seconds" of each replicate of a method.
    typical : callable
        Makes one number of the seconds of all replicates.
    progress : Progress
        Counts the replicates.
    """
    rows: list[Row] = []
    before = None
    for method in methods:
        results = []
        for result in evaluate(method):
            results.append(result)
            progress.step(f"{name} {method}")
        seconds = float(typical(column(results, "seconds")))
        before = seconds if method == WITHOUT else before
        faster = before / seconds if before and method != WITHOUT else None
        row: Row = {"set": name, "method": method}
        for loss in [key for key in results[0] if key != "seconds"]:
            row |= spread(loss, column(results, loss))
        rows.append(row | {"seconds": seconds, "faster": faster})
    return rows
