"""Fitted encodings of one column: numbers, dates, or the levels of a category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._report.validation import check_array_of
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
        missing = np.isnan(parts)
        out = np.where(missing, self.fill, parts)
        return np.hstack([out, missing[:, :1]]) if self.marked else out


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
        missing, unknown = len(self.levels), len(self.levels) + 1
        if values.kind == "nothing":
            return np.full(len(values.data), missing)
        codes = _expected(values, "categories", self.name)
        place = {level: k for k, level in enumerate(self.levels)}
        new = [level for level in values.levels if level not in place]
        if new:
            place |= self._equal_numbers(new, values.numeric)
        rows = [*(place.get(level, unknown) for level in values.levels), missing]
        return np.array(rows)[codes]  # code -1 is the last entry

    def _equal_numbers(self, new: list[str], numeric: bool) -> dict[str, int]:
        """Return the places of levels that equal one of training as a number.

        `numeric`: the new levels are no text, so the type is not that of training.
        """
        same: dict[Decimal, list[int]] = {}
        for k, level in enumerate(self.levels):
            if (number := as_number(level)) is not None:
                same.setdefault(number, []).append(k)
        if numeric and not same:
            raise TypeError(
                f"column {self.name!r} of `X` must hold text as in `fit`, got numbers"
            )
        equals = {}
        for level in new:
            equal = same.get(as_number(level), [])  # type: ignore[arg-type]
            if len(equal) == 1:
                equals[level] = equal[0]
            elif equal and numeric:
                names = " and ".join(repr(self.levels[k]) for k in equal)
                raise ValueError(
                    f"column {self.name!r} of `X` must hold text as in `fit`, where "
                    f"{names} are different levels, got the number {level}"
                )
        return equals


Column = NumberColumn | DateColumn | LevelColumn


def as_number(level: str) -> Decimal | None:
    """Return the number that a level is, 0 or 1 for a boolean; None for other text.

    Examples
    --------
    >>> as_number("01") == as_number("1.0") == as_number("True") == 1
    True
    """
    try:
        number = Decimal({"True": "1", "False": "0"}.get(level, level))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def encode_numbers(
    columns: Sequence[NumberColumn], values: Sequence[Values]
) -> tuple[NDArray, NDArray]:
    """Return columns of numbers without gaps, (n, k), and where values are missing."""
    pairs = zip(columns, values, strict=True)
    parts = [_expected(value, "numbers", column.name) for column, value in pairs]
    data = np.stack(parts, axis=1).astype(float)
    infinite = np.isinf(data).any(axis=0)
    if infinite.any():
        raise _infinity(columns[infinite.argmax()].name)
    missing = np.isnan(data)
    return np.where(missing, [column.fill for column in columns], data), missing


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
        raise _infinity(name)


def _infinity(name: str) -> ValueError:
    return ValueError(
        f"Input X contains infinity in column {name!r}, finite numbers are expected"
    )


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
