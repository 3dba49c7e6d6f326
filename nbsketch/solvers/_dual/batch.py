"""Searches for several problems that share the products with a kernel matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._certified.certificate import Certificate
from nbsketch.solvers._dual.problem import DualProblem
from nbsketch.solvers._dual.products import Products, run_together
from nbsketch.solvers._dual.search import DualSearch, Limits, Start
from nbsketch.solvers._linear.operator import PartialOperator
from nbsketch.solvers._linear.preconditioner import LowRankPreconditioner

Callback = Callable[[int, float, float, float], bool | None]


class Outcome(NamedTuple):
    """The best certificates, and how the searches went."""

    found: list[Certificate]
    steps: int  # of the longest search
    converged: bool
    seconds: float


@dataclass
class Batch:
    """Searches with one kernel matrix, up to a relative gap or a limit.

    Parameters
    ----------
    K : PartialOperator
        The matrix of all entries of a problem.
    precondition : callable
        Returns a preconditioner of K that a search may change.
    tol, max_iter, max_seconds
        As in `nbsketch.solvers.solve_dual`, for each call of `solve`.
    """

    K: PartialOperator
    precondition: Callable[[], LowRankPreconditioner]
    tol: float
    max_iter: int
    max_seconds: float
    _began: float = 0.0
    _stopped: bool = False  # by the callback

    def solve(
        self,
        problems: list[DualProblem],
        starts: list[Start],
        callback: Callback | None,
    ) -> Outcome:
        """Return the outcome of problems that run side by side."""
        self._began, self._stopped = perf_counter(), False
        searches: list[DualSearch] = []

        def report(step: int) -> None:
            if callback is None or self._stopped:
                return
            best = [search.best for search in searches if search.best is not None]
            objective = float(sum(b.objective for b in best))
            gap = float(sum(b.gap + b.noise for b in best))
            seconds = perf_counter() - self._began
            self._stopped = bool(callback(step, objective, gap, seconds))

        limits = Limits(self.tol, self.max_iter, self._is_late)
        for problem, start in zip(problems, starts, strict=True):
            parts = self.K, problem, self.precondition(), start, limits, report
            searches.append(DualSearch(*parts))
        runs = [search.run() for search in searches]
        found = run_together(Products(self.K), runs)
        return Outcome(
            found,
            max(search.steps for search in searches),
            all(search.converged for search in searches),
            perf_counter() - self._began,
        )

    def _is_late(self) -> bool:
        return self._stopped or perf_counter() - self._began > self.max_seconds


def cold_start(problem: DualProblem) -> Start:
    """Return the best constants; zero for labels."""
    constants = np.zeros(problem.outputs)
    lo = problem.rows.lo.reshape(problem.outputs, -1)
    if problem.fit_intercept and not (lo != lo[:, :1]).any():
        medians = np.median(problem.y.reshape(problem.outputs, -1), axis=1)
        constants = problem.intercept(problem.y, medians)
    return Start(np.zeros(problem.n), constants)


def warm_start(
    problem: DualProblem, c: NDArray, intercept: NDArray, dual: NDArray | None
) -> Start:
    """Return the start at the solution of a similar problem."""
    center = None if dual is None else problem.rows.clip(dual)
    b = intercept * float(problem.fit_intercept)
    return Start(np.array(c, dtype=np.float64), b, center)
