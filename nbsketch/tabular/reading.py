"""Columns of a data frame or of an array of objects, as arrays of one type each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

_DAY = np.timedelta64(1, "D")
_NUMBERS = Real, Decimal, np.bool_
_TEXTS = str, bytes
_DATES = date, np.datetime64
_DURATIONS = timedelta, np.timedelta64
# Kinds of arrays whose columns are read one by one.
_MIXED = "OSUMm"


@dataclass(frozen=True, eq=False)
class Values:
    """One column of a table.

    Attributes
    ----------
    kind : {"numbers", "dates", "categories", "nothing"}
        "nothing" if every value is missing.
    data : ndarray of shape (n,)
        Floats, NaN where missing; dates (datetime64[us]), NaT where missing; or indices
        of `levels`, -1 where missing.
    levels : tuple of str
        Names of the categories.
    ordered : bool
        Whether the order of `levels` has a meaning.
    """

    kind: str
    data: NDArray
    levels: tuple[str, ...] = ()
    ordered: bool = False

    def as_categories(self) -> Values:
        """Return numbers as categories, each number a level; categories unchanged."""
        if self.kind != "numbers":
            return self
        return _categories(self.data.astype(object), np.isnan(self.data))

    def rows(self, kept: NDArray) -> Values:
        """Return the values of some rows."""
        return Values(self.kind, self.data[kept], self.levels, self.ordered)


def is_frame(X: Any) -> bool:
    """Return whether X has columns with names, as a pandas DataFrame."""
    return hasattr(X, "iloc") and hasattr(X, "columns")


def is_table(X: Any) -> bool:
    """Return whether X is a data frame, or holds other objects than numbers."""
    if is_frame(X):
        return True
    if sp.issparse(X):
        return False
    try:
        array = np.asarray(X)
    except (TypeError, ValueError):  # rows of different lengths
        return False
    return array.ndim == 2 and array.dtype.kind in _MIXED


def names_of(X: Any) -> tuple[str, ...]:
    """Return the names of the columns: x0, x1, ... for an array.

    Raises
    ------
    ValueError
        If two columns have the same name.
    """
    if not is_frame(X):
        return tuple(f"x{j}" for j in range(_as_array(X).shape[1]))
    names = tuple(str(label) for label in X.columns)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"`X` must have distinct column names, got {twice} twice")
    return names


def read_columns(X: Any) -> Iterator[Values]:
    """Yield the columns of a data frame or a two-dimensional array.

    Raises
    ------
    TypeError
        If a column holds other objects than numbers, text, booleans and dates.
    """
    names = names_of(X)
    if is_frame(X):
        for j, name in enumerate(names):
            yield _of_series(X.iloc[:, j], name)
        return
    array = _as_array(X)
    for name, column in zip(names, array.T, strict=True):
        yield _of_array(column, name)


def _as_array(X: Any) -> NDArray:
    """Return an array; lists as objects, so that numbers beside text stay numbers."""
    return X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)


def _of_series(column: Any, name: str) -> Values:
    kind = column.dtype.kind
    if hasattr(column, "cat"):
        levels = tuple(_key(level) for level in column.cat.categories)
        codes = column.cat.codes.to_numpy().astype(np.intp)
        return _used(Values("categories", codes, levels, bool(column.cat.ordered)))
    if kind in "biuf":
        dtype = np.float32 if _is_single(column.dtype) else np.float64
        return Values("numbers", column.to_numpy(dtype=dtype, na_value=np.nan))
    if kind == "M":
        if getattr(column.dtype, "tz", None) is not None:
            column = column.dt.tz_localize(None)  # the local time
        return Values("dates", column.to_numpy(dtype="datetime64[us]"))
    if kind == "m":
        return _of_array(column.to_numpy(dtype="timedelta64[us]"), name)
    missing = column.isna().to_numpy()
    return _of_objects(column.to_numpy(dtype=object), missing, name)


def _is_single(dtype: Any) -> bool:
    """Return whether float32 holds all numbers of a type."""
    name = str(dtype).lower()
    return name in ("float32", "float16", "bool", "boolean", "int8", "uint8")


def _of_array(column: NDArray, name: str) -> Values:
    kind = column.dtype.kind
    if kind == "M":
        return Values("dates", column.astype("datetime64[us]"))
    if kind == "m":
        return Values("numbers", column / _DAY)
    if kind in "biuf":
        dtype = np.float32 if _is_single(column.dtype) else np.float64
        return Values("numbers", column.astype(dtype))
    if kind in "SU":  # one type for all columns: numbers may be in it as text
        try:
            return Values("numbers", column.astype(np.float64))
        except ValueError:
            column = column.astype(str).astype(object)
    missing = np.array([_is_missing(value) for value in column], dtype=bool)
    return _of_objects(column, missing, name)


def _is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas.NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, float | np.floating):
        return bool(value != value)
    return isinstance(value, _DATES + _DURATIONS) and bool(value != value)


def _of_objects(column: NDArray, missing: NDArray, name: str) -> Values:
    """Return a column of objects by what all of them are that are not missing."""
    present = column[~missing]
    types = {type(value) for value in present}
    if not types:
        return Values("nothing", np.full(len(column), np.nan))
    if _all(types, _DURATIONS):  # NumPy's are integers as well
        spans = _filled(present, missing, "timedelta64[us]", np.timedelta64("NaT"))
        return Values("numbers", spans / _DAY)
    if _all(types, _NUMBERS):
        return Values("numbers", _filled(present, missing, "float64", np.nan))
    if _all(types, _DATES):
        local = [_local(value) for value in present]
        dates = _filled(local, missing, "datetime64[us]", np.datetime64("NaT"))
        return Values("dates", dates)
    if _all(types, _NUMBERS + _TEXTS):
        return _categories(column, missing)
    found = ", ".join(sorted(t.__name__ for t in types))
    raise TypeError(
        "`X` must hold numbers, text, booleans and dates: an argument must be a "
        f"string or a number, got {found} in column {name!r}"
    )


def _all(types: set[type], allowed: tuple[type, ...]) -> bool:
    return all(issubclass(t, allowed) for t in types)


def _filled(present: Any, missing: NDArray, dtype: str, fill: Any) -> NDArray:
    out = np.full(len(missing), fill, dtype=dtype)
    out[~missing] = np.array(list(present), dtype=dtype)
    return out


def _local(value: Any) -> Any:
    """Return a date without its time zone."""
    aware = getattr(value, "tzinfo", None) is not None
    return value.replace(tzinfo=None) if aware else value


def _categories(column: NDArray, missing: NDArray) -> Values:
    keys = np.array([_key(value) for value in column[~missing]], dtype=str)
    levels, found = np.unique(keys, return_inverse=True)
    codes = np.full(len(column), -1, dtype=np.intp)
    codes[~missing] = found
    return Values("categories", codes, tuple(map(str, levels)))


def _key(value: Any) -> str:
    """Return the name of a category; equal numbers of any type have the same."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    is_number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    return repr(float(value)) if is_number else str(value)


def _used(values: Values) -> Values:
    """Return categories without the levels that no row has."""
    used = np.unique(values.data[values.data >= 0])
    place = np.full(len(values.levels) + 1, -1, dtype=np.intp)
    place[used] = np.arange(len(used))
    levels = tuple(values.levels[k] for k in used)
    return Values("categories", place[values.data], levels, values.ordered)
