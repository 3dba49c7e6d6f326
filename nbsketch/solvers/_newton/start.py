"""Starts by operator splitting, for coupled outputs.

The first Newton steps are the most expensive: hardly any entry is at a bound, so the
Newton matrix includes all rows. A splitting step has one matrix for all outputs, with
shared products.

All splitting steps use the same matrix.

A Newton step factorizes a matrix over all r d' coefficients. A step of the alternating
direction method of multipliers (S. Boyd et al., "Distributed Optimization and
Statistical Learning via ADMM", 2011, section 6.1) has one fixed matrix, ``(T T^T) kron
(Z^T S Z) + alpha n sigma I``, which two small eigendecompositions diagonalize, so that
it costs two products with Z. It reaches a percent of the minimum in the time of a few
Newton steps, which then start from its dual point.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nbsketch._machine.blas import eigh
from nbsketch.solvers._certified.search import cold_start
from nbsketch.solvers._newton.problem import NewtonProblem
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.passes import WhitenedColumns
from nbsketch.solvers.solution import State

# Error of the eigenvalues of a Gram matrix over the largest, in units of rounding.
_NOISE = 8.0
# Residuals above this multiple of the mean are truncated for ridge regression.
_OUTLYING = 10.0
_STEPS = 60
# Sigma relative to the mean residual of ridge regression: larger is better after few
# steps, smaller after many.
_SIGMA = 2.0
# Factor of sigma for Newton's method.
_FOLLOWING = 0.5
# Over-relaxation: steps are longer by this share of the remaining split. The gap is
# then a quarter (california: 1.6e-4, not 8.8e-4), the time of quantiles 0.92.
_AHEAD = 0.8
# Minimum work of a Newton step (a factorization and Gram matrices of some rows)
# relative to two products with Z.
_LARGE = 10.0
_SOME_ROWS = 0.25
# Features up to this size stay in the cache: single precision gains nothing.
_SMALL = 1 << 18


class Splitting:
    """Coefficients, intercepts, residuals (m, n) and dual point of the iteration.

    It starts with ridge regression.
    """

    def __init__(self, problem: NewtonProblem, start: State) -> None:
        p = self.problem = problem
        gram, self.means, self.mass = p.centered_gram(exact=False)
        values, self.vectors = eigh(gram)
        # Overestimated eigenvalues only slow the iteration down.
        noise = _NOISE * float(np.finfo(p.design.dtype).eps) * values[-1]
        self.values = np.maximum(values, 0.0) + noise
        self.scales, self.rotation = eigh(p.mixed_T @ p.mixed_T.T)
        self.coef = start.coef
        self.intercept = start.intercept
        self.res = p.residual(self.coef, self.intercept)
        self._fit_ridge()

    def run(self) -> State:
        """Return the point after all steps."""
        p = self.problem
        sigma = _SIGMA * p.spread(self.res)
        a = left = np.zeros_like(self.res)
        for _ in range(_STEPS):
            point = self.res / sigma + _AHEAD * left + a
            a = p.bounded(point)
            split = point - a
            self._move(*self._sums(self.res / sigma - split + a), sigma)
            left = self.res / sigma - split
        return State(self.coef, self.intercept, a.T.copy(), _FOLLOWING * sigma)

    def fit_constants(self) -> None:
        """Move the intercepts, if fitted, to the quantiles of the residuals."""
        p = self.problem
        if p.fit_intercept:
            shift = p.constants(self.res[: len(p.mix)])
            self.intercept = self.intercept + shift
            self.res = self.res - (shift @ p.mix)[:, None]

    def _fit_ridge(self) -> None:
        """Fit all terms by ridge regression."""
        spread = self.problem.spread(self.res)
        limit = _OUTLYING * spread
        self._move(*self._sums(np.clip(self.res, -limit, limit) / spread), spread)

    def _sums(self, a: NDArray) -> tuple[NDArray, NDArray]:
        """Return ``Z^T (s a)^T``, centered, and the sums of s a."""
        p = self.problem
        weighted = p.weighted(a)
        totals = weighted.sum(axis=1)
        gradient = p.design.rmv(weighted.T) - np.outer(self.means, totals)
        return gradient, totals

    def _move(self, gradient: NDArray, totals: NDArray, sigma: float) -> None:
        """Fit the predictions plus sigma times a change, whose sums are given."""
        p = self.problem
        shift = p.alpha * p.n * sigma
        rho = sigma * gradient @ p.mixed_T.T - shift * self.coef
        rho = self.vectors.T @ rho @ self.rotation
        rho /= np.outer(self.values, np.maximum(self.scales, 0.0)) + shift
        step = self.vectors @ rho @ self.rotation.T
        self.coef = self.coef + step
        if p.fit_intercept:
            change = sigma * totals / self.mass - self.means @ step @ p.mixed_T
            shift_b = np.linalg.lstsq(p.mix.T, change, rcond=None)[0]
            self.intercept = self.intercept + shift_b
        self.res = p.residual(self.coef, self.intercept)


def splitting_start(problem: NewtonProblem) -> State:
    """Return a start by splitting; a cold start if Newton steps are cheap."""
    start = cold_start(problem)
    if not _is_large(problem):
        return start
    problem = replace(problem, design=_single(problem.design))
    search = Splitting(problem, start)
    search.fit_constants()
    return search.run()


def _single(design: Design) -> Design:
    """Return large features in memory in single precision, sufficient for a start.

    Products then take half the time.
    """
    if isinstance(design, ArrayDesign) and design.Z.size > _SMALL:
        return ArrayDesign(design.Z.astype(np.float32, copy=False))
    return design


def _is_large(problem: NewtonProblem) -> bool:
    """Return whether a Newton step takes much longer than products with Z."""
    n = len(problem.weights)
    size = problem.rank * len(problem.T)
    m = len(problem.mix.T)
    products = 4 * n * problem.rank * m
    newton = size**3 / 3 + _SOME_ROWS * n * problem.rank**2 * m
    return newton > _LARGE * products


def shared(design: Design, n_problems: int) -> Design:
    """Return the features for several problems that are solved one by one."""
    has_gram = n_problems > 1 and not isinstance(design, WhitenedColumns)
    return design.keeping_grams() if has_gram else design
