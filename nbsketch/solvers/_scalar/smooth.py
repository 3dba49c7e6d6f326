"""Newton's method for smooth losses, whose Gram matrix is rebuilt only when stale.

Every row changes its curvature at every step. A new Gram matrix per step would
be most of the cost, so one of them is kept as the preconditioner of a few conjugate
gradient steps, two passes over the features each, until these become too many.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from nbsketch.solvers._certified.certificate import Certificate
from nbsketch.solvers._certified.search import CertifiedSearch
from nbsketch.solvers._linear.conjugate_gradients import Inverse, conjugate_gradients
from nbsketch.solvers._scalar.problem import ScalarProblem
from nbsketch.solvers.solution import State

_FORCING = 0.1  # relative accuracy of a Newton direction
_FRESH = 3  # conjugate gradient steps per direction while the matrix is good
_LIMIT = 12
_STALLED = 4  # steps without progress: rounding rules


class SmoothSearch(CertifiedSearch[ScalarProblem]):
    """The search for losses without kinks, such as the logistic one.

    Attributes
    ----------
    res : ndarray of shape (n,)
        Residuals of the current point.
    a, curvature : ndarray of shape (n,)
        Dual point and second derivative of the loss.
    gradient : ndarray of shape (r,)
        ``Z^T (s a)``.
    rho : ndarray
        Gradient of the objective, that of the intercept last.
    estimate : float
        Estimate of the gap.
    matrix, inverse
        Hessian of the mean loss at an earlier point, None before the first, and the
        product with the inverse of it plus the penalty.
    worn : bool
        Whether `matrix` is due for renewal.
    move : ndarray of shape (n,)
        Change of the predictions along the last direction.
    stalled, lowest
        Steps without progress, and the lowest `estimate`.
    """

    tightens: ClassVar[bool] = False

    def _begin(self, state: State) -> None:
        self._start_matrix(state)
        self._evaluate()

    def _start_matrix(self, state: State) -> None:
        p, gram = self.problem, state.gram
        size = p.rank + p.fit_intercept
        known = gram is not None and state.inside is None and len(gram) == size
        self.matrix = gram if known else None
        self.inverse = None if self.matrix is None else _inverse(self.matrix, p)
        self.worn, self.stalled, self.lowest = False, 0, np.inf

    def _first_certificate(self, state: State) -> Certificate:
        return self._step_certificate()

    def _evaluate(self) -> bool:
        p = self.problem
        self.a, self.curvature, total, _ = p.rows.point(
            self.res, p.weights, self.res, 0.0
        )
        bend = float(p.weights @ self.curvature)
        self._set_gradient(p.design.rmv(p.weights * self.a), total, bend)
        return True

    def _set_gradient(self, gradient: NDArray, total: float, bend: float) -> None:
        """Set gradients and estimate; the arguments are sums over all rows."""
        p, self.gradient = self.problem, gradient
        self.rho = p.alpha * self.coef - self.gradient / p.n
        self.estimate = float(self.rho @ self.rho) / (2 * p.alpha)
        if p.fit_intercept:
            tilt, bend = -total / p.n, max(1e-300, bend / p.n)
            self.rho = np.append(self.rho, tilt)
            self.estimate += tilt**2 / (2 * bend)

    def _gradient(self) -> NDArray:
        return self.rho

    def _settled(self, rho: NDArray, step: int) -> bool:
        if step == 0:
            return False  # the certificate of this point was not good enough
        slow = self.estimate >= 0.9 * self.lowest
        stuck = slow and -self.slope <= 1e-13 * self.best.scale
        self.stalled = self.stalled + 1 if stuck else 0
        self.lowest = min(self.lowest, self.estimate)
        return self.stalled >= _STALLED or self.estimate <= 0.9 * self.target

    def _direction(self, rho: NDArray) -> NDArray:
        """Return the Newton direction, with the kept matrix or with a new one."""
        if self.inverse is None or self.worn:
            self.matrix = self._hessian()
            self.inverse = _inverse(self.matrix, self.problem)
        step, self.move, count = conjugate_gradients(
            self._hessian_product, self.inverse, -rho, _FORCING, _LIMIT
        )
        self.worn = count > _FRESH
        return step

    def _hessian(self) -> NDArray:
        """Return the Hessian of the mean loss, the intercept last."""
        p, weights = self.problem, self.problem.weights * self.curvature
        gram = p.design.gram(weights=weights, exact=False)
        return bordered(p, gram, p.design.rmv(weights), float(weights.sum()))

    def _hessian_product(self, direction: NDArray) -> tuple[NDArray, NDArray]:
        p, d = self.problem, direction[: self.problem.rank]
        move = p.design.mv(d)
        if p.fit_intercept:
            move += direction[-1]
        push = p.weights * self.curvature * move
        image = p.design.rmv(push) / p.n + p.alpha * d
        return np.append(image, push.sum() / p.n) if p.fit_intercept else image, move

    def _advance(self, direction: NDArray, slope: float) -> bool:
        p, d = self.problem, direction[: self.problem.rank]

        def slopes(t: float) -> tuple[float, float]:
            return p.rows.slopes(t, self.res, self.move, p.weights, self.res, 0.0)

        t = self._step_length(slopes, d, slope)
        self.coef = self.coef + t * d
        self.intercept += t * float(direction[-1]) if p.fit_intercept else 0.0
        self.res -= t * self.move
        return t > 0

    def _step_certificate(self) -> Certificate:
        point = self.coef, self.intercept, self.res, self.a
        return self.problem.certify(*point, self.gradient, self.curvature)

    def _certify(self) -> Certificate:
        """Certify the current point; with fresh sums if it seems to be good enough."""
        p, found = self.problem, self._step_certificate()
        if self._is_good(found):
            self.res = p.residual(self.coef, self.intercept)
            self._evaluate()
            found = self._step_certificate()
        return found

    def _hopeless(self, before: int, settled: bool) -> bool:
        return self.stalled >= _STALLED or self.steps == before

    def _next_round(self, settled: bool) -> None:
        """Go on from the same point: there is nothing to smooth."""

    def _state(self) -> State:
        return State(self.best.coef, self.best.intercept, gram=self.matrix)


def bordered(
    problem: ScalarProblem, gram: NDArray, edge: NDArray, corner: float
) -> NDArray:
    """Return the mean Hessian from sums, with a row of a free intercept."""
    p = problem
    if p.fit_intercept:
        column = edge[:, None]
        last = np.array([[max(corner, 1e-12 * p.n)]])
        gram = np.block([[gram, column], [column.T, last]])
    return gram / p.n


def _inverse(matrix: NDArray, problem: ScalarProblem) -> Inverse:
    """Return the product with the inverse of `matrix` plus the penalty.

    If rounding has made that indefinite, small eigenvalues are raised.
    """
    shifted = matrix.copy()
    shifted.flat[: problem.rank * len(matrix) : len(matrix) + 1] += problem.alpha
    try:
        factor = cho_factor(shifted, check_finite=False)
    except LinAlgError:
        values, vectors = np.linalg.eigh(shifted)
        values = np.maximum(values, problem.alpha)
        return lambda vector: vectors @ ((vectors.T @ vector) / values)
    return lambda vector: cho_solve(factor, vector, check_finite=False)
