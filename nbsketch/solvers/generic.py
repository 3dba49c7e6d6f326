"""Certified solver of a scalar loss that is given by code."""

from time import perf_counter

from numpy.typing import ArrayLike

from nbsketch._validation import check_integer, check_positive
from nbsketch.losses import Loss, as_loss
from nbsketch.solvers._certified.problem import (
    check_labels,
    check_state,
    check_targets,
    check_weights,
)
from nbsketch.solvers._certified.search import Callback, cold_start, timed
from nbsketch.solvers._generic.admm import AlternatingDirections
from nbsketch.solvers._generic.lbfgs import WhitenedDescent
from nbsketch.solvers._generic.problem import GenericProblem
from nbsketch.solvers.design import Design, as_design
from nbsketch.solvers.solution import Solution, State


def solve_generic(
    design: Design | ArrayLike,
    y: ArrayLike,
    loss: Loss | str,
    alpha: float,
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    tol: float = 1e-6,
    max_iter: int = 1000,
    state: State | None = None,
    callback: Callback | None = None,
) -> Solution:
    r"""Minimize a loss that is given by its derivative or by its proximal map.

    .. math:: \min_{w, b} \frac1n \sum_{i=1}^n s_i\, \ell(z_i^\top w + b, y_i)
              + \frac{\alpha}{2} \|w\|^2

    A loss with a derivative is solved by L-BFGS on whitened features, one with a
    proximal map by the alternating direction method of multipliers. `solve_scalar`
    calls this function for losses without `elq`; with these numbers it is faster by
    itself.

    Parameters
    ----------
    design : Design or array_like of shape (n, r)
        The features Z.
    y : array_like of shape (n,)
        Targets; -1 and +1 for a classification loss.
    loss : Loss or str
        A convex loss; see `nbsketch.losses.Loss` for what to implement.
    alpha : float
        Penalty. Positive.
    sample_weight : array_like of shape (n,), optional
        The weights s, at least 0. They are used as they are: scale them to mean one.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    tol : float, default=1e-6
        Stop when the certified gap is at most this share of the objective, in which
        losses above 20 times their median are cut down.
    max_iter : int, default=1000
        Largest number of iterations.
    state : State, optional
        Solution of a similar problem, to start from.
    callback : callable, optional
        Called as ``callback(iteration, objective, gap, seconds)`` at each certificate;
        if it returns true, the search ends with the best solution so far.

    Returns
    -------
    Solution
        `converged` is False if the gap is above `tol` after `max_iter` iterations, or
        if rounding ended the search before. The gap is infinite if the optimal
        intercept is not finite.

    Raises
    ------
    TypeError
        If the loss gives neither `elq`, nor `value` with `derivative` or `prox`.
    ValueError
        If the derivative or the proximal map does not belong to the value, or the loss
        is not convex, as far as the residuals show it.

    Notes
    -----
    The gap is a bound for every convex loss: its conjugate is evaluated at subgradients
    only, where it is known. ADMM is slow for tolerances below 1e-6 and tiny penalties.

    References
    ----------
    D. C. Liu, J. Nocedal, "On the limited memory BFGS method for large scale
    optimization", 1989; S. Boyd et al., "Distributed Optimization and Statistical
    Learning via the Alternating Direction Method of Multipliers", 2011, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.losses import Loss
    >>> class LogCosh(Loss):
    ...     def value(self, x):
    ...         return np.logaddexp(x, -np.asarray(x)) - np.log(2)
    ...
    ...     def derivative(self, x):
    ...         return np.tanh(x)
    >>> Z = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> solution = solve_generic(Z, [1.0, 3.0, 5.0, 7.0], LogCosh(), 1e-6)
    >>> solution.coef.round(2), round(solution.intercept, 2), solution.converged
    (array([2.]), 1.0, True)
    """
    began = perf_counter()
    check_positive("tol", tol)
    check_integer("max_iter", max_iter)
    design, loss = as_design(design), as_loss(loss)
    n = design.shape[0]
    problem = GenericProblem(
        design=design,
        y=check_labels("y", check_targets("y", y, (n,)), loss),
        weights=check_weights(sample_weight, n),
        loss=loss,
        alpha=check_positive("alpha", alpha),
        fit_intercept=bool(fit_intercept),
        n=float(n),
    )
    smooth = loss.check_solvable() == "derivative"
    state = cold_start(problem) if state is None else state
    check_state(state, *problem.shapes)
    method = WhitenedDescent if smooth else AlternatingDirections
    search = method(problem, state, tol, max_iter, timed(callback, began))
    best, steps = search.run()
    relative = best.gap / best.scale if best.scale > 0 else best.gap
    return Solution(
        best.coef, best.intercept, best.dual, best.objective, best.gap, relative, steps,
        perf_counter() - began, bool(best.gap <= search.target),
        State(best.coef, best.intercept, best.dual),
    )  # fmt: skip
