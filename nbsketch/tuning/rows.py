"""Rows of positive weight, from which each round of tuning draws; folds of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._validation import check_integer
from nbsketch.distributed.rows import PartitionedRows
from nbsketch.solvers.folds import Fold
from nbsketch.tuning.criterion import Sample
from nbsketch.tuning.inputs import CONSTANT, InputScaler

# Rows that are transformed at a time, and of which the values are counted.
_BLOCK = 8192
# Landmarks are limited to a third of the rows, but never below this number.
_LEAST_LANDMARKS = 80
# Most blocks of the search for length scales; more folds are merged.
MOST_BLOCKS = 10


@dataclass(frozen=True)
class Rows:
    """Rows, targets, weights, and the indices of the rows that may be drawn."""

    X: Any  # (n, q), ndarray or PartitionedRows
    Y: NDArray  # (n, d), standardized
    weights: NDArray | None  # (n,)
    scaler: InputScaler
    kept: NDArray  # indices
    cut: float = np.inf  # residuals beyond it count linearly
    alpha: float | None = None  # penalty, if it is given
    labels: NDArray | None = None  # block of each row, (n,); see `block_labels`

    @property
    def is_noisy(self) -> bool:
        """Whether errors may be independent and Gaussian, so that evidence holds.

        Those of classes are not Gaussian, those of blocks of rows are dependent.
        """
        some = self.Y[self.kept[:_BLOCK]]
        return self.labels is None and any(len(np.unique(y)) > 2 for y in some.T)

    def draw(self, rng: np.random.Generator, count: int) -> NDArray:
        """Return the indices of at most `count` rows, drawn without replacement."""
        return rng.choice(self.kept, min(count, len(self.kept)), replace=False)

    def take(self, drawn: NDArray, size: int) -> Sample:
        """Return drawn rows as a sample; the first, at most `size`, are landmarks."""
        X = self.transform(drawn)
        weights = None
        if self.weights is not None:
            weights = self.weights[drawn] / self.weights[drawn].mean()
        most = max(len(drawn) // 3, _LEAST_LANDMARKS)
        landmarks = np.arange(min(size, most, len(drawn)))
        log_tau = None if self.alpha is None else float(np.log(self.alpha * len(drawn)))
        blocks = None if self.labels is None else self.labels[drawn]
        return Sample(X, self.Y[drawn], weights, landmarks, self.cut, log_tau, blocks)

    def transform(self, some: NDArray) -> NDArray:
        """Return some rows, transformed in double precision."""
        return self.scaler.transform(self.X[some].astype(np.float64, copy=False))

    def sample(self, rng: np.random.Generator, count: int, size: int) -> Sample:
        """Return a sample of rows drawn at random."""
        return self.take(self.draw(rng, count), size)

    def keep(self, kept: NDArray, cut: float) -> Rows:
        """Return the same rows with another set that may be drawn, and another cut."""
        return replace(self, kept=kept, cut=cut if cut > 0 else np.inf)

    def values(self, function: Callable[[NDArray], NDArray], some: NDArray) -> NDArray:
        """Return a function of ascending, transformed rows, block by block."""
        if isinstance(self.X, PartitionedRows):
            rows = self.X if len(some) == len(self.X) else self.X.select(some)
            return np.vstack(rows.partitions.each(_values, function, self.scaler))
        blocks = np.split(some, range(_BLOCK, len(some), _BLOCK))
        return np.vstack([function(self.transform(block)) for block in blocks])


def _values(
    X: NDArray, function: Callable[[NDArray], NDArray], scaler: InputScaler
) -> NDArray:
    blocks = (X[first : first + _BLOCK] for first in range(0, len(X), _BLOCK))
    return np.vstack([function(scaler.transform(b.astype(float))) for b in blocks])


def prepare(
    X: NDArray,
    Y: NDArray,
    weights: NDArray | None,
    scaler: InputScaler,
    kept: NDArray,
    cut: float = np.inf,
    alpha: float | None = None,
    labels: NDArray | None = None,
) -> Rows:
    """Return rows, with targets standardized on the rows that may be drawn.

    `cut` is in standard deviations of the targets.
    """
    Y = np.asarray(Y, dtype=np.float64)
    some = None if weights is None else weights[kept]
    mean = np.average(Y[kept], axis=0, weights=some)
    spread = np.sqrt(np.average(np.square(Y[kept] - mean), axis=0, weights=some))
    varies = spread > CONSTANT * np.abs(mean)
    Y = np.where(varies, Y - mean, 0.0) / np.where(varies, spread, 1.0)
    return Rows(X, Y, weights, scaler, kept, cut, alpha, labels)


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
    >>> from nbsketch.tuning.rows import as_folds
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
