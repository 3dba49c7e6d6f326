"""The lazy Gram matrix: products with k(X, L) that never store it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nbsketch._report.validation import as_csr, check_rows
from nbsketch.gram.dense import evaluate_dense
from nbsketch.gram.form import CompiledForm, KernelLike
from nbsketch.gram.product import Product
from nbsketch.gram.sparse import evaluate_sparse


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
