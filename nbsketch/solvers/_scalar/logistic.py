"""Newton's method for the logistic loss, whose Gram matrix is rebuilt only when stale.

Every row changes its weight p (1 - p) at every step. A new Gram matrix per step would
be most of the cost, so one of them is kept as the preconditioner of a few conjugate
gradient steps, two passes over the features each, until these become too many.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import kl_div

from nbsketch._jit.logistic import logistic_point, logistic_slope
from nbsketch.solvers._certified.certificate import Certificate, balanced_pair, complete
from nbsketch.solvers._certified.line_search import convex_step
from nbsketch.solvers._scalar.problem import Problem
from nbsketch.solvers._scalar.search import Report
from nbsketch.solvers.solution import State

Inverse = Callable[[NDArray], NDArray]

_FORCING = 0.1  # relative accuracy of a Newton direction
_FRESH = 3  # conjugate gradient steps per direction while the matrix is good
_LIMIT = 12
_PATIENCE = 4  # steps without progress: rounding rules


class LogisticNewton:
    """One run of the method; see `run`."""

    def __init__(
        self,
        problem: Problem,
        state: State,
        tol: float,
        max_iter: int,
        report: Report | None = None,
    ) -> None:
        self.problem, self.report = problem, report
        self.tol, self.max_iter = tol, max_iter
        n = len(problem.y)
        self.w = np.array(state.coef, dtype=float)
        self.b = float(state.intercept) if problem.fit_intercept else 0.0
        self.f = problem.y - problem.residual(self.w, self.b)
        self.a, self.curvature = np.empty(n), np.empty(n)
        gram, size = state.gram, problem.rank + problem.fit_intercept
        known = gram is not None and state.inside is None and len(gram) == size
        self.matrix = gram if known else None
        self.solve = None if self.matrix is None else _inverse(self.matrix, problem)
        self.worn = False
        self.steps = 0
        self._evaluate()
        self.best = self._certify()
        self.floor = 1e-15 * self.best.scale

    def run(self) -> tuple[Certificate, State, int]:
        """Return the best certificate, the state to start from next, and the steps."""
        self._tell(self.best)
        idle, lowest = 0, np.inf
        while not (self.converged or self.steps >= self.max_iter or idle >= _PATIENCE):
            direction = self._direction()
            slope = float(self.rho @ direction)
            if not slope < 0 or not self._advance(direction, slope):
                break
            self.steps += 1
            self._evaluate()
            if self.report is not None or self.estimate <= 0.9 * self.target:
                self._improve()
            progress = self.estimate < 0.9 * lowest or -slope > 1e-13 * self.best.scale
            idle, lowest = (0 if progress else idle + 1), min(lowest, self.estimate)
        if not self.converged:
            self._improve()
        state = State(self.best.coef, self.best.intercept, gram=self.matrix)
        return self.best, state, self.steps

    @property
    def target(self) -> float:
        """The gap at which to stop."""
        return max(self.tol * self.best.scale, self.floor)

    @property
    def converged(self) -> bool:
        """Whether the best certificate is good enough."""
        return self.best.gap <= self.target

    def _evaluate(self) -> None:
        """Refresh the dual point, the curvature, the gradient, a guess of the gap."""
        p = self.problem
        logistic_point(self.f, p.y, self.a, self.curvature)
        push = p.weights * self.a
        self.gradient = p.design.rmv(push)
        self.rho = p.alpha * self.w - self.gradient / p.n
        self.estimate = float(self.rho @ self.rho) / (2 * p.alpha)
        if p.fit_intercept:
            tilt = -float(push.sum()) / p.n
            bend = max(1e-300, float(p.weights @ self.curvature) / p.n)
            self.rho = np.append(self.rho, tilt)
            self.estimate += tilt**2 / (2 * bend)

    def _improve(self) -> None:
        """Certify the current point; from fresh sums if it seems to be good enough."""
        p, found = self.problem, self._certify()
        if found.gap <= max(self.tol * found.scale, self.floor):
            self.f = p.y - p.residual(self.w, self.b)
            self._evaluate()
            found = self._certify()
        self._tell(found)
        if found.gap < self.best.gap:
            self.best = found

    def _certify(self) -> Certificate:
        p, a, gradient, imbalance = self.problem, self.a, self.gradient, 0.0
        if p.fit_intercept:
            a, gradient, imbalance = balanced_pair(p, a, gradient, self.curvature)
        error, shifted = p.y * self.a, p.y * a
        young = kl_div(shifted, error) + kl_div(1.0 - shifted, 1.0 - error)
        losses = np.logaddexp(0.0, -p.y * self.f)
        bound = p.weights @ young + abs(self.b * imbalance)
        return complete(p, self.w, self.b, a, gradient, losses, bound)

    def _direction(self) -> NDArray:
        """Return the Newton direction, with the kept matrix or with a new one."""
        if self.solve is None or self.worn:
            self.matrix = _hessian_matrix(self.problem, self.curvature)
            self.solve = _inverse(self.matrix, self.problem)
        step, count = self._conjugate_gradients(self.solve)
        self.worn = count > _FRESH
        return step

    def _conjugate_gradients(self, inverse: Inverse) -> tuple[NDArray, int]:
        """Solve for the direction; return also the number of steps."""
        step, rest = np.zeros_like(self.rho), -self.rho
        ahead = inverse(rest)
        direction, energy = ahead, float(rest @ ahead)
        goal = _FORCING**2 * energy
        count = 0
        while energy > goal and count < _LIMIT:
            count += 1
            image = self._hessian(direction)
            bend = float(direction @ image)
            if not bend > 0:  # no curvature is left at this precision
                break
            length = energy / bend
            step = step + length * direction
            rest = rest - length * image
            ahead = inverse(rest)
            energy, before = float(rest @ ahead), energy
            direction = ahead + energy / before * direction
        return step, count

    def _hessian(self, direction: NDArray) -> NDArray:
        p = self.problem
        d = direction[: p.rank]
        push = p.weights * self.curvature * self._move(direction)
        image = p.design.rmv(push) / p.n + p.alpha * d
        return np.append(image, push.sum() / p.n) if p.fit_intercept else image

    def _move(self, direction: NDArray) -> NDArray:
        """Return how the predictions move along `direction`."""
        move = self.problem.design.mv(direction[: self.problem.rank])
        if self.problem.fit_intercept:
            move += direction[-1]
        return move

    def _advance(self, direction: NDArray, start: float) -> bool:
        p, move = self.problem, self._move(direction)
        d = direction[: p.rank]
        slope, bend = p.alpha * (self.w @ d), p.alpha * (d @ d)

        def derivatives(t: float) -> tuple[float, float]:
            first, second = logistic_slope(t, self.f, move, p.y, p.weights)
            return first / p.n + slope + bend * t, second / p.n + bend

        t = convex_step(derivatives, start)
        self.w = self.w + t * d
        self.b += t * float(direction[-1]) if p.fit_intercept else 0.0
        self.f += t * move
        return t > 0

    def _tell(self, certificate: Certificate) -> None:
        if self.report is not None:
            self.report(self.steps, certificate)


def _hessian_matrix(problem: Problem, curvature: NDArray) -> NDArray:
    """Return the Hessian of the mean loss, the intercept last."""
    p, weights = problem, problem.weights * curvature
    gram = p.design.gram(weights=weights, exact=False)
    if p.fit_intercept:
        edge = p.design.rmv(weights)[:, None]
        corner = np.array([[max(weights.sum(), 1e-12 * p.n)]])
        gram = np.block([[gram, edge], [edge.T, corner]])
    return gram / p.n


def _inverse(matrix: NDArray, problem: Problem) -> Inverse:
    """Return the product with the inverse of `matrix` plus the penalty.

    Where rounding has made that indefinite, small eigenvalues are raised.
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
