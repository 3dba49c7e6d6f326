"""What the searches for losses given by code share: spectrum, certificate, target."""

from __future__ import annotations

import numpy as np

from nbsketch.solvers._certified.certificate import Certificate
from nbsketch.solvers._certified.search import Report
from nbsketch.solvers._generic.problem import GenericProblem


class GenericSearch:
    """A search until a certificate is good enough.

    Attributes
    ----------
    mean, values, vectors : ndarray
        Weighted mean of the features (zero without an intercept), and the
        eigendecomposition of ``Z^T S Z / n``, centered with an intercept.
    mass : float
        Sum of the weights.
    best : Certificate
        The best one so far; a subclass sets the first.
    steps : int
        Iterations.
    """

    best: Certificate

    def __init__(
        self, problem: GenericProblem, tol: float, max_iter: int, report: Report | None
    ) -> None:
        self.problem, self.tol, self.max_iter = problem, tol, max_iter
        self.report, self.steps, self.stopped = report, 0, False
        gram = problem.design.gram(weights=problem.weights) / problem.n
        self.mass, self.mean = problem.weights.sum(), np.zeros(problem.rank)
        if problem.fit_intercept:
            self.mean = problem.design.rmv(problem.weights) / self.mass
            gram -= self.mass / problem.n * np.outer(self.mean, self.mean)
        values, self.vectors = np.linalg.eigh(gram)
        self.values = np.maximum(values, 0.0)

    @property
    def target(self) -> float:
        """The gap at which to stop."""
        return self.tol * self.best.scale

    def keep(self, found: Certificate) -> None:
        """Keep a certificate if it is the best, and report the best one."""
        if found.gap < self.best.gap:
            self.best = found
        self.call_back()

    def call_back(self) -> None:
        """Report the best certificate."""
        if self.report is not None:
            self.stopped |= bool(self.report(self.steps, self.best))

    @property
    def is_done(self) -> bool:
        """Whether the best certificate is good enough, or the report asks to stop."""
        return self.best.gap <= self.target or (self.stopped and self.steps > 0)
