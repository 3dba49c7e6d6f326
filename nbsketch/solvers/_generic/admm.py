"""The alternating direction method of multipliers, for a loss that gives its prox.

The residuals are a separate variable u. A step is a proximal map of the loss, row
by row, and a ridge regression, for which one eigendecomposition of ``Z^T S Z / n``
serves every penalty parameter c (Boyd et al., "Distributed Optimization and Statistical
Learning via the Alternating Direction Method of Multipliers", 2011, sections 3.4.1 to
3.4.3).
"""

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._certified.problem import Certificate
from nbsketch.solvers._certified.search import Report
from nbsketch.solvers._generic.problem import (
    GenericProblem,
    GenericSearch,
    check_subgradients,
)
from nbsketch.solvers.solution import State

_ALLOWED = 0.1  # share of the target that balancing the dual point may cost
_RELAXED = 1.6  # over-relaxation
_EVERY = 20  # steps between certificates
_MOST_CHANGE = 10.0  # of c at a time


class AlternatingDirections(GenericSearch):
    """ADMM until a certificate is good enough.

    Attributes
    ----------
    c : float
        Penalty parameter of the constraint ``u = y - Z w - b``.
    w, b, res, u, scaled
        Iterates: coefficients, intercept, their residuals, the separate residuals and
        the multiplier over c.
    """

    def __init__(
        self,
        problem: GenericProblem,
        state: State,
        tol: float,
        max_iter: int,
        report: Report | None,
    ) -> None:
        super().__init__(problem, tol, max_iter, report)
        self.w, self.b = np.array(state.coef, float), float(state.intercept)
        self.res = self.u = problem.residual(self.w, self.b)
        self.c = 1.0 / problem.spread(self.res)
        self.scaled = np.zeros_like(self.res)
        if state.dual is not None:
            self.scaled = state.dual / self.c
        u, a = self._subgradients(0.0)
        check_subgradients(u, a, problem, "prox")
        self.best = self._certify(np.inf)
        self.call_back()

    def run(self) -> tuple[Certificate, int]:
        """Return the best certificate and the number of steps."""
        adapt = _EVERY
        while self.steps < self.max_iter and not self.is_done:
            self._step()
            if self.steps % _EVERY == 0 or self.steps == self.max_iter:
                self.keep(self._certify(_ALLOWED * self.target))
            if self.steps == adapt:  # ever more seldom, so that the method converges
                self._adapt()
                adapt = self.steps + max(_EVERY, self.steps // 2)
        return self.best, self.steps

    def _step(self) -> None:
        p = self.problem
        point = _RELAXED * self.res + (1.0 - _RELAXED) * self.u + self.scaled
        u = p.prox(point, 1.0 / self.c)
        self.scaled, self.moved, self.u = point - u, u - self.u, u
        self._regress(p.y - self.u + self.scaled)
        self.res = p.residual(self.w, self.b)
        self.steps += 1

    def _regress(self, target: NDArray) -> None:
        """Set (w, b) to the ridge regression of `target`, with penalty alpha / c."""
        p = self.problem
        middle = p.weights @ target / self.mass if p.fit_intercept else 0.0
        cross = p.design.rmv(p.weights * (target - middle)) / p.n
        shrunk = (self.vectors.T @ cross) / (self.values + p.alpha / self.c)
        self.w = self.vectors @ shrunk
        self.b = float(middle - self.mean @ self.w) if p.fit_intercept else 0.0

    def _adapt(self) -> None:
        """Balance the relative residuals of the constraint and of the multiplier."""
        apart = _norm(self.res - self.u) / max(_norm(self.u), 1e-300)
        moved = _norm(self.moved) / max(_norm(self.scaled), 1e-300)
        if apart > 0 and moved > 0:
            change = np.sqrt(apart / moved).clip(1 / _MOST_CHANGE, _MOST_CHANGE)
            self.c *= float(change)
            self.scaled = self.scaled / change

    def _subgradients(self, shift: float) -> tuple[NDArray, NDArray]:
        """Return the next u and the subgradients there, for shifted residuals."""
        point = self.res + self.scaled - shift
        u = self.problem.prox(point, 1.0 / self.c)
        return u, self.c * (point - u)

    def _certify(self, allowed: float) -> Certificate:
        p, at = self.problem, self._subgradients
        if not p.fit_intercept:
            return p.certify(self.w, 0.0, self.res, (p.pair(0.0, at),))
        step = 1e-3 * p.spread(self.res)
        pairs = p.balanced_pairs(at, 0.0, step, allowed)
        if pairs is None:
            certificate = p.certify(self.w, self.b, self.res, (p.pair(0.0, at),))
            return certificate._replace(gap=np.inf)
        return p.certify(self.w, self.b, self.res, pairs)


def _norm(values: NDArray) -> float:
    return float(np.linalg.norm(values))
