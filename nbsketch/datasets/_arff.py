"""ARFF files of numbers: dense rows with '?' for missing, or sparse {i v, ...} rows."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from nbsketch.datasets._text import parse_rows, read_lines

_ATTRIBUTE = re.compile(
    r"""@attribute\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\S+)""", re.IGNORECASE
)


def read_arff(path: Path) -> tuple[list[str], NDArray | csr_array]:
    """Return the names of the columns and the table; missing values are NaN."""
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
