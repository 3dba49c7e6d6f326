r"""Preconditioner of sketched least squares from two Cholesky factors of size s.

.. math:: P = \frac1n C J C + \alpha C = T^\top \Bigl(\frac1n T J T^\top + \alpha
          I\Bigr) T, \qquad T^\top T = C

with J the centering of the s rows (or I): the normal matrix of the landmarks in place
of all rows. Rudi, Carratino and Rosasco, "FALKON: an optimal large scale kernel
method", 2017, Section 3. Coefficients are not whitened here: factors in float32 only
precondition, and the solution is that of the operator.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import DTypeLike, NDArray


class FalkonPreconditioner:
    """P^{-1} for the core C (s, s) and several penalties.

    Parameters
    ----------
    core : ndarray of shape (s, s)
        C = S K S^T.
    n : int
        Number of rows.
    centered : bool
        Whether an intercept is fitted.
    dtype : {float32, float64}
        Type of the factors.
    """

    def __init__(
        self, core: NDArray, n: int, centered: bool, dtype: DTypeLike = np.float32
    ) -> None:
        self._dtype, s = np.dtype(dtype), len(core)
        self._eps = float(np.finfo(self._dtype).eps)
        jitter = 4 * self._eps * s**0.5 * float(np.trace(core)) / s
        self._T = _factor(core.astype(self._dtype), jitter, 8)
        lauum = scipy.linalg.lapack.get_lapack_funcs("lauum", (self._T,))
        self._normal, _ = lauum(self._T, lower=0)
        if centered:
            total = self._T.sum(axis=1, dtype=np.float64) / s**0.5
            self._normal -= np.outer(total, total).astype(self._dtype)
        self._normal /= self._dtype.type(n)
        self._factors: dict[float, NDArray] = {}

    def half(self, R: NDArray) -> NDArray:
        """Return T^{-T} R, whose squared norms are r^T C^{-1} r."""
        size, V = self._scaled(R)
        return self._solve(self._T, V, 1) * size

    def core_solve(self, R: NDArray) -> NDArray:
        """Return C^{-1} R."""
        size, V = self._scaled(R)
        return self._solve(self._T, self._solve(self._T, V, 1), 0) * size

    def solve(self, R: NDArray, alphas: NDArray) -> NDArray:
        """Return P^{-1} R for R of shape (s, d), one penalty for each column."""
        size, V = self._scaled(R)
        V = self._solve(self._T, V, 1)
        for c, alpha in enumerate(alphas):
            A = self._factor_of(float(alpha))
            half = self._solve(A, V[:, c : c + 1], 1)
            V[:, c : c + 1] = self._solve(A, half, 0)
        return self._solve(self._T, V, 0) * size

    def _scaled(self, R: NDArray) -> tuple[NDArray, NDArray]:
        size = np.abs(R).max(axis=0)
        size[size == 0] = 1.0
        return size, (R / size).astype(self._dtype, order="F")

    def _solve(self, factor: NDArray, V: NDArray, transposed: int) -> NDArray:
        if V.shape[1] == 1:  # a triangular solve of a vector is twice as fast
            trsv = scipy.linalg.blas.get_blas_funcs("trsv", (factor,))
            return trsv(factor, V[:, 0], lower=0, trans=transposed)[:, None]
        trsm = scipy.linalg.blas.get_blas_funcs("trsm", (factor,))
        return trsm(1.0, factor, V, lower=0, trans_a=transposed)

    def _factor_of(self, alpha: float) -> NDArray:
        if alpha not in self._factors:
            least = 2 * self._eps * float(np.linalg.norm(np.diagonal(self._normal)))
            shift = max(alpha, least)
            self._factors[alpha] = _factor(self._normal, shift, 4)
        return self._factors[alpha]


def _factor(matrix: NDArray, shift: float, growth: float) -> NDArray:
    """Return the upper factor of a matrix plus a shift, raised until there is one."""
    potrf = scipy.linalg.lapack.get_lapack_funcs("potrf", (matrix,))
    diagonal = np.diag_indices_from(matrix)
    while True:
        system = matrix.copy(order="F")
        system[diagonal] += system.dtype.type(shift)
        upper, failed = potrf(system, lower=0, overwrite_a=1, clean=1)
        if not failed:
            return upper
        shift *= growth
