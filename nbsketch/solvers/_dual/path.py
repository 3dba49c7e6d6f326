"""Solutions for several penalties, by searches that share products with the matrix.

Columns of targets are searches of their own, with their own smoothing and certificates,
whose products are taken together. As one problem with the matrix kernel k(x, x') I they
would take 1.2 to 7 times as long (six columns of 2500 rows, hinge, squared hinge and
logistic, alpha 1e-4 and 1e-6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_integer, check_positive, check_real
from nbsketch.solvers._certified.problem import check_state
from nbsketch.solvers._dual.matrix import run_together
from nbsketch.solvers._dual.problem import DualProblem
from nbsketch.solvers._dual.search import DualSearch, Limits, Start
from nbsketch.solvers._linear.conjugate_gradients import PartialOperator
from nbsketch.solvers._linear.preconditioner import LowRankPreconditioner
from nbsketch.solvers.solution import Solution, State

Callback = Callable[[int, float, float, float], bool | None]


class DualOptions(TypedDict, total=False):
    """Keyword arguments of `solve_dual`, `solve_joint_dual` and their paths."""

    sample_weight: ArrayLike | None
    fit_intercept: bool
    tol: float
    max_iter: int
    max_seconds: float
    state: State | None
    callback: Callback | None
    random_state: Any


@dataclass(kw_only=True)
class DualPath:
    """Searches with one kernel matrix, up to a relative gap or a limit.

    Parameters
    ----------
    K : PartialOperator
        The matrix of all entries of a problem.
    precondition : callable
        Returns a preconditioner of K that a search may change.
    shape : tuple of int
        Of the coefficients of a solution, (n,) or (n, d).
    mixing : ndarray of shape (d, d), optional
        Output matrix by which coefficients are multiplied at the end.
    tol, max_iter, max_seconds, callback
        As in `nbsketch.solvers.solve_dual`, for each penalty.
    """

    K: PartialOperator
    precondition: Callable[[], LowRankPreconditioner]
    shape: tuple[int, ...]
    mixing: NDArray | None = None
    tol: float
    max_iter: int
    max_seconds: float
    callback: Callback | None
    _began: float = 0.0
    _stopped: bool = False  # by the callback

    def solutions(
        self, path: Iterable[list[DualProblem]], state: State | None
    ) -> Iterator[Solution]:
        """Yield the solution of the problems of each penalty, from that before."""
        for problems in path:
            solution = self._solve(problems, state)
            state = solution.state
            yield solution

    def _solve(self, problems: list[DualProblem], state: State | None) -> Solution:
        self._began, self._stopped = perf_counter(), False
        searches: list[DualSearch] = []
        limits = Limits(self.tol, self.max_iter, self._is_late)
        for j, problem in enumerate(problems):
            start = _start(problem, state, j)
            search = DualSearch(
                self.K, problem, self.precondition(), start, limits,
                lambda step: self._report(step, searches),
            )  # fmt: skip
            searches.append(search)
        run_together(self.K, [search.run() for search in searches])
        return self._solution(searches)

    def _is_late(self) -> bool:
        return self._stopped or perf_counter() - self._began > self.max_seconds

    def _report(self, step: int, searches: list[DualSearch]) -> None:
        if self.callback is None or self._stopped:
            return
        best = [search.best for search in searches if search.best is not None]
        objective = float(sum(b.objective for b in best))
        gap = float(sum(b.gap + b.noise for b in best))
        seconds = perf_counter() - self._began
        self._stopped = bool(self.callback(step, objective, gap, seconds))

    def _solution(self, searches: list[DualSearch]) -> Solution:
        """Return the best points of all searches as one solution."""
        best, d = [s.best for s in searches], searches[0].problem.outputs
        dual = np.column_stack([b.dual.reshape(d, -1).T for b in best])
        coef = np.column_stack([b.coef.reshape(d, -1).T for b in best])
        dual, coef = dual.reshape(self.shape), coef.reshape(self.shape)
        b: Any = np.concatenate([b.intercept for b in best])
        if len(self.shape) == 1:
            b = float(b[0])
        return Solution(
            coef=coef if self.mixing is None else coef @ self.mixing,
            intercept=b,
            dual=dual,
            objective=d * sum(b.objective for b in best),
            gap=d * sum(b.gap + b.noise for b in best),
            relative_gap=max(b.relative_gap for b in best),
            n_iter=max(search.steps for search in searches),
            seconds=perf_counter() - self._began,
            converged=all(search.converged for search in searches),
            state=State(coef, b, dual),
        )


def check_options(
    tol: float,
    max_iter: int,
    max_seconds: float,
    state: State | None,
    shape: tuple[int, ...],
) -> None:
    """Check the limits of a search, and a state for coefficients of a shape."""
    check_positive("tol", tol)
    check_integer("max_iter", max_iter)
    check_real("max_seconds", max_seconds, low=0)
    if state is not None:
        check_state(state, shape, shape[1:], shape)


def _start(problem: DualProblem, state: State | None, j: int) -> Start:
    """Return where the search for problem j starts: at a state, or at constants."""
    if state is None:
        return _cold_start(problem)
    d = problem.outputs
    columns = slice(j * d, (j + 1) * d)

    def entries(array: NDArray) -> NDArray:
        table = np.reshape(array, (problem.n // d, -1))
        return np.array(table[:, columns].T, dtype=np.float64).ravel()

    b = np.ravel(state.intercept)[columns] * float(problem.fit_intercept)
    dual = state.dual
    center = None if dual is None else problem.rows.clip(entries(dual))
    return Start(entries(state.coef), b, center)


def _cold_start(problem: DualProblem) -> Start:
    """Return the best constants; zero for labels."""
    constants = np.zeros(problem.outputs)
    lo = problem.rows.lo.reshape(problem.outputs, -1)
    if problem.fit_intercept and not (lo != lo[:, :1]).any():
        medians = np.median(problem.y.reshape(problem.outputs, -1), axis=1)
        constants = problem.intercept(problem.y, medians)
    return Start(np.zeros(problem.n), constants)
