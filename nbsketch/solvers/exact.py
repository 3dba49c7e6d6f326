r"""Kernel ridge regression without a sketch, by Cholesky decomposition.

.. math:: (K + n \alpha W^{-1}) a = y - b, \qquad f = \sum_j a_j k(\cdot, x_j)

with weights W of mean one; an intercept b is free when :math:`\sum_j a_j = 0`.

Leave-one-out residuals of exact kernel ridge regression, from one solution.

With :math:`A = K + n \alpha W^{-1}`, dual coefficients :math:`a = G y` and

.. math:: G = A^{-1} - \frac{u u^\top}{1^\top u}, \quad u = A^{-1} 1
          \qquad (G = A^{-1} \text{ without an intercept}),

the residual of a row that is left out is :math:`e_i = a_i / G_{ii}`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from nbsketch._report.validation import check_integer, check_positive
from nbsketch.solvers._certified import checks
from nbsketch.solvers._linear.cholesky import LowRankPreconditioner, low_rank_factor
from nbsketch.solvers._linear.conjugate_gradients import (
    RotatedOutputs,
    StoredMatrix,
    SymmetricOperator,
    as_operator,
    check_columns,
)
from nbsketch.solvers._linear.systems import KernelSystem
from nbsketch.solvers.conjugate import ConjugateSearch, Limits


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
    rotated, operator = RotatedOutputs(Y, output), StoredMatrix(K)
    system = KernelSystem(operator, rotated, [alpha], sample_weight, fit_intercept)
    A, weights = np.zeros(system.shape), system.weights
    kept = np.flatnonzero(weights > 0)
    for shift in np.unique(system.shifts):
        same = np.flatnonzero(system.shifts == shift)
        matrix = operator.block(kept)
        sides = np.column_stack([system.Y[np.ix_(kept, same)], np.ones(len(kept))])
        solved = solve_shifted(matrix, sides, shift, weights[kept], alpha)
        A[np.ix_(kept, same)] = centered(solved[:, :-1], solved[:, -1], fit_intercept)
    product = system.product(A, slice(None))
    coef, b, unused = rotated.restore(
        A, system.intercept(A, product), weights, fit_intercept
    )
    return coef, b, float(system.certify(A, product).objective.sum()) + unused


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


def centered(solved: NDArray, ones: NDArray, fit_intercept: bool) -> NDArray:
    """Return dual coefficients from solutions for targets and for 1."""
    b = solved.sum(axis=0) / ones.sum() * fit_intercept
    return solved - np.outer(ones, b)


# Up to this many rows the inverse of the matrix is computed.
_DENSE_ROWS = 4000
# Relative gap of the columns, and their most passes.
_TOL, _PASSES = 1e-6, 200
# Estimates of G_ii are at least this share of their upper bound w_i / (n alpha).
_LEAST = 1e-3


class LeftOut(NamedTuple):
    """Leave-one-out residuals.

    Attributes
    ----------
    residuals : ndarray of shape (n,) or (n, d)
        Target minus the prediction of the model that is fitted without the row. NaN for
        rows of weight zero.
    relative_error : ndarray of shape (n,)
        Estimated relative standard error of each row's residuals; 0 if exact.
    mean_square : float
        Weighted mean of squared residuals, summed over the outputs. If stochastic, the
        bias that estimated diagonals have is removed.
    """

    residuals: NDArray
    relative_error: NDArray
    mean_square: float


def leave_one_out_residuals(
    K: SymmetricOperator | NDArray,
    Y: ArrayLike,
    alpha: float,
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    n_probes: int = 32,
    random_state: Any = None,
) -> LeftOut:
    r"""Return what kernel ridge regression predicts of each row without that row.

    The penalty stays :math:`n \alpha` for the n rows of the whole fit. Up to 4000 rows
    the residuals are exact, by the inverse of the matrix. Above, its diagonal is
    estimated from random signs z,

    .. math:: (A^{-1})_{ii} \approx (P^{-1})_{ii} + \frac1k \sum_z
              z_i \bigl(A^{-1} z - P^{-1} z\bigr)_i

    with the low-rank preconditioner P of conjugate gradients as a control variate: the
    variance is that of what P leaves. All signs and targets are columns of one search.

    Parameters
    ----------
    K : SymmetricGram or ndarray of shape (n, n)
        Kernel matrix.
    Y : array_like of shape (n,) or (n, d)
        Targets.
    alpha : float
        Penalty. Positive.
    sample_weight : array_like of shape (n,), optional
        Non-negative weights of mean one.
    fit_intercept : bool, default=True
        Whether the models have an intercept.
    n_probes : int, default=32
        Number k of sign vectors above 4000 rows. Errors fall with its square root, and
        a pass over K takes time in proportion to it.
    random_state : int, Generator or None
        For the signs and the preconditioner.

    Returns
    -------
    LeftOut

    Raises
    ------
    NotConvergedError
        If conjugate gradients do not converge.

    References
    ----------
    C. Bekas, E. Kokiopoulou, Y. Saad, "An estimator for the diagonal of a matrix",
    2007, Section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel
    >>> from nbsketch.solvers import leave_one_out_residuals
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=200)
    >>> found = leave_one_out_residuals(GaussianKernel(1.0)(X), y, 1e-4)
    >>> found.residuals.shape, round(found.mean_square**0.5, 1)
    ((200,), 0.1)
    """
    operator = as_operator(K)
    n, alpha = operator.shape[0], check_positive("alpha", alpha)
    targets, weights = check_columns(Y, n), checks.weights(sample_weight, n)
    kept = np.flatnonzero(weights > 0)
    if len(kept) < n:
        operator = operator.take(kept)
    args = operator, targets[kept], alpha, n * alpha, weights[kept], fit_intercept
    problem = _Problem(*args)
    if len(kept) <= _DENSE_ROWS:
        dual, diagonal, variance = problem.dense()
    else:
        probes = check_integer("n_probes", n_probes, low=2)
        rng = np.random.default_rng(random_state)
        dual, diagonal, variance = problem.stochastic(probes, rng)
    relative = variance / diagonal**2
    residuals = np.full(targets.shape, np.nan)
    # The mean of 1 / G_ii over the signs is larger than the inverse of the mean.
    residuals[kept] = dual / diagonal[:, None] * np.maximum(1 - relative, 0)[:, None]
    squares = np.square(dual / diagonal[:, None]).sum(axis=1)
    squares *= np.maximum(1 - 3 * relative, 0)
    errors = np.full(n, np.nan)
    errors[kept] = np.sqrt(relative)
    mean = float(weights[kept] @ squares) / float(weights.sum())
    return LeftOut(residuals.reshape(np.shape(Y)), errors, mean)


class _Problem(NamedTuple):
    """The matrix A of some rows, and their targets."""

    K: SymmetricOperator
    Y: NDArray
    alpha: float
    shift: float  # n alpha, for all rows
    weights: NDArray
    fit_intercept: bool

    def dense(self) -> tuple[NDArray, NDArray, NDArray]:
        """Return dual coefficients G y, and the diagonal of G with zero variance."""
        n = len(self.Y)
        matrix = np.array(self.K.rows(np.arange(n)), dtype=np.float64)
        inverse = solve_shifted(matrix, np.eye(n), self.shift, self.weights, self.alpha)
        dual, u = inverse @ self.Y, inverse.sum(axis=1)
        dual, diagonal = self._centered(dual, u, np.diagonal(inverse).copy())
        return dual, diagonal, np.zeros(n)

    def stochastic(
        self, n_probes: int, rng: np.random.Generator
    ) -> tuple[NDArray, NDArray, NDArray]:
        """Return the same with estimates, and variances, of the diagonal."""
        n, d = self.Y.shape
        factor = low_rank_factor(self.K, self.shift, rng)
        pre = LowRankPreconditioner(factor, self.weights)
        signs = rng.choice([-1.0, 1.0], size=(n, n_probes))
        sides = np.column_stack([self.Y, np.ones(n), signs])
        solved = self._solve(sides, pre)
        diagonal, variance = _diagonal(signs, solved[:, d + 1 :], pre, self.shift)
        dual, diagonal = self._centered(solved[:, :d], solved[:, d], diagonal)
        most = self.weights / self.shift
        return dual, np.clip(diagonal, _LEAST * most, most), variance

    def _solve(self, sides: NDArray, pre: LowRankPreconditioner) -> NDArray:
        """Return A^{-1} times some columns."""
        outputs, alpha = RotatedOutputs(sides, None), self.shift / len(sides)
        system = KernelSystem(self.K, outputs, [alpha], self.weights, False, pre)
        search = ConjugateSearch(system, None, Limits(_TOL, _PASSES, np.inf))
        search.run()
        search.check_gap()
        return search.X

    def _centered(
        self, dual: NDArray, u: NDArray, diagonal: NDArray
    ) -> tuple[NDArray, NDArray]:
        """Return G y and the diagonal of G from those of the inverse of A."""
        diagonal = diagonal - self.fit_intercept * u**2 / u.sum()
        return centered(dual, u, self.fit_intercept), diagonal


def _diagonal(
    signs: NDArray, solved: NDArray, pre: LowRankPreconditioner, shift: float
) -> tuple[NDArray, NDArray]:
    """Return an estimate of the diagonal of A^{-1} and its variance, (n,) each.

    The control variate has the coefficient of least variance over all rows.
    """
    count = signs.shape[1]
    values = signs * solved
    control = signs * pre.solve(signs, np.full(count, shift))
    control -= pre.diag(shift)[:, None]  # of mean zero
    centered = values - values.mean(axis=1, keepdims=True)
    around = control - control.mean(axis=1, keepdims=True)
    square = float(np.vdot(around, around))
    factor = float(np.vdot(centered, around)) / square if square > 0 else 0.0
    values -= factor * control
    return values.mean(axis=1), values.var(axis=1, ddof=1) / count
