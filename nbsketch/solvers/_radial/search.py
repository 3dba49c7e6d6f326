"""Semismooth Newton with conjugate gradients for losses on the norm of a vector.

Huber, square and squared epsilon-insensitive losses are smooth and take plain Newton
steps. The epsilon-insensitive loss is smoothed by sigma around the current dual point,
which moves to the new slope as sigma shrinks. The Newton matrix is never formed:
conjugate gradients take two products with the features per iteration.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.radial import radial_point, radial_slope, times_curvature
from nbsketch.solvers._certified.checks import Report
from nbsketch.solvers._certified.line_search import convex_step
from nbsketch.solvers._radial.preconditioner import KroneckerInverse
from nbsketch.solvers._radial.problem import RadialCertificate, RadialProblem, certify
from nbsketch.solvers.solution import State

_SHRINK = 0.3  # of sigma
_INEXACT = 1.0  # of the remaining gap: how exactly a round is solved
_MOST_DEMAND = 1e-20  # factor on the accuracy of a round that the certificate asks for
_STEPS = 50  # Newton steps in a round
_PATIENCE = 12  # rounds without a better certificate
_SIZE = 0.05  # of the typical residual: the first sigma
_EASY, _ROUGH, _FINE = 3, 0.1, 0.01  # residuals of the first linear systems, and others
_PIVOT = 1e-3  # rows' worth of curvature for an intercept without any
_MOST_PRODUCTS = 100  # for one linear system


class Step(NamedTuple):
    """A direction in W and b, and in the predictions."""

    W: NDArray
    b: NDArray
    move: NDArray


class RadialNewton:
    """One run of the method; see `run`."""

    def __init__(
        self,
        problem: RadialProblem,
        state: State,
        tol: float,
        max_iter: int,
        report: Report | None = None,
    ) -> None:
        self.problem, self.tol, self.max_iter, self.report = (
            problem,
            tol,
            max_iter,
            report,
        )
        n, d = problem.Y.shape
        self.W, self.b = np.array(state.coef, float), np.array(state.intercept, float)
        self.res = problem.residual(self.W, self.b)
        self.center = np.zeros((n, d))
        if state.dual is not None:
            self.center = problem.bounded(state.dual)
        self.sigma = self._first_sigma(state)
        self.a, self.unit = np.empty((n, d)), np.empty((n, d))
        self.across, self.along = np.empty(n), np.empty(n)
        self.steps = self.idle = 0
        self.demand = 1.0  # on the inner problem, tighter where certificates lag behind
        self.promised = np.inf  # the gap that the last round should have reached
        self.inverse: KroneckerInverse | None = None
        self.products = 0  # in the last call of conjugate gradients
        self._evaluate()
        self.best = self._certificate() if state.dual is None else self._given()
        self.floor = 1e-15 * self.best.scale

    def run(self) -> tuple[RadialCertificate, State, int]:
        """Return the best certificate, the state to start from next, and the steps."""
        self._tell(self.best)
        while not (self.converged or self.steps >= self.max_iter):
            before = self.steps
            settled = self._descend()
            self._verify()
            if self.converged or self.idle >= _PATIENCE:
                break
            if self.sigma > 0:
                self._next_sigma(settled)
            elif self.steps == before and not settled:
                break  # no descent left at this precision
            self._evaluate()
        best, sigma = self.best, self.sigma if self.sigma > 0 else None
        return best, State(best.coef, best.intercept, best.dual, sigma), self.steps

    @property
    def target(self) -> float:
        """The gap at which to stop."""
        return max(self.tol * self.best.scale, self.floor)

    @property
    def converged(self) -> bool:
        """Whether the best certificate is good enough."""
        return self.best.gap <= self.target

    def _first_sigma(self, state: State) -> float:
        if self.problem.numbers.gam > 0:
            return 0.0
        if state.sigma is not None:
            return state.sigma
        return max(_SIZE * self.problem.spread(self.res), 1e-300)

    def _evaluate(self) -> None:
        """Refresh the dual point, the curvature and the gradient."""
        p = self.problem
        self.young = radial_point(
            self.res, p.weights, self.center, *p.radial_numbers, self.sigma,
            self.a, self.unit, self.across, self.along,
        )  # fmt: skip
        push = p.weights[:, None] * self.a
        self.pulled = p.pull(push)
        self.rho_W = p.alpha * self.W - self.pulled / p.n
        self.rho_b = (
            -push.sum(axis=0) / p.n if p.fit_intercept else np.zeros(len(self.b))
        )

    def _descend(self) -> bool:
        """Take Newton steps until the inner problem is solved; say whether it was."""
        for step in range(_STEPS):
            if step > 0:
                self._evaluate()
            if self._settled(step):
                return True
            if self.steps >= self.max_iter:
                return False
            if self.report is not None and self.sigma == 0 and step > 0:
                self._tell(self._certificate())
            direction = self._direction(_ROUGH if self.steps < _EASY else _FINE)
            slope = float(np.vdot(self.rho_W, direction.W) + self.rho_b @ direction.b)
            if not slope < 0:
                return True
            if not self._advance(direction, slope):
                return False
            self.steps += 1
        return False

    def _inexact(self) -> float:
        """Return an estimate of the gap of the inner problem."""
        p = self.problem
        inexact = float(np.vdot(self.rho_W, self.rho_W)) / (2 * p.alpha)
        if p.fit_intercept:
            free = max(float(p.weights @ self.across) / p.n, 1e-300)
            inexact += float(self.rho_b @ self.rho_b) / (2 * free)
        return inexact

    def _settled(self, step: int) -> bool:
        p = self.problem
        inexact, young = self._inexact(), self.young / p.n
        self.promised = inexact + young
        if self.promised <= 0.9 * self.demand * self.target:
            return True
        if self.sigma == 0 or step == 0:
            return False
        return inexact <= self.demand * max(_INEXACT * young, 1e-3 * self.target)

    def _direction(self, accuracy: float) -> Step:
        """Return the Newton direction, by preconditioned conjugate gradients."""
        inverse = self._inverse()
        R, r = -self.rho_W, -self.rho_b
        W, b, move = np.zeros_like(R), np.zeros_like(r), np.zeros_like(self.res)
        S, s = P, q = inverse(R, r)
        size = first = float(np.vdot(R, S) + r @ s)
        for self.products in range(1, _MOST_PRODUCTS + 1):
            HP, hq, forward = self._times_newton(P, q, inverse.lift)
            bend = float(np.vdot(P, HP) + q @ hq)
            if not (bend > 0 and size > 0):
                break
            t = size / bend
            W, b = W + t * P, b + t * q
            forward *= t
            move += forward
            R, r = R - t * HP, r - t * hq
            S, s = inverse(R, r)
            size, before = float(np.vdot(R, S) + r @ s), size
            if size <= accuracy**2 * first:
                break
            P, q = S + (size / before) * P, s + (size / before) * q
        return Step(W, b, move)

    def _inverse(self) -> KroneckerInverse:
        """Return the preconditioner, the last one as long as it serves."""
        changing = self.sigma > 0 or self.steps < 2 or self.products > 2
        if self.inverse is None or changing:
            p, steepest = self.problem, self.problem.numbers.gam + self.sigma
            pivot = _PIVOT / (p.n * steepest)
            self.inverse = KroneckerInverse(
                p, self.unit, self.across, self.along, pivot
            )
        return self.inverse

    def _times_newton(
        self, P: NDArray, q: NDArray, lift: float
    ) -> tuple[NDArray, NDArray, NDArray]:
        p = self.problem
        forward = p.predict(P, q)
        push = np.empty_like(forward)
        across, along = p.weights * self.across, p.weights * self.along
        times_curvature(forward, self.unit, across, along, push)
        back = (
            push.sum(axis=0) / p.n + lift * q if p.fit_intercept else np.zeros_like(q)
        )
        return p.pull(push) / p.n + p.alpha * P, back, forward

    def _advance(self, direction: Step, start: float) -> bool:
        """Search along `direction`; say whether any step was possible."""
        p, D = self.problem, direction.W
        slope, bend = p.alpha * np.vdot(self.W, D), p.alpha * np.vdot(D, D)

        def derivatives(t: float) -> tuple[float, float]:
            first, second = radial_slope(
                t, self.res, direction.move, p.weights, self.center,
                *p.radial_numbers, self.sigma,
            )  # fmt: skip
            return first / p.n + slope + bend * t, second / p.n + bend

        t = convex_step(derivatives, start)
        self.W = self.W + t * D
        self.b = self.b + t * direction.b
        self.res = self.res - t * direction.move
        return t > 0

    def _verify(self) -> None:
        """Certify with fresh residuals."""
        self.res = self.problem.residual(self.W, self.b)
        found = self._certificate()
        self._tell(found)
        late = found.gap > 2.0 * self.promised or self.promised <= self.target
        if found.gap > self.target and late:  # balancing the dual point has its price
            reached = self.promised / self.target
            self.demand = max(0.1 * min(self.demand, reached), _MOST_DEMAND)
        self.idle = 0 if found.gap < 0.9 * self.best.gap else self.idle + 1
        if found.gap < self.best.gap:
            self.best = found

    def _next_sigma(self, settled: bool) -> None:
        if settled:
            self.center = self.a.copy()
            self.sigma *= _SHRINK
        else:
            self.sigma *= 2.0

    def _certificate(self) -> RadialCertificate:
        between = (self.along > 0).astype(float)
        return certify(
            self.problem, self.W, self.b, self.res, self.a, between, self.pulled
        )

    def _given(self) -> RadialCertificate:
        """Return the certificate of the start with the dual point that came with it."""
        p, nothing = self.problem, np.zeros(len(self.res))
        pulled = p.pull(p.weights[:, None] * self.center)
        return certify(p, self.W, self.b, self.res, self.center, nothing, pulled)

    def _tell(self, certificate: RadialCertificate) -> None:
        if self.report is not None:
            self.report(self.steps, certificate)
