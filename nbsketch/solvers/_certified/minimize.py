"""One call from a problem to its certified solution."""

from time import perf_counter

from nbsketch._validation import check_integer, check_positive
from nbsketch.solvers._certified.checks import check_state
from nbsketch.solvers._certified.problem import Problem
from nbsketch.solvers._certified.search import Callback, CertifiedSearch, timed
from nbsketch.solvers._certified.starts import nested_start
from nbsketch.solvers.solution import Solution, State


def minimize(
    problem: Problem,
    method: type[CertifiedSearch],
    tol: float,
    max_iter: int,
    state: State | None,
    callback: Callback | None,
) -> Solution:
    """Return the solution by `method`, from `state` or from nested samples if None."""
    began = perf_counter()
    check_positive("tol", tol)
    check_integer("max_iter", max_iter)
    if state is None:
        state = nested_start(problem, method)
    check_state(state, *problem.shapes)
    search = method(problem, state, tol, max_iter, timed(callback, began))
    return search.run()._replace(seconds=perf_counter() - began)
