"""An approximate inverse of the Newton matrix of a loss on norms.

Every row gets one curvature in all directions, so that outputs separate: with the
(weighted, centered) Gram matrix ``V diag(e) V^T`` of the features, the inverse for an
output of scale t is ``V diag(1 / (t^2 e + alpha)) V^T``. A few rows, those at the kink
of a smoothed loss, are far stiffer along their residual than across it. The Woodbury
identity corrects for them.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from nbsketch.solvers._radial.problem import RadialProblem

_STIFF = 4.0  # times as much curvature along the residual as across it
_NOTHING = 1e-9
_MOST = 1000  # stiff rows: the correction solves a system of that size


class KroneckerInverse:
    """Approximate inverse, applied by `solve` to a right side (W part, b part).

    An intercept has no penalty: `lift` is what to add to its curvature, `pivot` if no
    row has any.
    """

    def __init__(
        self,
        problem: RadialProblem,
        unit: NDArray,
        across: NDArray,
        along: NDArray,
        pivot: float,
    ) -> None:
        p, d = problem, unit.shape[1]
        self.problem = p
        curvature = ((d - 1) * across + along) / d
        stiff = np.flatnonzero((along > _STIFF * across) & (p.weights > 0))
        if d == 1 or len(stiff) > _MOST:
            stiff = stiff[:0]
        curvature[stiff] = across[stiff]
        weights = p.weights * curvature / p.n
        mass = float(weights.sum())
        self.lift = pivot if mass <= _NOTHING * pivot else 0.0
        self.mass = mass + self.lift
        self._set_base(weights)
        self.stiff = len(stiff)
        if self.stiff:
            self.unit = unit[stiff]
            self.rows = p.design.gather(stiff)
            self._set_correction(p.n / (p.weights * (along - across))[stiff])

    def _set_base(self, weights: NDArray) -> None:
        p = self.problem
        gram = p.design.gram(None, weights, exact=False)
        self.mean = np.zeros(p.rank)
        if p.fit_intercept:
            self.mean = p.design.rmv(weights) / self.mass
            gram -= self.mass * np.outer(self.mean, self.mean)
        values, self.vectors = np.linalg.eigh(gram)
        self.values = np.maximum(values, 0.0)
        self.inverse = 1.0 / (self.values[:, None] * p.t**2 + p.alpha)

    def _set_correction(self, compliance: NDArray) -> None:
        p, rows = self.problem, self.rows
        Z = rows.mv(self.vectors) - self.mean @ self.vectors
        inner = np.diag(compliance)
        for t in np.unique(p.t):  # outputs of one scale share a product
            same = np.flatnonzero(p.t == t)
            U = self.unit[:, same]
            inner += (U @ U.T) * ((Z * (t**2 * self.inverse[:, same[0]])) @ Z.T)
        if p.fit_intercept:
            inner += self.unit @ self.unit.T / self.mass
        self.factor = cho_factor(inner, overwrite_a=True, check_finite=False)

    def solve(self, G: NDArray, g: NDArray) -> tuple[NDArray, NDArray]:
        """Return the approximate solution (W, b) for the right side (G, g)."""
        W, b = self._base(G, g)
        if not self.stiff:
            return W, b
        p, k = self.problem, len(self.problem.t)
        along = np.einsum("ij,ij->i", self.unit[:, :k], self.rows.mv(W * p.t))
        if p.fit_intercept:
            along += self.unit @ b
        weighted = (
            cho_solve(self.factor, along, check_finite=False)[:, None] * self.unit
        )
        W_off, b_off = self._base(
            self.rows.rmv(weighted)[:, :k] * p.t, weighted.sum(axis=0)
        )
        return W - W_off, b - b_off

    def _base(self, G: NDArray, g: NDArray) -> tuple[NDArray, NDArray]:
        t, k = self.problem.t, len(self.problem.t)
        if self.problem.fit_intercept:
            G = G - np.outer(self.mean, t * g[:k])
        W = self.vectors @ ((self.vectors.T @ G) * self.inverse)
        if not self.problem.fit_intercept:
            return W, np.zeros_like(g)
        b = g / self.mass
        b[:k] -= t * (self.mean @ W)
        return W, b
