r"""Cholesky factors of matrices that rounding may have made indefinite.

Partial Cholesky factor of a kernel matrix, with randomly chosen pivots.

.. math:: K \approx F F^\top, \qquad F \in \mathbb R^{n \times m}

Block variant of randomly pivoted Cholesky: Chen, Epperly, Tropp and Webber,
"Randomly pivoted Cholesky", 2022, Algorithm 2.2, as a preconditioner in Diaz, Epperly,
Frangella, Tropp and Webber, "Robust, randomized preconditioning for kernel ridge
regression", 2023.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import DTypeLike, NDArray

from nbsketch.solvers._linear.conjugate_gradients import SymmetricOperator

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


# Blocks of pivots: a tenth of all of them, of which none needs fewer than this.
_BLOCKS, _LEAST_BLOCK = 10, 50
# Units of rounding added to the diagonal of a block, and left as residual at the end.
_JITTER, _RESIDUAL = 16, 80


def partial_cholesky(
    K: SymmetricOperator,
    rank: int,
    rng: np.random.Generator,
    *,
    dtype: DTypeLike = np.float32,
    tolerance: float = 0.0,
) -> tuple[NDArray, NDArray]:
    """Return the transposed factor F^T of shape (m, n) and its m pivots.

    Pivots are drawn with probabilities proportional to the diagonal of the residual
    K - F F^T. There are `rank` of them, or fewer if the trace of the residual falls to
    `tolerance`, or to what rounding leaves of it.
    """
    diagonal = K.diag()
    mean = float(diagonal.mean())
    rounding = float(np.finfo(np.promote_types(K.dtype, np.float16)).eps)
    rounding = max(rounding, float(np.finfo(dtype).eps))
    residual = max(tolerance, _RESIDUAL * rounding * diagonal.sum())
    F = np.empty((rank, len(diagonal)), dtype)
    pivots: NDArray = np.empty(0, dtype=np.int64)
    while len(pivots) < rank and diagonal.sum() > residual:
        block = min(max(_LEAST_BLOCK, rank // _BLOCKS), rank - len(pivots))
        index = _draw(diagonal, block, rng)
        factor = F[: len(pivots)]
        new = _block_factor(K, index, factor, _JITTER * rounding * mean)
        F[len(pivots) : len(pivots) + len(index)] = new
        diagonal -= np.einsum("ij,ij->j", new, new, dtype=np.float64)
        np.maximum(diagonal, 0, out=diagonal)
        diagonal[index] = 0
        pivots = np.concatenate([pivots, index])
    return F[: len(pivots)], pivots


def _draw(diagonal: NDArray, count: int, rng: np.random.Generator) -> NDArray:
    """Return different rows, drawn with probabilities proportional to the diagonal."""
    count = min(count, int(np.count_nonzero(diagonal)))
    drawn = rng.choice(len(diagonal), 2 * count, p=diagonal / diagonal.sum())
    return np.sort(rng.permutation(np.unique(drawn))[:count])


def _block_factor(
    K: SymmetricOperator, index: NDArray, factor: NDArray, jitter: float
) -> NDArray:
    """Return the rows of F^T for a block of pivots, given those before."""
    schur = np.ascontiguousarray(K.rows(index), dtype=factor.dtype)
    if len(factor):
        schur -= factor[:, index].T @ factor
    block = schur[:, index].astype(np.float64)
    upper = raised_cholesky((block + block.T) / 2, jitter)[0].astype(factor.dtype)
    solved = scipy.linalg.blas.get_blas_funcs("trsm", (upper,))(
        1.0, upper, schur.T, side=1, lower=0, overwrite_b=1
    )
    return solved.T
