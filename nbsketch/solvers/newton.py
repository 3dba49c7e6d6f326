"""Certified solver for every scalar loss."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nbsketch.losses import as_loss
from nbsketch.outputs import check_levels
from nbsketch.solvers._certified import checks
from nbsketch.solvers._certified.search import minimize
from nbsketch.solvers._newton.problem import ONE, NewtonProblem
from nbsketch.solvers._newton.search import NewtonSearch
from nbsketch.solvers._newton.smooth import SmoothSearch
from nbsketch.solvers._newton.start import splitting_start
from nbsketch.solvers.design import Design, as_design
from nbsketch.solvers.generic import solve_generic
from nbsketch.solvers.passes import LandmarkDesign, PassesSearch
from nbsketch.solvers.row_loss import has_row_loss, pinball_rows, row_loss
from nbsketch.solvers.solution import Callback, Solution, State


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
        See `nbsketch.losses`. A loss without `elq`, defined by its derivative, is
        passed to `nbsketch.solvers.generic.solve_generic`.
    alpha : float
        Penalty (> 0).
    sample_weight : array_like of shape (n,), optional
        The weights s, at least 0. They are used unchanged: scale them to mean one.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    tol : float, default=1e-6
        Stop when the certified gap is at most this share of the objective, in which
        losses above 20 times their median are truncated, so that a few outliers do not
        loosen it. A gap below 1e-15 times the initial objective, or below the rounding
        of the residuals, counts as zero.
    max_iter : int, default=1000
        Maximum number of Newton steps.
    state : State, optional
        Warm start: the state of a similar problem. Default: solutions on nested random
        samples of the rows, or zero for few rows.
    callback : callable, optional
        Called as ``callback(iteration, objective, gap, seconds)`` after each step;
        if it returns true, the search stops with the best solution so far.

    Returns
    -------
    Solution
        `converged` is False if `max_iter` stopped the search; `shortfall` then returns
        the text of a warning.

    Raises
    ------
    TypeError
        If the loss defines neither `elq`, nor `value` and `derivative`.
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
    loss = as_loss(loss)
    design = as_design(design)
    if not has_row_loss(loss):
        return solve_generic(
            design, y, loss, alpha, sample_weight=sample_weight,
            fit_intercept=fit_intercept, tol=tol, max_iter=max_iter, state=state,
            callback=callback,
        )  # fmt: skip
    y = checks.labels("y", checks.targets("y", y, design.shape[:1]), loss)
    problem = NewtonProblem.of(
        design, alpha, sample_weight, fit_intercept, y=y, loss=loss, T=ONE,
        losses=row_loss(loss, y[None]),
    )  # fmt: skip
    search: Any = NewtonSearch if problem.losses.has_kinks else SmoothSearch
    if isinstance(design, LandmarkDesign):
        search = PassesSearch
    return minimize(problem, search, tol, max_iter, state, callback, is_scalar=True)


def solve_joint_pinball(
    design: Design | ArrayLike,
    y: ArrayLike,
    quantiles: ArrayLike,
    T: ArrayLike,
    alpha: float,
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    non_crossing: bool = False,
    tol: float = 1e-6,
    max_iter: int = 1000,
    state: State | None = None,
    callback: Callback | None = None,
) -> Solution:
    r"""Fit several conditional quantiles of one target together.

    .. math:: \min_{W, b} \frac1n \sum_{i=1}^n s_i \sum_{j=1}^d
              \ell_{\tau_j}\bigl(y_i - (Z W T)_{ij} - b_j\bigr)
              + \frac{\alpha}{2} \|W\|_F^2

    with the pinball loss of level tau_j for output j and the output matrix ``T^T T =
    M``, which couples the levels.

    Parameters
    ----------
    design : Design or array_like of shape (n, r)
        The features Z.
    y : array_like of shape (n,)
        Targets.
    quantiles : array_like of shape (d,)
        Levels, strictly ascending in (0, 1).
    T : array_like of shape (d', d)
        Factor of the output matrix; see `nbsketch.outputs.Output.factor`.
    alpha : float
        Penalty (> 0).
    sample_weight : array_like of shape (n,), optional
        The weights s, at least 0. They are used unchanged: scale them to mean one.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    non_crossing : bool, default=False
        Whether to add the constraints that the quantiles of each row of positive weight
        ascend, ``(Z W T)_ij + b_j <= (Z W T)_i(j+1) + b_(j+1)``. They need an
        intercept: the levels of every certified point are shifted until they hold.
    tol : float, default=1e-6
        Stop when the certified gap is at most this share of the objective, in which
        losses above 20 times their median are truncated.
    max_iter : int, default=1000
        Maximum number of Newton steps.
    state : State, optional
        Warm start: the state of a similar problem. Default: solutions on nested random
        samples of the rows, or zero for few rows.
    callback : callable, optional
        Called as ``callback(iteration, objective, gap, seconds)`` after each step;
        if it returns true, the search stops with the best solution so far.

    Returns
    -------
    Solution
        With `coef` of shape (r, d'), `intercept` (d,), `dual` (n, d), and ``converged``
        False if `max_iter` stopped the search. With constraints, `dual` has d - 1 more
        columns: their negative multipliers divided by the weights s.

    Raises
    ------
    ValueError
        If an argument has a wrong shape or value, or if `non_crossing` is true without
        an intercept.

    Notes
    -----
    Each Newton step factorizes a matrix of order r d', so the time grows like ``(r
    d')^3`` above a few hundred.

    A constraint is an additional term of the sum: its loss is 0 for a nonnegative
    difference of neighboring levels and infinite otherwise. The method of multipliers
    treats it like the other terms, with a multiplier (dual point) in [0, infinity). The
    gap therefore bounds the distance from the minimum of the constrained problem.

    References
    ----------
    M. Sangnier, O. Fercoq, F. d'Alche-Buc, "Joint quantile regression in vector-valued
    RKHSs", NeurIPS 2016 (the problem); X. Li, D. Sun, K.-C. Toh, "A highly efficient
    semismooth Newton augmented Lagrangian method for solving Lasso problems", 2018 (the
    scheme).

    Examples
    --------
    >>> import numpy as np
    >>> Z, y = np.zeros((101, 1)), np.arange(101.0)
    >>> solution = solve_joint_pinball(Z, y, [0.1, 0.5], np.eye(2), alpha=1.0)
    >>> solution.intercept.round(1), solution.converged
    (array([10., 50.]), True)
    """
    if non_crossing and not fit_intercept:
        raise ValueError(
            "`non_crossing` needs an intercept, got fit_intercept=False: set it to True"
        )
    design = as_design(design)
    levels = np.array(check_levels("quantiles", quantiles))
    ordered = bool(non_crossing)
    problem = NewtonProblem.of(
        design, alpha, sample_weight, fit_intercept, ordered=ordered,
        y=checks.targets("y", y, design.shape[:1]), T=checks.factor(T, len(levels)),
        losses=pinball_rows(levels, design.shape[0], ordered),
    )  # fmt: skip
    search = PassesSearch if isinstance(design, LandmarkDesign) else NewtonSearch
    return minimize(problem, search, tol, max_iter, state, callback, splitting_start)
