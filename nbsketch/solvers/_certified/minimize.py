"""One call from a problem to its certified solution."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

from nbsketch._validation import check_integer, check_positive
from nbsketch.solvers._certified.checks import check_state
from nbsketch.solvers._certified.problem import Problem
from nbsketch.solvers._certified.search import Callback, CertifiedSearch, timed
from nbsketch.solvers._certified.starts import cold_start, nested_start
from nbsketch.solvers.solution import Solution, State


def minimize(
    problem: Problem,
    method: Callable[..., CertifiedSearch],
    tol: float,
    max_iter: int,
    state: State | None,
    callback: Callback | None,
    start: Callable[[Any], State] = cold_start,
) -> Solution:
    """Return the solution by `method`, from `state` or from nested samples if None.

    `start` returns the state from which the smallest sample is solved.
    """
    began = perf_counter()
    check_positive("tol", tol)
    check_integer("max_iter", max_iter)
    if state is None:
        state = nested_start(problem, method, start)
    check_state(state, *problem.shapes)
    search = method(problem, state, tol, max_iter, timed(callback, began))
    return search.run()._replace(seconds=perf_counter() - began)
