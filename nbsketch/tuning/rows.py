"""Rows of tuning: their preprocessing, the samples that are drawn, and folds.

Heavy tails dominate distances between standardized features; ranks are robust but
discard spacing. With a length scale for each column, a kernel can have both: the column
that does not help gets a large length scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._report.validation import (
    check_array_of,
    check_choice,
    check_integer,
    check_matrix,
    random_generator,
)
from nbsketch.rows.partitions import PartitionedRows
from nbsketch.solvers.folds import Fold
from nbsketch.tuning.criterion import Sample

PREPROCESSINGS = ("standard", "rank", "both")

# Deviations below this share of the mean are rounding of a constant.
CONSTANT = 1e-13
# Most rows that a scaler is fitted to, and the number of quantiles.
_FITTED_ROWS = 20_000
_KNOTS = 257
# With more features than MANY, rank scores are restricted to the skewed features: the
# correlation of a normal feature with its ranks is 0.977.
MANY = 50
_ALIKE, _ALIKE_OF_MANY = 0.99, 0.95
# Rows that are transformed at a time, and of which the values are counted.
_BLOCK = 8192
# Landmarks are limited to a third of the rows, but never below this number.
_LEAST_LANDMARKS = 80
# Most blocks of the search for length scales; more folds are merged.
MOST_BLOCKS = 10


@dataclass(frozen=True, eq=False)
class InputScaler:
    """Fitted preprocessing of features, made by `fit_scaler`.

    Parameters
    ----------
    n_features : int
        Number of features of X.
    plain, ranked : ndarray of int
        Indices of the features that are standardized, and of those whose rank scores
        are standardized: the p columns of the result, in this order. A feature in
        neither is dropped.
    center, width : ndarray of shape (p,)
        Offset and divisor of each column.
    quantiles : ndarray of shape (k, len(ranked))
        Quantiles of the ranked features at k equal steps from 0 to 1. Scores are
        interpolated between quantiles; equal quantiles have their mean score.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.tuning import fit_scaler
    >>> X = np.array([[0.0], [1.0], [2.0], [1000.0]])
    >>> fit_scaler(X, "rank").transform(X).round(2).ravel().tolist()
    [-1.34, -0.45, 0.45, 1.34]
    """

    n_features: int
    plain: NDArray
    ranked: NDArray
    center: NDArray
    width: NDArray
    quantiles: NDArray

    @property
    def features(self) -> NDArray:
        """The feature of each of the p columns."""
        return np.concatenate([self.plain, self.ranked])

    @property
    def is_partial(self) -> bool:
        """Whether some features are dropped."""
        return len(np.unique(self.features)) < self.n_features

    def __post_init__(self) -> None:
        q = check_integer("n_features", self.n_features)
        for name in ("plain", "ranked"):
            index = check_array_of(name, getattr(self, name), "i", 1)
            if index.size and not 0 <= index.min() <= index.max() < q:
                raise ValueError(f"`{name}` must be in [0, {q - 1}], got {index}")
        p = len(self.plain) + len(self.ranked)
        for name, ndim, size in (
            ("center", 1, p),
            ("width", 1, p),
            ("quantiles", 2, len(self.ranked)),
        ):
            values = check_array_of(name, getattr(self, name), "f", ndim)
            if values.shape[-1] != size or size < 2 - ndim or np.isnan(values).any():
                raise ValueError(
                    f"`{name}` must have {size} columns, at least one, and no NaN, got "
                    f"shape {values.shape}"
                )
        if len(self.quantiles) == 0 or (np.diff(self.quantiles, axis=0) < 0).any():
            raise ValueError("`quantiles` must ascend, got descending ones or none")
        if not (self.width > 0).all():
            raise ValueError("`width` must be positive, got other numbers")

    def transform(self, X: NDArray) -> NDArray:
        """Return the p columns for the rows of X (n, q), in the type of X."""
        X = check_matrix("X", X, n_features=self.n_features)
        out = np.empty((len(X), len(self.center)), dtype=X.dtype)
        for j, feature in enumerate(self.plain):
            column = X[:, feature].astype(np.float64)
            out[:, j] = (column - self.center[j]) / self.width[j]
        for k, feature in enumerate(self.ranked):
            j = len(self.plain) + k
            scores = _scores(X[:, feature], self.quantiles[:, k])
            out[:, j] = (scores - self.center[j]) / self.width[j]
        return out

    def without_ranks(self) -> InputScaler:
        """Return the scaler without the columns of ranks."""
        return self._columns(np.arange(len(self.features)) < len(self.plain))

    def select(self, features: ArrayLike) -> InputScaler:
        """Return the scaler that drops all but some features."""
        return self._columns(np.isin(self.features, features))

    def _columns(self, kept: NDArray) -> InputScaler:
        plain, ranked = np.split(kept, [len(self.plain)])
        return replace(
            self,
            plain=self.plain[plain],
            ranked=self.ranked[ranked],
            center=self.center[kept],
            width=self.width[kept],
            quantiles=self.quantiles[:, ranked],
        )


def fit_scaler(
    X: NDArray,
    preprocessing: str,
    rng: Any = None,
    among: NDArray | None = None,
    features: NDArray | None = None,
) -> InputScaler:
    """Return the scaler fitted to the rows of X.

    Parameters
    ----------
    X : ndarray of shape (n, q)
        Rows. At most 20 000 of them, drawn at random, are used.
    preprocessing : {"standard", "rank", "both"}
        "standard" (zero mean, unit variance), "rank" (scores of empirical quantiles) or
        "both" side by side. "both" omits ranks that are nearly a linear function of
        the feature, as for uniform or binary features.
    rng : None, int or Generator, default=None
        Random state of the draw of rows.
    among : ndarray of int, default=None
        Indices of the rows to draw from. None: all rows.
    features : ndarray of int, default=None
        Indices of the features to keep; the others are dropped. None: all features.

    Returns
    -------
    scaler : InputScaler
        The fitted scaler, for rows with q features.
    """
    check_choice("preprocessing", preprocessing, PREPROCESSINGS)
    candidates = np.arange(len(X)) if among is None else among
    if len(candidates) > _FITTED_ROWS:
        candidates = random_generator(rng).choice(
            candidates, _FITTED_ROWS, replace=False
        )
    chosen = np.arange(X.shape[1]) if features is None else np.asarray(features)
    rows = X[candidates][:, chosen].astype(np.float64)
    q = len(chosen)
    every = np.arange(q)
    quantiles = np.quantile(rows, np.linspace(0, 1, min(len(rows), _KNOTS)), axis=0)
    scores = np.column_stack([_scores(rows[:, k], quantiles[:, k]) for k in every])
    plain = every[:0] if preprocessing == "rank" else every
    ranked = every[:0] if preprocessing == "standard" else every
    if preprocessing == "both":
        alike = _ALIKE if q <= MANY else _ALIKE_OF_MANY
        ranked = ranked[_correlations(rows, scores) < alike]
    columns = np.hstack([rows[:, plain], scores[:, ranked]])
    center, width = columns.mean(axis=0), columns.std(axis=0)
    varies = (width > CONSTANT * np.abs(center)) & np.isfinite(width)
    width = np.where(varies, width, 1.0)
    return InputScaler(
        X.shape[1], chosen[plain], chosen[ranked], center, width, quantiles[:, ranked]
    )


def _scores(values: NDArray, quantiles: NDArray) -> NDArray:
    """Return ranks between 0 and 1; equal quantiles have their mean rank."""
    steps = np.linspace(0, 1, len(quantiles))
    low = np.interp(values, quantiles, steps)
    if (quantiles[1:] > quantiles[:-1]).all():
        return low
    high = np.interp(-values, -quantiles[::-1], -steps[::-1])
    return (low - high) / 2


def _correlations(rows: NDArray, scores: NDArray) -> NDArray:
    """Return the correlation of each column with its scores; 1 if one is constant."""
    a, b = rows - rows.mean(axis=0), scores - scores.mean(axis=0)
    norms = np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0)
    inner = (a * b).sum(axis=0)
    return np.divide(inner, norms, out=np.ones_like(inner), where=norms > 0)


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
        first = self.Y[self.kept[:_BLOCK]]
        return self.labels is None and any(len(np.unique(y)) > 2 for y in first.T)

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

    def transform(self, index: NDArray) -> NDArray:
        """Return some rows, transformed in double precision."""
        return self.scaler.transform(self.X[index].astype(np.float64, copy=False))

    def sample(self, rng: np.random.Generator, count: int, size: int) -> Sample:
        """Return a sample of rows drawn at random."""
        return self.take(self.draw(rng, count), size)

    def keep(self, kept: NDArray, cut: float) -> Rows:
        """Return the same rows with another set that may be drawn, and another cut."""
        return replace(self, kept=kept, cut=cut if cut > 0 else np.inf)

    def values(self, function: Callable[[NDArray], NDArray], index: NDArray) -> NDArray:
        """Return a function of ascending, transformed rows, block by block."""
        if isinstance(self.X, PartitionedRows):
            rows = self.X if len(index) == len(self.X) else self.X.select(index)
            return np.vstack(rows.partitions.each(_values, function, self.scaler))
        blocks = np.split(index, range(_BLOCK, len(index), _BLOCK))
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
    kept_weights = None if weights is None else weights[kept]
    mean = np.average(Y[kept], axis=0, weights=kept_weights)
    spread = np.sqrt(
        np.average(np.square(Y[kept] - mean), axis=0, weights=kept_weights)
    )
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
