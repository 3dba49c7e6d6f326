"""Read the columns of a data frame or an array of objects as typed arrays.

Frames of pandas, polars, pyarrow and other libraries are read through narwhals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from numbers import Complex, Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp
from narwhals import Series
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray

from nbsketch._report.validation import check_collected, not_a_table

_DAY = np.timedelta64(1, "D")
_NUMBERS = Real, Decimal, np.bool_
_TEXTS = str, bytes
_DATES = date, np.datetime64
_DURATIONS = timedelta, np.timedelta64
# Names of types with a meaningful order, among those represented by their text.
_ORDERED = "Interval", "Period", "time"
# Kinds of arrays whose columns are read one by one.
_MIXED = "OSUMm"
# pandas types whose values are plain Python objects.
_TEXT_TYPES = "object", "str", "string"
# Maximum rows of pandas frames that are read as one array of objects.
_FEW_ROWS = 16
# Representation of a missing value, by the kind of the array; otherwise NaT.
_FILLS = {"f": np.nan, "i": -1}
# Types of columns of numbers.
_PLAIN = {
    nw.Boolean,
    nw.Float32,
    nw.Float64,
    nw.Int8,
    nw.Int16,
    nw.Int32,
    nw.Int64,
    nw.UInt8,
    nw.UInt16,
    nw.UInt32,
    nw.UInt64,
}


@dataclass(frozen=True, eq=False)
class Values:
    """One column of a table.

    Attributes
    ----------
    kind : {"numbers", "dates", "categories", "nothing"}
        "nothing" if all values are missing.
    data : ndarray of shape (n,)
        Floats, NaN where missing; dates (datetime64[us]), NaT where missing; or indices
        of `levels`, -1 where missing.
    levels : tuple of str
        Names of the categories.
    ordered : bool
        Whether the order of `levels` is meaningful.
    numeric : bool
        Whether all categories are numbers or booleans, not text.
    """

    kind: str
    data: NDArray
    levels: tuple[str, ...] = ()
    ordered: bool = False
    numeric: bool = False

    def rows(self, kept: NDArray) -> Values:
        """Return the values of some rows, without unused levels."""
        data = self.data[kept]
        if self.kind != "categories":
            return Values(self.kind, data)
        used, codes = np.unique(data[data >= 0], return_inverse=True)
        data[data >= 0] = codes
        return replace(self, data=data, levels=tuple(self.levels[k] for k in used))


def as_frame(X: Any) -> nw.DataFrame[Any] | None:
    """Return a data frame behind narwhals; None for other objects.

    Raises
    ------
    ValueError
        If two columns have the same name.
    """
    if isinstance(X, nw.DataFrame):
        return X
    if isinstance(X, np.ndarray):  # narwhals would try each library
        return None
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except DuplicateError as error:
        raise ValueError(f"`X` must have distinct column names: {error}") from error
    if not isinstance(frame, nw.DataFrame):
        return None
    twice = [name for name, k in Counter(map(str, frame.columns)).items() if k > 1]
    if twice:
        raise ValueError(f"`X` must have distinct column names, got {twice} twice")
    return frame


def is_table(X: Any) -> bool:
    """Return whether X is a data frame, or contains objects other than numbers."""
    if as_frame(X) is not None:
        return True
    if sp.issparse(X):
        return False
    try:
        array = np.asarray(X)
    except (TypeError, ValueError):  # rows of different lengths
        return False
    return array.ndim == 2 and array.dtype.kind in _MIXED


def check_table(X: Any) -> None:
    """Raise an error unless X is in memory, dense and 2-dimensional."""
    check_collected("X", X)
    if sp.issparse(X):
        raise TypeError(
            "Sparse data was passed for `X`, but dense data is required: use "
            "SketchedKernelRegressor or SketchedKernelClassifier for sparse X, or "
            "X.toarray()"
        )
    shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
    if len(shape) != 2:
        raise ValueError(not_a_table("X", shape))
    if 0 in shape:
        raise ValueError(
            f"`X` must have a row and a column, got {shape[0]} sample(s) or {shape[1]} "
            f"feature(s) (shape={shape}) while a minimum of 1 is required."
        )


def names_of(X: Any) -> tuple[str, ...]:
    """Return the names of the columns: x0, x1, ... for an array."""
    frame = as_frame(X)
    if frame is None:
        return tuple(f"x{j}" for j in range(_as_array(X).shape[1]))
    return tuple(map(str, frame.columns))


def read_columns(X: Any, categories: Collection[int] = ()) -> list[Values]:
    """Return the columns of a data frame or a two-dimensional array.

    Numbers in the columns `categories` are read as categories, one level per number.

    Raises
    ------
    TypeError
        If a column holds objects other than numbers, text, booleans and dates.
    """
    frame = as_frame(X)
    if frame is not None:
        return _of_frame(frame, categories)
    array = _as_array(X)
    return [
        _of_array(column, f"x{j}", j in categories) for j, column in enumerate(array.T)
    ]


def _as_array(X: Any) -> NDArray:
    """Return an array, with its mask if any; lists as arrays of objects.

    Numbers mixed with text stay numbers in a list.
    """
    if isinstance(X, np.ma.MaskedArray):
        return X
    return np.asarray(X, dtype=None if isinstance(X, np.ndarray) else object)


def _of_frame(frame: nw.DataFrame[Any], categories: Collection[int]) -> list[Values]:
    """Return the columns; numbers of one type are extracted from the frame at once."""
    out = dict[int, Values]()
    blocks = dict[Any, list[int]]()
    names = frame.columns
    objects = None
    if frame.implementation.is_pandas() and len(frame) <= _FEW_ROWS:
        # A tenth of the time of single columns.
        objects = frame.to_native().to_numpy(dtype=object)
    for j, dtype in enumerate(_types(frame)):
        if objects is not None and _is_text(dtype):
            out[j] = _of_objects(objects[:, j], str(names[j]), j in categories)
        elif hasattr(dtype, "ordered"):
            out[j] = _of_levels(frame.to_native()[names[j]].array)
        elif j in categories or not (isinstance(dtype, np.dtype) or dtype in _PLAIN):
            out[j] = _of_series(frame[:, j], j in categories)
        else:
            blocks.setdefault(dtype, []).append(j)
    for dtype, block in blocks.items():
        if not isinstance(dtype, np.dtype):
            data = frame[:, block].to_numpy()
        elif objects is not None:
            data = objects[:, block].astype(dtype)
        else:  # narwhals would look for gaps
            native = frame.to_native()
            part = native if len(block) == len(names) else native.iloc[:, block]
            data = part.to_numpy(dtype)
        data = _numbers(data, _precision(dtype))
        for j, column in zip(block, data.T, strict=True):
            out[j] = Values("numbers", column)
    return [out[j] for j in range(len(out))]


def _types(frame: nw.DataFrame[Any]) -> list[Any]:
    """Return the dtypes of the columns.

    For pandas: NumPy's for numbers as floats, its own for categories, names for text.

    Other pandas types are looked up once each: for one row of 6000 columns `schema`
    alone takes 40 ms.
    """
    if not frame.implementation.is_pandas():
        return list(frame.schema.values())
    native = list(frame.to_native().dtypes)
    types = dict[Any, Any]()
    for j, dtype in enumerate(native):
        if hasattr(dtype, "ordered") or dtype in types:
            continue
        if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
            types[dtype] = np.dtype(_precision(dtype))
        else:
            name = str(dtype)
            types[dtype] = name if name in _TEXT_TYPES else frame[:, j].dtype
    # Categories, which are compared level by level, are not looked up.
    return [dtype if hasattr(dtype, "ordered") else types[dtype] for dtype in native]


def _is_text(dtype: Any) -> bool:
    """Return whether pandas has Python objects, or unordered categories of text."""
    if getattr(dtype, "ordered", True):
        return isinstance(dtype, str)
    return bool(dtype.categories.dtype == "str")


def _of_series(column: Series[Any], as_categories: bool) -> Values:
    dtype = column.dtype
    name = str(column.name)
    if dtype == nw.Datetime:
        column = _numpy_zone(column, dtype).dt.replace_time_zone(None)  # local time
    if dtype in (nw.Date, nw.Datetime, nw.Duration):
        unit = nw.Duration("us") if dtype == nw.Duration else nw.Datetime("us")
        return _of_array(column.cast(unit).to_numpy(), name, False)
    values = _objects(column.to_list())
    if dtype in (nw.Categorical, nw.Enum):
        return _categories(values, _missing(values), _order(column))
    return _of_objects(values, name, as_categories)


def _of_levels(column: Any) -> Values:
    """Return a column of categories of pandas.

    Only levels that occur are read, and missing values do not convert them.
    """
    used, place = np.unique(column.codes, return_inverse=True)
    missing = [None] * int(used[0] < 0)  # code -1 is the first
    values = _objects([*missing, *column.categories.take(used[len(missing) :])])
    order = list(column.categories) if column.ordered else None
    out = _categories(values, _missing(values), order)
    return replace(out, data=out.data[place])


def _objects(values: Sequence[Any]) -> NDArray:
    """Return an array of objects, also of sequences of equal length."""
    return np.fromiter(values, dtype=object, count=len(values))


def _numpy_zone(column: Series[Any], dtype: Any) -> Series[Any]:
    """Return a column of an Arrow type of pandas as a NumPy type; others unchanged.

    Without its time zone, such a column has the hours of UTC in pandas 2.
    """
    native = column.to_native()
    is_arrow = hasattr(getattr(native, "dtype", None), "pyarrow_dtype")
    if dtype.time_zone is None or not is_arrow:
        return column
    native = native.astype(f"datetime64[us, {dtype.time_zone}]")
    return nw.from_native(native, series_only=True)


def _order(column: Series[Any]) -> list[Any] | None:
    """Return the ordered levels of a column of categories; None without an order."""
    if isinstance(column.dtype, nw.Enum):
        return list(column.dtype.categories)
    native = column.to_native()
    is_arrow = not hasattr(native, "cat") and hasattr(native, "type")
    if is_arrow and nw.is_ordered_categorical(column):
        return column.cat.get_categories().to_list()
    return None


def _precision(dtype: Any) -> type:
    """Return float32 if it holds all numbers of a dtype, else float64."""
    names = "float32", "float16", "bool", "boolean", "int8", "uint8"
    return np.float32 if str(dtype).lower() in names else np.float64


def _numbers(values: NDArray, dtype: type) -> NDArray:
    """Return numbers as floats, NaN if missing."""
    if values.dtype.kind != "O":
        return values.astype(dtype)
    missing = _missing(values)
    return _filled(values[~missing], missing, dtype)


def _of_array(column: NDArray, name: str, as_categories: bool) -> Values:
    if isinstance(column, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(column)
        values = _of_array(np.asarray(column)[~missing], name, as_categories)
        return replace(values, data=_filled(values.data, missing, values.data.dtype))
    kind = column.dtype.kind
    if kind == "M":
        return Values("dates", column.astype("datetime64[us]"))
    if kind == "m":
        return Values("numbers", column / _DAY)
    if kind in "biuf" and not as_categories:
        return Values("numbers", column.astype(_precision(column.dtype)))
    if kind in "SU" and not as_categories:
        try:  # one type for all columns: numbers may be in it as text
            return Values("numbers", column.astype(np.float64))
        except ValueError:
            column = column.astype(str)
    return _of_objects(column.astype(object), name, as_categories)


def _missing(values: NDArray) -> NDArray:
    # Most objects are text, for which a call of a function takes longer than the rest.
    marks = [type(value) is not str and _is_missing(value) for value in values.flat]
    return np.array(marks, dtype=bool).reshape(values.shape)


def _is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT, pandas.NA or masked."""
    if value is None or type(value).__name__ in ("NAType", "NaTType", "MaskedConstant"):
        return True
    if isinstance(value, float | np.floating):
        return bool(value != value)
    return isinstance(value, _DATES + _DURATIONS) and bool(value != value)


def _of_objects(column: NDArray, name: str, as_categories: bool) -> Values:
    """Return a column of objects by the common type of its values."""
    missing = _missing(column)
    present = column[~missing]
    types = {type(value) for value in present}
    if not types or (as_categories and all(map(_has_text, types))):
        return _categories(column, missing)
    if _all(types, _DURATIONS):  # NumPy durations are also integers
        return Values("numbers", _filled(present, missing, "timedelta64[us]") / _DAY)
    if _all(types, _NUMBERS):
        return Values("numbers", _filled(present, missing, "float64"))
    if _all(types, _DATES):
        local = [_local(value) for value in present]
        return Values("dates", _filled(local, missing, "datetime64[us]"))
    if all(map(_has_text, types)):
        return _categories(column, missing, _natural_order(present, types))
    kinds = ", ".join(sorted(t.__name__ for t in types))
    raise TypeError(
        "`X` must hold numbers, text, booleans, dates and objects with a text, "
        f"an argument must be a string or a number, got {kinds} in column {name!r}: "
        "convert it to a column for each part"
    )


def _has_text(kind: type) -> bool:
    """Return whether the text of objects of a type identifies equal objects.

    Sets have no order, so equal sets may have different texts.
    """
    if issubclass(kind, _NUMBERS + _TEXTS):
        return True
    has_own = kind.__repr__ is not object.__repr__ or kind.__str__ is not object.__str__
    is_fixed = kind.__hash__ is not None and not issubclass(kind, Complex | Set)
    return has_own and is_fixed


def _natural_order(present: NDArray, types: set[type]) -> list[Any] | None:
    """Return sorted periods, intervals or times of day; None for other objects."""
    if len(types) > 1 or next(iter(types)).__name__ not in _ORDERED:
        return None
    try:
        return sorted(set(present))
    except (TypeError, ValueError):  # several frequencies or time zones
        return None


def _all(types: set[type], allowed: tuple[type, ...]) -> bool:
    return all(issubclass(t, allowed) for t in types)


def _filled(present: Iterable[Any], missing: NDArray, dtype: Any) -> NDArray:
    values = np.array(list(present), dtype=dtype)
    out = np.full(missing.shape, _FILLS.get(values.dtype.kind, "NaT"), values.dtype)
    out[~missing] = values
    return out


def _local(value: Any) -> Any:
    """Return a date without its time zone."""
    aware = getattr(value, "tzinfo", None) is not None
    return value.replace(tzinfo=None) if aware else value


def _categories(
    column: NDArray, missing: NDArray, order: Sequence[Any] | None = None
) -> Values:
    """Return categories with their levels in the given order, or sorted as text."""
    present = column[~missing]
    if not len(present):
        return Values("nothing", np.full(len(column), np.nan))
    keys = [v if type(v) is str else _key(v) for v in present]
    used = set(keys)
    sorted_keys = sorted(used) if order is None else map(_key, order)
    levels = tuple(key for key in dict.fromkeys(sorted_keys) if key in used)
    place = {level: k for k, level in enumerate(levels)}
    codes = np.full(len(column), -1, dtype=np.intp)
    codes[~missing] = [place[key] for key in keys]
    numeric = all(isinstance(value, _NUMBERS) for value in present)
    return Values("categories", codes, levels, order is not None, numeric)


def _key(value: Any) -> str:
    """Return the name of a category, the same for equal numbers of any type.

    Intervals, dates, durations, periods and tuples are represented by their text.
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    is_number = isinstance(value, Real | Decimal) and not isinstance(value, bool)
    if not is_number:
        return str(value)
    number = float(value)
    is_whole = np.isfinite(number) and int(value) == value
    return str(int(value)) if is_whole else repr(number)
