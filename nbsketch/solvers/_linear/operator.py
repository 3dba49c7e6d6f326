"""Interfaces of kernel matrices, all columns or those of a sketch."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray


class SymmetricOperator(Protocol):
    """A symmetric positive semi-definite matrix that can be multiplied and sampled.

    `nbsketch.gram.SymmetricGram` is one.
    """

    shape: tuple[int, int]
    dtype: np.dtype

    def __matmul__(self, V: NDArray) -> NDArray:
        """Return K V in float64, for V of shape (n, d)."""

    def rows(self, index: NDArray) -> NDArray:
        """Return the rows of an index, of shape (len(index), n)."""

    def diag(self) -> NDArray:
        """Return the diagonal."""

    def block(self, index: NDArray) -> NDArray:
        """Return K[index][:, index] in float64."""


class PartialOperator(SymmetricOperator, Protocol):
    """A symmetric matrix of which parts can be evaluated as well."""

    def combine(self, index: NDArray, v: NDArray) -> NDArray:
        """Return K[:, index] @ v in float64, for few columns."""

    def exact(self, index: NDArray, v: NDArray) -> NDArray:
        """Return (K v)[index] without rounding of the kernel values."""

    def take(self, index: NDArray) -> PartialOperator:
        """Return the matrix of some rows and columns as an operator."""


class ColumnOperator(Protocol):
    """The columns Z = K S^T of a sketch; `nbsketch.gram.SketchedColumns` is one."""

    shape: tuple[int, int]

    @property
    def active(self) -> NDArray:
        """Indices of the rows of K that S combines, its columns with a nonzero."""

    def total(self) -> NDArray:
        """Return S 1, of shape (s,)."""

    def squared_norm(self) -> float:
        """Return an upper bound of the largest eigenvalue of S S^T."""

    def core(self) -> NDArray:
        """Return S K S^T in float64."""

    def normal(self, V: NDArray, weights: NDArray | None = None) -> NDArray:
        """Return Z^T W Z V for V of shape (s, d)."""

    def adjoint(self, U: NDArray) -> NDArray:
        """Return Z^T U for U of shape (n, d)."""


class StoredMatrix:
    """A matrix in memory as a `SymmetricOperator`."""

    def __init__(self, matrix: Any) -> None:
        self._matrix = np.asarray(matrix)
        self.shape, self.dtype = self._matrix.shape, self._matrix.dtype

    def __matmul__(self, V: NDArray) -> NDArray:
        return self._matrix @ V

    def rows(self, index: NDArray) -> NDArray:
        """Return the rows of an index."""
        return self._matrix[index]

    def combine(self, index: NDArray, v: NDArray) -> NDArray:
        """Return K[:, index] @ v."""
        return self._matrix[:, index] @ v

    def exact(self, index: NDArray, v: NDArray) -> NDArray:
        """Return (K v)[index]."""
        return self._matrix[index] @ v

    def block(self, index: NDArray) -> NDArray:
        """Return K[index][:, index] in float64."""
        return self._matrix[np.ix_(index, index)].astype(np.float64)

    def take(self, index: NDArray) -> StoredMatrix:
        """Return the matrix of some rows and columns."""
        return StoredMatrix(self._matrix[np.ix_(index, index)])

    def diag(self) -> NDArray:
        """Return the diagonal."""
        return np.diagonal(self._matrix).astype(np.float64)


def as_operator(K: Any) -> Any:
    """Return an array as a `StoredMatrix`, and an operator as it is."""
    return StoredMatrix(K) if isinstance(K, np.ndarray) else K


def check_columns(Y: ArrayLike, n: int) -> NDArray:
    """Return targets of shape (n, d) in float64, for a matrix with n rows."""
    Y = np.asarray(Y, dtype=np.float64)
    if len(Y) != n:
        raise ValueError(f"`Y` must have as many rows as K, {n}, got {len(Y)}")
    return Y.reshape(n, -1)
