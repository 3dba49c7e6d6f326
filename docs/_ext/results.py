"""Directive ``results``: a table of the rows that an experiment wrote to a CSV file.

::

    .. results:: table2

       Set: {set}
       aRRMSE: {arrmse:.3f} ± {arrmse_deviation:.3f} [{paper:.3f}]

Each line of the body is a column: its heading and a format of the fields of a row.
Empty fields are omitted, with brackets and signs around them. ``:where:`` keeps rows
with the given values (``size=100, method=ridge``). ``:across: set`` repeats the last
column for every value of a field, which is its heading. ``:figure:`` draws the figure
of the experiment below the table; without a body there is only the figure.
``:columns: NAME`` takes the body of an earlier table of the page. Files
paper_NAME.csv have published figures, which no command has measured.
"""

import contextlib
import io
import re
import shutil
import string
import tempfile
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from docutils.statemachine import StringList
from history_figure import draw_history

from nbsketch.reproduce import EXPERIMENTS, options_of, run_one
from nbsketch.reproduce._report import read_csv, read_provenance

RESULTS = Path(__file__).parents[1] / "results"
FIGURES = Path(__file__).parents[1] / "auto_results"
# Figures of results that are no experiments: functions of the rows and a folder.
_DRAWN = {"history": draw_history}
_EMPTY = re.compile(r"\s*(\[\s*\]|\(\s*\)|±\s*(?=$|\[))")


class _Fields(string.Formatter):
    """Format that writes nothing for a missing number."""

    def format_field(self, value, spec):
        return "" if value is None else super().format_field(value, spec)


def table_of(name):
    """Return the rows of the table of an experiment; draw its figure if it has one."""
    file = RESULTS / f"{name}.csv"
    if name in _DRAWN:
        FIGURES.mkdir(exist_ok=True)
        rows = read_csv(file)
        _DRAWN[name](rows, FIGURES)
        return rows
    if name not in EXPERIMENTS or not _has_figure(name):
        return read_csv(file)
    with tempfile.TemporaryDirectory() as folder:
        for path in RESULTS.glob(f"{name}*"):
            shutil.copy(path, folder)
        with contextlib.redirect_stdout(io.StringIO()):
            rows = run_one(name, out=Path(folder), plot_only=True)
        FIGURES.mkdir(exist_ok=True)
        for path in Path(folder).glob("*.png"):
            shutil.copy(path, FIGURES)
    return rows


def _has_figure(name):
    return "plot_only" in options_of(name)


class Results(Directive):
    """The directive."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {
        "where": directives.unchanged,
        "across": directives.unchanged,
        "figure": directives.flag,
        "command": directives.unchanged,
        "columns": directives.unchanged,
    }

    def run(self):
        """Return the table, the figure and a sentence about the measurement."""
        name = self.arguments[0]
        env = self.state.document.settings.env
        env.note_dependency(str(RESULTS / f"{name}.csv"))
        bodies = env.temp_data.setdefault("results", {})
        if "columns" in self.options:
            self.content = bodies[self.options["columns"]]
        bodies.setdefault(name, self.content)
        rows = [row for row in table_of(name) if self._is_wanted(row)]
        text = []
        if self.content:
            text += self._table(rows)
        if "figure" in self.options:
            text += ["", f".. image:: /auto_results/{name}.png", f"   :alt: {name}", ""]
        if not name.startswith("paper_"):
            command = self.options.get("command", f"nbsketch reproduce {name}")
            said = read_provenance(RESULTS / f"{name}.csv")
            line = f".. rst-class:: provenance\n\n``{command}``. {said}".rstrip()
            text += ["", line, ""]
        lines = "\n".join(text).split("\n")
        box = nodes.container()
        self.state.nested_parse(StringList(lines, name), 0, box)
        return box.children

    def _is_wanted(self, row):
        pairs = re.findall(r"([\w-]+)=([^,]+)", self.options.get("where", ""))
        return all(str(row[key]) == value.strip() for key, value in pairs)

    def _table(self, rows):
        columns = [line.split(":", 1) for line in self.content if line.strip()]
        titles = [title.strip() for title, _ in columns]
        body = [[_cell(form, row) for _, form in columns] for row in rows]
        if "across" in self.options:
            heads = [str(row[self.options["across"]]) for row in rows]
            titles, body = _spread_last(titles, body, heads)
        text = ["", ".. list-table::", "   :header-rows: 1", ""]
        for cells in [titles, *body]:
            text += [f"   {'* ' if j == 0 else '  '}- {c}" for j, c in enumerate(cells)]
        return [*text, ""]


def _cell(form, row):
    return _EMPTY.sub("", _Fields().vformat(form, (), row)).strip()


def _spread_last(titles, body, heads):
    """Give each of `heads` a column of the last cells; join rows that start alike."""
    columns = list(dict.fromkeys(heads))
    joined = {}
    for cells, head in zip(body, heads, strict=True):
        joined.setdefault(tuple(cells[:-1]), {})[head] = cells[-1]
    rows = [
        [*start, *(found.get(column, "") for column in columns)]
        for start, found in joined.items()
    ]
    return [*titles[:-1], *columns], rows


def setup(app):
    """Register the directive."""
    app.add_directive("results", Results)
    return {"parallel_read_safe": True}
