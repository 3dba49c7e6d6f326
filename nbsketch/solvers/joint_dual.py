r"""Several quantile levels at once on all rows of a kernel matrix, by products with it.

.. math:: f_j = \sum_i (C M)_{ij}\, k(\cdot, x_i), \qquad
          \min_{C, b} \frac1n \sum_{ij} s_i\, \ell_{\tau_j}(y_i - f_j(x_i) - b_j)
          + \frac{\alpha}{2} \operatorname{tr}(C^\top K C M)

with an output matrix M that couples the levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_positive
from nbsketch.outputs import check_levels
from nbsketch.solvers._certified.problem import (
    check_factor,
    check_targets,
    check_weights,
)
from nbsketch.solvers._dual.matrix import CoupledMatrix, CoupledPreconditioner
from nbsketch.solvers._dual.path import Callback, DualOptions, DualPath, check_options
from nbsketch.solvers._dual.problem import DualProblem
from nbsketch.solvers._linear.conjugate_gradients import PartialOperator, as_operator
from nbsketch.solvers._linear.preconditioner import default_rank, low_rank_factor
from nbsketch.solvers.dual import RANK_WITH_KINKS
from nbsketch.solvers.row_loss import RowLoss
from nbsketch.solvers.solution import Solution, State

__all__ = ["joint_dual_path", "solve_joint_dual"]


def solve_joint_dual(
    K: PartialOperator | NDArray,
    y: ArrayLike,
    quantiles: ArrayLike,
    T: ArrayLike,
    alpha: float,
    **options: Unpack[DualOptions],
) -> Solution:
    r"""Fit several conditional quantiles over all kernel functions, certified.

    The problem is that of `solve_joint_pinball` on features Z with
    :math:`Z Z^\top = K`. It is solved as one of n d entries with the kernel matrix
    :math:`M \otimes K`, as `solve_dual` solves scalar ones: with a dual point A,
    :math:`C = s \circ A / (n \alpha)`, the gap needs no inverse, and a product serves
    all levels.

    Parameters
    ----------
    K : SymmetricGram or ndarray of shape (n, n)
        Kernel matrix.
    y : array_like of shape (n,)
        Targets.
    quantiles : array_like of shape (d,)
        Levels, strictly ascending in (0, 1).
    T : array_like of shape (d', d)
        Factor of the output matrix, M = T^T T; see `nbsketch.outputs.Output.factor`.
    alpha : float
        Penalty. Positive.
    sample_weight : array_like of shape (n,), optional
        The weights s, at least 0. They are used as they are: scale them to mean one.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    tol, max_iter, max_seconds, callback, random_state
        As in `solve_dual`.
    state : State, optional
        Of a solution nearby, such as that for another `alpha`, to start from.

    Returns
    -------
    Solution
        ``coef`` (n, d) is C M, the coefficients of the predictions K C M + b;
        ``intercept`` (d,), ``dual`` (n, d) is A. ``gap`` includes an estimate of the
        rounding of kernel values.

    References
    ----------
    M. Sangnier, O. Fercoq, F. d'Alche-Buc, "Joint quantile regression in vector-valued
    RKHSs", NeurIPS 2016 (the problem and its dual, section 3).

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel
    >>> from nbsketch.solvers import solve_joint_dual
    >>> x = np.linspace(0, 6, 200)
    >>> y = np.sin(x) + np.tile([-1.0, -0.5, 0.5, 1.0], 50)
    >>> K = GaussianKernel(1.0)(x[:, None])
    >>> found = solve_joint_dual(K, y, [0.25, 0.75], np.eye(2), 1e-3)
    >>> found.converged, found.coef.shape
    (True, (200, 2))
    >>> bool(np.all(K @ found.coef @ [-1.0, 1.0] + np.diff(found.intercept) > 0))
    True
    """
    return next(joint_dual_path(K, y, quantiles, T, [alpha], **options))


def joint_dual_path(
    K: PartialOperator | NDArray,
    y: ArrayLike,
    quantiles: ArrayLike,
    T: ArrayLike,
    alphas: Iterable[float],
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    tol: float = 1e-4,
    max_iter: int = 200,
    max_seconds: float = np.inf,
    state: State | None = None,
    callback: Callback | None = None,
    random_state: Any = None,
) -> Iterator[Solution]:
    """Yield the solution for each penalty, each started from the one before.

    Parameters
    ----------
    K, y, quantiles, T
        As in `solve_joint_dual`.
    alphas : iterable of float
        Penalties. All use one low-rank factor of K.
    sample_weight, fit_intercept, tol, state, callback, random_state
        As in `solve_joint_dual`.
    max_iter, max_seconds
        As in `solve_joint_dual`, for each penalty.

    Yields
    ------
    Solution
    """
    operator = as_operator(K)
    penalties = [check_positive("alpha", alpha) for alpha in alphas]
    n, levels = operator.shape[0], np.array(check_levels("quantiles", quantiles))
    T, targets = check_factor(T, len(levels)), check_targets("y", y, (n,))
    weights, d = check_weights(sample_weight, n), len(levels)
    check_options(tol, max_iter, max_seconds, state, (n, d))
    coupled = CoupledMatrix(operator, T.T @ T)
    rng = np.random.default_rng(random_state)
    rank = default_rank(n, RANK_WITH_KINKS, len(T))
    factor = low_rank_factor(operator, n * min(penalties), rng, rank=rank)

    def precondition() -> CoupledPreconditioner:
        return CoupledPreconditioner(factor, T, coupled.row, coupled.output)

    def problems(alpha: float) -> list[DualProblem]:
        """Return the problem of all entries: a mean over n d terms, not n rows."""
        problem = DualProblem(
            y=np.tile(targets, d), weights=np.tile(weights, d),
            rows=RowLoss(np.repeat(levels - 1, n), np.repeat(levels, n)),
            alpha=alpha / d, fit_intercept=bool(fit_intercept), outputs=d,
        )  # fmt: skip
        return [problem]

    search = DualPath(
        K=coupled, precondition=precondition, shape=(n, d), mixing=coupled.M, tol=tol,
        max_iter=max_iter, max_seconds=max_seconds, callback=callback,
    )  # fmt: skip
    return search.solutions(map(problems, penalties), state)
