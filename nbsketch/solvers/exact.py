r"""Kernel ridge regression without a sketch, by Cholesky decomposition.

.. math:: (K + n \alpha W^{-1}) a = y - b, \qquad f = \sum_j a_j k(\cdot, x_j)

with weights W of mean one; an intercept b is free when :math:`\sum_j a_j = 0`.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nbsketch.solvers._linear.rotation import output_basis


def solve_exact(
    K: NDArray,
    Y: NDArray,
    alpha: float,
    *,
    output: NDArray | None = None,
    sample_weight: NDArray | None = None,
    fit_intercept: bool = True,
) -> tuple[NDArray, NDArray, float]:
    """Return the coefficients A (n, d) of f(x) = sum_j A_j k(x, x_j), b and objective.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        The Gram matrix.
    Y : ndarray of shape (n, d)
        Targets.
    alpha : float
        Positive penalty.
    output : ndarray of shape (d, d), optional
        Positive semi-definite output matrix M. Default: the identity. Each distinct
        positive eigenvalue costs one Cholesky decomposition.
    sample_weight : ndarray of shape (n,), optional
        Nonnegative weights of mean one. Default: all one. Rows of weight zero get no
        coefficient.
    fit_intercept : bool, default=True
        Whether to fit b; else it is zero.

    Raises
    ------
    ValueError
        If ``K + n alpha`` is not numerically positive definite.

    Examples
    --------
    >>> K, Y = np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([[0.0], [1.0]])
    >>> A, b, objective = solve_exact(K, Y, alpha=0.25)
    >>> A.round(2).tolist(), b.round(2).tolist(), round(objective, 4)
    ([[-0.5], [0.5]], [0.5], 0.0625)
    """
    n, d = Y.shape
    weights = np.ones(n) if sample_weight is None else sample_weight
    values, rotation = output_basis(output, d)
    rotated = Y @ rotation
    # Subtract the mean first, so that nothing large cancels; the rest of b is added.
    mean = weights @ rotated / n if fit_intercept else np.zeros(d)
    rotated -= mean
    A, b = np.zeros((n, d)), np.zeros(d)
    for value in np.unique(values[values > 0]):
        same = values == value
        A[:, same], b[same] = _solve_scalar(
            K, rotated[:, same], alpha, value, weights, fit_intercept
        )
    residual = rotated - K @ A - b
    penalty = np.divide(1, values, out=np.zeros(d), where=values > 0)
    loss = weights @ np.square(residual).sum(axis=1) / n
    objective = 0.5 * (loss + alpha * float((A * (K @ A) * penalty).sum()))
    return A @ rotation.T, rotation @ (mean + b), float(objective)


def solve_positive(system: NDArray, sides: NDArray, alpha: float) -> NDArray:
    """Return system^-1 sides by Cholesky decomposition; both are overwritten.

    The lower triangle of `system` is used, a Gram matrix to whose diagonal n times
    `alpha` is added already.
    """
    try:
        factor = scipy.linalg.cho_factor(
            system, lower=True, overwrite_a=True, check_finite=False
        )
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "`alpha` must be larger for this kernel, whose Gram matrix plus n alpha is "
            f"not numerically positive definite: got {alpha:g}"
        ) from error
    return scipy.linalg.cho_solve(factor, sides, overwrite_b=True, check_finite=False)


def _solve_scalar(
    K: NDArray,
    Y: NDArray,
    alpha: float,
    value: float,
    weights: NDArray,
    fit_intercept: bool,
) -> tuple[NDArray, NDArray]:
    """Solve for the outputs of one eigenvalue `value` of the output matrix."""
    n = len(K)
    kept = np.flatnonzero(weights > 0)
    system = K.astype(np.float64) if len(kept) == n else K[np.ix_(kept, kept)]
    system[np.diag_indices_from(system)] += n * (alpha / value) / weights[kept]
    sides = np.column_stack([Y[kept], np.ones(len(kept))])
    solved = solve_positive(system, sides, alpha)
    dual, ones = solved[:, :-1], solved[:, -1]
    b = dual.sum(axis=0) / ones.sum() if fit_intercept else np.zeros(Y.shape[1])
    A = np.zeros(Y.shape)
    A[kept] = dual - np.outer(ones, b)
    return A, b
