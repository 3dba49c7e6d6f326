"""Values that are no finite numbers: what errors say about them, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

# What to do about missing values, by the name of the argument.
_REMEDIES = {
    "X": "impute them first, make_pipeline(SimpleImputer(), model) in scikit-learn, "
    "or leave these rows out",
    "sample_weight": "a row of weight 0 is left out",
}
_ENCODE = """encode them first, for instance with scikit-learn:
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), {columns}),
        remainder="passthrough")
    model = make_pipeline(encode, model)
or with TargetEncoder() in place of OneHotEncoder for many categories"""
# How the types of dates and durations begin, in pandas and polars.
_DATES = "date", "time", "duration"
# Largest magnitude of which the squares of 1e28 values have a finite sum.
_LARGEST = 1e140
# Most indices that an error lists.
_LISTED = 5


@contextmanager
def explaining(data: dict[str, Any], text_in: Iterable[str] = ()) -> Iterator[None]:
    """Name arguments and missing, infinite and text values in errors of a data check.

    Data are looked at only after an error, so valid data cost nothing.

    Parameters
    ----------
    data : dict of str to array, data frame, sparse matrix or None
        Data as given, by the name of the argument; rows of features first.
    text_in : iterable of str
        Names of the data that may hold text.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        for name, value in data.items():
            message = fault(name, value, name in text_in)
            if message is not None:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(message) from error
        if str(error).startswith("Expected 2D array"):  # followed by all the values
            name, value = next(iter(data.items()))
            raise ValueError(not_a_table(name, np.shape(value))) from None
        raise


def not_a_table(name: str, shape: tuple[int, ...]) -> str:
    """Return the message for an array that does not have two axes."""
    return (
        f"Expected 2D array, got {len(shape)}D array instead: `{name}` must have shape "
        f"(n, q), got {shape}. Reshape your data using {name}.reshape(-1, 1) if it has "
        f"a single feature or {name}.reshape(1, -1) if it is a single row"
    )


def fault(name: str, value: Any, may_be_text: bool = False) -> str | None:
    """Return what is wrong with some values of an array or a frame; None: nothing."""
    labels, frame = getattr(value, "columns", None), value
    labels = getattr(value, "column_names", labels)  # pyarrow's columns are values
    if value is None:
        return None
    if not sp.issparse(value):
        try:
            value = np.asarray(value)
        except ValueError:  # rows of different lengths
            return None
        except TypeError:  # columns without a common type
            return _dates(name, frame)
    if value.ndim == 0:
        is_text = _is_text(value.item()) and not may_be_text
        text = f"`{name}` must be an array of numbers, got {value.item()!r}"
        return text if is_text else None
    if value.dtype.kind in "OSU":
        objects = np.asarray(value, dtype=object)
        text = np.frompyfunc(_is_text, 1, 1)(objects).astype(bool)
        if text.any() and not may_be_text:
            return _text(name, text, labels)
    if labels is not None and (dates := _dates(name, frame)):
        return dates
    if value.dtype.kind in "OSU":
        value = np.frompyfunc(_as_float, 1, 1)(value.astype(object)).astype(float)
    if value.dtype.kind != "f" or value.ndim not in (1, 2):
        return None
    values = value.data if sp.issparse(value) else value
    return None if np.isfinite(values).all() else _contains(name, value, labels)


def check_magnitude(name: str, value: Any) -> None:
    """Raise an error if squares of the values of an array would overflow."""
    values = value.data if sp.issparse(value) else value
    if not values.size:
        return
    largest = max(-float(values.min()), float(values.max()))
    if largest > _LARGEST:
        raise ValueError(
            f"`{name}` must have magnitudes up to {_LARGEST:g}, got {largest:.3g}, of "
            "which the square overflows: rescale it, or look for corrupt values"
        )


def _dates(name: str, frame: Any) -> str | None:
    """Return the message for a frame with dates or durations, None without."""
    kinds = [str(dtype) for dtype in getattr(frame, "dtypes", ())]
    dates = [j for j, kind in enumerate(kinds) if kind.lower().startswith(_DATES)]
    if not dates:
        return None
    columns = _listed("column", np.asarray(dates), list(frame.columns))
    return (
        f"`{name}` must hold numbers, got {kinds[dates[0]]} in {columns}; replace "
        "dates by numbers first: days since a start, the month, the hour"
    )


def _is_text(value: Any) -> bool:
    """Return whether a value is a string that is no number."""
    if not isinstance(value, str | bytes):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


def _as_float(value: Any) -> float:
    """Return a number, NaN for missing values and 0 for other objects."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return np.nan
    return float(value) if isinstance(value, Real) else 0.0


def _text(name: str, text: NDArray, labels: Any) -> str:
    text_of = f"`{name}` must hold numbers, could not convert string to float in "
    if text.ndim != 2:
        return text_of + _listed("row", np.flatnonzero(text))
    columns = np.flatnonzero(text.any(axis=0))
    chosen = [int(j) if labels is None else labels[j] for j in columns[:_LISTED]]
    remedy = _ENCODE.format(columns=chosen) if name == "X" else "encode them first"
    return text_of + f"{_listed('column', columns, labels)}; {remedy}"


def _contains(name: str, value: Any, labels: Any) -> str:
    """Return the message for data of the user that hold NaN or infinity."""
    values = value.data if sp.issparse(value) else value
    kinds = [
        kind
        for kind, test in (("NaN", np.isnan), ("infinity", np.isinf))
        if test(values).any()
    ]
    message = f"Input {name} contains {' and '.join(kinds)}, finite numbers are "
    message += f"expected: found{_places(value, labels)}"
    return f"{message}; {_REMEDIES[name]}" if name in _REMEDIES else message


def not_finite(name: str, value: Any) -> str:
    """Return the message for an array or a sparse matrix with NaN or infinity."""
    return f"`{name}` must be finite, got NaN or infinity{_places(value)}"


def _places(value: Any, labels: Any = None) -> str:
    """Return the number of values that are not finite, their rows and columns."""
    if sp.issparse(value):
        entries = value.tocoo()
        values, index = entries.data, [entries.row, entries.col]
    else:
        values, index = value, list(np.indices(value.shape))
    bad = ~np.isfinite(values)
    where = f" in {int(bad.sum())} of {values.size} values"
    if value.ndim not in (1, 2):
        return where
    rows = _listed("row", np.unique(index[0][bad]))
    if value.ndim == 1:
        return f"{where}, {rows}"
    return f"{where}, {rows} and {_listed('column', np.unique(index[1][bad]), labels)}"


def _listed(noun: str, index: NDArray, labels: Any = None) -> str:
    """Return the first indices, with their labels, and how many there are."""
    names = [
        f"{k}" if labels is None else f"{k} ({labels[k]!r})" for k in index[:_LISTED]
    ]
    more = f", ... ({len(index)} in all)" if len(index) > _LISTED else ""
    return f"{noun}{'s' if len(index) > 1 else ''} {', '.join(names)}{more}"
