"""The lazy Gram matrix: products with k(X, L) that never store it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import as_csr, check_rows
from nbsketch.gram.dense import evaluate_dense, fold_dense, pack_landmarks
from nbsketch.gram.form import CompiledForm, KernelLike
from nbsketch.gram.sparse import evaluate_sparse, fold_sparse
from nbsketch.gram.tiles import MatrixWeights, fold_by_tiles

# Share of nonzeros of the weights above which a matrix product beats the fused sum.
_DENSE_SHARE = 0.5


class Gram:
    """The matrix k(X, L), never stored: it can only be multiplied.

    Parameters
    ----------
    kernel : Kernel
        A kernel with all its parameters set.
    X : array_like or sparse matrix of shape (n, q)
        Rows of the matrix. float32 stays float32, everything else becomes float64,
        which is also the type of the products.
    landmarks : array_like or sparse matrix of shape (m, q), optional
        L, its columns, as ``kernel.take`` gives them: the indices of m training rows
        for a precomputed kernel. By default X itself.

    Notes
    -----
    ``Gram(kernel, X) @ S.T`` evaluates only the s' active columns of the sketch S and
    folds each tile of them at once into the (n, s) result. Beyond that, the sketch and
    copies of the s' landmarks it uses a few tiles of 4 MiB, whatever n is.

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
            return fold(self.kernel, self.X, self.landmarks, B.T).T
        everything = sketch.columns.size == self.shape[1]  # columns are sorted
        active = self.landmarks if everything else self.landmarks[sketch.columns]
        return fold(self.kernel, self.X, active, sketch.weights).T

    def to_array(self) -> NDArray:
        """Return the whole (n, m) matrix."""
        return self.kernel(self.X, self.landmarks)


def fold(kernel: KernelLike, X: Any, landmarks: Any, weights: Any) -> NDArray:
    """Return W k(L, X), of shape (s, n), for (s, m) weights W.

    W is a dense or sparse matrix, or `TiledWeights`.
    """
    out = np.empty((weights.shape[0], X.shape[0]), dtype=X.dtype)
    form = kernel.compiled_form(X.shape[1])
    sparse, tiled = sp.issparse(weights), hasattr(weights, "add_block")
    share = weights.nnz / max(1, np.prod(weights.shape)) if sparse else 1.0
    if form is not None and not tiled and (sp.issparse(X) or sp.issparse(landmarks)):
        fold_sparse(form, X, landmarks, weights, out)
    elif form is not None and share <= _DENSE_SHARE:
        columns = sp.csc_array(weights)
        entries = (columns.indptr, columns.indices, columns.data)
        fold_dense(pack_landmarks(form, landmarks, X.dtype), X, entries, out)
    else:
        by_tiles = weights if tiled else MatrixWeights(weights)
        fold_by_tiles(kernel, X, landmarks, by_tiles, out)
    return out


def evaluate(form: CompiledForm, X: Any, Y: Any) -> NDArray:
    """Return k(X, Y), of shape (n, m), by compiled code."""
    sparse = sp.issparse(X) or sp.issparse(Y)
    return (evaluate_sparse if sparse else evaluate_dense)(form, X, Y)
