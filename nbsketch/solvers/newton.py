"""Certified solver of every scalar loss: one problem, or a path of penalties."""

from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nbsketch._validation import check_integer, check_positive
from nbsketch.losses import as_loss
from nbsketch.solvers._certified.certificate import Certificate
from nbsketch.solvers._scalar.logistic import LogisticNewton
from nbsketch.solvers._scalar.problem import Problem, scalar_problem
from nbsketch.solvers._scalar.search import Report, SemismoothNewton
from nbsketch.solvers._scalar.starts import cold_state, subsample_state
from nbsketch.solvers.design import Design, as_design
from nbsketch.solvers.solution import Solution, State

Callback = Callable[[int, float, float, float], Any]


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
    began = perf_counter()
    loss, design = as_loss(loss), as_design(design)
    check_positive("tol", tol)
    check_integer("max_iter", max_iter)
    problem = scalar_problem(design, y, loss, alpha, sample_weight, fit_intercept)
    method = LogisticNewton if loss.elq is None else SemismoothNewton
    if state is not None:
        _check_state(state, problem)
    else:
        state = subsample_state(problem, method) or cold_state(problem)
    search = method(problem, state, tol, max_iter, _timed(callback, began))
    best, state, steps = search.run()
    return _solution(best, state, steps, search.target, tol, perf_counter() - began)


def solve_path(
    design: Design | ArrayLike,
    y: ArrayLike,
    loss: Any,
    alphas: Iterable[float],
    **options: Any,
) -> Iterator[Solution]:
    """Yield the solution for each penalty in turn, each starting from the one before.

    Parameters
    ----------
    design, y, loss
        As in `solve_scalar`.
    alphas : iterable of float
        Penalties; from the largest down is fastest.
    **options
        Keyword arguments of `solve_scalar`.

    Yields
    ------
    Solution
    """
    design, state = as_design(design), options.pop("state", None)
    for alpha in alphas:
        solution = solve_scalar(design, y, loss, alpha, state=state, **options)
        yield solution
        # the last sigma suits the end of a search, not the start of the next one
        state = solution.state._replace(sigma=None) if solution.state else None


def _check_state(state: State, problem: Problem) -> None:
    for name, value, size in (
        ("coef", state.coef, problem.rank),
        ("dual", state.dual, len(problem.y)),
        ("inside", state.inside, len(problem.y)),
    ):
        if value is not None and np.shape(value) != (size,):
            raise ValueError(
                f"`state.{name}` must have shape ({size},), got {np.shape(value)}"
            )


def _timed(callback: Callback | None, began: float) -> Report | None:
    if callback is None:
        return None

    def report(step: int, found: Certificate) -> None:
        callback(step, found.objective, found.gap, perf_counter() - began)

    return report


def _solution(
    best: Certificate,
    state: State,
    steps: int,
    target: float,
    tol: float,
    seconds: float,
) -> Solution:
    relative = best.gap * tol / target if target > 0 else best.gap
    return Solution(
        best.coef, best.intercept, best.dual, best.objective, best.gap, relative, steps,
        seconds, bool(best.gap <= target), state,
    )  # fmt: skip
