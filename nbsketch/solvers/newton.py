"""Certified solver of every scalar loss."""

from typing import Any

from numpy.typing import ArrayLike

from nbsketch.losses import as_loss
from nbsketch.solvers._certified.minimize import minimize
from nbsketch.solvers._certified.search import Callback, CertifiedSearch
from nbsketch.solvers._scalar.problem import ScalarProblem, scalar_problem
from nbsketch.solvers._scalar.resident import (
    ResidentScalarSearch,
    ResidentSmoothSearch,
)
from nbsketch.solvers._scalar.search import ScalarSearch
from nbsketch.solvers._scalar.smooth import SmoothSearch
from nbsketch.solvers.design import Design, as_design
from nbsketch.solvers.generic import solve_generic
from nbsketch.solvers.row_loss import has_row_loss
from nbsketch.solvers.solution import Solution, State


def solve_scalar(
    design: Design | ArrayLike,
    y: ArrayLike,
    loss: Any,
    alpha: float,
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    tol: float = 1e-6,
    max_iter: int = 1000,
    state: State | None = None,
    callback: Callback | None = None,
) -> Solution:
    r"""Minimize a scalar loss with a ridge penalty, to a certified accuracy.

    .. math:: \min_{w, b} \frac1n \sum_{i=1}^n s_i\, \ell(z_i^\top w + b, y_i)
              + \frac{\alpha}{2} \|w\|^2

    Parameters
    ----------
    design : Design or array_like of shape (n, r)
        The features Z.
    y : array_like of shape (n,)
        Targets; -1 and +1 for a classification loss.
    loss : Loss or str
        See `nbsketch.losses`. A loss without `elq`, given by its derivative or its
        proximal map, is passed on to `nbsketch.solvers.generic.solve_generic`.
    alpha : float
        Penalty. Positive.
    sample_weight : array_like of shape (n,), optional
        The weights s, at least 0. They are used as they are: scale them to mean one.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    tol : float, default=1e-6
        Stop when the certified gap is at most this share of the objective, in which
        losses above 20 times their median are cut down, so that a few outliers do not
        loosen it. A gap below 1e-15 times the objective at the start, or below what
        rounding of the residuals may leave, counts as zero.
    max_iter : int, default=1000
        Largest number of Newton steps.
    state : State, optional
        Solution of a similar problem, to start from. Default: solutions of nested
        random samples of the rows, or zero if there are few rows.
    callback : callable, optional
        Called as ``callback(iteration, objective, gap, seconds)`` at each certificate;
        if it returns true, the search ends with the best solution so far.

    Returns
    -------
    Solution
        `converged` is False if `max_iter` ended the search; `shortfall` then returns
        the text of a warning.

    Raises
    ------
    TypeError
        If the loss gives neither `elq`, nor `value` with `derivative` or `prox`.
    ValueError
        If an argument has a wrong shape or value.

    References
    ----------
    X. Li, D. Sun, K.-C. Toh, "A highly efficient semismooth Newton augmented Lagrangian
    method for solving Lasso problems", 2018 (the scheme for losses with kinks).

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> solution = solve_scalar(Z, [1.0, 3.0, 5.0, 100.0], "pinball", 1e-3)
    >>> solution.coef.round(2), solution.converged
    (array([2.]), True)
    """
    loss, design = as_loss(loss), as_design(design)
    if not has_row_loss(loss):
        return solve_generic(
            design, y, loss, alpha, sample_weight=sample_weight,
            fit_intercept=fit_intercept, tol=tol, max_iter=max_iter, state=state,
            callback=callback,
        )  # fmt: skip
    problem = scalar_problem(design, y, loss, alpha, sample_weight, fit_intercept)
    return minimize(problem, _search, tol, max_iter, state, callback)


def _search(problem: ScalarProblem, *args: Any) -> CertifiedSearch:
    resident = problem.design.keeps_rows
    if problem.rows.has_kinks:
        return (ResidentScalarSearch if resident else ScalarSearch)(problem, *args)
    return (ResidentSmoothSearch if resident else SmoothSearch)(problem, *args)
