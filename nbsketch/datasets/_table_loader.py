"""Loaders of sets that are one table: numbers, categories, a target or labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._validation import check_choice
from nbsketch.datasets._dataset import Dataset
from nbsketch.datasets._docs import Folder, Loader, documented
from nbsketch.datasets._files import locate
from nbsketch.datasets._tables import Table
from nbsketch.datasets._text import parse_rows, read_lines

_DOWNLOAD = (
    "Whether to download the file if none of these folders has it, verified by SHA-256."
)
_AS_FRAME = (
    "Whether X is a pandas DataFrame and y a Series: categories and labels are "
    "categorical, whole numbers integers. False: X is an array of floats, or of "
    "objects if there are categories, with None or NaN for missing values."
)
_MISSING = "?"
# Returns X and y, and the number of training rows of a published split, if any.
Read = Callable[[Table, Folder, bool], tuple[Any, ...]]


def read_numbers(
    table: Table, data_home: Folder, download: bool
) -> tuple[NDArray, NDArray]:
    """Return inputs and target of a file of numbers, the target last."""
    (path,) = locate(table.source, data_home, download)
    lines = read_lines(path)[table.n_header_lines :]
    rows = parse_rows(lines, path, len(table.feature_names) + 1, table.delimiter)
    return rows[:, :-1], rows[:, -1]


def read_columns(
    table: Table, data_home: Folder, download: bool
) -> tuple[NDArray, NDArray]:
    """Return inputs and target of a file with text and missing values, target last."""
    (path,) = locate(table.source, data_home, download)
    fields = read_fields(path, len(table.feature_names) + 1)
    return columns_of(table, fields[:, :-1], fields[:, -1], path)


def columns_of(
    table: Table, fields: NDArray, targets: NDArray, path: Path
) -> tuple[NDArray, NDArray]:
    """Return inputs and target of the text of a table."""
    try:
        columns = [
            _texts(field) if name in table.categories else _numbers(field)
            for name, field in zip(table.feature_names, fields.T, strict=True)
        ]
        y = _labels(targets) if table.has_labels else _numbers(targets)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not table.categories:
        return np.column_stack(columns), y
    X = np.empty(fields.shape, dtype=object)
    for j, column in enumerate(columns):
        X[:, j] = column
    return X, y


def read_fields(path: Path, n_columns: int) -> NDArray:
    """Return the text of a comma-separated file without header, stripped."""
    lines = [line for line in read_lines(path) if not line.startswith("|")]
    rows = [[field.strip() for field in line.split(",")] for line in lines]
    counts = {len(row) for row in rows}
    if counts != {n_columns}:
        raise ValueError(
            f"{path} must have {n_columns} columns, got {sorted(counts) or 'no rows'}"
        )
    return np.array(rows)


def _numbers(field: NDArray) -> NDArray:
    return np.where(field == _MISSING, "nan", field).astype(float)


def _texts(field: NDArray) -> NDArray:
    found = field.astype(object)
    found[field == _MISSING] = None
    return found


def _labels(field: NDArray) -> NDArray:
    """Return integers if all labels are, else text."""
    try:
        return field.astype(np.int64)
    except ValueError:
        return np.array(field.tolist())  # no wider than the longest


def table_loader(
    table: Table,
    read: Read = read_numbers,
    download_text: str = _DOWNLOAD,
) -> Callable[[Callable[[], None]], Loader]:
    """Return a decorator that makes the loader of a table."""

    def load(
        *, data_home: Folder = None, download: bool = True, as_frame: bool = False
    ) -> Dataset:
        check_choice("as_frame", as_frame, (True, False))
        X, y, *n_train = read(table, data_home, download)
        names, target = table.feature_names, (table.target_name,)
        data = Dataset(table.source.name, X.copy(), y.copy(), names, target, *n_train)
        return _as_frames(data, table) if as_frame else data

    texts = {"download": download_text, "as_frame": _AS_FRAME, "note": table.note}
    return documented(load, table.source, **texts)


def _as_frames(data: Dataset, table: Table) -> Dataset:
    """Return the set with a DataFrame and a Series."""
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "`as_frame=True` needs pandas: pip install pandas, or pass as_frame=False"
        ) from error
    columns = {
        name: pd.Categorical(column)
        if name in table.categories
        else _whole(column.astype(float))
        for name, column in zip(data.feature_names, data.X.T, strict=True)
    }
    y: Any = pd.Categorical(data.y) if table.has_labels else _whole(data.y)
    target = pd.Series(y, name=data.target_names[0])
    return replace(data, X=pd.DataFrame(columns), y=target)


def _whole(column: NDArray) -> NDArray:
    """Return integers if all numbers are whole."""
    whole = np.isfinite(column).all() and (column == np.rint(column)).all()
    return column.astype(np.int64) if whole else column
