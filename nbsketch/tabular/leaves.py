r"""Exact kernel ridge regression on single leaves, with leave-one-out residuals.

On the c rows of a leaf, with weights w,

.. math:: \min_{f, b} \sum_i w_i (y_i - b - f(x_i))^2 + \tau \|f\|^2

has the dual coefficients a = P y and the leave-one-out residuals a_i / P_ii, where
:math:`P = A^{-1} - A^{-1} 1 1^T A^{-1} / (1^T A^{-1} 1)` and :math:`A = K + \tau\,
\mathrm{diag}(1 / w)`. If the rows of a block B are left out together, their residuals
are :math:`P_{BB}^{-1} a_B`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.partition import column_squares
from nbsketch._machine.blas import (
    factor,
    invert_factor,
    solve_factored,
    symmetric_product,
)
from nbsketch.gram.dense import upper_triangle
from nbsketch.gram.form import CompiledForm
from nbsketch.tuning.rows import Training

# Minimum tau for single precision with one step of refinement: below, the condition
# number, up to c / tau, exhausts its digits.
_SINGLE = 3e-3
# Minimum added to the diagonal of A, so that its Cholesky factor exists.
_JITTER = 1e-10
# Diagonal elements of P above this exceed rounding errors.
_LEAST = 1e-300


class Leaf(NamedTuple):
    """A fitted leaf.

    Attributes
    ----------
    coef : ndarray of shape (c, d)
        Dual coefficients.
    intercept : ndarray of shape (d,)
        Constants.
    residual : ndarray of shape (c, d)
        Residual of each row in a fit without it, or without its block.
    """

    coef: NDArray
    intercept: NDArray
    residual: NDArray


def fit_leaf(
    form: CompiledForm, data: Training, tau: float, left_out: NDArray | bool = True
) -> Leaf:
    """Return the exact solution on the rows of a leaf.

    Parameters
    ----------
    form : CompiledForm
        Kernel with its length scales.
    data : Training
        The c rows. Blocks of label -1 are never left out: their residuals are NaN.
    tau : float
        Penalty, for weights of mean one.
    left_out : bool or ndarray of bool of shape (c,), default=True
        Rows whose leave-one-out residuals are computed, at up to twice the time; the
        others have NaN. With labels all rows, unless there are none.
    """
    chosen = np.broadcast_to(left_out, len(data.Y))
    if data.labels is not None:
        chosen = np.full(len(chosen), chosen.any())
    order = np.argsort(chosen, kind="stable")
    last = int(np.count_nonzero(chosen))
    data = data.take(order)
    leaf = solve_leaf(upper_triangle(form, data.rows), data, tau, last, overwrite=True)
    coef = np.empty_like(leaf.coef)
    residual = np.full_like(leaf.coef, np.nan)
    coef[order] = leaf.coef
    residual[order[len(order) - last :]] = leaf.residual
    return Leaf(coef, leaf.intercept, residual)


def solve_leaf(
    K: NDArray, data: Training, tau: float, last: int, *, overwrite: bool = False
) -> Leaf:
    """Return the exact solution for a kernel matrix K (c, c); see `fit_leaf`.

    Only the upper triangle of K is read, and may be overwritten to save memory. The
    residuals are those of the `last` rows alone, from the corner of the factor.
    """
    _, Y, weights, labels = data
    rhs = np.column_stack([Y, np.ones(len(Y))])
    A, solved = _solve(K, np.maximum(tau / weights, _JITTER), rhs, overwrite)
    u = solved[:, -1]
    intercept = (u @ Y) / u.sum()
    coef = solved[:, :-1] - u[:, None] * intercept
    if not last:
        return Leaf(coef, intercept, coef[:0])
    if labels is not None:
        invert_factor(A)
        return Leaf(coef, intercept, _without_blocks(np.tril(A), u, coef, labels))
    # Columns of L^-1 have zeros above their diagonal.
    corner = A if last == len(Y) else np.array(A[-last:, -last:], order="F")
    invert_factor(corner)
    diagonal = np.empty(last)
    column_squares(corner.T, diagonal)
    diagonal = np.maximum(diagonal - np.square(u[-last:]) / u.sum(), _LEAST)
    return Leaf(coef, intercept, coef[-last:] / diagonal[:, None])


def _solve(
    K: NDArray, noise: NDArray, rhs: NDArray, overwrite: bool
) -> tuple[NDArray, NDArray]:
    """Return the Cholesky factor of K + diag(noise), below the diagonal, and solve."""
    single = bool(noise.min() >= _SINGLE)
    A = K.T.astype(np.float32 if single else np.float64, "F", copy=not overwrite)
    A[np.diag_indices(len(K))] = K.diagonal() + noise
    factor(A)
    x = np.array(rhs, dtype=A.dtype, order="F")
    solve_factored(A, x)
    solved = x.astype(np.float64)
    if single:
        defect = rhs - symmetric_product(K.T, solved) - noise[:, None] * solved
        defect = np.array(defect, dtype=A.dtype, order="F")
        solve_factored(A, defect)
        solved += defect
    return A, solved


def _without_blocks(
    root: NDArray, u: NDArray, coef: NDArray, labels: NDArray
) -> NDArray:
    """Return the residuals without the block of each row; `root` is L^-1."""
    residual = np.empty_like(coef)
    for label in np.unique(labels):
        block = np.flatnonzero(labels == label)
        columns = root[:, block].astype(np.float64)
        P = columns.T @ columns - np.outer(u[block], u[block]) / u.sum()
        # Block -1 is never left out; without any rows no prediction is possible.
        if label < 0 or len(block) == len(u):
            residual[block] = np.nan
        else:
            residual[block] = np.linalg.lstsq(P, coef[block], rcond=1e-12)[0]
    return residual
