"""Newton's method for smooth losses, with a Gram matrix that is rarely recomputed.

Every row changes its curvature at every step. A new Gram matrix per step would dominate
the cost, so one matrix is kept as the preconditioner of a few conjugate gradient steps,
with two passes over the features each, until these become too many.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from nbsketch.solvers._certified.search import CertifiedSearch
from nbsketch.solvers._linear.conjugate_gradients import Inverse, conjugate_gradients
from nbsketch.solvers._newton.problem import gram_of
from nbsketch.solvers.solution import Certificate, State

_FORCING = 0.1  # relative accuracy of a Newton direction
# Conjugate gradient steps per direction while the matrix is good; with a new matrix in
# each step, losses of the norm take 1.5 times as long.
_FRESH = 8
# Factor on sigma after a round; with 0.3, losses of the norm take 1.2 to 1.5 times as
# many steps, and with 0.85 as many.
_SHRINK = 0.7
_STALLED = 4  # steps without progress: rounding dominates


class SmoothSearch(CertifiedSearch):
    """Search for losses without kinks and with one output, such as the logistic loss.

    With sigma > 0, it is used by a subclass for a loss smoothed around `center`.

    Attributes
    ----------
    res, center : ndarray of shape (m, n)
        Residuals of the current point, and the dual point around which a subclass
        smooths the loss.
    a : ndarray of shape (m, n)
        Dual point.
    curvature : ndarray of shape (m, n)
        Second derivative of the loss, as input of the problem's `curved`.
    gradient : ndarray of shape (r, m)
        ``Z^T (s a)^T``.
    matrix, inverse
        Hessian of the mean loss at an earlier point (None before the first), and the
        product with the inverse of the Hessian plus the penalty.
    is_stale : bool
        Whether `inverse` has to be recomputed.
    move : ndarray of shape (m, n)
        Change of the predictions along the last direction.
    stalled, lowest
        Steps without progress, and the lowest `error`.
    most_products : int
        Class attribute: maximum number of products for a Newton direction.
    """

    most_products = 12
    stalled = 0
    lowest = np.inf

    def _begin(self, state: State) -> Certificate:
        p = self.problem
        gram = state.gram
        size = p.rank + p.fit_intercept
        fits = gram is not None and state.inside is None and len(gram) == size
        self.matrix = gram if fits else None
        self.is_stale = self.matrix is None
        if self.matrix is not None:
            self.inverse = inverse_of(self.matrix, p.alpha, p.rank)
        self.center = p.center(state)
        if p.losses.gam == 0:
            self._smooth(state)
        self._evaluate()
        if state.dual is None or p.losses.gam > 0:
            return self._point_certificate()
        return p.certify(self.coef, self.intercept, self.res, self.center)

    def _smooth(self, state: State) -> None:
        """Choose the first sigma: the spread of the residuals."""
        self.sigma = state.sigma or max(self.problem.spread(self.res), 1e-300)

    def _evaluate(self) -> bool:
        p = self.problem
        self.a, self.curvature, totals, young = self._point()
        self.young = young / p.n
        self.gradient = p.design.rmv(p.weighted(self.a).T)
        self.rho, self.error = p.descent(
            self.coef, self.gradient, totals, p.mass(self.curvature)
        )
        return True

    def _point(self) -> tuple[NDArray, Any, NDArray, float]:
        """Return dual point, curvature, sums and Fenchel-Young terms."""
        return self.problem.point(self.res, self.center, self.sigma)

    def _settled(self, step: int) -> bool:
        if self.sigma > 0:
            return super()._settled(step)
        if step == 0:
            return False  # the certificate of this point was not sufficient
        slow = self.error >= 0.9 * self.lowest
        stuck = slow and -self.slope <= 1e-13 * self.best.scale
        self.stalled = self.stalled + 1 if stuck else 0
        self.lowest = min(self.lowest, self.error)
        return self.stalled >= _STALLED or self.error <= 0.9 * self.target

    def _direction(self) -> NDArray:
        """Return the Newton direction, with the stored preconditioner or a new one."""
        if self.is_stale:
            self.inverse = self._preconditioner()
        step, self.move, count = conjugate_gradients(
            self._hessian_product, self.inverse, -self.rho, _FORCING, self.most_products
        )
        self.is_stale = count > _FRESH
        return step

    def _preconditioner(self) -> Inverse:
        """Return the inverse of the Hessian here."""
        p = self.problem
        weights = p.weights * self.curvature[0]
        gram = gram_of(replace(p, weights=weights, uniform=False), None, False)
        if p.fit_intercept:
            gram[-1, -1] = max(gram[-1, -1], 1e-12 * p.n)
        self.matrix = gram / p.n
        return inverse_of(self.matrix, p.alpha, p.rank)

    def _hessian_product(self, direction: NDArray) -> tuple[NDArray, NDArray]:
        p = self.problem
        D, shift = self.problem.split(direction)
        move = p.predict(D, shift)
        change = p.curved(self.curvature, move)
        image = p.design.rmv(change.T) @ p.T.T / p.n + p.alpha * D
        return p.flat(image, change.sum(axis=1) / p.n), move

    def _length(self, D: NDArray, shift: NDArray) -> float:
        t = self._step_length(self.problem, self.res, self.move, self.center, D)
        self.res -= t * self.move
        return t

    def _step_certificate(self) -> Certificate | None:
        return None if self.sigma > 0 else self._point_certificate()

    def _point_certificate(self) -> Certificate:
        return self.problem.certify(
            self.coef, self.intercept, self.res, self.a, self.gradient, self.curvature
        )

    def _certify(self) -> Certificate:
        """Certify the current point, with fresh sums if its estimated gap is small."""
        certificate = self._point_certificate()
        if self._is_good(certificate):
            self.res = self.problem.residual(self.coef, self.intercept)
            self._evaluate()
            certificate = self._point_certificate()
        return certificate

    def _has_stalled(self, before: int) -> bool:
        if self.sigma > 0:
            return super()._has_stalled(before)
        return self.stalled >= _STALLED or self.steps == before

    def _next_round(self, settled: bool) -> None:
        """Continue from the same point, with less smoothing around its dual point."""
        if self.sigma > 0:
            if settled:
                self.center = self.a
                self.sigma = _SHRINK * self.sigma
            else:
                self.sigma *= 2.0
            self._evaluate()

    def _state(self) -> State:
        best = self.best
        sigma = self.sigma or None
        return State(best.coef, best.intercept, best.dual.T, sigma, self.matrix)


def inverse_of(matrix: NDArray, alpha: float, rank: int) -> Inverse:
    """Return the product with the inverse of `matrix` plus the penalty of `rank` rows.

    If the matrix is indefinite by rounding, small eigenvalues are raised.
    """
    shifted = matrix.copy()
    shifted.flat[: rank * len(matrix) : len(matrix) + 1] += alpha
    try:
        factor = cho_factor(shifted, check_finite=False)
    except LinAlgError:
        values, vectors = np.linalg.eigh(shifted)
        values = np.maximum(values, alpha)
        return lambda V: vectors @ ((vectors.T @ V).T / values).T
    return lambda V: cho_solve(factor, V, check_finite=False)
