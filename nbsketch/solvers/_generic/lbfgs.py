"""Whitened L-BFGS for a smooth loss.

With ``Z^T S Z / n + alpha I = L L^T``, centered if there is an intercept, the variable
is ``L^T w``: the Hessian of a loss of curvature one is then the identity.
"""

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import optimize

from nbsketch.solvers._certified.problem import Certificate
from nbsketch.solvers._certified.search import Report
from nbsketch.solvers._generic.problem import (
    GenericProblem,
    GenericSearch,
    check_subgradients,
)
from nbsketch.solvers.solution import State

_ALLOWED = 0.1  # share of the target that balancing the dual point may cost
_MEMORY = 20  # pairs of L-BFGS
_RESTARTS = 10


class _Done(Exception):
    """The solution is certified."""


class WhitenedDescent(GenericSearch):
    """L-BFGS on whitened features, until a certificate is good enough."""

    def __init__(
        self,
        problem: GenericProblem,
        state: State,
        tol: float,
        max_iter: int,
        report: Report | None,
    ) -> None:
        super().__init__(problem, tol, max_iter, report)
        self.awaited = np.inf
        self.root = self.vectors / np.sqrt(self.values + problem.alpha)
        w, b = np.array(state.coef, float), float(state.intercept)
        res = problem.residual(w, b)
        check_subgradients(res, problem.slopes(res), problem, "derivative")
        self.best = self._certify(w, b, np.inf)
        self.call_back()

    def run(self) -> tuple[Certificate, int]:
        """Return the best certificate and the number of iterations."""
        try:
            for _ in range(_RESTARTS):
                before = self.best.gap
                self._descend()
                self._improve()
                if self.steps >= self.max_iter or not self.best.gap < 0.5 * before:
                    break
        except _Done:
            pass
        return self.best, self.steps

    def _point(self, x: NDArray) -> tuple[NDArray, float]:
        w = self.root @ x[: self.problem.rank]
        return w, float(x[-1] - self.mean @ w) if self.problem.fit_intercept else 0.0

    def _descend(self) -> None:
        w, b = self.best.coef, self.best.intercept
        x = scipy.linalg.solve(self.root, w)
        if self.problem.fit_intercept:
            x = np.append(x, b + self.mean @ w)
        limits = {"maxiter": self.max_iter - self.steps, "maxfun": 10**9, "maxls": 50}
        optimize.minimize(
            self._objective, x, jac=True, method="L-BFGS-B", callback=self._check,
            options={"ftol": 0.0, "gtol": 0.0, "maxcor": _MEMORY, **limits},
        )  # fmt: skip

    def _objective(self, x: NDArray) -> tuple[float, NDArray]:
        p = self.problem
        w, b = self._point(x)
        res = p.residual(w, b)
        push = p.weights * p.slopes(res)
        rho = p.alpha * w - p.design.rmv(push) / p.n
        tilt = -push.sum() / p.n
        self.last = w, b, float(rho @ rho) / (2 * p.alpha)
        gradient = self.root.T @ (rho - tilt * self.mean)
        value = p.weights @ p.values(res) / p.n + p.alpha / 2 * (w @ w)
        return value, np.append(gradient, tilt) if p.fit_intercept else gradient

    def _check(self, x: NDArray) -> None:
        """Certify the new iterate if it seems to be good enough."""
        self.steps += 1
        if self.report is not None or self.last[2] <= min(self.target, self.awaited):
            self._improve()

    def _improve(self) -> None:
        w, b, estimate = self.last
        self.awaited = 0.5 * estimate
        self.keep(self._certify(w, b, _ALLOWED * self.target))
        if self.is_done:
            raise _Done

    def _certify(self, w: NDArray, b: float, allowed: float) -> Certificate:
        """Certify w with the best intercept, found by a search in one dimension."""
        p, res = self.problem, self.problem.residual(w, 0.0)

        def at(shift: float) -> tuple[NDArray, NDArray]:
            return res - shift, p.slopes(res - shift)

        if not p.fit_intercept:
            return p.certify(w, 0.0, res, (p.pair(0.0, at),))
        step = 1e-3 * p.spread(res - b)
        pairs = p.balanced_pairs(at, b, step, allowed)
        if pairs is None:
            certificate = p.certify(w, b, res - b, (p.pair(b, at),))
            return certificate._replace(gap=np.inf)
        b = min(pairs, key=lambda pair: abs(pair.total)).shift
        return p.certify(w, b, res - b, pairs)
