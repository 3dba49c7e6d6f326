"""Steps of operator splitting, whose matrix is the same for all of them.

A Newton step factorizes a matrix over all r d' coefficients. A step of the alternating
direction method of multipliers (S. Boyd et al., "Distributed Optimization and
Statistical Learning via ADMM", 2011, section 6.1) has one fixed matrix,
``(T T^T) kron (Z^T S Z) + alpha n sigma I``, which two small eigendecompositions
diagonalize, so that it costs two products with Z. It comes within a percent of the
minimum in the time of a few Newton steps, which then start from its dual point.
"""

import numpy as np
from numpy.typing import NDArray

from nbsketch._blas import eigh
from nbsketch.solvers._newton.problem import NewtonProblem
from nbsketch.solvers.solution import State

# Error of the eigenvalues of a Gram matrix over the largest, in units of rounding.
_NOISE = 8.0
# Residuals larger than this many times the mean are cut for ridge regression.
_OUTLYING = 10.0


class Splitting:
    """Coefficients, intercepts, residuals (m, n) and dual point of the iteration.

    It begins with ridge regression. `sums` (r + 1, m) are ``Z^T (s a)^T``, columns of Z
    centered if there is an intercept, and the sums of s a.
    """

    def __init__(self, problem: NewtonProblem, start: State) -> None:
        p = self.problem = problem
        self.mass = float(p.weights.sum())
        self.means = p.design.rmv(p.weights) / self.mass * p.fit_intercept
        weights = None if p.uniform else p.weights
        gram = p.design.gram(weights=weights, exact=False)
        gram -= self.mass * np.outer(self.means, self.means)
        values, self.vectors = eigh(gram)
        # Larger eigenvalues than the true ones only slow the iteration down.
        noise = _NOISE * float(np.finfo(p.design.dtype).eps) * values[-1]
        self.values = np.maximum(values, 0.0) + noise
        self.scales, self.rotation = eigh(p.mixed_T @ p.mixed_T.T)
        self.coef, self.intercept = start.coef, start.intercept
        self.res = p.residual(self.coef, self.intercept)
        self.sums = np.zeros((p.rank + 1, len(self.res)))
        self._fit_ridge()

    def run(self, steps: int, relative_sigma: float, following: float) -> State:
        """Return the point after some steps.

        Sigma is relative to the mean residual; Newton's method goes on with its product
        with `following`.
        """
        p = self.problem
        sigma = relative_sigma * p.spread(self.res)
        a = np.zeros_like(self.res)
        for _ in range(steps):
            a = np.clip(self.res / sigma + a, *p.bounds)
            before, self.sums = self.sums, self._sums(a)
            self._move(2 * self.sums - before, sigma)
        return State(self.coef, self.intercept, a.T.copy(), following * sigma)

    def fit_constants(self) -> None:
        """Move the intercepts, if they are free, to the quantiles of the residuals."""
        p = self.problem
        if p.fit_intercept:
            shift = p.constants(self.res[: len(p.mix)])
            self.intercept = self.intercept + shift
            self.res = self.res - (shift @ p.mix)[:, None]

    def _fit_ridge(self) -> None:
        """Fit all terms by ridge regression."""
        spread = self.problem.spread(self.res)
        limit = _OUTLYING * spread
        self._move(self._sums(np.clip(self.res, -limit, limit) / spread), spread)

    def _sums(self, a: NDArray) -> NDArray:
        """Return ``Z^T (s a)^T``, centered, and the sums of s a."""
        p, weighted = self.problem, self.problem.weighted(a)
        totals = weighted.sum(axis=1)
        gradient = p.design.rmv(weighted.T) - np.outer(self.means, totals)
        return np.vstack([gradient, totals])

    def _move(self, sums: NDArray, sigma: float) -> None:
        """Fit the predictions plus sigma times a change, whose sums are given."""
        p = self.problem
        shift = p.alpha * p.n * sigma
        rho = sigma * sums[:-1] @ p.mixed_T.T - shift * self.coef
        rho = self.vectors.T @ rho @ self.rotation
        rho /= np.outer(self.values, np.maximum(self.scales, 0.0)) + shift
        step = self.vectors @ rho @ self.rotation.T
        self.coef = self.coef + step
        if p.fit_intercept:
            change = sigma * sums[-1] / self.mass - self.means @ step @ p.mixed_T
            shift_b = np.linalg.lstsq(p.mix.T, change, rcond=None)[0]
            self.intercept = self.intercept + shift_b
        self.res = p.residual(self.coef, self.intercept)
