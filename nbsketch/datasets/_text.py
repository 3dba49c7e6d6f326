"""Text files, plain or gzipped, and the rows of numbers in them."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


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
