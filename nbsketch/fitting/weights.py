"""Sample weights: a row of weight zero is left out before anything else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import _check_sample_weight

from nbsketch._faults import explaining
from nbsketch._memory import fits
from nbsketch._sketch_map import KEEP_BYTES
from nbsketch.distributed.rows import PartitionedRows
from nbsketch.tuning import InputScaler

# Copies of rows are stored if they take at most one over this of the memory limit.
_ROWS_SHARE = 4
# Rows of which the extreme values are found at a time.
_BLOCK_ROWS = 1 << 16


class LazyRows(ABC):
    """A matrix of which an index gives an array, and nothing is stored."""

    ndim = 2
    shape: tuple[int, int]
    dtype: np.dtype

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, rows: Any) -> NDArray: ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        return self[:].astype(dtype or self.dtype, copy=False)

    def min(self, axis: int | None = None) -> Any:
        """Return the least value, of each column with axis 0."""
        return np.min([block.min(axis) for block in self._blocks()], axis=axis)

    def max(self, axis: int | None = None) -> Any:
        """Return the largest value, of each column with axis 0."""
        return np.max([block.max(axis) for block in self._blocks()], axis=axis)

    def _blocks(self) -> Iterator[NDArray]:
        starts = range(0, len(self), _BLOCK_ROWS)
        return (self[start : start + _BLOCK_ROWS] for start in starts)


class TransformedRows(LazyRows):
    """Rows of X that are transformed when they are asked for.

    Parameters
    ----------
    X : ndarray or LazyRows of shape (n, q)
        Rows.
    scaler : InputScaler
        Their transformation.
    """

    def __init__(self, X: Any, scaler: InputScaler) -> None:
        self._X, self._scaler = X, scaler
        self.shape, self.dtype = (len(X), len(scaler.center)), X.dtype

    def __getitem__(self, rows: Any) -> NDArray:
        return self._scaler.transform(self._X[rows])


class ChosenRows(LazyRows):
    """Some rows of X, copied when they are asked for.

    Parameters
    ----------
    X : ndarray or LazyRows of shape (n, q)
        Rows.
    chosen : ndarray of int
        Indices of some of them.
    """

    def __init__(self, X: Any, chosen: NDArray) -> None:
        self._X, self._chosen = X, chosen
        self.shape, self.dtype = (len(chosen), X.shape[1]), X.dtype

    def __getitem__(self, rows: Any) -> NDArray:
        return self._X[self._chosen[rows]]


def choose_rows(X: Any, rows: NDArray) -> Any:
    """Return some rows of X: copied, or later if a copy takes much of the memory."""
    if isinstance(X, PartitionedRows):
        return X.select(rows)
    is_dense = isinstance(X, np.ndarray | LazyRows) and X.ndim == 2
    if not is_dense or _is_copied(X.dtype, len(rows), X.shape[1]):
        return X[rows]
    return ChosenRows(X, rows)


def transformed(X: Any, scaler: InputScaler) -> Any:
    """Return transformed rows: now, or later if they take much of the memory."""
    if isinstance(X, PartitionedRows):
        return X.map(scaler.transform, len(scaler.center))
    if _is_copied(X.dtype, len(X), len(scaler.center)):
        return scaler.transform(X[:] if isinstance(X, LazyRows) else X)
    return TransformedRows(X, scaler)


def _is_copied(dtype: np.dtype, n: int, n_columns: int) -> bool:
    n_bytes = dtype.itemsize * n * n_columns
    return fits(n_bytes, copies=_ROWS_SHARE, modest=KEEP_BYTES)


class TrainingRows(NamedTuple):
    """Rows of positive weight, the only ones that a fit works with.

    Attributes
    ----------
    X : ndarray, csr_array, LazyRows, PartitionedRows or Objects of n rows
        Inputs; for kernel values without the columns of the other rows.
    y : ndarray, csr_array or Objects of n rows
        Targets.
    weights : ndarray of shape (n,) or None
        Positive weights as given. None: equal weights.
    kept : ndarray of shape (n,) or None
        Indices of the rows among those given. None: all of them.
    n_given : int
        Number of rows given, if some are not kept.
    """

    X: Any
    y: Any
    weights: NDArray | None = None
    kept: NDArray | None = None
    n_given: int = 0

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        weights: NDArray | None,
        *,
        pairwise: bool = False,
        lazy: bool = False,
    ) -> TrainingRows:
        """Return the rows of positive weight.

        `pairwise`: X holds kernel values. `lazy`: many rows are copied when they are
        asked for, block by block.
        """
        is_square = X.shape[0] == X.shape[-1]
        if weights is None or weights.all() or (pairwise and not is_square):
            return cls(X, y, weights)  # a matrix that is not square is refused later
        kept = np.flatnonzero(weights)
        if pairwise:
            X = X[np.ix_(kept, kept)]
        else:
            X = choose_rows(X, kept) if lazy else X[kept]
        return cls(X, y[kept], weights[kept], kept, len(weights))

    def take(self, rows: NDArray, columns: NDArray | None = None) -> TrainingRows:
        """Return some rows, for kernel values with some columns."""
        X = (
            choose_rows(self.X, rows)
            if columns is None
            else self.X[np.ix_(rows, columns)]
        )
        weights = None if self.weights is None else self.weights[rows]
        kept = rows if self.kept is None else self.kept[rows]
        return TrainingRows(X, self.y[rows], weights, kept)

    @property
    def relative_weights(self) -> NDArray | None:
        """Weights of mean one, None if they are equal.

        With mean one, a row of weight two counts in the objective as the same row
        twice, and a row of weight zero as no row.
        """
        if self.weights is None or np.ptp(self.weights) == 0:
            return None
        return self.weights / self.weights.mean()


def check_weights(sample_weight: Any, X: Any) -> NDArray | None:
    """Return non-negative weights, not all zero, one for each row of X; None: None."""
    if sample_weight is None:
        return None
    with explaining({"sample_weight": sample_weight}):
        weights = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
    if not weights.any():
        raise ValueError("`sample_weight` must have a positive entry, got zeros only")
    return weights


def weights_of_classes(
    class_weight: Any, y: NDArray, weights: NDArray | None
) -> NDArray | None:
    """Return the weights of the rows times those of their classes.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        Weight of each class. "balanced": inversely proportional to the frequencies of
        the classes, with rows counted by their weights. None: ones.
    y : ndarray of shape (n,)
        Labels.
    weights : ndarray of shape (n,) or None
        Weights of the rows; classes without a row of positive weight do not exist.
    """
    if class_weight is None:
        return weights
    row_weights = np.ones(len(y)) if weights is None else weights
    rows = np.flatnonzero(row_weights)
    classes, index = np.unique(y[rows], return_inverse=True)
    factors = compute_class_weight(class_weight, classes=classes, y=y[rows])
    if isinstance(class_weight, str):
        counts = np.bincount(index, row_weights[rows])
        factors = counts.sum() / (len(classes) * counts)
    out = np.zeros(len(y))
    out[rows] = row_weights[rows] * factors[index]
    return out
