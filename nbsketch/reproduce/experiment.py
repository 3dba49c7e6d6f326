"""The contract of an experiment: what is measured where, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from nbsketch._progress import Progress
from nbsketch.reproduce._tools.publish import Report, publish
from nbsketch.reproduce._tools.report import Row


@dataclass(frozen=True, kw_only=True)
class Experiment(Report):
    """A report of rows that are measured point by point; calling it runs it.

    Attributes
    ----------
    replicates : pair of int or None
        Default number of replicates, and that of the quick experiment.
    points : callable
        Takes `replicates`, `quick`, and those of `tuning` and `data_home` that apply,
        and returns the points to measure, tuples.
    measure : callable
        Takes the parts of a point and returns its rows.
    label : str
        Names a point on the progress display, by the places of its parts.
    """

    replicates: tuple[int | None, int | None]
    points: Callable[..., Iterable[tuple[Any, ...]]]
    measure: Callable[..., Iterable[Row]]
    label: str

    @property
    def options(self) -> set[str]:
        """Names of the parameters of a run."""
        figure = {"plot_only"} if self.panels else set()
        return {"out"} | figure | set(signature(self.points).parameters)

    def __call__(
        self,
        replicates: int | None = None,
        quick: bool = False,
        out: Path | None = None,
        plot_only: bool = False,
        **options: Any,
    ) -> list[Row]:
        """Measure and publish (see `nbsketch.reproduce` for the parameters)."""

        def measure() -> list[Row]:
            count = replicates or self.replicates[quick]
            points = list(self.points(count, quick, **options))
            return measure_all(points, self.measure, self.label)

        return publish(self, measure, out, plot_only)


def measure_all(
    points: Sequence[tuple[Any, ...]],
    measure: Callable[..., Iterable[Row]],
    label: str,
) -> list[Row]:
    """Return the rows of all points, and display progress."""
    rows: list[Row] = []
    with Progress(max(1, len(points))) as progress:
        for point in points:
            rows += measure(*point)
            progress.step(label.format(*point))
    return rows
