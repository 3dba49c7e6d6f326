"""A start for many unknowns: ridge regression, then some steps of operator splitting.

A Newton step factorizes a matrix over all r d' coefficients. A step of the alternating
direction method of multipliers (S. Boyd et al., "Distributed Optimization and
Statistical Learning via ADMM", 2011, section 6.1) has one fixed matrix,
``(T T^T) kron (Z^T S Z) + alpha n sigma I``, which two small eigendecompositions
diagonalize, so that it costs two products with Z. It comes within a percent of the
minimum in the time of a few Newton steps, which then start from its dual point.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nbsketch._blas import eigh
from nbsketch.solvers._certified.starts import cold_start
from nbsketch.solvers._joint.problem import JointProblem
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.solution import State

# Steps, and sigma relative to the mean residual of ridge regression: a larger one is
# better after few steps, a smaller one after many.
_STEPS, _SIGMA = 60, 2.0
# Share of that sigma with which Newton's method goes on.
_NEXT = 0.5
# Least work of a Newton step, a factorization and Gram matrices of some of the rows,
# relative to that of two products with Z.
_LARGE, _SOME_ROWS = 10.0, 0.25
# Error of the eigenvalues of a Gram matrix over the largest, in units of rounding.
_NOISE = 8.0
# Residuals larger than this many times the mean are cut for ridge regression.
_OUTLYING = 10.0


def splitting_start(problem: JointProblem) -> State:
    """Return a start by splitting, a cold one where Newton steps are cheap."""
    start = cold_start(problem)
    if not _is_large(problem):
        return start
    problem = replace(problem, design=_single(problem.design))
    search = Splitting(problem, start)
    search.fit_constants()
    return search.run(_STEPS, _SIGMA, _NEXT)


def _single(design: Design) -> Design:
    """Return features in single precision if they are in memory: a start needs no more.

    Products then take half the time.
    """
    if not isinstance(design, ArrayDesign) or design.dtype == np.float32:
        return design
    return ArrayDesign(design.Z.astype(np.float32))


def _is_large(problem: JointProblem) -> bool:
    """Return whether a Newton step takes much longer than products with Z."""
    size, entries = problem.rank * len(problem.T), problem.mix.shape[1]
    products = 4 * len(problem.y) * problem.rank * entries
    newton = size**3 / 3 + _SOME_ROWS * len(problem.y) * problem.rank**2 * entries
    return newton > _LARGE * products


class Splitting:
    """Coefficients, intercepts, residuals (m, n) and dual point of the iteration.

    It begins with ridge regression. `push` and `total` are ``Z^T (s a)``, columns of Z
    centered if there is an intercept, and the sums of s a.
    """

    def __init__(self, problem: JointProblem, start: State) -> None:
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
        self.push = np.zeros((p.rank, len(self.res)))
        self.total = np.zeros(len(self.res))
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
            push, total = self._sums(a)
            self._move(2 * push - self.push, 2 * total - self.total, sigma)
            self.push, self.total = push, total
        return State(self.coef, self.intercept, a.T.copy(), following * sigma)

    def fit_constants(self) -> None:
        """Move the intercepts, if they are free, to the quantiles of the residuals."""
        p, d = self.problem, len(self.problem.levels)
        if p.fit_intercept:
            pairs = zip(self.res[:d], p.levels, strict=True)
            shift = np.array([p.target_quantile(res, level) for res, level in pairs])
            self.intercept = self.intercept + shift
            self.res = self.res - (shift @ p.mix)[:, None]

    def _fit_ridge(self) -> None:
        """Fit all terms by ridge regression."""
        spread = self.problem.spread(self.res)
        limit = _OUTLYING * spread
        sums = self._sums(np.clip(self.res, -limit, limit) / spread)
        self._move(*sums, spread)

    def _sums(self, a: NDArray) -> tuple[NDArray, NDArray]:
        """Return ``Z^T (s a)``, centered, and the sums of s a."""
        p = self.problem
        push = p.weights * a
        total = push.sum(axis=1)
        return p.design.rmv(push.T) - np.outer(self.means, total), total

    def _move(self, push: NDArray, total: NDArray, sigma: float) -> None:
        """Fit the predictions plus sigma times a change, whose sums are given."""
        p = self.problem
        shift = p.alpha * p.n * sigma
        rho = sigma * push @ p.mixed_T.T - shift * self.coef
        rho = self.vectors.T @ rho @ self.rotation
        rho /= np.outer(self.values, np.maximum(self.scales, 0.0)) + shift
        step = self.vectors @ rho @ self.rotation.T
        self.coef = self.coef + step
        if p.fit_intercept:
            change = sigma * total / self.mass - self.means @ step @ p.mixed_T
            found = np.linalg.lstsq(p.mix.T, change, rcond=None)[0]
            self.intercept = self.intercept + found
        self.res = p.residual(self.coef, self.intercept)
