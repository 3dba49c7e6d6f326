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
from sklearn.utils import check_consistent_length

from nbsketch._validation import check_array_of
from nbsketch.tabular.encoding_fits import cross_fitted, fit_encoding
from nbsketch.tabular.encodings import Column, DateColumn, LevelColumn, NumberColumn
from nbsketch.tabular.reading import Values, is_frame, names_of, read_columns


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
        encoding = fit_encoding(name, column.rows(used), targets[used])
        piece = encoding.encode(column)
        if isinstance(encoding, LevelColumn) and encoding.kind == "target codes":
            codes = encoding.places(column)[used, None]
            piece[used] = cross_fitted(codes, targets[used], random_state)
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


def _kind(column: Column) -> str:
    if isinstance(column, LevelColumn):
        return column.kind
    return "dates" if isinstance(column, DateColumn) else "numbers"
