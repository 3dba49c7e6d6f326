"""Encodings of the columns of a table as numbers.

Numbers are unchanged, dates are split into parts, and categories become one column per
level, codes of an order, or target means. `fit_columns` fits the encodings; the result,
`TableColumns`, contains only arrays and strings and is saved with the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._report.fields import array, stored
from nbsketch._report.validation import check_indices, row_weights
from nbsketch.rows.copies import merged, representatives
from nbsketch.rows.inputs import check_as_many
from nbsketch.rows.lost_digits import warn_of_equal_integers
from nbsketch.tabular.encodings import (
    Column,
    LevelColumn,
    cross_fitted,
    fit_encoding,
    infinity,
)
from nbsketch.tabular.reading import (
    Values,
    as_frame,
    check_table,
    names_of,
    read_columns,
)


@stored
class TableColumns:
    """Fitted encodings of the columns of a table, created by `fit_columns`.

    Parameters
    ----------
    columns : tuple of NumberColumn, DateColumn and LevelColumn
        Encoding of each column of X.
    kept : ndarray of int
        Indices of the encoded columns that `transform` returns; the others are constant
        in training or equal to an earlier column.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.tabular.columns import fit_columns
    >>> X = np.array([["red", 1.0], ["blue", 2.0], ["red", None]], dtype=object)
    >>> columns, rows = fit_columns(X, [1.0, 2.0, 3.0])
    >>> columns.feature_names.tolist()
    ['x0_blue', 'x1', 'x1_missing']
    >>> columns.transform([["green", 5.0]]).round(2).tolist()
    [[0.33, 5.0, 0.0]]
    """

    columns: tuple[Column, ...]
    kept: Annotated[NDArray, array("_kept", "i")]

    def __post_init__(self) -> None:
        """Check that there are encodings, with the columns in `kept`."""
        check_indices("kept", self.kept, _starts(self.columns)[-1])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of X."""
        return tuple(column.name for column in self.columns)

    @property
    def owners(self) -> NDArray:
        """Index of the column of X for each feature of the result."""
        return np.searchsorted(_starts(self.columns), self.kept, side="right") - 1

    @property
    def feature_names(self) -> NDArray:
        """Names of the columns of the result, an array of str objects.

        Names of codes and indicators end in "_" if a column of X has the same name.
        """
        names = list[str]()
        used = set(self.names)
        for column in self.columns:
            for name in column.names:
                while name != column.name and name in used:
                    name += "_"
                names.append(name)
                used.add(name)
        return np.array(names, dtype=object)[self.kept]

    def transform(self, X: Any) -> NDArray:
        """Return X as numbers, of shape (n, p).

        Columns of a data frame are matched by name, columns of an array by position. An
        unknown category is 0 in all columns of a one-hot code (with two levels: the
        share of the rarer level), the mean target in a target code, and the median of
        an order. Categories are compared as text, and unknown ones also as numbers: 1,
        1.0, "1", "01" and True are equal.

        Raises
        ------
        TypeError
            If a column is of another kind than in training, including numbers for text
            that is not numeric.
        ValueError
            If columns are missing or unknown, a number is infinite, or a number equals
            several training levels, such as "1" and "01".
        """
        levels = {j for j, c in enumerate(self.columns) if isinstance(c, LevelColumn)}
        frame = as_frame(X)
        table = X if frame is None else frame
        names = names_of(table)
        by_position = frame is None and len(names) == len(self.names)
        if names != self.names and not by_position:
            check_names(self.names, names)
            place = {name: j for j, name in enumerate(names)}
            table = table[:, [place[name] for name in self.names]]
        values = read_columns(table, levels)
        return _join(self.columns, values, self.kept).astype(_dtype(values), copy=False)

    def summary_rows(self) -> Iterator[tuple[str, str]]:
        """Yield entries of a summary: kinds of columns, and unused columns."""
        kinds = [column.kind for column in self.columns]
        counts = [f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)]
        yield "columns", f"{', '.join(counts)}: {len(self.kept)} features"
        used = np.diff(np.searchsorted(self.kept, _starts(self.columns))) > 0
        if not used.all():
            yield "not used", ", ".join(compress(self.names, ~used))


class Table(NamedTuple):
    """The columns of a table as arrays, and their names."""

    names: tuple[str, ...]
    values: list[Values]

    @classmethod
    def of(cls, X: Any) -> Table:
        """Read the columns of a table, which must have a row and a column."""
        check_table(X)
        return cls(names_of(X), read_columns(X))

    def representatives(self, y: Any, weights: NDArray | None) -> NDArray | None:
        """Return the representative of each row, see `nbsketch.rows.copies`."""
        numbers = [column.data.astype(np.float64) for column in self.values]
        return representatives(np.column_stack(numbers), y, weights)

    def warn_of_equal_integers(self, X: Any) -> None:
        """Warn of columns of X with different integers that are equal as floats."""
        zeros = np.zeros(len(self.values[0].data))
        numbers = [v.data if v.kind == "numbers" else zeros for v in self.values]
        warn_of_equal_integers("X", X, np.column_stack(numbers), self.names)


def fit_columns(
    X: Any,
    y: Any,
    sample_weight: NDArray | None = None,
    *,
    classification: bool = False,
    blocks: NDArray | None = None,
) -> tuple[TableColumns, NDArray]:
    """Fit the encodings of a table; return them with the encoded training rows.

    - Numbers and booleans are kept; durations are in days.
    - Dates become year, month, day, day of the week, hour, and days since 1970.
    - Missing numbers and dates are replaced by the median, with an additional indicator
      column. A missing category is a category.
    - Categories with an order (``Categorical``, ``Enum``) become 0, 1, ... Other
      categories and strings have one column for each of up to 12 levels; two levels
      have a single column, in which missing values are the weighted share of the rarer
      level.
    - More levels are replaced by target codes: the weighted mean target of the level,
      shrunk to the overall mean by the formula of scikit-learn's ``TargetEncoder``, one
      per output, or per class after the first. For training rows they are means over
      the other `blocks`, or over four random fifths of the rows. Duplicates (rows with
      equal X and y) are merged into one row with the sum of their weights.
    - Text with more levels than half the rows identifies rows: it is not used, with a
      warning if most levels are numbers.
    - Columns that are constant or equal to an earlier one are dropped.

    Parameters
    ----------
    X : DataFrame, ndarray or nested sequence of shape (n, q)
        Table: a frame of pandas, polars, pyarrow or another library supported by
        narwhals. In an array of strings, columns of numbers as text are numbers.
    y : array-like of shape (n,) or (n, d)
        Targets, or labels if `classification`.
    sample_weight : ndarray of shape (n,) or None, default=None
        Nonnegative weights, for target codes and the shares of two levels. Rows of
        weight 0 are ignored.
    classification : bool, default=False
        Whether `y` holds class labels.
    blocks : ndarray of int of shape (m,), default=None
        Indices of the blocks of the m rows of positive weight that are left out
        together; -1: never left out. None: single rows.

    Returns
    -------
    columns : TableColumns
        The fitted encodings.
    rows : ndarray of shape (n, p)
        Encoded rows, float32 if no column needs more, else float64. Unlike in
        ``columns.transform(X)``, target codes exclude the target of the row.

    Raises
    ------
    TypeError, ValueError
        If a column holds other objects, if names are not distinct, or if all columns
        are identifiers.
    """
    check_as_many("y", y, X)
    table = Table.of(X)
    place = table.representatives(y, sample_weight) if blocks is None else None
    weights = merged(place, sample_weight)
    columns, rows = fit_table(
        table, y, weights, classification=classification, blocks=blocks
    )
    return columns, rows if place is None else rows[place]


def fit_table(
    table: Table,
    y: Any,
    weights: NDArray | None,
    *,
    classification: bool,
    blocks: NDArray | None,
) -> tuple[TableColumns, NDArray]:
    """Fit the encodings of a table without duplicates: see `fit_columns`."""
    values = table.values
    weights = row_weights(weights, y)
    used = weights > 0
    weights = weights[used] / weights[used].mean()
    targets = _targets(y, classification)[used]
    columns = tuple(
        fit_encoding(name, column.rows(used), targets, weights)
        for name, column in zip(*table, strict=True)
    )
    rows = _join(columns, values)
    starts = _starts(columns)
    for j, column in enumerate(columns):
        if isinstance(column, LevelColumn) and column.kind == "target codes":
            own = cross_fitted(column.places(values[j])[used], targets, weights, blocks)
            rows[used, starts[j] : starts[j + 1]] = own
    kept = _distinct(rows[used])
    return TableColumns(columns, kept), rows[:, kept].astype(_dtype(values))


def _join(
    columns: Sequence[Column], values: Sequence[Values], kept: Any = slice(None)
) -> NDArray:
    """Return the encoded columns `kept` side by side, with missing values filled."""
    pairs = zip(columns, values, strict=True)
    data = np.hstack([column.encode(value) for column, value in pairs])
    infinite = np.isinf(data).any(axis=0)
    if infinite.any():
        j = np.searchsorted(_starts(columns), infinite.argmax(), side="right") - 1
        raise infinity(columns[j].name)
    data = data[:, kept].astype(float, copy=False)
    fills = np.concatenate([column.fills for column in columns])
    return np.where(np.isnan(data), fills[kept], data)


def _starts(columns: Sequence[Column]) -> NDArray:
    """Return the first index of each column among all encoded ones, and the end."""
    return np.cumsum([0, *(len(column.suffixes) + column.marked for column in columns)])


def check_names(expected: tuple[str, ...], given: tuple[str, ...]) -> None:
    """Raise a ValueError unless both have the same names, in any order."""
    unseen = sorted(set(given) - set(expected))
    missing = sorted(set(expected) - set(given))
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


def _targets(y: Any, classification: bool) -> NDArray:
    """Return targets (n, d), or indicators of all classes but the first."""
    if not classification:
        return np.asarray(y, dtype=float).reshape(len(y), -1)
    classes, labels = np.unique(np.asarray(y), return_inverse=True)
    return (labels[:, None] == np.arange(1, max(2, len(classes)))).astype(float)


def _distinct(rows: NDArray) -> NDArray:
    """Return the columns that vary and differ from earlier ones; the first if none."""
    contents = set()
    kept = []
    for j, column in enumerate(rows.T):
        content = np.ascontiguousarray(column).tobytes()
        if content not in contents and (column != column[0]).any():
            kept.append(j)
        contents.add(content)
    if rows.shape[1] == 0:
        raise ValueError("`X` must have a column that is not an identifier, got none")
    return np.array(kept or [0])


def _dtype(values: list[Values]) -> type:
    """Return float32 if no number or date needs more than that, else float64."""
    plain = [v for v in values if v.kind in ("numbers", "dates")]
    single = all(v.data.dtype == np.float32 for v in plain)
    return np.float32 if plain and single else np.float64
