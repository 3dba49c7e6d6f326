"""Splits of rows for cross-validation, from a number or from index arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._validation import check_integer
from nbsketch.solvers.folds import Fold

# Most blocks of the search for length scales; more folds are merged.
MOST_BLOCKS = 10


def as_folds(
    cv: int | Iterable[tuple[Any, Any]] | Sequence[Fold] | None,
    n: int,
    groups: NDArray | None = None,
    sample_weight: NDArray | None = None,
) -> list[Fold] | None:
    """Return folds of n rows; None for leave-one-out.

    Parameters
    ----------
    cv : None, int, iterable of (train, test) or sequence of Fold
        None: leave-one-out, or one group out if there are groups. An integer: that many
        contiguous blocks of rows, or of whole groups in the order of their first rows.
        Pairs of index arrays, as a scikit-learn splitter yields them, are used
        unchanged; so are folds.
    n : int
        Number of rows.
    groups : ndarray of shape (n,), default=None
        Label of the group of each row; ignored for pairs of index arrays.
    sample_weight : ndarray of shape (n,), default=None
        Non-negative weights. A row of weight zero is in no fold.

    Examples
    --------
    >>> from nbsketch.tuning.folds import as_folds
    >>> [fold.test.tolist() for fold in as_folds(2, 5)]
    [[0, 1, 2], [3, 4]]
    """
    kept = np.arange(n) if sample_weight is None else np.flatnonzero(sample_weight > 0)
    if cv is None and groups is None:
        return None
    if cv is None or isinstance(cv, int | np.integer):
        return [Fold(block, block) for block in _blocks(cv, kept, groups)]
    folds = [_fold(pair, kept, n) for pair in cv]
    if not folds:
        raise ValueError("`cv` must yield at least one (train, test) pair, got none")
    return folds


def block_labels(folds: list[Fold], n: int) -> NDArray:
    """Return the block of each row for the search for length scales.

    It is the first fold whose test set has the row, or -1. More than 10 folds are
    merged into 10 blocks of neighboring folds.
    """
    labels = np.full(n, -1)
    for k in reversed(range(len(folds))):
        labels[folds[k].test] = k
    count = min(len(folds), MOST_BLOCKS)
    return np.where(labels < 0, -1, labels * count // len(folds))


def _blocks(cv: int | None, kept: NDArray, groups: NDArray | None) -> list[NDArray]:
    """Return contiguous blocks of rows or of whole groups."""
    units, kind = list(kept), "rows of positive weight"
    if groups is not None:
        units, kind = _members(kept, np.asarray(groups)[kept]), "groups"
    count = len(units) if cv is None else check_integer("cv", cv, low=2)
    if not 2 <= count <= len(units):
        raise ValueError(
            f"`cv` must be at least 2 and at most the number of {kind}, {len(units)}, "
            f"got {cv!r}"
        )
    return np.array_split(kept, count) if groups is None else _merged(units, count)


def _members(rows: NDArray, groups: NDArray) -> list[NDArray]:
    """Return the rows of each group, in the order of the first rows of the groups."""
    _, first, member = np.unique(groups, return_index=True, return_inverse=True)
    place = np.argsort(np.argsort(first))[member]
    ends = np.cumsum(np.bincount(place))[:-1]
    return np.split(rows[np.argsort(place, kind="stable")], ends)


def _merged(units: list[NDArray], count: int) -> list[NDArray]:
    """Return neighboring units merged into `count` blocks of about equal size."""
    sizes = np.array([len(unit) for unit in units])
    middles = np.cumsum(sizes) - sizes / 2
    starts = np.searchsorted(middles, np.arange(1, count) * sizes.sum() / count)
    # Each block has a unit, even where units differ much in size.
    for k in range(count - 1):
        starts[k] = max(starts[k], starts[k - 1] + 1 if k else 1)
    for k in reversed(range(count - 1)):
        last = len(units) if k == count - 2 else starts[k + 1]
        starts[k] = min(starts[k], last - 1)
    parts = np.split(np.arange(len(units)), starts)
    return [np.sort(np.concatenate([units[j] for j in part])) for part in parts]


def _fold(pair: Fold | tuple[Any, Any], kept: NDArray, n: int) -> Fold:
    if isinstance(pair, Fold):
        return pair
    train, test = (_indices(rows, n) for rows in pair)
    if np.intersect1d(train, test).size:
        raise ValueError("`cv` must yield disjoint train and test indices")
    train, test = np.intersect1d(train, kept), np.intersect1d(test, kept)
    if not (len(train) and len(test)):
        raise ValueError(
            "`cv` must yield train and test sets with rows of positive weight, got "
            f"{len(train)} and {len(test)} such rows"
        )
    return Fold(test, np.setdiff1d(kept, train))


def _indices(rows: Any, n: int) -> NDArray:
    rows = np.asarray(rows)
    if rows.dtype == bool:
        rows = np.flatnonzero(rows)
    if rows.size and not (
        np.issubdtype(rows.dtype, np.integer) and rows.min() >= 0 and rows.max() < n
    ):
        raise ValueError(f"`cv` must yield indices of the {n} rows, got {rows!r}")
    return rows.astype(np.intp)
