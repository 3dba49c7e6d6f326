"""The contract of an experiment: what is measured where, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from nbsketch._progress import Progress
from nbsketch.plots import require_matplotlib
from nbsketch.reproduce._figures import Panel, save_panels
from nbsketch.reproduce._report import (
    Row,
    Rows,
    as_text,
    read_csv,
    read_provenance,
    write_csv,
    write_markdown,
    write_provenance,
)

RESULTS = Path("results")


@dataclass(frozen=True)
class Report:
    """What is made of the rows that an experiment measures.

    Attributes
    ----------
    name, title : str
        Name of the files, and heading of page and figure.
    notes : sequence of str
        Paragraphs below the table.
    panels : callable, optional
        Makes the figure of the measured rows.
    summarize : callable
        Makes the rows of the table of the measured rows; by default they are the same.
    printed : callable
        Selects the rows of the table that are printed; all by default.
    """

    name: str
    title: str
    notes: Sequence[str]
    panels: Callable[[Rows], list[Panel]] | None = None
    summarize: Callable[[Rows], list[Row]] = list
    printed: Callable[[Rows], list[Row]] = list


def publish(
    report: Report,
    measure: Callable[[], list[Row]],
    out: Path | None = None,
    plot_only: bool = False,
) -> list[Row]:
    """Write the files of an experiment, print and return its table.

    Parameters
    ----------
    report : Report
        The names, and the functions that make table and figure.
    measure : callable
        Returns the rows of NAME.csv; without a figure, those that are summarized in it.
    out : Path, optional
        Folder of the files: "results" by default with a figure, else none is written.
    plot_only : bool, default=False
        Whether to read NAME.csv instead of measuring.
    """
    if report.panels is None:
        table = report.summarize(measure())
        return publish_table(table, out, report.name, report.title, report.notes)
    require_matplotlib()
    file = (out or RESULTS) / f"{report.name}.csv"
    if plot_only:
        rows = _read(file)
    else:
        rows = measure()
        write_csv(rows, file)
        write_provenance(file)
    table = report.summarize(rows)
    notes = [*report.notes, read_provenance(file)]
    write_markdown(table, file.with_suffix(".md"), report.title, notes)
    save_panels(report.panels(rows), report.title, file.with_suffix(".png"))
    print(f"Written: {file}, .md and .png\n\n{as_text(report.printed(table))}\n")
    return table


def publish_table(
    table: list[Row], out: Path | None, name: str, title: str, notes: Sequence[str]
) -> list[Row]:
    """Print a table and return it; write NAME.csv, .json and .md if `out` is given."""
    if not table:  # no data set was there
        return table
    print(f"{as_text(table)}\n")
    if out is not None:
        file = out / f"{name}.csv"
        write_csv(table, file)
        notes = [*notes, write_provenance(file)]
        write_markdown(table, file.with_suffix(".md"), title, notes)
    return table


def _read(path: Path) -> list[Row]:
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist, nothing to plot: run without --plot-only first"
        )
    return read_csv(path)


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
