"""The lazy Gram matrix: products with k(X, L) that never store it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import as_csr, check_rows
from nbsketch.gram.dense import (
    Entries,
    PackedLandmarks,
    entries_of,
    evaluate_dense,
    fold_dense,
    pack_landmarks,
)
from nbsketch.gram.form import CompiledForm, KernelLike
from nbsketch.gram.sparse import evaluate_sparse, fold_sparse
from nbsketch.gram.tiles import MatrixWeights, fold_by_tiles

# Share of nonzeros of the weights above which a matrix product beats the fused sum,
# unless the weights have so few rows.
_DENSE_SHARE = 0.5
_FEW_ROWS = 8


class Product:
    """The map X -> W k(L, X), with landmarks and weights prepared once for many X.

    Kernel values and sums are in double precision, whatever the type of the rows.

    Parameters
    ----------
    kernel : KernelLike
        The kernel.
    landmarks : ndarray or csr_array of shape (m, q)
        L, as `kernel.take` gives them.
    weights : ndarray, sparse matrix or TiledWeights of shape (s, m)
        W.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel
    >>> from nbsketch.gram import Product
    >>> landmarks = np.array([[0.0], [1.0]])
    >>> f = Product(GaussianKernel(1.0), landmarks, np.array([[1.0, -1.0]]))
    >>> f(np.array([[0.0], [0.5]])).round(4).tolist()
    [[0.3935, 0.0]]
    """

    def __init__(self, kernel: KernelLike, landmarks: Any, weights: Any) -> None:
        self.kernel, self.landmarks, self.weights = kernel, landmarks, weights
        self.shape: tuple[int, int] = weights.shape

    def __call__(self, X: Any, dtype: Any = np.float64) -> NDArray:
        """Return W k(L, X), of shape (s, n), rounded to a type."""
        out = np.empty((self.weights.shape[0], X.shape[0]), dtype=dtype)
        form = self.kernel.compiled_form(X.shape[1])
        sparse = sp.issparse(X) or sp.issparse(self.landmarks)
        tiled = hasattr(self.weights, "add_block")
        if form is not None and sparse and not tiled:
            fold_sparse(form, X, self.landmarks, self.weights, out)
        elif form is not None and self._is_fused:
            packed, entries = self._packed
            fold_dense(packed, X, entries, out)
        else:
            weights = self.weights if tiled else MatrixWeights(self.weights)
            fold_by_tiles(self.kernel, X, self.landmarks, weights, out)
        return out

    @property
    def is_compiled(self) -> bool:
        """Whether kernel values come from compiled code, which several threads bear."""
        return self._form is not None

    @cached_property
    def _form(self) -> CompiledForm | None:
        shape = self.landmarks.shape
        return self.kernel.compiled_form(shape[1]) if len(shape) == 2 else None

    @cached_property
    def _is_fused(self) -> bool:
        if hasattr(self.weights, "add_block"):
            return False
        if not sp.issparse(self.weights):
            return self.weights.shape[0] <= _FEW_ROWS
        return self.weights.nnz <= _DENSE_SHARE * np.prod(self.weights.shape)

    @cached_property
    def _packed(self) -> tuple[PackedLandmarks, Entries]:
        form: Any = self._form
        return pack_landmarks(form, self.landmarks), entries_of(self.weights)


class Gram:
    """The matrix k(X, L), which is never stored but can be multiplied.

    Parameters
    ----------
    kernel : Kernel
        A kernel with all its parameters set.
    X : array_like or sparse matrix of shape (n, q)
        Rows of the matrix. float32 is kept, everything else becomes float64; products
        have the same type. All arithmetic is in double precision.
    landmarks : array_like or sparse matrix of shape (m, q), optional
        L, its columns, as ``kernel.take`` gives them: the indices of m training rows
        for a precomputed kernel. Default: X itself.

    Notes
    -----
    ``Gram(kernel, X) @ S.T`` evaluates only the s' active columns of the sketch S and
    folds each tile of them into the (n, s) result. Beyond the result, the sketch and
    copies of the s' landmarks, memory is a few tiles of 4 MiB for any n.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel, PSparsifiedSketch
    >>> from nbsketch.gram import Gram
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> K = Gram(GaussianKernel(bandwidth=2.0), X)
    >>> S = PSparsifiedSketch(size=10).draw(200, rng=0)
    >>> KST = K @ S.T
    >>> KST.shape, np.allclose(KST, K.to_array() @ S.T)
    ((200, 10), True)
    """

    def __init__(self, kernel: KernelLike, X: ArrayLike, landmarks: Any = None) -> None:
        self.kernel = kernel
        self.X = check_rows("X", X)
        kernel.check_domain("X", self.X)
        self.landmarks = (
            kernel.take(self.X)
            if landmarks is None
            else kernel.check_landmarks(landmarks, self.X.shape[1])
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(n, m)."""
        return self.X.shape[0], self.landmarks.shape[0]

    def __matmul__(self, other: Any) -> NDArray:
        """Return k(X, L) @ B for the transpose of a sketch, a matrix or a vector B."""
        sketch = getattr(other, "sketch", None)
        B = other if sketch is not None else np.asarray(other)
        if sp.issparse(other):
            B = as_csr(other, "B")
        if len(B.shape) not in (1, 2) or B.shape[0] != self.shape[1]:
            raise ValueError(
                f"`B` in K @ B must have {self.shape[1]} rows, got shape {B.shape}"
            )
        if len(B.shape) == 1:
            return (self @ B.reshape(-1, 1))[:, 0]
        if sketch is None:
            return fold(self.kernel, self.X, self.landmarks, B.T, self.X.dtype).T
        everything = sketch.columns.size == self.shape[1]  # columns are sorted
        active = self.landmarks if everything else self.landmarks[sketch.columns]
        return fold(self.kernel, self.X, active, sketch.weights, self.X.dtype).T

    def to_array(self) -> NDArray:
        """Return the whole (n, m) matrix."""
        return self.kernel(self.X, self.landmarks)


def fold(
    kernel: KernelLike, X: Any, landmarks: Any, weights: Any, dtype: Any = np.float64
) -> NDArray:
    """Return W k(L, X), of shape (s, n), for (s, m) weights W: see `Product`."""
    return Product(kernel, landmarks, weights)(X, dtype)


def evaluate(form: CompiledForm, X: Any, Y: Any, dtype: Any = np.float64) -> NDArray:
    """Return k(X, Y), of shape (n, m), by compiled code, rounded to a type.

    Values of an exponential are at least the smallest normal number of the type.
    """
    sparse = sp.issparse(X) or sp.issparse(Y)
    values = (evaluate_sparse if sparse else evaluate_dense)(form, X, Y, dtype)
    if values.dtype == np.float64 or form.profile == "power":
        return values
    return np.maximum(values, np.finfo(dtype).tiny, out=values)
