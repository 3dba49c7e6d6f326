"""Rows of results as text, Markdown and CSV; a CSV file keeps all digits."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Rows = Sequence[Row]


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
    """Return rows as a Markdown page; each note is a paragraph."""
    head, *body = ["| " + " | ".join(row) + " |" for row in _cells(rows)]
    rule = "|" + " --- |" * len(rows[0])
    return "\n".join([f"# {title}", "", head, rule, *body, "", "\n\n".join(notes), ""])


def write_csv(rows: Rows, path: Path) -> None:
    """Write rows to a CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def append_csv(row: Row, path: Path) -> None:
    """Write a row to the end of a CSV file with its columns, which may be new."""
    if not path.exists():
        return write_csv([row], path)
    with path.open("a", newline="", encoding="utf-8") as file:
        csv.DictWriter(file, fieldnames=list(row)).writerow(row)


def write_markdown(rows: Rows, path: Path, title: str, notes: Sequence[str]) -> None:
    """Write rows to a Markdown file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_markdown(rows, title, notes), encoding="utf-8")


def read_csv(path: Path) -> list[Row]:
    """Return the rows of a CSV file, numbers as numbers, empty cells as None."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {name: _value(text) for name, text in row.items()}
            for row in csv.DictReader(file)
        ]


def _cells(rows: Rows) -> list[list[str]]:
    return [list(rows[0]), *([_cell(v) for v in row.values()] for row in rows)]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 0.1 else f"{value:.3f}"
    return str(value)


def _value(text: str) -> Any:
    if not text:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
