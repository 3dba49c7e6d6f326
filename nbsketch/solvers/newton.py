"""Certified solver of every scalar loss."""

from typing import Any

from numpy.typing import ArrayLike

from nbsketch.losses import LogisticLoss, as_loss
from nbsketch.solvers._certified.minimize import minimize
from nbsketch.solvers._certified.search import Callback
from nbsketch.solvers._scalar.logistic import LogisticSearch
from nbsketch.solvers._scalar.problem import scalar_problem
from nbsketch.solvers._scalar.search import ScalarSearch
from nbsketch.solvers.design import Design, as_design
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
        See `nbsketch.losses`.
    alpha : float
        Penalty. Positive.
    sample_weight : array_like of shape (n,), optional
        The weights s, at least 0. They are used as they are: scale them to mean one.
    fit_intercept : bool
        Whether to fit b, which is not penalized.
    tol : float
        Stop when the certified gap is at most this share of the objective. Losses more
        than 20 times their median do not count in that comparison in full, so that a
        few outliers do not loosen it; below ``1e-15`` times the objective at the start,
        or what rounding of the residuals may leave, a gap counts as none.
    max_iter : int
        Largest number of Newton steps.
    state : State, optional
        Of a solution nearby, to start from.
    callback : callable, optional
        Called as ``callback(iteration, objective, gap, seconds)`` at each certificate.

    Returns
    -------
    Solution
        With ``converged`` False if `max_iter` ended the search: its ``shortfall`` is
        the text of a warning.

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> solution = solve_scalar(Z, [1.0, 3.0, 5.0, 100.0], "pinball", 1e-3)
    >>> solution.coef.round(2), solution.converged
    (array([2.]), True)
    """
    loss, design = as_loss(loss), as_design(design)
    problem = scalar_problem(design, y, loss, alpha, sample_weight, fit_intercept)
    logistic = isinstance(loss, LogisticLoss)
    method = LogisticSearch if logistic else ScalarSearch
    return minimize(problem, method, tol, max_iter, state, callback)
