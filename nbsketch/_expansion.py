"""Kernel expansions x -> B^T S k_x: predictions and features of rows, in any number."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._blas import one_thread
from nbsketch._jit.threads import run_blocks
from nbsketch._whitening import PivotedCholesky, projector
from nbsketch.gram import Product

# Memory of a block of rows of S k(X) that is multiplied by B: it stays in the cache.
_BLOCK_BYTES = 2 << 20
_FEWEST_ROWS = 64


class Expansion:
    r"""The map from rows of X to :math:`k(X, L) W^T B`, prepared once for many X.

    If B has few columns, :math:`W^T B` is computed first: then a call is one fused
    product with :math:`s'` coefficients for each column, without BLAS. Otherwise blocks
    of rows are worked on side by side, each by one thread of compiled code and of BLAS.

    Parameters
    ----------
    product : Product
        The map X -> W k(L, X), of s rows.
    B : ndarray of shape (s, d) or PivotedCholesky
        Coefficients, or the projection to d features.
    """

    def __init__(self, product: Product, B: NDArray | PivotedCholesky) -> None:
        self._product = product
        if isinstance(B, np.ndarray):
            self.n_columns: int = B.shape[1]
            self._folded = _folded(product, B)
        else:
            self.n_columns, self._folded = B.rank, None
        self._project = projector(B)

    def __call__(self, X: Any, dtype: Any = np.float64) -> NDArray:
        """Return the (n, d) values for the rows of X, rounded to a type."""
        if self._folded is not None:
            return np.ascontiguousarray(self._folded(X, dtype).T)
        out = np.empty((X.shape[0], self.n_columns), dtype=dtype)
        self.fill(X, None, out)
        return out

    def fill(self, X: Any, rows: NDArray | None, out: NDArray) -> None:
        """Fill the given rows of `out` (n, d), None for all, with their values."""
        size = self._product.shape[0]
        step = max(_FEWEST_ROWS, _BLOCK_BYTES // (8 * size))

        def work(start: int) -> None:
            part = slice(start, start + step)
            chosen = part if rows is None else rows[part]
            out[chosen] = self._project(self._product(X[chosen]))

        starts = range(0, X.shape[0] if rows is None else len(rows), step)
        with one_thread() if len(starts) > 1 else nullcontext():
            if self._product.is_compiled:
                run_blocks(work, starts)
            else:  # functions of users may not be thread-safe
                for start in starts:
                    work(start)


def _folded(product: Product, B: NDArray) -> Product | None:
    """Return the product with W^T B in the place of W if it costs less, else None."""
    weights = product.weights
    (s, m), d = weights.shape, B.shape[1]
    nonzeros = weights.nnz if sp.issparse(weights) else s * m
    if d * m > nonzeros + d * s or not hasattr(weights, "T"):
        return None
    return Product(product.kernel, product.landmarks, (weights.T @ B).T)


class _Prepared(NamedTuple):
    parts: tuple[Any, Any, Any]
    B: NDArray  # a copy: coefficients can be changed in place
    expansion: Expansion


# Fitted models and their expansions, which are neither copied nor written with them.
_prepared: WeakKeyDictionary[Any, _Prepared] = WeakKeyDictionary()


def expansion_of(
    model: Any, kernel: Any, landmarks: Any, weights: Any, B: NDArray
) -> Expansion:
    """Return the expansion of a fitted model, prepared on the first call.

    It is prepared again if the model has other attributes since. Two threads may both
    prepare it; either result is valid.
    """
    parts, prepared = (kernel, landmarks, weights), _prepared.get(model)
    same = prepared is not None and all(
        a is b for a, b in zip(prepared.parts, parts, strict=True)
    )
    if prepared is None or not same or not np.array_equal(prepared.B, B):
        expansion = Expansion(Product(*parts), B)
        prepared = _prepared[model] = _Prepared(parts, B.copy(), expansion)
    return prepared.expansion
