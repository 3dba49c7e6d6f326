"""The encoding of a column, chosen and fitted by its values and the targets."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from nbsketch.tabular.encodings import (
    Column,
    DateColumn,
    LevelColumn,
    NumberColumn,
    as_number,
    check_no_infinity,
    date_parts,
)
from nbsketch.tabular.reading import Values

# Most levels of a category with a column for each; more levels have target codes.
MOST_LEVELS = 12
# Random folds whose target codes are means over the other folds.
FOLDS = 5


def fit_encoding(
    name: str, values: Values, targets: NDArray, weights: NDArray
) -> Column:
    """Return the encoding of a column, given targets (n, d) and weights of mean one."""
    if values.kind == "dates":
        parts = date_parts(values.data)
        return DateColumn(name, _medians(parts), _any_missing(parts))
    if values.kind == "numbers":
        check_no_infinity(values.data, name)
        (fill,) = _medians(values.data[:, None])
        return NumberColumn(name, float(fill), _any_missing(values.data))
    if values.kind == "nothing":
        return LevelColumn(name, (), np.zeros((2, 0)), "empty", ())
    if values.ordered:
        return _order(name, values)
    if len(values.levels) <= MOST_LEVELS:
        return _one_hot(name, values)
    if len(values.levels) > len(values.data) / 2:
        _warn_of_numbers(name, values)
        empty = np.zeros((len(values.levels) + 2, 0))
        return LevelColumn(name, values.levels, empty, "identifier", ())
    return _target_codes(name, values, targets, weights)


def cross_fitted(
    codes: NDArray,
    targets: NDArray,
    weights: NDArray,
    blocks: NDArray | None,
    seed: int,
) -> NDArray:
    """Return the target codes of the rows, by targets of other blocks.

    `blocks` are ordinals of rows that are left out together. Rows of block -1, or all
    rows without blocks, are in five random ones.
    """
    labels = np.full(len(codes), -1) if blocks is None else blocks.copy()
    free, count = np.flatnonzero(labels < 0), labels.max() + 1
    order = np.random.default_rng(seed).permutation(len(free))
    labels[free[order]] = count + np.arange(len(free)) % FOLDS
    # Of all rows: the mean of the others would tell that of the block.
    mean = np.average(targets, axis=0, weights=weights)
    out, k = np.empty(targets.shape), codes.max() + 1
    for label in np.unique(labels):
        mine = labels == label
        table = _shrunk_means(codes, targets, weights * ~mine, mean, k)
        out[mine] = table[codes[mine]]
    return out


def _warn_of_numbers(name: str, values: Values) -> None:
    """Warn if most levels of a column that is not used are numbers."""
    numbers = sum(as_number(level) is not None for level in values.levels)
    if 2 * numbers > len(values.levels):
        warnings.warn(
            f"column {name!r} of `X` is not used: it has {len(values.levels)} levels, "
            f"which identify rows, but {numbers} of them are numbers stored as text or "
            "categories. Convert it to numbers first, or drop it",
            stacklevel=6,
        )


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


def _target_codes(
    name: str, values: Values, targets: NDArray, weights: NDArray
) -> LevelColumn:
    codes = np.where(values.data < 0, len(values.levels), values.data)
    mean = np.average(targets, axis=0, weights=weights)
    table = _shrunk_means(codes, targets, weights, mean, len(values.levels) + 2)
    count = targets.shape[1]
    suffixes = ("",) if count == 1 else tuple(f"_{j}" for j in range(count))
    suffixes = tuple(f"_code{suffix}" for suffix in suffixes)
    return LevelColumn(name, values.levels, table, "target codes", suffixes)


def _shrunk_means(
    codes: NDArray, targets: NDArray, weights: NDArray, mean: NDArray, count: int
) -> NDArray:
    """Return the mean target of each code, shrunk to the `mean` of all, (count, d).

    The share of its own mean is v / (v + s / m) with the variance v of the targets,
    that of the targets s at the code, and the sum m of its weights; and m times this if
    m is below one, less than a row.
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


def _medians(parts: NDArray) -> NDArray:
    """Return the median of each column over values that are not missing, 0 if none."""
    present = ~np.isnan(parts).all(axis=0)
    out = np.zeros(parts.shape[1])
    out[present] = np.nanmedian(parts[:, present].astype(float), axis=0)
    return out


def _any_missing(data: NDArray) -> bool:
    return bool(np.isnan(data).any())
