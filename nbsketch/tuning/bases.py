r"""Orthonormal functions of the ranks of a feature, for tests of many features.

With u the rank of a value divided by the number of rows, the functions are
:math:`\cos(\pi a u)`, a = 1, 2, ..., orthonormalized on the rows in this order. They do
not depend on the units of a feature and no outlier has a large value.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Features handled at a time: their functions stay in cache.
_BLOCK = 16
# Smallest root mean square of what earlier functions leave of one; below it, a function
# is dropped. A binary feature keeps one.
_LEAST = 0.1


def rank_basis(X: NDArray, count: int) -> NDArray:
    """Return `count` functions of each column of X (m, q), of shape (count, q, m).

    Each has mean zero and mean square one over the rows, or is zero if the column has
    too few distinct values.
    """
    m, q = X.shape
    basis = np.empty((count, q, m), dtype=np.float32)
    for first in range(0, q, _BLOCK):
        some = slice(first, min(first + _BLOCK, q))
        ranks = np.stack([_middle_ranks(column) for column in X[:, some].T])
        _orthonormal_cosines(ranks, basis[:, some])
    return basis


def _middle_ranks(column: NDArray) -> NDArray:
    """Return ranks in (0, 1); equal values share the middle of their ranks."""
    order = np.argsort(column)
    ordered = column[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] > ordered[:-1]))
    counts = np.diff(np.append(starts, len(column)))
    ranks = np.empty(len(column), dtype=np.float32)
    ranks[order] = np.repeat((starts + counts / 2) / len(column), counts)
    return ranks


def _orthonormal_cosines(ranks: NDArray, out: NDArray) -> None:
    """Fill `out` (count, k, m) by Gram-Schmidt and the recurrence of Chebyshev."""
    first = np.cos(np.float32(np.pi) * ranks)
    before, now = np.ones_like(first), first
    for a, target in enumerate(out):
        rest = now - now.mean(axis=1, keepdims=True)
        for known in out[:a]:
            rest -= _mean_products(rest, known)[:, None] * known
        size = np.sqrt(_mean_products(rest, rest))
        inverse = np.where(size > _LEAST, 1 / np.maximum(size, _LEAST), 0.0)
        np.multiply(rest, inverse.astype(np.float32)[:, None], out=target)
        before, now = now, 2 * first * now - before


def _mean_products(A: NDArray, B: NDArray) -> NDArray:
    return np.einsum("km,km->k", A, B) / np.float32(A.shape[1])
