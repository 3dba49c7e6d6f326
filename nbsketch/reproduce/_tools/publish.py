"""From measurements to a printed table and files: CSV, JSON, Markdown and PNG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbsketch.plots import require_matplotlib
from nbsketch.reproduce._tools.panels import Panel, save_panels
from nbsketch.reproduce._tools.provenance import read_provenance, write_provenance
from nbsketch.reproduce._tools.report import (
    Row,
    Rows,
    as_text,
    read_csv,
    write_csv,
    write_markdown,
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
