"""Results as rows: a table on the terminal, a CSV file and a Markdown file."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Rows = Sequence[dict[str, Any]]


def as_text(rows: Rows) -> str:
    """Return rows as an aligned table."""
    cells = _cells(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def as_markdown(rows: Rows, title: str, notes: Sequence[str] = ()) -> str:
    """Return rows as a Markdown page."""
    head, *body = ["| " + " | ".join(row) + " |" for row in _cells(rows)]
    rule = "|" + " --- |" * len(rows[0])
    return "\n".join([f"# {title}", "", head, rule, *body, "", *notes, ""])


def write(
    rows: Rows, folder: Path, name: str, title: str, notes: Sequence[str]
) -> None:
    """Write NAME.csv, with all digits, and NAME.md into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    page = as_markdown(rows, title, notes)
    (folder / f"{name}.md").write_text(page, encoding="utf-8")


def _cells(rows: Rows) -> list[list[str]]:
    return [list(rows[0]), *([_cell(v) for v in row.values()] for row in rows)]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 0.1 else f"{value:.3f}"
    return str(value)
