"""Data frames as numbers: fitted encodings of the columns of a table.

Numbers keep their value, dates become their parts, and categories become one column a
level, the codes of an order, or means of the target. `fit_columns` fits the encodings;
the result, `TableColumns`, holds arrays and text only and is saved with the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder
from sklearn.utils import check_consistent_length

from nbsketch._validation import check_array_of
from nbsketch.tabular.reading import Values, is_frame, names_of, read_columns

# Most levels of a category with a column for each; more levels have target codes.
MOST_LEVELS = 12
# Folds whose target codes are the means of the other folds.
FOLDS = 5
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
        _check_no_infinity(data, self.name)
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


@dataclass(frozen=True, eq=False)
class TableColumns:
    """Fitted encodings of the columns of a table, made by `fit_columns`.

    Parameters
    ----------
    columns : tuple of NumberColumn, DateColumn and LevelColumn
        Encoding of each column of X.
    kept : ndarray of int
        Indices of the columns that `transform` returns, among all encoded ones; the
        others are constant in training, or equal to an earlier one.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.tabular.columns import fit_columns
    >>> X = np.array([["red", 1.0], ["blue", None], ["red", 3.0]], dtype=object)
    >>> columns, rows = fit_columns(X, [1.0, 2.0, 3.0])
    >>> columns.feature_names.tolist()
    ['x0_red', 'x1', 'x1_missing']
    >>> columns.transform([["green", 5.0]]).tolist()
    [[0.0, 5.0, 0.0]]
    """

    columns: tuple[Column, ...]
    kept: NDArray

    def __post_init__(self) -> None:
        parts = NumberColumn | DateColumn | LevelColumn
        if not all(isinstance(column, parts) for column in self.columns):
            raise TypeError("`columns` must be encodings of columns, got others")
        width = sum(len(column.names) for column in self.columns)
        kept = check_array_of("kept", self.kept, "i", 1)
        if not kept.size or not 0 <= kept.min() <= kept.max() < width:
            raise ValueError(f"`kept` must be in [0, {width - 1}], got {kept}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of X."""
        return tuple(column.name for column in self.columns)

    @property
    def feature_names(self) -> NDArray:
        """Names of the columns of the result, an array of str objects."""
        names = [name for column in self.columns for name in column.names]
        return np.array(names, dtype=object)[self.kept]

    def transform(self, X: Any) -> NDArray:
        """Return the rows of X as numbers, of shape (n, p).

        Columns of a data frame are matched by name, those of an array by position.
        A category that no training row has is 0 in all columns of a one-hot code, the
        target's mean as a target code, and the median of an order.

        Raises
        ------
        TypeError
            If a column is not of the kind that it was in training.
        ValueError
            If columns are missing or unknown, or a number is infinite.
        """
        return self._join(self._arrange(X))

    def in_order(self, X: Any) -> Any:
        """Return X with the columns of a data frame in the order of training.

        X is returned as it is if its columns have other names.
        """
        found = names_of(X) if is_frame(X) else self.names
        if found == self.names or set(found) != set(self.names):
            return X
        return X.iloc[:, [found.index(name) for name in self.names]]

    def summary_rows(self) -> Iterator[tuple[str, str]]:
        """Yield entries of a summary: kinds of columns, and what is not used."""
        kinds = [_kind(column) for column in self.columns]
        counts = [f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)]
        yield "columns", f"{', '.join(counts)}: {len(self.kept)} features"
        unused = self._unused()
        if unused:
            yield "not used", ", ".join(unused)

    def _arrange(self, X: Any) -> list[Values]:
        """Return the columns of X in the order of training."""
        found = names_of(X)
        if is_frame(X) or len(found) != len(self.names):
            check_names(self.names, found)
        return list(read_columns(self.in_order(X)))

    def _join(self, values: list[Values]) -> NDArray:
        pieces = [c.encode(v) for c, v in zip(self.columns, values, strict=True)]
        return np.hstack(pieces)[:, self.kept].astype(_dtype(values), copy=False)

    def _unused(self) -> list[str]:
        """Return the names of columns without any feature."""
        start, unused = 0, []
        for column in self.columns:
            stop = start + len(column.names)
            if not ((self.kept >= start) & (self.kept < stop)).any():
                unused.append(column.name)
            start = stop
        return unused


def fit_columns(
    X: Any,
    y: Any,
    sample_weight: NDArray | None = None,
    *,
    classification: bool = False,
    random_state: int = 0,
) -> tuple[TableColumns, NDArray]:
    """Fit the encodings of a table; return them with the encoded training rows.

    - Numbers and booleans are kept; durations are in days.
    - Dates become year, month, day, day of the week, hour, and days since 1970.
    - Missing numbers and dates are replaced by the median; a column that tells where
      they were is added. A missing category is a category.
    - Categories with an order (pandas) become 0, 1, ... Other categories and text have
      a column for each of up to 12 levels; two levels have one.
    - More levels are replaced by target codes: the mean target of the level, shrunk to
      the overall mean (scikit-learn's ``TargetEncoder``), one for each output, or for
      each class after the first. For a training row they are the means over the four
      fifths of the rows that it does not belong to.
    - Text with more levels than half the rows identifies rows: it is not used.
    - Columns that are constant or equal to an earlier one are dropped.

    Parameters
    ----------
    X : DataFrame, ndarray or nested sequence of shape (n, q)
        Table. In an array of strings, columns that are numbers as text are numbers.
    y : array-like of shape (n,) or (n, d)
        Targets, or labels if `classification`.
    sample_weight : ndarray of shape (n,) or None, default=None
        Rows of weight 0 are ignored. Other weights have no influence on encodings.
    classification : bool, default=False
        Whether `y` holds class labels.
    random_state : int, default=0
        Seed of the folds of target codes.

    Returns
    -------
    columns : TableColumns
        The fitted encodings.
    rows : ndarray of shape (n, p)
        Encoded rows, float32 if no column needs more, else float64. Unlike
        ``columns.transform(X)``, target codes leave out the target of the row.

    Raises
    ------
    TypeError, ValueError
        If a column holds other objects, if names are not distinct, or if all columns
        are identifiers.
    """
    check_consistent_length(X, y)
    names, values = names_of(X), list(read_columns(X))
    n = len(y)
    if not n or not values:
        raise ValueError(
            f"`X` must have a row and a column, got 0 sample(s) or 0 feature(s) "
            f"(shape=({n}, {len(values)})) while a minimum of 1 is required."
        )
    used = np.ones(n, bool) if sample_weight is None else sample_weight > 0
    targets = _targets(y, classification)
    found, pieces = [], []
    for name, column in zip(names, values, strict=True):
        encoding = _fit_column(name, column.rows(used), targets[used])
        piece = encoding.encode(column)
        if isinstance(encoding, LevelColumn) and encoding.kind == "target codes":
            codes = encoding.places(column)[used, None]
            piece[used] = _cross_fitted(codes, targets[used], random_state)
        found.append(encoding)
        pieces.append(piece)
    rows = np.hstack(pieces)
    kept = _distinct(rows[used])
    return TableColumns(tuple(found), kept), rows[:, kept].astype(_dtype(values))


def check_names(expected: tuple[str, ...], found: tuple[str, ...]) -> None:
    """Raise a ValueError unless both have the same names, in any order."""
    unseen = sorted(set(found) - set(expected))
    missing = sorted(set(expected) - set(found))
    if not unseen and not missing:
        return
    message = "The feature names should match those that were passed during fit.\n"
    for title, names in (
        ("Feature names unseen at fit time", unseen),
        ("Feature names seen at fit time, yet now missing", missing),
    ):
        listed = "".join(f"- {name}\n" for name in names[:5])
        more = "- ...\n" if len(names) > 5 else ""
        message += f"{title}:\n{listed}{more}" if names else ""
    raise ValueError(message)


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


def _fit_column(name: str, values: Values, targets: NDArray) -> Column:
    if values.kind == "dates":
        parts = date_parts(values.data)
        return DateColumn(name, _medians(parts), _any_missing(parts))
    if values.kind == "numbers":
        _check_no_infinity(values.data, name)
        (fill,) = _medians(values.data[:, None])
        return NumberColumn(name, float(fill), _any_missing(values.data))
    if values.kind == "nothing":
        return LevelColumn(name, (), np.zeros((2, 0)), "empty", ())
    if values.ordered:
        return _order(name, values)
    if len(values.levels) <= MOST_LEVELS:
        return _one_hot(name, values)
    if len(values.levels) > len(values.data) / 2:
        empty = np.zeros((len(values.levels) + 2, 0))
        return LevelColumn(name, values.levels, empty, "identifier", ())
    return _target_codes(name, values, targets)


def _order(name: str, values: Values) -> LevelColumn:
    """Return ranks of the levels; a column that tells where they are missing."""
    present = values.data[values.data >= 0]
    middle = np.median(present) if len(present) else 0.0
    k, marked = len(values.levels), len(present) < len(values.data)
    ranks = np.append(np.arange(k), [middle, middle])[:, None].astype(float)
    if not marked:
        return LevelColumn(name, values.levels, ranks, "order", ("",))
    table = np.hstack([ranks, (np.arange(k + 2) == k)[:, None].astype(float)])
    return LevelColumn(name, values.levels, table, "order", ("", "_missing"))


def _one_hot(name: str, values: Values) -> LevelColumn:
    k = len(values.levels)
    first = 1 if k == 2 else 0  # the second of two levels tells both
    suffixes = tuple(f"_{level}" for level in values.levels[first:])
    table = np.eye(k + 2)
    if (values.data < 0).any():
        table, suffixes = table[:, first : k + 1], (*suffixes, "_missing")
    else:
        table = table[:, first:k]
    return LevelColumn(name, values.levels, table, "one-hot", suffixes)


def _target_codes(name: str, values: Values, targets: NDArray) -> LevelColumn:
    k = len(values.levels)
    codes = np.where(values.data < 0, k, values.data)[:, None]
    table = _mean_targets(codes, targets, np.arange(k + 2)[:, None])
    count = targets.shape[1]
    suffixes = ("",) if count == 1 else tuple(f"_{j}" for j in range(count))
    suffixes = tuple(f"_code{suffix}" for suffix in suffixes)
    return LevelColumn(name, values.levels, table, "target codes", suffixes)


def _mean_targets(codes: NDArray, targets: NDArray, new: NDArray) -> NDArray:
    """Return shrunk means of each target for new codes, (len(new), m)."""
    means = [
        TargetEncoder(target_type="continuous").fit(codes, target).transform(new)
        for target in targets.T
    ]
    return np.hstack(means)


def _cross_fitted(codes: NDArray, targets: NDArray, seed: int) -> NDArray:
    """Return the target codes of the rows, by targets of other folds."""
    out = np.empty(targets.shape)
    folds = KFold(min(FOLDS, len(codes)), shuffle=True, random_state=seed)
    for others, fold in folds.split(codes):
        out[fold] = _mean_targets(codes[others], targets[others], codes[fold])
    return out


def _targets(y: Any, classification: bool) -> NDArray:
    """Return targets (n, d), or indicators of all classes but the first."""
    if not classification:
        return np.asarray(y, dtype=float).reshape(len(y), -1)
    classes, labels = np.unique(np.asarray(y), return_inverse=True)
    return (labels[:, None] == np.arange(1, max(2, len(classes)))).astype(float)


def _distinct(rows: NDArray) -> NDArray:
    """Return the columns that vary and differ from all before; the first if none."""
    known: set[bytes] = set()
    kept = []
    for j, column in enumerate(rows.T):
        content = np.ascontiguousarray(column).tobytes()
        if content not in known and (column != column[0]).any():
            kept.append(j)
        known.add(content)
    if rows.shape[1] == 0:
        raise ValueError("`X` must have a column that is not an identifier, got none")
    return np.array(kept or [0])


def _dtype(values: list[Values]) -> type:
    """Return float32 if no number or date needs more than that, else float64."""
    plain = [v for v in values if v.kind in ("numbers", "dates")]
    single = all(v.data.dtype == np.float32 for v in plain)
    return np.float32 if plain and single else np.float64


def _medians(parts: NDArray) -> NDArray:
    """Return the median of each column over values that are not missing, 0 if none."""
    known = ~np.isnan(parts).all(axis=0)
    out = np.zeros(parts.shape[1])
    out[known] = np.nanmedian(parts[:, known].astype(float), axis=0)
    return out


def _any_missing(data: NDArray) -> bool:
    return bool(np.isnan(data).any())


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


def _check_no_infinity(data: NDArray, name: str) -> None:
    if np.isinf(data).any():
        raise ValueError(
            f"Input X contains infinity in column {name!r}, finite numbers are expected"
        )


def _kind(column: Column) -> str:
    if isinstance(column, LevelColumn):
        return column.kind
    return "dates" if isinstance(column, DateColumn) else "numbers"


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
