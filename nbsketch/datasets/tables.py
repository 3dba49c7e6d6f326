"""Sets with a single table: numbers, categories, a target or labels."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._report.validation import check_choice
from nbsketch.datasets import _files
from nbsketch.datasets._dataset import Dataset
from nbsketch.datasets._files import Entry, Folder, Loader, read_lines

_MISSING = "?"
_DOWNLOAD = """\
Whether to download the file if none of these folders has it, verified by
SHA-256."""


@dataclass(frozen=True, kw_only=True)
class TableEntry(Entry):
    """A text file, and the names of the features and of the target.

    `categories` are the features with text or category codes; `target` and `left_out`
    are columns of the file, from 0. Several files are a published split.
    """

    feature_names: tuple[str, ...]
    target_name: str
    delimiter: str | None = None
    n_header_lines: int = 0
    categories: tuple[str, ...] = ()
    has_labels: bool = False
    target: int = -1
    left_out: tuple[int, ...] = ()


# Functions that return X and y of a table and its files, and the number of training
# samples of a published split, if any.
Read = Callable[..., tuple[Any, ...]]
TABLES = _files.read_entries(TableEntry, "tables")


def _read_table(table: TableEntry, *paths: Path) -> tuple[Any, ...]:
    """Return inputs and target of the files, and the length of the first of two."""
    left_out = [table.target, *table.left_out]
    n_columns = len(table.feature_names) + len(left_out)
    is_text = table.categories or table.has_labels
    parts = []
    for path in paths:
        lines = read_lines(path)[table.n_header_lines :]
        lines = [line for line in lines if not line.startswith("|")]
        kind = str if is_text else float
        parts.append(_files.parse_rows(lines, path, n_columns, table.delimiter, kind))
    rows = np.vstack(parts)
    inputs = np.delete(rows, left_out, axis=1)
    targets = rows[:, table.target]
    if is_text:
        # in the second file of adult, labels end with a full stop
        targets = np.char.rstrip(np.char.strip(targets), ".")
        inputs, targets = _columns_of(table, np.char.strip(inputs), targets, paths[0])
    return inputs, targets, *(len(part) for part in parts[:-1])


def _columns_of(
    table: TableEntry, fields: NDArray, targets: NDArray, path: Path
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


def _numbers(field: NDArray) -> NDArray:
    return np.where(field == _MISSING, "nan", field).astype(float)


def _texts(field: NDArray) -> NDArray:
    texts = field.astype(object)
    texts[field == _MISSING] = None
    return texts


def _labels(field: NDArray) -> NDArray:
    """Return integers if all labels are integers, else text."""
    try:
        return field.astype(np.int64)
    except ValueError:
        return np.array(field.tolist())  # no wider than the longest


def _read_autompg(table: TableEntry, path: Path) -> tuple[NDArray, NDArray]:
    fields = [line.split()[:8] for line in read_lines(path)]
    lines = [" ".join(row) for row in fields if "?" not in row]
    rows = _files.parse_rows(lines, path, 8)
    return rows[:, 1:], rows[:, 0]


def _read_california(table: TableEntry, path: Path) -> tuple[NDArray, NDArray]:
    """Return scikit-learn's features and target from the columns of the file."""
    lines = read_lines(path)[table.n_header_lines :]
    columns = _files.parse_rows(lines, path, 9, table.delimiter).T
    longitude, latitude, age, rooms, bedrooms, people, households, income, value = (
        columns
    )
    shares = [rooms / households, bedrooms / households, people, people / households]
    X = np.column_stack([income, age, *shares, latitude, longitude])
    return X, value / 100_000


_READERS: dict[str, Read] = {"autompg": _read_autompg, "california": _read_california}


def _read(table: TableEntry, data_home: Folder, download: bool) -> tuple[Any, ...]:
    """Read a table; if a file is missing, use scikit-learn's downloader if any."""
    try:
        paths = _files.locate(table, data_home, download)
    except FileNotFoundError as missing:
        if table.name != "california" or not download:
            raise
        from sklearn.datasets import fetch_california_housing

        bunch = _files.fetch_through_sklearn(fetch_california_housing, missing)
        return bunch.data, bunch.target
    return _READERS.get(table.name, _read_table)(table, *paths)


def table_loader(name: str) -> Loader:
    """Return the function that loads a table."""
    table = TABLES[name]

    def load(
        *, data_home: Folder = None, download: bool = True, as_frame: bool = False
    ) -> Dataset:
        """Load {title}.

        {details}

        Parameters
        ----------
        data_home : str, path or None, default=None
            Folder that holds
            {files},
            plain or gzipped. Searched first, then the folder in the environment
            variable NBSKETCH_DATA, then ``nbsketch`` in scikit-learn's data folder.
        download : bool, default=True
        {download}
        as_frame : bool, default=False
            Whether X is a pandas DataFrame and y a Series, with categorical dtypes for
            categories and labels and integers for whole numbers. False: X is an array
            of floats, or of objects if there are categories, with None or NaN for
            missing values.

        Returns
        -------
        Dataset
        {returns}

        Raises
        ------
        FileNotFoundError
            If a file is neither found nor downloaded; the message says where to get the
            files and where to put them.
        ValueError
            If the file does not have the expected columns.

        References
        ----------
        {references}

        Examples
        --------
        >>> from nbsketch.datasets import {loader}
        >>> {loader}()  # doctest: +SKIP
        {example}
        """
        check_choice("as_frame", as_frame, (True, False))
        X, y, *n_train = _read(table, data_home, download)
        names = table.feature_names, (table.target_name,)
        data = Dataset(name, X.copy(), y.copy(), *names, *n_train)
        return _as_frames(data, table) if as_frame else data

    return _files.described(load, table, download=_DOWNLOAD)


def _as_frames(data: Dataset, table: TableEntry) -> Dataset:
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
        else _as_integers(column.astype(float))
        for name, column in zip(data.feature_names, data.X.T, strict=True)
    }
    y = pd.Categorical(data.y) if table.has_labels else _as_integers(data.y)
    target = pd.Series(y, name=data.target_names[0])
    return replace(data, X=pd.DataFrame(columns), y=target)


def _as_integers(column: NDArray) -> NDArray:
    """Return integers if all numbers are whole."""
    is_integer = np.isfinite(column).all() and (column == np.rint(column)).all()
    return column.astype(np.int64) if is_integer else column


LOADERS = {name: table_loader(name) for name in TABLES}
