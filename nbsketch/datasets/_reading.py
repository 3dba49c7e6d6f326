"""Text files of numbers, plain or gzipped, and ARFF files: dense or sparse rows."""

import gzip
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

_ATTRIBUTE = re.compile(
    r"""@attribute\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\S+)""", re.IGNORECASE
)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file that are not blank."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    # Only names may hold bytes that are not UTF-8.
    text = data.decode("utf-8-sig", errors="replace")
    return [line for line in text.split("\n") if line.strip()]


def parse_rows(
    lines: Sequence[str], path: Path, n_columns: int, delimiter: str | None = None
) -> NDArray:
    """Return (len(lines), n_columns) numbers; None: delimited by white space."""
    if not lines:
        raise ValueError(f"{path} has no rows of data")
    try:
        table = np.loadtxt(lines, delimiter=delimiter, comments=None, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if table.shape[1] != n_columns:
        raise ValueError(f"{path} must have {n_columns} columns, got {table.shape[1]}")
    return table


def read_arff(path: Path) -> tuple[list[str], NDArray | csr_array]:
    """Return the names of the columns and the table; missing values, '?', are NaN.

    Rows are dense, or sparse as in {i v, ...}.
    """
    lines = [line.strip() for line in read_lines(path)]
    lines = [line for line in lines if not line.startswith("%")]
    start = next((i for i, line in enumerate(lines) if line.lower() == "@data"), None)
    if start is None:
        raise ValueError(f"{path} is not an ARFF file: it has no line '@data'")
    matches = [_ATTRIBUTE.match(line) for line in lines[:start]]
    names = [match[1].strip("'\"") for match in matches if match]
    rows = [line.replace("?", "nan") for line in lines[start + 1 :]]
    if rows and rows[0].startswith("{"):
        return names, _parse_sparse(rows, path, len(names))
    return names, parse_rows(rows, path, len(names), delimiter=",")


def read_dense_arff(path: Path) -> tuple[list[str], NDArray]:
    """Return the names of the columns and the table as one array."""
    names, table = read_arff(path)
    return names, table if isinstance(table, np.ndarray) else table.toarray()


def _parse_sparse(rows: Sequence[str], path: Path, n_columns: int) -> csr_array:
    """Return the (len(rows), n_columns) table of rows '{index value, ...}'."""
    inside = [row[1:-1].strip() for row in rows]
    counts = [row.count(",") + 1 if row else 0 for row in inside]
    try:
        flat = np.array(" ".join(inside).replace(",", " ").split(), dtype=float)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if flat.size != 2 * sum(counts):
        raise ValueError(f"{path} has a sparse row that is not 'index value' pairs")
    columns = flat[::2].astype(np.int32)
    if columns.size and not 0 <= columns.min() <= columns.max() < n_columns:
        raise ValueError(f"{path} has a column index outside [0, {n_columns - 1}]")
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    table = csr_array((flat[1::2], columns, starts), shape=(len(rows), n_columns))
    table.eliminate_zeros()
    table.sort_indices()
    return table
