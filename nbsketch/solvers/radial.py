"""Certified solver of vector-valued regression with a loss of the residual's norm."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_positive
from nbsketch.losses import as_loss
from nbsketch.solvers._certified.problem import (
    check_factor,
    check_state,
    check_targets,
    check_weights,
)
from nbsketch.solvers._certified.search import Callback, minimize
from nbsketch.solvers._radial.problem import RadialProblem
from nbsketch.solvers._radial.search import RadialSearch
from nbsketch.solvers.design import Design, as_design
from nbsketch.solvers.solution import Solution, State


def solve_radial(
    design: Design | ArrayLike,
    Y: ArrayLike,
    loss: Any,
    T: ArrayLike,
    alpha: float,
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    tol: float = 1e-6,
    max_iter: int = 1000,
    state: State | None = None,
    callback: Callback | None = None,
) -> Solution:
    r"""Minimize a loss of the norm of vector-valued residuals, with a ridge penalty.

    .. math:: \min_{W, b} \frac1n \sum_{i=1}^n s_i\,
              \phi\bigl(\| Y_i - (Z W T)_i - b \|_2\bigr) + \frac{\alpha}{2} \|W\|_F^2

    with ``T^T T = M`` the output matrix that couples the outputs.

    Parameters
    ----------
    design : Design or array_like of shape (n, r)
        The features Z.
    Y : array_like of shape (n, d)
        Targets.
    loss : Loss or str
        Square, Huber, epsilon-insensitive or squared epsilon-insensitive; see
        `nbsketch.losses`.
    T : array_like of shape (d', d)
        Factor of the output matrix; see `nbsketch.outputs.Output.factor`.
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
        With `coef` of shape (r, d'), `intercept` (d,), `dual` (n, d), and ``converged``
        False if `max_iter` ended the search.

    Notes
    -----
    Newton's method with conjugate gradients, preconditioned by an eigendecomposition of
    the weighted Gram matrix that serves all outputs. The epsilon-insensitive loss is
    reached through smoothed ones, in a proximal method on the dual.

    References
    ----------
    T. El Ahmad, P. Laforgue, F. d'Alche-Buc, "Fast kernel methods for generic Lipschitz
    losses via p-sparsified sketches", TMLR 2023 (the losses); X. Li, D. Sun, K.-C. Toh,
    "A highly efficient semismooth Newton augmented Lagrangian method for solving Lasso
    problems", 2018 (the scheme).

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.array([[-1.0], [0.0], [1.0], [0.0]])
    >>> Y = np.array([[-2.0, 1.0], [0.0, 1.0], [2.0, 1.0], [900.0, -900.0]])
    >>> solution = solve_radial(Z, Y, "huber", np.eye(2), alpha=1e-3)
    >>> solution.coef.round(1), solution.converged
    (array([[2., 0.]]), True)
    """
    design, loss, T = as_design(design), as_loss(loss).check_radial(), check_factor(T)
    n, d = design.shape[0], T.shape[1]
    Y = check_targets("Y", Y, (n, d))
    # T = left diag(t) turn: with outputs turned by `turn` the factor is diagonal
    left, t, turn = np.linalg.svd(T)
    left = left[:, : len(t)]
    problem = RadialProblem(
        design=design,
        Y=Y @ turn.T,
        weights=check_weights(sample_weight, n),
        numbers=loss.linear_quadratic(),
        t=t,
        alpha=check_positive("alpha", alpha),
        fit_intercept=bool(fit_intercept),
        n=float(n),
    )
    if state is not None:
        check_state(state, (design.shape[1], len(T)), (d,), (n, d))
        state = _turned(state, left, turn)
    solution = minimize(problem, RadialSearch, tol, max_iter, state, callback)
    assert solution.state is not None  # a search ends with a state and a dual point
    last = _turned(solution.state, left.T, turn.T)
    return solution._replace(
        coef=last.coef,
        intercept=last.intercept,
        dual=np.asarray(solution.dual) @ turn,
        state=last,
    )


def _turned(state: State, left: NDArray, turn: NDArray) -> State:
    """Return the state in the outputs turned by `turn`."""
    dual = None if state.dual is None else np.ascontiguousarray(state.dual @ turn.T)
    return state._replace(
        coef=np.asarray(state.coef) @ left, intercept=turn @ state.intercept, dual=dual
    )
