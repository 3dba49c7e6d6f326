r"""Scalar losses on all rows of a kernel matrix, by products with it.

.. math:: \min_{c, b} \frac1n \sum_i s_i\, \ell\bigl((K c)_i + b, y_i\bigr)
          + \frac{\alpha}{2} c^\top K c

for losses with kinks as for smooth ones, in the time of some tens of products. K need
not be stored, and no inverse of it is in the certificate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_positive
from nbsketch.losses import as_loss
from nbsketch.solvers._certified.problem import check_labels, check_weights
from nbsketch.solvers._dual.path import Callback, DualOptions, DualPath, check_options
from nbsketch.solvers._dual.problem import DualProblem
from nbsketch.solvers._linear.conjugate_gradients import (
    PartialOperator,
    as_operator,
    check_columns,
)
from nbsketch.solvers._linear.preconditioner import (
    LowRankPreconditioner,
    default_rank,
    low_rank_factor,
)
from nbsketch.solvers.row_loss import conjugate_numbers, row_loss
from nbsketch.solvers.solution import Solution, State

__all__ = ["dual_path", "solve_dual"]

# Share of the default rank for losses with kinks: smoothing makes their shifts larger,
# and few of their rows are between kinks at the end.
RANK_WITH_KINKS = 0.5


def solve_dual(
    K: PartialOperator | NDArray,
    y: ArrayLike,
    loss: Any,
    alpha: float,
    **options: Unpack[DualOptions],
) -> Solution:
    r"""Minimize a scalar loss over all kernel functions, to a certified accuracy.

    With a dual point a, :math:`c = s \circ a / (n \alpha)` and residuals r of c and b,
    the duality gap is

    .. math:: \frac1n \sum_i s_i \bigl(\psi(r_i) + \psi^*(a_i) - a_i r_i\bigr),
              \qquad \sum_i s_i a_i = 0 .

    Semismooth Newton steps on the loss smoothed by sigma, which falls from a value at
    which nearly all rows lie between kinks. The linear system of a step is that of the
    rows between kinks: a Cholesky factorization up to 1500 of them, else conjugate
    gradients with a low-rank preconditioner of K.

    Parameters
    ----------
    K : SymmetricGram or ndarray of shape (n, n)
        Kernel matrix.
    y : array_like of shape (n,) or (n, d)
        Targets; -1 and +1 for a classification loss. Columns are problems of their own
        that share the products with K.
    loss : Loss or str
        A loss with `elq`, or the logistic loss; see `nbsketch.losses`.
    alpha : float
        Penalty. Positive.
    sample_weight : array_like of shape (n,), optional
        The weights s, at least 0. They are used as they are: scale them to mean one.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    tol : float, default=1e-4
        Stop when the certified gap of each column is at most this share of its
        objective, in which losses above 20 times their median are cut down.
    max_iter : int, default=200
        Largest number of Newton steps.
    max_seconds : float, default=inf
        Largest time; checked between steps.
    state : State, optional
        Of a solution nearby, such as that for another `alpha`, to start from.
    callback : callable, optional
        Called as ``callback(iteration, objective, gap, seconds)`` after each step of
        each column, with sums over the best certificates so far; true to stop.
    random_state : int, Generator or None
        For the pivots of the preconditioner.

    Returns
    -------
    Solution
        ``coef`` (n,) or (n, d) are the coefficients c, ``dual`` is a, ``n_iter`` the
        largest number of Newton steps of a column. ``gap`` includes an estimate of the
        rounding of kernel values. ``converged`` is False if a limit, or the precision
        of the kernel values, ended the search before `tol`.

    Raises
    ------
    TypeError
        If the loss is neither linear-quadratic nor logistic.

    References
    ----------
    X. Li, D. Sun, K.-C. Toh, "A highly efficient semismooth Newton augmented Lagrangian
    method for solving Lasso problems", 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel
    >>> from nbsketch.gram import SymmetricGram
    >>> X = np.linspace(0, 6, 300)[:, None]
    >>> K = SymmetricGram(GaussianKernel(1.0), X, dtype=np.float64)
    >>> solution = solve_dual(K, np.sin(X[:, 0]), "pinball", 1e-3, random_state=0)
    >>> solution.converged, bool(solution.relative_gap <= 1e-4)
    (True, True)
    """
    return next(dual_path(K, y, loss, [alpha], **options))


def dual_path(
    K: PartialOperator | NDArray,
    y: ArrayLike,
    loss: Any,
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
    K, y, loss
        As in `solve_dual`.
    alphas : iterable of float
        Penalties. All use one low-rank factor of K.
    sample_weight, fit_intercept, tol, state, callback, random_state
        As in `solve_dual`.
    max_iter, max_seconds
        As in `solve_dual`, for each penalty.

    Yields
    ------
    Solution
    """
    operator, shape = as_operator(K), np.shape(y)
    penalties = [check_positive("alpha", alpha) for alpha in alphas]
    n, loss = operator.shape[0], as_loss(loss)
    columns = [np.ascontiguousarray(column) for column in check_columns(y, n).T]
    check_labels("y", np.array(columns), loss)
    weights = check_weights(sample_weight, n)
    check_options(tol, max_iter, max_seconds, state, shape)
    rank = default_rank(n, 1.0 if conjugate_numbers(loss).gam > 0 else RANK_WITH_KINKS)
    rng = np.random.default_rng(random_state)
    factor = low_rank_factor(operator, n * min(penalties), rng, rank=rank)
    search = DualPath(
        K=operator, precondition=lambda: LowRankPreconditioner(factor, np.zeros(n)),
        shape=shape, tol=tol, max_iter=max_iter, max_seconds=max_seconds,
        callback=callback,
    )  # fmt: skip

    def problems(alpha: float) -> list[DualProblem]:
        return [
            DualProblem(
                y=column, weights=weights, rows=row_loss(loss, column), alpha=alpha,
                fit_intercept=bool(fit_intercept),
            )
            for column in columns
        ]  # fmt: skip

    return search.solutions(map(problems, penalties), state)
