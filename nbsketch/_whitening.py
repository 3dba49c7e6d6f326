r"""Whitening of a sketched kernel: P with :math:`P P^T = (S K S^T)^+`, and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nbsketch._blas import eigh
from nbsketch._fields import array, check_fields, stored

# Eigenvalues of S K S^T below this share of the largest are cut: they are noise from
# the rounding of kernel values, which have double precision for rows of any type.
RANK_TOL = 1e-12
# Rows of features made at a time: long enough for BLAS, short enough for the cache.
_ROWS = 1024


@stored
class PivotedCholesky:
    r"""P with :math:`P P^T = C^+` for C = S K S^T, as triangular solves.

    The Cholesky decomposition with pivots stops where the rest of the diagonal is
    rounding. For a C that is numerically singular this takes a tenth of the time of an
    eigendecomposition, and P is never formed.
    """

    factor: Annotated[NDArray, array("_r _r")]  # lower triangular
    chosen: Annotated[NDArray, array("_r", "i")]  # r rows of C that span the others

    def __post_init__(self) -> None:
        """Check that the factor is one, of distinct rows."""
        check_fields(self)
        chosen, diagonal = self.chosen, self.factor.diagonal()
        if (diagonal <= 0).any() or np.unique(chosen).size != chosen.size:
            raise ValueError("`factor` must be that of distinct rows, got others")

    @classmethod
    def of(cls, inner: NDArray) -> PivotedCholesky:
        """Return P for C."""
        core = np.array(inner, dtype=np.float64, order="F")
        top = core.diagonal().max(initial=0.0)
        factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(
            core, tol=RANK_TOL * top, lower=1, overwrite_a=1
        )
        if top <= 0 or rank == 0:
            raise ValueError(
                "a kernel must not be zero on all rows that its sketch draws, got "
                f"values up to {top:g}"
            )
        factor = np.asfortranarray(np.tril(factor[:rank, :rank]))
        return cls(factor, pivots[:rank].astype(np.int64) - 1)

    @property
    def rank(self) -> int:
        """Number r of columns of P."""
        return len(self.chosen)

    def apply(self, product: NDArray) -> NDArray:
        """Return B^T P, of shape (n, r), for B of shape (s, n)."""
        rows = product[self.chosen].astype(np.float64, copy=False).T
        return scipy.linalg.blas.dtrsm(
            1.0, self.factor, rows, side=1, lower=1, trans_a=1, overwrite_b=1
        )

    def lift(self, W: NDArray, size: int) -> NDArray:
        """Return P W, of shape (s, d), for W of shape (r, d)."""
        out = np.zeros((size, W.shape[1]))
        out[self.chosen] = scipy.linalg.solve_triangular(
            self.factor, W, lower=True, trans="T", check_finite=False
        )
        return out


def projection(inner: NDArray) -> NDArray:
    r"""Return P of shape (s, r) from S K S^T.

    With :math:`S K S^T = U D U^T = L L^T`, P is the upper triangular :math:`L^{-T}` if
    no eigenvalue can be below the cut, and :math:`U_r D_r^{-1/2}` otherwise: the former
    differs by a rotation, at a tenth of the cost.
    """
    inner = inner.astype(np.float64)
    inner = (inner + inner.T) / 2
    factor = _by_cholesky(inner)
    return _by_eigenvalues(inner) if factor is None else factor


def projector(projection: NDArray | PivotedCholesky) -> Callable[[NDArray], NDArray]:
    """Return the function B -> B^T P, of shape (n, r), for B of shape (s, n)."""
    if isinstance(projection, PivotedCholesky):
        return projection.apply
    size, rank = projection.shape
    if rank < size or scipy.linalg.bandwidth(projection)[0] > 0:
        return lambda product: product.T @ projection
    factor = np.asfortranarray(projection, dtype=np.float64)
    return lambda product: _times_triangle(product, factor)


def project(product: NDArray, projection: NDArray | PivotedCholesky) -> NDArray:
    """Return B^T P, of shape (n, r), for B of shape (s, n)."""
    return projector(projection)(product)


def _times_triangle(product: NDArray, factor: NDArray) -> NDArray:
    """Return B^T P for an upper triangular P, at half the cost of a full one."""
    out = np.empty(product.shape[::-1])
    for start in range(0, len(out), _ROWS):
        rows = out[start : start + _ROWS]
        rows[:] = product[:, start : start + _ROWS].T
        scipy.linalg.blas.dtrmm(1.0, factor, rows.T, trans_a=1, overwrite_b=1)
    return out


def _by_cholesky(inner: NDArray) -> NDArray | None:
    try:
        factor = scipy.linalg.cholesky(inner, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    inverse = scipy.linalg.lapack.dtrtri(factor, lower=1)[0]
    # Traces bound the largest eigenvalue and the inverse of the smallest.
    condition = np.trace(inner) * np.linalg.norm(inverse) ** 2
    return inverse.T if condition * RANK_TOL < 1 else None


def _by_eigenvalues(inner: NDArray) -> NDArray:
    values, vectors = eigh(inner)
    # Signs by a fixed direction: rounding would change them.
    vectors *= np.copysign(1, np.cos(np.arange(len(vectors))) @ vectors)
    kept = values > RANK_TOL * max(values[-1], 0.0)
    return vectors[:, kept] / np.sqrt(values[kept])
