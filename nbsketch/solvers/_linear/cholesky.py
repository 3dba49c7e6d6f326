"""Cholesky factors of matrices that rounding may have made indefinite."""

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

# Factor of what is added to the diagonal from one trial to the next.
_GROWTH = 4


def raised_cholesky(
    matrix: NDArray, shift: float, more: float | None = None
) -> tuple[NDArray, float]:
    """Return the upper Cholesky factor of a matrix plus ``shift I``, and the shift.

    If there is none, `more` (3 times the shift by default) is added to the shift, then
    4 times, 16 times as much. The upper triangle of the matrix is used; the lower one
    of the factor is undefined.
    """
    (potrf,) = scipy.linalg.lapack.get_lapack_funcs(("potrf",), (matrix,))
    diagonal, raised = np.diag_indices_from(matrix), shift
    more = 3 * shift if more is None else more
    while True:
        system = matrix.copy(order="F")
        system[diagonal] += system.dtype.type(raised)
        upper, failed = potrf(system, lower=0, overwrite_a=1, clean=0)
        if not failed:
            return upper, raised
        raised, more = shift + more, _GROWTH * more


def solve_upper(upper: NDArray, V: NDArray, transposed: int = 0) -> NDArray:
    """Return U^{-1} V or, if transposed, U^{-T} V, for V of shape (m,) or (m, k)."""
    if V.size == 0:
        return V
    if V.ndim == 1 or V.shape[1] == 1:  # twice as fast for a vector
        (trsv,) = scipy.linalg.blas.get_blas_funcs(("trsv",), (upper,))
        return trsv(upper, V.ravel(), lower=0, trans=transposed).reshape(V.shape)
    (trsm,) = scipy.linalg.blas.get_blas_funcs(("trsm",), (upper,))
    return trsm(1.0, upper, V, lower=0, trans_a=transposed)


def solve_positive_upper(upper: NDArray, V: NDArray) -> NDArray:
    """Return (U^T U)^{-1} V."""
    return solve_upper(upper, solve_upper(upper, V, 1))
