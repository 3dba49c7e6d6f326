"""From measurements to files: a CSV file of all, a Markdown table, a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nbsketch import plots
from nbsketch.reproduce._report import Rows, read_csv, write_csv, write_markdown

# Where files go unless a folder is given.
OUT = Path("results")


class Report(NamedTuple):
    """What is made of the rows that an experiment measures.

    `summarize` makes the rows of the table, and `panels` the picture, both from all
    that was measured.
    """

    name: str
    title: str
    notes: Sequence[str]
    summarize: Callable[[Rows], list[dict[str, Any]]]
    panels: Callable[[Rows], list[plots.Panel]]


def publish(
    report: Report,
    measure: Callable[[], list[dict[str, Any]]],
    out: Path | None = None,
    plot_only: bool = False,
) -> list[dict[str, Any]]:
    """Write NAME.csv, NAME.md and NAME.png, say so, and return the rows of the table.

    Parameters
    ----------
    report : Report
        The names and what to make of the rows.
    measure : callable
        Returns what goes into the CSV file.
    out : Path, optional
        Folder of the files: "results" by default.
    plot_only : bool
        Whether the CSV file is read instead.
    """
    plots.require_matplotlib()
    file = (out or OUT) / f"{report.name}.csv"
    if plot_only:
        rows = _read(file)
    else:
        rows = measure()
        write_csv(rows, file)
    table = report.summarize(rows)
    title = f"{report.name}: {report.title}"
    write_markdown(table, file.with_suffix(".md"), title, report.notes)
    plots.draw(report.panels(rows), report.title, file.with_suffix(".png"))
    print(f"Written: {file} and, beside it, .md and .png\n")
    return table


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is not there to be drawn again: run without --plot-only first"
        )
    return read_csv(path)
