"""The encoding of a column, chosen and fitted by its values and the targets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder

from nbsketch.tabular.encodings import (
    Column,
    DateColumn,
    LevelColumn,
    NumberColumn,
    check_no_infinity,
    date_parts,
)
from nbsketch.tabular.reading import Values

# Most levels of a category with a column for each; more levels have target codes.
MOST_LEVELS = 12
# Folds whose target codes are the means of the other folds.
FOLDS = 5


def fit_encoding(name: str, values: Values, targets: NDArray) -> Column:
    """Return the encoding of a column, given its targets (n, d)."""
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
        empty = np.zeros((len(values.levels) + 2, 0))
        return LevelColumn(name, values.levels, empty, "identifier", ())
    return _target_codes(name, values, targets)


def cross_fitted(codes: NDArray, targets: NDArray, seed: int) -> NDArray:
    """Return the target codes of the rows, by targets of other folds."""
    out = np.empty(targets.shape)
    folds = KFold(min(FOLDS, len(codes)), shuffle=True, random_state=seed)
    for others, fold in folds.split(codes):
        out[fold] = _mean_targets(codes[others], targets[others], codes[fold])
    return out


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


def _medians(parts: NDArray) -> NDArray:
    """Return the median of each column over values that are not missing, 0 if none."""
    known = ~np.isnan(parts).all(axis=0)
    out = np.zeros(parts.shape[1])
    out[known] = np.nanmedian(parts[:, known].astype(float), axis=0)
    return out


def _any_missing(data: NDArray) -> bool:
    return bool(np.isnan(data).any())
