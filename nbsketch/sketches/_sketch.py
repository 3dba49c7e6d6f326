"""What every sketch shares: a recipe to draw from, and the matrix that was drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nbsketch._jit.csr import mark_columns
from nbsketch._validation import check_integer

# A mark for each column beats sorting once the nonzeros are not few among the columns.
_SORT_BELOW = 1 / 64


class Sketch:
    """A drawn sketch: a random (s, n) matrix S, stored by its nonzeros.

    Parameters
    ----------
    matrix : scipy.sparse.csr_array of shape (s, n)
        The matrix itself, with sorted columns in each row.

    Attributes
    ----------
    shape : tuple of int
        (s, n).
    columns : ndarray of shape (s',)
        The sorted indices of the columns with a nonzero.
    T : SketchTranspose
        Stands for the transpose, so that ``A @ S.T`` works.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import SubsamplingSketch
    >>> S = SubsamplingSketch(size=2).draw(8, rng=0)
    >>> S.shape, S.columns.size
    ((2, 8), 2)
    >>> (S @ np.ones(8)).tolist()
    [2.0, 2.0]
    """

    def __init__(self, matrix: sp.csr_array) -> None:
        self._matrix = matrix
        self.shape: tuple[int, int] = matrix.shape

    def __repr__(self) -> str:
        s, n = self.shape
        return f"{type(self).__name__}(shape=({s}, {n}), columns={self.columns.size})"

    @cached_property
    def columns(self) -> NDArray[np.int64]:
        """The sorted indices of the columns with a nonzero."""
        indices = self._matrix.indices
        if indices.size < _SORT_BELOW * self.shape[1]:
            return np.unique(indices).astype(np.int64)
        marked = np.zeros(self.shape[1], dtype=np.uint8)
        mark_columns(indices, marked)
        return np.flatnonzero(marked)

    @cached_property
    def weights(self) -> sp.csr_array:
        """The matrix without its empty columns, of shape (s, s')."""
        m = self._matrix
        indices = np.searchsorted(self.columns, m.indices)
        shape = (self.shape[0], self.columns.size)
        return sp.csr_array((m.data, indices, m.indptr), shape=shape)

    @property
    def is_identity(self) -> bool:
        """Whether the sketch keeps everything as it is."""
        return False

    @property
    def T(self) -> SketchTranspose:
        """The transpose, for products from the right."""
        return SketchTranspose(self)

    def to_csr(self) -> sp.csr_array:
        """Return the (s, n) matrix as a SciPy CSR array."""
        return self._matrix

    def __matmul__(self, other: ArrayLike | sp.sparray) -> Any:
        """Return S @ A for a vector or a dense or sparse matrix A with n rows."""
        array: Any = other if sp.issparse(other) else np.asarray(other)
        if array.ndim not in (1, 2) or array.shape[0] != self.shape[1]:
            raise ValueError(
                f"`A` in S @ A must have {self.shape[1]} rows, got shape {array.shape}"
            )
        return self._apply(array)

    def _apply(self, array: Any) -> Any:
        matrix = self._matrix
        if array.dtype == np.float32:
            matrix = matrix.astype(np.float32)
        return matrix @ array


class DenseSketch(Sketch):
    """A drawn sketch whose entries are all nonzero, stored as an array."""

    def __init__(self, matrix: NDArray) -> None:
        self._dense = matrix
        self.shape = (matrix.shape[0], matrix.shape[1])

    @cached_property
    def columns(self) -> NDArray[np.int64]:
        """All columns."""
        return np.arange(self.shape[1])

    @property
    def weights(self) -> NDArray:
        """The matrix itself."""
        return self._dense

    def to_csr(self) -> sp.csr_array:
        """Return the (s, n) matrix as a SciPy CSR array."""
        return sp.csr_array(self._dense)

    def _apply(self, array: Any) -> Any:
        dense = self._dense
        if array.dtype == np.float32:
            dense = dense.astype(np.float32)
        return (array.T @ dense.T).T if sp.issparse(array) else dense @ array


@dataclass(frozen=True)
class SketchTranspose:
    """The transpose of a sketch: gives ``A @ S.T``."""

    sketch: Sketch
    # NumPy leaves the operator to this class.
    __array_ufunc__ = None

    @property
    def shape(self) -> tuple[int, int]:
        """(n, s)."""
        return self.sketch.shape[::-1]

    @property
    def T(self) -> Sketch:
        """The sketch."""
        return self.sketch

    def __rmatmul__(self, other: ArrayLike | sp.sparray) -> Any:
        """Return A @ S.T for a vector or a matrix A with n columns."""
        array: Any = other if sp.issparse(other) else np.asarray(other)
        if array.ndim not in (1, 2) or array.shape[-1] != self.shape[0]:
            raise ValueError(
                f"`A` in A @ S.T must have {self.shape[0]} columns, "
                f"got shape {array.shape}"
            )
        return (self.sketch @ array.T).T


class SketchRecipe(ABC):
    """How to draw a sketch: a small frozen dataclass, the same for every n."""

    @abstractmethod
    def draw(
        self, n: int, rng: Any = None, *, X: Any = None, kernel: Any = None
    ) -> Sketch:
        """Draw the sketch of n rows of data.

        Parameters
        ----------
        n : int
            Number of columns of the sketch: rows of the data.
        rng : None, int or numpy.random.Generator
            Source of randomness; the same seed gives the same sketch.
        X, kernel : ignored
            The data and the kernel, for recipes that look at them.

        Returns
        -------
        Sketch
            The drawn (s, n) matrix.
        """


@dataclass(frozen=True)
class SizedRecipe(SketchRecipe):
    """A recipe with a number of rows s."""

    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", check_integer("size", self.size))

    def _check_rows(self, n: int) -> int:
        n = check_integer("n", n)
        if self.size > n:
            raise ValueError(
                f"`size` must be at most the number of rows, {n}, got {self.size}"
            )
        return n
