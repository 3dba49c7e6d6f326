r"""Whitening of a sketched kernel: P with :math:`P P^T = (S K S^T)^+`, and products."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nbsketch._blas import eigh

# Eigenvalues of S K S^T below this share of the largest are cut: what rounding of the
# kernel values leaves of them is noise.
RANK_TOL = {8: 1e-12, 4: 1e-6}
# Rows of features made at a time: long enough for BLAS, short enough for the cache.
_ROWS = 1024


def projection(inner: NDArray, dtype: np.dtype) -> NDArray:
    r"""Return P of shape (s, r) from S K S^T.

    With :math:`S K S^T = U D U^T = L L^T`, P is the upper triangular :math:`L^{-T}`
    where no eigenvalue can be below the cut, and :math:`U_r D_r^{-1/2}` elsewhere: in
    the former case that would be the same but for a rotation, at ten times the cost.
    """
    inner = inner.astype(np.float64)
    inner = (inner + inner.T) / 2
    tol = RANK_TOL[dtype.itemsize]
    found = _by_cholesky(inner, tol)
    return (_by_eigenvalues(inner, tol) if found is None else found).astype(dtype)


def project(product: NDArray, projection: NDArray) -> NDArray:
    """Return B^T P, of shape (n, r), for B of shape (s, n)."""
    size, rank = projection.shape
    if rank < size or scipy.linalg.bandwidth(projection)[0] > 0:
        return product.T @ projection
    trmm = scipy.linalg.get_blas_funcs("trmm", (projection, product))
    factor = np.asfortranarray(projection, dtype=trmm.dtype)
    out = np.empty((product.shape[1], rank), dtype=trmm.dtype)
    for start in range(0, len(out), _ROWS):
        rows = out[start : start + _ROWS]
        rows[:] = product[:, start : start + _ROWS].T
        trmm(1.0, factor, rows.T, trans_a=1, overwrite_b=1)
    return out


def _by_cholesky(inner: NDArray, tol: float) -> NDArray | None:
    try:
        factor = scipy.linalg.cholesky(inner, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    inverse = scipy.linalg.lapack.dtrtri(factor, lower=1)[0]
    # Traces bound the largest eigenvalue and the inverse of the smallest.
    condition = np.trace(inner) * np.linalg.norm(inverse) ** 2
    return inverse.T if condition * tol < 1 else None


def _by_eigenvalues(inner: NDArray, tol: float) -> NDArray:
    values, vectors = eigh(inner)
    # Signs by a fixed direction: rounding would not choose them twice alike.
    vectors *= np.copysign(1, np.cos(np.arange(len(vectors))) @ vectors)
    kept = values > tol * max(values[-1], 0.0)
    return vectors[:, kept] / np.sqrt(values[kept])
