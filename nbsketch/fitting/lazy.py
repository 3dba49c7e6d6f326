"""Rows of X that are chosen or transformed when they are asked for, block by block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
