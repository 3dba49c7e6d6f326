"""Interface of an experiment: points to measure, table and figure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from nbsketch._report.progress import counted
from nbsketch.plots import require_matplotlib
from nbsketch.reproduce import ENTRIES, _report
from nbsketch.reproduce._figures import Panel, save_panels
from nbsketch.reproduce._report import Row, Rows

RESULTS = Path("results")
# Points to measure: the arguments of each call of `measure`.
Points = Iterable[tuple[Any, ...]]


@dataclass(frozen=True)
class Experiment:
    """Rows measured point by point, with their table and figure; call it to run.

    Attributes
    ----------
    name : str
        Name of the files, and of the entry of ``experiments.toml`` with the texts.
    points : callable
        Takes `replicates`, `quick`, and the other options that apply, and returns the
        points to measure, tuples.
    measure : callable
        Takes the parts of a point and returns its rows; with a `key`, also takes the
        list of the rows so far as `measured`.
    summarize : callable
        Returns the rows of the table from the measured rows. Default: the same rows.
    panels : callable, optional
        Returns the figure of the measured rows, which are then written to NAME.csv;
        without a figure, the rows of the table are.
    printed : callable
        Selects the rows of the table to print. Default: all.
    tables : callable
        Returns further tables of the measured rows, each for a file NAME-KEY.csv.
    remarks : callable
        Returns further notes.
    key : sequence of str
        Columns that identify a row. With them, the rows of an existing file are kept
        unless measured again, and each row is written when it is measured.
    """

    name: str
    points: Callable[..., Points]
    measure: Callable[..., Iterable[Row]]
    summarize: Callable[[Rows], Rows] = list
    panels: Callable[[Rows], list[Panel]] | None = None
    printed: Callable[[Rows], Rows] = list
    tables: Callable[[Rows], dict[str, Rows]] = lambda rows: {}
    remarks: Callable[[], Sequence[str]] = tuple
    key: Sequence[str] = ()

    @property
    def entry(self) -> dict[str, Any]:
        """The texts and numbers of the experiment."""
        entry = ENTRIES[self.name]
        return ENTRIES.get(entry.get("like", ""), {}) | entry

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
    ) -> Rows:
        """Measure and publish (see `nbsketch.reproduce` for the parameters)."""
        folder = out
        if self.panels:
            require_matplotlib()
            folder = out or RESULTS
        file = folder / f"{self.name}.csv" if folder else None
        if file and plot_only:
            if not file.exists():
                raise FileNotFoundError(
                    f"{file} does not exist, nothing to plot: run without --plot-only "
                    "first"
                )
            return self.publish(_report.read_csv(file), file, is_measured=False)
        count = replicates or self.entry["replicates"][quick]
        points = list(self.points(count, quick, **options))
        return self.publish(self._measured(points, file), file)

    def _measured(self, points: Sequence[tuple[Any, ...]], file: Path | None) -> Rows:
        """Return the rows of all points; with a `key`, also those of the file."""
        label = self.entry["label"]
        if not self.key:
            return measure_all(points, self.measure, label)
        rows = _report.read_csv(file) if file and file.exists() else []
        measure_all(points, partial(self.measure, measured=rows), label, rows, file)
        return list({tuple(row[n] for n in self.key): row for row in rows}.values())

    def publish(self, rows: Rows, file: Path | None, is_measured: bool = True) -> Rows:
        """Write the files, print and return the table of measured rows."""
        table = self.summarize(rows)
        if not table:  # no data set was available
            return table
        if file and is_measured:
            _report.write_csv(rows if self.panels else table, file)
            _report.write_provenance(file)
        if file:
            text = f"{self.entry.get('preface', '')}\n\n{self.entry['notes']}".strip()
            notes = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
            notes += [*self.remarks(), _report.read_provenance(file)]
            page = _report.as_markdown(table, self.entry["title"], notes)
            file.with_suffix(".md").write_text(page, encoding="utf-8")
            for name, part in self.tables(rows).items():
                if part:
                    _report.write_csv(part, file.with_stem(f"{file.stem}-{name}"))
        if file and self.panels:
            title = self.entry["title"]
            save_panels(self.panels(rows), title, file.with_suffix(".png"))
            print(f"Written: {file}, .md and .png\n")
        print(f"{_report.as_text(self.printed(table))}\n")
        return table


def measure_all(
    points: Sequence[tuple[Any, ...]],
    measure: Callable[..., Iterable[Row]],
    label: str,
    rows: Rows | None = None,
    file: Path | None = None,
) -> Rows:
    """Append the rows of all points to `rows` and to a CSV file, and return `rows`."""
    rows = [] if rows is None else rows
    for point in counted(points, lambda point: label.format(*point)):
        for row in map(_report.plain, measure(*point)):
            rows.append(row)
            if file:
                _report.write_csv([row], file, "a" if file.exists() else "w")
    return rows
