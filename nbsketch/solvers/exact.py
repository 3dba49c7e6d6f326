r"""Kernel ridge regression without a sketch, by Cholesky decomposition.

.. math:: (K + n \alpha W^{-1}) a = y - b, \qquad f = \sum_j a_j k(\cdot, x_j)

with weights W of mean one; an intercept b is free when :math:`\sum_j a_j = 0`.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nbsketch.solvers._linear.rotation import RotatedOutputs


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
    n, rotated = len(Y), RotatedOutputs(Y, output)
    weights = np.ones(n) if sample_weight is None else sample_weight
    targets = rotated.targets[:, rotated.used]
    # Subtract the mean first, so that nothing large cancels; b is what is left to add.
    mean = weights @ targets / n * fit_intercept
    targets = targets - mean
    A, b = np.zeros(targets.shape), np.zeros(targets.shape[1])
    for value in np.unique(rotated.values):
        same = rotated.values == value
        A[:, same], b[same] = _solve_scalar(
            K, targets[:, same], alpha, value, weights, fit_intercept
        )
    fitted = K @ A
    loss = weights @ np.square(targets - fitted - b).sum(axis=1) / n
    penalty = alpha * float((A * fitted / rotated.values).sum())
    coef, b, unused = rotated.restore(A, mean + b, sample_weight, fit_intercept)
    return coef, b, 0.5 * (float(loss) + penalty) + unused


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


def solve_shifted(
    system: NDArray, sides: NDArray, shift: float, weights: NDArray, alpha: float
) -> NDArray:
    """Return (K + shift W^{-1})^{-1} sides; both are overwritten, all weights > 0."""
    system[np.diag_indices_from(system)] += shift / weights
    return solve_positive(system, sides, alpha)


def centered(
    solved: NDArray, ones: NDArray, fit_intercept: bool
) -> tuple[NDArray, NDArray]:
    """Return dual coefficients and intercepts from solutions for targets and for 1."""
    if not fit_intercept:
        return solved, np.zeros(solved.shape[1])
    b = solved.sum(axis=0) / ones.sum()
    return solved - np.outer(ones, b), b


def _solve_scalar(
    K: NDArray,
    Y: NDArray,
    alpha: float,
    value: float,
    weights: NDArray,
    fit_intercept: bool,
) -> tuple[NDArray, NDArray]:
    """Solve for the outputs of one eigenvalue `value` of the output matrix."""
    A, kept, shift = np.zeros(Y.shape), np.flatnonzero(weights > 0), len(K) * alpha
    system = K.astype(np.float64) if len(kept) == len(K) else K[np.ix_(kept, kept)]
    sides = np.column_stack([Y[kept], np.ones(len(kept))])
    solved = solve_shifted(system, sides, shift / value, weights[kept], alpha)
    A[kept], b = centered(solved[:, :-1], solved[:, -1], fit_intercept)
    return A, b
