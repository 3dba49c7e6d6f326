"""Transformation of inputs: scaled features and ranks, at once or block by block.

Heavy tails dominate distances between standardized features; ranks are robust but
discard spacing. With one length scale per column, a kernel can use both: the less
useful column gets a large length scale.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nbsketch._machine.memory import fits, slices
from nbsketch._report.validation import (
    check_array_of,
    check_choice,
    check_indices,
    check_integer,
    check_matrix,
    random_generator,
    varying_features,
)
from nbsketch.kernels import Kernel
from nbsketch.rows.partitions import BlockRows, PartitionedRows

PREPROCESSINGS = "standard", "rank", "both"
# Ranges of targets below this share of the mean are rounding of a constant.
CONSTANT = 1e-14
_FITTED_ROWS = 20_000  # maximum number of rows used to fit a scaler
_KNOTS = 257  # number of quantiles
# With more features than MANY, rank scores are restricted to skewed features: the
# correlation of a normal feature with its ranks is 0.977.
MANY = 50
_ALIKE = 0.99  # correlation with the feature above which ranks are omitted
_ALIKE_OF_MANY = 0.95  # the same with more than MANY features
# Rows, and products with them, of up to this size are always stored.
KEEP_BYTES = 256 << 20
# Copies of rows are stored if they take at most one over this of the memory limit.
_ROWS_SHARE = 4
# Number of rows at a time for checking the domain and finding extreme values.
_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True, eq=False)
class InputScaler:
    """Fitted preprocessing of features, created by `fit_scaler`.

    Parameters
    ----------
    n_features : int
        Number of features of X.
    plain, ranked : ndarray of int
        Indices of the standardized features, and of the features with standardized rank
        scores: the p columns of the result, in this order. A feature in neither is
        dropped.
    center, width : ndarray of shape (p,)
        Offset and divisor of each column; the divisor is infinite for constant columns.
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
            check_indices(name, check_array_of(name, getattr(self, name), "i", 1), q)
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
        """Return the p columns for the rows X (n, q), in the dtype of X."""
        return self._transform(check_matrix("X", X, n_features=self.n_features))

    def _transform(self, X: NDArray) -> NDArray:
        """Return the p columns for checked rows."""
        out = np.empty((len(X), len(self.center)), dtype=X.dtype)
        for part in slices(len(X), _BLOCK_ROWS):
            out[part] = self._double(X[part])
        return out

    def _double(self, X: NDArray) -> NDArray[np.float64]:
        """Return the columns in double precision."""
        out = X.take(self.features, axis=1).astype(np.float64, copy=False)
        steps = np.linspace(0, 1, len(self.quantiles))
        ranks = out[:, len(self.plain) :]
        for column, quantiles in zip(ranks.T, self.quantiles.T, strict=True):
            column[:] = _scores(column, quantiles, steps)
        out -= self.center
        out /= self.width
        return out

    def without_ranks(self) -> Self:
        """Return the scaler without the columns of ranks."""
        return self._columns(np.arange(len(self.features)) < len(self.plain))

    def select(self, features: ArrayLike) -> Self:
        """Return the scaler that keeps only some features."""
        return self._columns(np.isin(self.features, features))

    def _columns(self, kept: NDArray) -> Self:
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
    weights: NDArray | None = None,
) -> InputScaler:
    """Return the scaler fitted to the rows X.

    Parameters
    ----------
    X : ndarray of shape (n, q)
        Rows. At most 20,000 of them, drawn at random, are used.
    preprocessing : {"standard", "rank", "both"}
        "standard" (zero mean, unit variance), "rank" (scores of empirical quantiles) or
        "both" side by side. "both" omits ranks that are nearly a linear function of the
        feature, as for uniform or binary features. If a share p of the rows has the
        same value, and r the rarest value, the variance is (1 - p) / (1 - r) instead of
        one: rows with rare flags are then not far from the others. Constant features
        become zero, also in new rows.
    rng : None, int or Generator, default=None
        Random state of the draw of rows.
    among : ndarray of int, default=None
        Indices of the rows to draw from. None: all rows.
    features : ndarray of int, default=None
        Indices of the features to keep; the others are dropped. None: all features.
    weights : ndarray of shape (n,), default=None
        Positive weights of the rows, used in means, deviations and quantiles. None:
        equal weights.

    Returns
    -------
    scaler : InputScaler
        The fitted scaler for q features.
    """
    check_choice("preprocessing", preprocessing, PREPROCESSINGS)
    index = np.arange(len(X)) if among is None else among
    if len(index) > _FITTED_ROWS:
        index = random_generator(rng).choice(index, _FITTED_ROWS, replace=False)
    chosen = np.arange(X.shape[1]) if features is None else np.asarray(features)
    sample = X[index][:, chosen]
    rows = sample.astype(np.float64)
    w = None if weights is None or np.ptp(weights[index]) == 0 else weights[index]
    every = np.arange(len(chosen))
    quantiles = _quantiles(rows, np.linspace(0, 1, min(len(rows), _KNOTS)), w)
    steps = np.linspace(0, 1, len(quantiles))
    pairs = zip(rows.T, quantiles.T, strict=True)
    scores = np.column_stack([_scores(*pair, steps) for pair in pairs])
    plain = every[:0] if preprocessing == "rank" else every
    ranked = every[:0] if preprocessing == "standard" else every
    if preprocessing == "both":
        alike = _ALIKE if len(chosen) <= MANY else _ALIKE_OF_MANY
        ranked = ranked[_correlations(rows, scores, w) < alike]
    columns = np.hstack([rows[:, plain], scores[:, ranked]])
    center = np.average(columns, axis=0, weights=w)
    variance = np.average(np.square(columns - center), axis=0, weights=w)
    width = np.sqrt(variance) / [_rarity(column, w) for column in columns.T]
    varies = varying_features(sample)[np.concatenate([plain, ranked])]
    width = np.where(varies & (width > 0), width, np.inf)
    return InputScaler(
        X.shape[1], chosen[plain], chosen[ranked], center, width, quantiles[:, ranked]
    )


def _rarity(values: NDArray, weights: NDArray | None) -> float:
    """Return sqrt((1 - p) / (1 - r)), for shares p and r of values of a column.

    p is the largest share of a value, r the smallest; the result is 1 if all values
    differ. The deviation of a flag tends to zero with its number of ones, which would
    put these rows far from all others; divided by this factor, it is p times the
    distance of the values.
    """
    if weights is None:
        _, counts = np.unique(values, return_counts=True)
    else:
        counts = np.bincount(np.unique(values, return_inverse=True)[1], weights)
    if len(counts) < 2:
        return 1.0
    total = counts.sum()
    return float(np.sqrt((total - counts.max()) / (total - counts.min())))


def _scores(values: NDArray, quantiles: NDArray, steps: NDArray) -> NDArray:
    """Return ranks between 0 and 1; equal quantiles have their mean rank."""
    order = np.argsort(values)  # ascending values are interpolated faster
    ascending = values[order]
    ranks = np.interp(ascending, quantiles, steps)
    if (quantiles[1:] == quantiles[:-1]).any():
        ranks = (ranks - np.interp(-ascending, -quantiles[::-1], -steps[::-1])) / 2
    out = np.empty(len(values))
    out[order] = ranks
    return out


def _quantiles(rows: NDArray, levels: NDArray, weights: NDArray | None) -> NDArray:
    """Return quantiles of weighted columns, (levels, q), linear between the values.

    The smallest value has level 0 and the largest level 1.
    """
    if weights is None:
        return np.quantile(rows, levels, axis=0)
    out = np.empty((len(levels), rows.shape[1]))
    for k, column in enumerate(rows.T):
        order = np.argsort(column, kind="stable")
        w = weights[order]
        place = np.cumsum(w) - w / 2
        place = (place - place[0]) / (place[-1] - place[0])
        out[:, k] = np.interp(levels, place, column[order])
    return out


def _correlations(rows: NDArray, scores: NDArray, weights: NDArray | None) -> NDArray:
    """Return the correlation of each column with its scores; 1 if one is constant."""
    root = 1.0 if weights is None else np.sqrt(weights)[:, None]
    a, b = (root * (v - np.average(v, axis=0, weights=weights)) for v in (rows, scores))
    norms = np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0)
    inner = (a * b).sum(axis=0)
    return np.divide(inner, norms, out=np.ones_like(inner), where=norms > 0)


class LazyRows(BlockRows):
    """Rows that are copied, or transformed, on access.

    Parameters
    ----------
    X : ndarray or LazyRows of shape (n, q)
        Rows.
    scaler : InputScaler, optional
        Transformation of the rows.
    chosen : ndarray of int, optional
        Indices of the selected rows. None: all rows.
    """

    def __init__(
        self, X: Any, scaler: InputScaler | None = None, chosen: NDArray | None = None
    ) -> None:
        self._X = X
        self._scaler = scaler
        self._chosen = chosen
        n_columns = X.shape[1] if scaler is None else len(scaler.center)
        self.shape = len(X if chosen is None else chosen), n_columns
        self.dtype = X.dtype

    def __getitem__(self, rows: Any) -> NDArray:
        part = self._X[rows if self._chosen is None else self._chosen[rows]]
        return part if self._scaler is None else self._scaler._transform(part)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        return self[:].astype(dtype or self.dtype, copy=False)

    def each(self, function: Callable, *args: Any) -> list[Any]:
        """Return the results of ``function(block, *args)``."""
        blocks = (self[part] for part in slices(len(self), _BLOCK_ROWS))
        return [function(block, *args) for block in blocks]


def choose_rows(X: Any, rows: NDArray) -> Any:
    """Return a subset of the rows X: copied, or lazily if a copy takes much memory."""
    if isinstance(X, PartitionedRows):
        return X.select(rows)
    is_dense = isinstance(X, np.ndarray | LazyRows) and X.ndim == 2
    if not is_dense or _is_copied(X.dtype, len(rows), X.shape[1]):
        return X[rows]
    return LazyRows(X, chosen=rows)


def transformed(X: Any, scaler: InputScaler | None) -> Any:
    """Return transformed rows: at once, or lazily if they take much memory.

    Without a scaler they are unchanged.
    """
    if scaler is None:
        return X
    if isinstance(X, PartitionedRows):
        return X.map(scaler._transform, len(scaler.center))
    if _is_copied(X.dtype, len(X), len(scaler.center)):
        return scaler._transform(X[:] if isinstance(X, LazyRows) else X)
    return LazyRows(X, scaler)


def transform_rows(
    rows: Any, scaler: InputScaler | None, kernel: Kernel, name: str = "X"
) -> Any:
    """Return new rows transformed for a kernel; errors call them `name`."""
    if scaler is not None and sp.issparse(rows):
        raise TypeError(
            f"`{name}` must be dense for a model that transforms its inputs, got a "
            "sparse matrix: fit it with sparse X, or with a given bandwidth"
        )
    rows = transformed(rows, scaler)
    check_domain(kernel, name, rows)
    return rows


def _is_copied(dtype: np.dtype, n: int, n_columns: int) -> bool:
    return fits(dtype.itemsize * n * n_columns, copies=_ROWS_SHARE, modest=KEEP_BYTES)


def check_domain(kernel: Kernel, name: str, rows: Any) -> None:
    """Raise an error if a kernel is undefined for some rows, block by block."""
    if isinstance(rows, np.ndarray) or sp.issparse(rows):
        kernel.check_domain(name, rows)
    elif type(kernel).check_domain is not Kernel.check_domain:
        rows.each(partial(kernel.check_domain, name))  # else on all dense rows
