"""Fitted encodings of one column: numbers, dates, or the levels of a category."""

import re
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._report.fields import Scope, array, finite, stored
from nbsketch._report.validation import check_array_of, check_length, warn
from nbsketch.kernels import weighted_median
from nbsketch.tabular.reading import Values

# Maximum number of levels with one column each; more levels have target codes.
MOST_LEVELS = 12
# Use of a column of levels, for warnings, and number of levels that they list.
_IDENTIFIER = "is not used: it has {} levels, which identify rows"
_CODES = "is encoded by the mean targets of its {} levels"
_LISTED = 3
# Text that is a number without these marks, and dates as text.
_MARKS = re.compile(r"[$€£%,\s]")
_DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/]\d{1,2}[-/]\d{2,4}"
    r"|\d{1,2}\.\d{1,2}\.\d{4}|\d{4}-\d{2})([ T]\d.*)?"
)
# Number of random folds whose target codes are means over the other folds.
FOLDS = 5
_PARTS = "_year", "_month", "_day", "_weekday", "_hour", "_days"


def _texts(name: str, value: Any, scope: Scope) -> None:
    """Check a tuple of strings, all at once: there may be one per row."""
    if not isinstance(value, tuple) or not all(isinstance(text, str) for text in value):
        raise TypeError(f"`{name}` must be a tuple of strings, got {value!r:.60}")


class Column:
    """A fitted encoding of one column of a table as numbers.

    Attributes
    ----------
    name : str
        Name of the column.
    kind : str
        Kind of the column in summaries.
    suffixes : tuple of str
        Suffixes of `name` in the names of the encoded columns.
    fill : float or ndarray
        Replacement of NaN in these columns; it is one in the indicator.
    marked : bool
        Whether an additional column is 1 for missing values and else 0.
    """

    name: str
    kind: str
    suffixes: tuple[str, ...]
    fill: float | NDArray
    marked: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the result."""
        marks = ("_missing",) if self.marked else ()
        return tuple(self.name + suffix for suffix in (*self.suffixes, *marks))

    @property
    def fills(self) -> NDArray:
        """Replacements of NaN in the m columns of the result, (m,)."""
        out = np.ones(len(self.suffixes) + self.marked)
        out[: len(self.suffixes)] = self.fill
        return out

    def encode(self, values: Values) -> NDArray:
        """Return the m columns, NaN if missing; the indicator is otherwise zero."""
        numbers = self.numbers(values)
        if not self.marked:
            return numbers
        return np.hstack([numbers, np.where(np.isnan(numbers[:, :1]), np.nan, 0.0)])

    def numbers(self, values: Values) -> NDArray:
        """Return the values as numbers, NaN if missing."""
        raise NotImplementedError

    def _data(self, values: Values, kind: str) -> NDArray:
        """Return the data of a column of the expected kind, NaT for missing dates."""
        if values.kind == "nothing":
            missing = np.full(len(values.data), np.datetime64("NaT", "us"))
            return missing if kind == "dates" else values.data
        if values.kind != kind:
            raise TypeError(
                f"column {self.name!r} of `X` must hold {kind} as in `fit`, got "
                f"{values.kind}"
            )
        return values.data


@stored
class NumberColumn(Column):
    """A column of numbers or booleans.

    Parameters
    ----------
    name : str
        Name of the column.
    fill : float
        Median, which replaces missing values.
    marked : bool
        Whether a second column is 1 for missing values and else 0.

    Examples
    --------
    >>> from nbsketch import NumberColumn
    >>> NumberColumn("age", 41.0, marked=True).names
    ('age', 'age_missing')
    """

    name: str
    fill: Annotated[float, finite]
    marked: bool
    kind = "numbers"
    suffixes = ("",)

    def numbers(self, values: Values) -> NDArray:
        """Return the values."""
        return self._data(values, "numbers")[:, None]


@stored
class DateColumn(Column):
    """A column of dates: year, month, day, day of the week, hour and elapsed days.

    Monday is day 0 of the week; the hour is fractional; days are counted since 1970.

    Parameters
    ----------
    name : str
        Name of the column.
    fill : ndarray of shape (6,)
        Medians of the parts, which replace missing values.
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
    fill: Annotated[NDArray, array("_parts")]
    marked: bool
    kind = "dates"
    suffixes = _PARTS

    def __post_init__(self) -> None:
        """Check that there is a number for each part."""
        check_length("fill", self.fill, len(_PARTS), "numbers")

    def numbers(self, values: Values) -> NDArray:
        """Return the parts of the dates."""
        return date_parts(self._data(values, "dates"))


@stored
class LevelColumn(Column):
    """A column of categories: a table with numbers for each level.

    Parameters
    ----------
    name : str
        Name of the column.
    levels : tuple of str
        Levels in the training data.
    table : ndarray of shape (len(levels) + 2, m)
        Numbers of each level, followed by those of missing values and of unknown
        levels. Without columns: the column is not used.
    kind : {"one-hot", "target codes", "order", "identifier", "empty"}
        Meaning of the numbers.
    suffixes : tuple of str
        Suffixes of `name` in the names of the m columns.

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
    levels: Annotated[tuple[str, ...], _texts]
    table: NDArray
    kind: str
    suffixes: Annotated[tuple[str, ...], _texts]
    fill = 0.0  # no number is missing
    marked = False

    def __post_init__(self) -> None:
        """Check that each level and each name of a column has its numbers."""
        table = check_array_of("table", self.table, "f", 2)
        expected = len(self.levels) + 2, len(self.suffixes)
        if table.shape != expected or not np.isfinite(table).all():
            raise ValueError(
                f"`table` must hold {expected} finite numbers, got shape {table.shape}"
            )

    def numbers(self, values: Values) -> NDArray:
        """Return the (n, m) numbers of the levels."""
        if not self.suffixes:
            return np.empty((len(values.data), 0))
        return self.table[self.places(values)]

    def places(self, values: Values) -> NDArray:
        """Return the rows of the table, of shape (n,)."""
        missing = len(self.levels)
        unknown = len(self.levels) + 1
        if values.kind == "nothing":
            return np.full(len(values.data), missing)
        codes = self._data(values, "categories")
        place = {level: k for k, level in enumerate(self.levels)}
        new = [level for level in values.levels if level not in place]
        if new:
            place |= self._equal_numbers(new, values.numeric)
        rows = [*(place.get(level, unknown) for level in values.levels), missing]
        return np.array(rows)[codes]  # code -1 is the last entry

    def _equal_numbers(self, new: list[str], numeric: bool) -> dict[str, int]:
        """Return the rows of levels that equal one of training as a number.

        `numeric`: the new levels are not text, unlike in training.
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


def as_number(level: str) -> Decimal | None:
    """Return the number of a level, 0 or 1 for a boolean; None for other text.

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


def date_parts(dates: NDArray) -> NDArray:
    """Return year, month, day, weekday, hour and days since 1970, (n, 6); NaT is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> date_parts(np.array(["2024-02-29T18:30"], dtype="datetime64[us]")).tolist()
    [[2024.0, 2.0, 29.0, 3.0, 18.5, 19782.770833333332]]
    """
    days = dates.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
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


def fit_encoding(
    name: str, values: Values, targets: NDArray, weights: NDArray
) -> Column:
    """Return the encoding of a column, given targets (n, d) and weights of mean one."""
    data = values.data
    if values.kind == "dates":
        return DateColumn(name, *_medians(date_parts(data), weights))
    if values.kind == "numbers":
        if np.isinf(data).any():
            raise infinity(name)
        fill, marked = _medians(data[:, None], weights)
        return NumberColumn(name, float(fill[0]), marked)
    if values.kind == "nothing":
        return _unused(name, values, "empty")
    if values.ordered:
        return _order(name, values, weights)
    if len(values.levels) <= MOST_LEVELS:
        return _one_hot(name, values, targets, weights)
    if len(values.levels) > len(data) / 2:
        _warn_of_text(name, values, _IDENTIFIER)
        return _unused(name, values, "identifier")
    _warn_of_text(name, values, _CODES)
    return _target_codes(name, values, targets, weights)


def cross_fitted(
    codes: NDArray, targets: NDArray, weights: NDArray, blocks: NDArray | None
) -> NDArray:
    """Return the target codes of the rows, from targets of other blocks.

    `blocks` are indices of rows that are left out together. Rows of block -1, or all
    rows without blocks, are in five random folds.
    """
    labels = np.full(len(codes), -1) if blocks is None else blocks.copy()
    free = np.flatnonzero(labels < 0)
    count = labels.max() + 1
    order = np.random.default_rng(0).permutation(len(free))
    labels[free[order]] = count + np.arange(len(free)) % FOLDS
    # The mean of all rows: the mean of the others would reveal that of the block.
    mean = np.average(targets, axis=0, weights=weights)
    out = np.empty(targets.shape)
    k = codes.max() + 1
    for label in np.unique(labels):
        mine = labels == label
        out[mine] = _shrunk_means(codes, targets, weights * ~mine, mean, k)[codes[mine]]
    return out


def _warn_of_text(name: str, values: Values, use: str) -> None:
    """Warn if most levels of a column are numbers or dates, and list the other levels.

    Target codes of whole numbers alone cause no warning: they may be category names.
    """
    levels = values.levels
    numbers = [as_number(_MARKS.sub("", level)) for level in levels]
    dates = [_DATE.fullmatch(level) for level in levels]
    are_dates = 2 * (len(dates) - dates.count(None)) > len(dates)
    kind, hint = ("dates", "") if are_dates else ("numbers", " (missing ones to NaN)")
    pairs = zip(levels, dates if are_dates else numbers, strict=True)
    others = [repr(level) for level, found in pairs if found is None]
    count = len(levels) - len(others)
    is_whole = all(z is not None and z == z.to_integral() for z in numbers)
    if 2 * count <= len(levels) or (use == _CODES and (values.numeric or is_whole)):
        return
    listed = ", ".join(others[:_LISTED]) + (", ..." if len(others) > _LISTED else "")
    warn(
        f"column {name!r} of `X` {use.format(len(levels))}, but {count} of them are "
        f"{kind} stored as text or categories"
        + (f", and others are {listed}" if others else "")
        + f". Convert it to {kind} first{hint}, or drop it"
    )


def _unused(name: str, values: Values, kind: str) -> LevelColumn:
    empty = np.zeros((len(values.levels) + 2, 0))
    return LevelColumn(name, values.levels, empty, kind, ())


def _order(name: str, values: Values, weights: NDArray) -> LevelColumn:
    """Return ranks of the levels, with an indicator column of missing values."""
    codes = np.where(values.data < 0, np.nan, values.data)
    middle, misses = _medians(codes[:, None], weights)
    k = len(values.levels)
    count = 1 + int(misses)
    ranks = np.append(np.arange(k), [middle[0], middle[0]])
    table = np.column_stack([ranks, np.arange(k + 2) == k])[:, :count]
    suffixes = "", "_missing"
    return LevelColumn(name, values.levels, table, "order", suffixes[:count])


def _one_hot(
    name: str, values: Values, targets: NDArray, weights: NDArray
) -> LevelColumn:
    """Return one column per level, one for two levels, and one for missing values.

    Columns are ordered by the weights of the levels, then by their mean targets, so
    that models do not depend on their names. With two levels, the rarer has the column;
    missing values and unknown levels have its weighted share.
    """
    k = len(values.levels)
    present = values.data >= 0
    codes = values.data[present]
    w = weights[present]
    totals = np.bincount(codes, w, k)
    means = np.bincount(codes, w * targets[present, 0], k) / totals
    order = np.lexsort([means, -totals])[int(k == 2) :]
    table = np.eye(k + 2)
    if k == 2:
        table[k:, order] = totals[order] / totals.sum()
    columns = order if present.all() else np.append(order, k)
    ends = *(f"_{level}" for level in values.levels), "_missing"
    suffixes = tuple(ends[j] for j in columns)
    return LevelColumn(name, values.levels, table[:, columns], "one-hot", suffixes)


def _target_codes(
    name: str, values: Values, targets: NDArray, weights: NDArray
) -> LevelColumn:
    codes = np.where(values.data < 0, len(values.levels), values.data)
    mean = np.average(targets, axis=0, weights=weights)
    table = _shrunk_means(codes, targets, weights, mean, len(values.levels) + 2)
    numbers = [""] if targets.shape[1] == 1 else [f"_{j}" for j in range(len(mean))]
    suffixes = tuple(f"_code{number}" for number in numbers)
    return LevelColumn(name, values.levels, table, "target codes", suffixes)


def _shrunk_means(
    codes: NDArray, targets: NDArray, weights: NDArray, mean: NDArray, count: int
) -> NDArray:
    """Return the mean target of each code, shrunk to the overall `mean`, (count, d).

    The weight of its own mean is v / (v + s / m), with the variance v of all targets,
    the variance s of the targets with this code, and the sum m of its weights;
    multiplied by m if m is below one (less than one row).
    """
    residual = targets - mean
    variance = np.average(np.square(residual), axis=0, weights=weights)
    total = np.bincount(codes, weights, count)[:, None]
    sizes = np.maximum(total, np.finfo(float).tiny)
    means = _sums(codes, weights[:, None] * residual, count) / sizes
    squares = weights[:, None] * np.square(residual - means[codes])
    scale = variance + _sums(codes, squares, count) / sizes / sizes
    share = np.divide(variance, scale, out=np.zeros_like(scale), where=scale > 0)
    return mean + np.minimum(total, 1) * share * means


def _sums(codes: NDArray, values: NDArray, count: int) -> NDArray:
    """Return the sum of values (n, d) at each code, (count, d)."""
    return np.stack([np.bincount(codes, v, count) for v in values.T], axis=1)


def _medians(parts: NDArray, weights: NDArray) -> tuple[NDArray, bool]:
    """Return the median of each column (0 if all are missing), and whether any is."""
    out = np.zeros(parts.shape[1])
    given = ~np.isnan(parts)
    for j in np.flatnonzero(given.any(axis=0)):
        rows = given[:, j]
        out[j] = weighted_median(parts[rows, j].astype(float), weights[rows])
    return out, not given.all()


def infinity(name: str) -> ValueError:
    """Return the error for a column of numbers that holds infinity."""
    return ValueError(
        f"Input X contains infinity in column {name!r}, finite numbers are expected"
    )
