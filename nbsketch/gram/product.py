"""Products W k(L, X) of fixed weights and landmarks with any rows."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch.gram.dense import (
    Entries,
    PackedLandmarks,
    entries_of,
    fold_dense,
    pack_landmarks,
)
from nbsketch.gram.form import CompiledForm, KernelLike
from nbsketch.gram.sparse import fold_sparse
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
