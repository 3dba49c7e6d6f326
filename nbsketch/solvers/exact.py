r"""Kernel ridge regression without a sketch, by Cholesky decomposition.

.. math:: (K + n \alpha W^{-1}) a = y - b, \qquad f = \sum_j a_j k(\cdot, x_j)

with weights W of mean one; with an intercept b, :math:`\sum_j a_j = 0`.

Also leave-one-out residuals of exact kernel ridge regression, from one solution.

With :math:`A = K + n \alpha W^{-1}`, dual coefficients :math:`a = G y` and

.. math:: G = A^{-1} - \frac{u u^\top}{1^\top u}, \quad u = A^{-1} 1
          \qquad (G = A^{-1} \text{ without an intercept}),

the leave-one-out residuals are :math:`e_i = a_i / G_{ii}`.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from nbsketch._report.validation import check_positive
from nbsketch.solvers._certified import checks
from nbsketch.solvers._linear.conjugate_gradients import (
    RotatedOutputs,
    StoredMatrix,
    SymmetricOperator,
    as_operator,
    check_columns,
)
from nbsketch.solvers._linear.systems import KernelSystem


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
        Penalty (> 0).
    output : ndarray of shape (d, d), optional
        Positive semi-definite output matrix M. Default: the identity. Each distinct
        positive eigenvalue costs one Cholesky decomposition.
    sample_weight : ndarray of shape (n,), optional
        Nonnegative weights of mean one. Default: all one. Rows of weight zero have no
        coefficient.
    fit_intercept : bool, default=True
        Whether to fit b; otherwise it is zero.

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
    outputs = RotatedOutputs(Y, output, sample_weight, fit_intercept)
    return certified_exact(K, outputs, alpha)[:3]


def certified_exact(
    K: NDArray, outputs: RotatedOutputs, alpha: float
) -> tuple[NDArray, NDArray, float, float]:
    """Return coefficients, intercepts, objective, and the largest relative gap."""
    operator = StoredMatrix(K)
    system = KernelSystem(operator, outputs, [alpha])
    A = np.zeros(system.shape)
    weights = system.weights
    kept = np.flatnonzero(weights > 0)
    for shift in np.unique(system.shifts):
        same = np.flatnonzero(system.shifts == shift)
        matrix = operator.block(kept)
        sides = np.column_stack([system.Y[np.ix_(kept, same)], np.ones(len(kept))])
        solved = solve_shifted(matrix, sides, shift, weights[kept], alpha)
        A[np.ix_(kept, same)] = centered(
            solved[:, :-1], solved[:, -1], outputs.fit_intercept
        )
    product = system.product(A, slice(None))
    coef, b, unused = outputs.restore(A, system.intercept(A, product))
    gaps = system.certify(A, product)
    worst = float(gaps.relative_gap.max(initial=0))
    return coef, b, float(gaps.objective.sum()) + unused, worst


def solve_shifted(
    system: NDArray, sides: NDArray, shift: float, weights: NDArray, alpha: float
) -> NDArray:
    """Return (K + shift W^{-1})^{-1} sides; both are overwritten, all weights > 0.

    Only the lower triangle of `system`, K, is read.
    """
    system[np.diag_indices_from(system)] += shift / weights
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


def centered(solved: NDArray, ones: NDArray, fit_intercept: bool) -> NDArray:
    """Return dual coefficients from solutions for the targets and for 1."""
    b = solved.sum(axis=0) / ones.sum() * fit_intercept
    return solved - np.outer(ones, b)


class LeftOut(NamedTuple):
    """Leave-one-out residuals.

    Attributes
    ----------
    residuals : ndarray of shape (n,) or (n, d)
        Target minus the prediction of the model fitted without the row. NaN for rows of
        weight zero.
    mean_square : float
        Weighted mean of squared residuals, summed over the outputs.
    """

    residuals: NDArray
    mean_square: float


def leave_one_out_residuals(
    K: SymmetricOperator | NDArray,
    Y: ArrayLike,
    alpha: float,
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
) -> LeftOut:
    r"""Return the leave-one-out residuals of kernel ridge regression.

    The penalty stays :math:`n \alpha` for the n rows of the full fit. Residuals are
    exact and use the inverse of the matrix: n^2 numbers and n^3 operations.

    Parameters
    ----------
    K : SymmetricGram or ndarray of shape (n, n)
        Kernel matrix.
    Y : array_like of shape (n,) or (n, d)
        Targets.
    alpha : float
        Penalty (> 0).
    sample_weight : array_like of shape (n,), optional
        Nonnegative weights of mean one.
    fit_intercept : bool, default=True
        Whether the models have an intercept.

    Returns
    -------
    LeftOut

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel
    >>> from nbsketch.solvers import leave_one_out_residuals
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=200)
    >>> left_out = leave_one_out_residuals(GaussianKernel(1.0)(X), y, 1e-4)
    >>> left_out.residuals.shape, round(left_out.mean_square**0.5, 1)
    ((200,), 0.1)
    """
    operator = as_operator(K)
    n = operator.shape[0]
    shift = n * check_positive("alpha", alpha)
    targets = check_columns(Y, n)
    weights = checks.weights(sample_weight, n)
    kept = np.flatnonzero(weights > 0)
    matrix = operator.block(kept)
    inverse = solve_shifted(matrix, np.eye(len(kept)), shift, weights[kept], alpha)
    ones = inverse.sum(axis=1)
    dual = centered(inverse @ targets[kept], ones, fit_intercept)
    diagonal = np.diagonal(inverse) - fit_intercept * ones**2 / ones.sum()
    residuals = np.full(targets.shape, np.nan)
    residuals[kept] = dual / diagonal[:, None]
    squares = weights[kept] @ np.square(residuals[kept]).sum(axis=1)
    return LeftOut(residuals.reshape(np.shape(Y)), float(squares / weights.sum()))
