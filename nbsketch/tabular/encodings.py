"""Fitted encodings of one column: numbers, dates, or the levels of a category."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._validation import check_array_of
from nbsketch.tabular.reading import Values

_PARTS = "_year", "_month", "_day", "_weekday", "_hour", "_days"


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """A column of numbers or booleans.

    Parameters
    ----------
    name : str
        Name of the column.
    fill : float
        Median, in place of missing values.
    marked : bool
        Whether a second column is 1 for missing values and else 0.

    Examples
    --------
    >>> from nbsketch import NumberColumn
    >>> NumberColumn("age", 41.0, marked=True).names
    ('age', 'age_missing')
    """

    name: str
    fill: float
    marked: bool

    def __post_init__(self) -> None:
        _check_parts(self.name, np.array([self.fill], dtype=float), self.marked)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the result."""
        return _marked_names((self.name,), self)

    def encode(self, values: Values) -> NDArray:
        """Return an array of shape (n, 1), or (n, 2) if `marked`."""
        data = _expected(values, "numbers", self.name)
        check_no_infinity(data, self.name)
        return _filled(data[:, None], np.array([self.fill]), self.marked)


@dataclass(frozen=True, eq=False)
class DateColumn:
    """A column of dates: year, month, day, day of the week, hour and elapsed days.

    Monday is day 0 of the week; the hour has a fraction; days are elapsed since 1970.

    Parameters
    ----------
    name : str
        Name of the column.
    fill : ndarray of shape (6,)
        Medians of the parts, in place of missing values.
    marked : bool
        Whether a last column is 1 for missing values and else 0.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import DateColumn
    >>> DateColumn("day", np.zeros(6), marked=False).names[:3]
    ('day_year', 'day_month', 'day_day')
    """

    name: str
    fill: NDArray
    marked: bool

    def __post_init__(self) -> None:
        _check_parts(self.name, self.fill, self.marked)
        if len(self.fill) != len(_PARTS):
            raise ValueError(f"`fill` must have {len(_PARTS)} numbers, got {self.fill}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the result."""
        return _marked_names(tuple(self.name + part for part in _PARTS), self)

    def encode(self, values: Values) -> NDArray:
        """Return an array of shape (n, 6), or (n, 7) if `marked`."""
        parts = date_parts(_expected(values, "dates", self.name))
        return _filled(parts, self.fill, self.marked)


@dataclass(frozen=True, eq=False)
class LevelColumn:
    """A column of categories: a table of numbers for each level.

    Parameters
    ----------
    name : str
        Name of the column.
    levels : tuple of str
        Levels of the training rows.
    table : ndarray of shape (len(levels) + 2, m)
        Numbers of each level, then those of missing values, then those of levels that
        no training row has. Without columns: the column is not used.
    kind : {"one-hot", "target codes", "order", "identifier", "empty"}
        Meaning of the numbers.
    suffixes : tuple of str
        What is added to `name` in the names of the m columns.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import LevelColumn
    >>> size = LevelColumn("size", ("S", "L"), np.array([[0.0], [1], [1], [1]]),
    ...                    "order", ("",))
    >>> size.names
    ('size',)
    """

    name: str
    levels: tuple[str, ...]
    table: NDArray
    kind: str
    suffixes: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_texts(self.name, self.kind, *self.levels, *self.suffixes)
        table = check_array_of("table", self.table, "f", 2)
        expected = len(self.levels) + 2, len(self.suffixes)
        if table.shape != expected or not np.isfinite(table).all():
            raise ValueError(
                f"`table` must hold {expected} finite numbers, got shape {table.shape}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the result."""
        return tuple(self.name + suffix for suffix in self.suffixes)

    def encode(self, values: Values) -> NDArray:
        """Return the (n, m) numbers of the levels."""
        if not self.suffixes:
            return np.empty((len(values.data), 0))
        return self.table[self.places(values)]

    def places(self, values: Values) -> NDArray:
        """Return the rows of the table, of shape (n,)."""
        found = values.as_categories()
        missing, unknown = len(self.levels), len(self.levels) + 1
        if found.kind == "nothing":
            return np.full(len(found.data), missing)
        codes = _expected(found, "categories", self.name)
        known = {level: k for k, level in enumerate(self.levels)}
        rows = [*(known.get(level, unknown) for level in found.levels), missing]
        return np.array(rows)[codes]  # code -1 is the last entry


Column = NumberColumn | DateColumn | LevelColumn


def date_parts(dates: NDArray) -> NDArray:
    """Return year, month, day, weekday, hour and days since 1970, (n, 6); NaT is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> date_parts(np.array(["2024-02-29T18:30"], dtype="datetime64[us]")).tolist()
    [[2024.0, 2.0, 29.0, 3.0, 18.5, 19782.770833333332]]
    """
    days, months = dates.astype("datetime64[D]"), dates.astype("datetime64[M]")
    years = dates.astype("datetime64[Y]")
    elapsed = (dates - np.datetime64(0, "us")) / np.timedelta64(1, "D")
    return np.column_stack(
        [
            (years - np.datetime64("0000", "Y")) / np.timedelta64(1, "Y"),
            (months - years) / np.timedelta64(1, "M") + 1,
            (days - months) / np.timedelta64(1, "D") + 1,
            (np.floor(elapsed) + 3) % 7,  # 1970 began on a Thursday
            (dates - days) / np.timedelta64(1, "h"),
            elapsed,
        ]
    )


def check_no_infinity(data: NDArray, name: str) -> None:
    """Raise a ValueError if a column of numbers holds infinity."""
    if np.isinf(data).any():
        raise ValueError(
            f"Input X contains infinity in column {name!r}, finite numbers are expected"
        )


def _filled(data: NDArray, fill: NDArray, marked: bool) -> NDArray:
    missing = np.isnan(data)
    out = np.where(missing, fill, data).astype(float)
    return np.hstack([out, missing[:, :1]]) if marked else out


def _expected(values: Values, kind: str, name: str) -> NDArray:
    """Return the data of a column of the expected kind, NaT for dates that miss."""
    if values.kind == "nothing":
        missing = np.full(len(values.data), np.datetime64("NaT", "us"))
        return missing if kind == "dates" else values.data
    if values.kind != kind:
        raise TypeError(
            f"column {name!r} of `X` must hold {kind} as in `fit`, got {values.kind}"
        )
    return values.data


def _marked_names(
    names: tuple[str, ...], column: NumberColumn | DateColumn
) -> tuple[str, ...]:
    return (*names, f"{column.name}_missing") if column.marked else names


def _check_parts(name: Any, fill: Any, marked: Any) -> None:
    _check_texts(name)
    check_array_of("fill", fill, "f", 1)
    if not isinstance(marked, bool) or not np.isfinite(fill).all():
        raise ValueError(
            f"`fill` must be finite and `marked` a bool, got {fill}, {marked}"
        )


def _check_texts(*texts: Any) -> None:
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("names, kinds and levels must be text, got others")
