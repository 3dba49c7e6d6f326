"""Semismooth Newton inside a proximal method on the dual, for joint quantiles.

As for one output, every pinball loss is smoothed by sigma around the current dual
point, Newton's method with an exact line search minimizes the sum, the dual point moves
to the new slope and sigma shrinks. The Newton matrix couples the outputs through T.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.linear_quadratic import kink_distance, slope_along
from nbsketch.solvers._certified.line_search import convex_step
from nbsketch.solvers._joint.active_rows import JointRows
from nbsketch.solvers._joint.gram import BlockGram
from nbsketch.solvers._joint.problem import JointCertificate, JointProblem, certify
from nbsketch.solvers.solution import State

Report = Callable[[int, JointCertificate], None]

# One Newton step costs a Cholesky factorization, whatever the rows: many easy rounds,
# solved loosely, take fewer of them than the few hard rounds of a single output.
_SHRINK = 0.4  # of sigma
_INEXACT = 3.0  # of the remaining gap: how exactly a round is solved
_SIZE, _WARM_SIZE = 0.3, 0.05  # of the typical residual: the first sigma
_MOST_DEMAND = 1e-20  # factor on the accuracy of a round that the certificate asks for
_STEPS = 50  # Newton steps in a round
_PATIENCE = 20  # rounds without a better certificate


class JointNewton:
    """One run of the method; see `run`."""

    def __init__(
        self,
        problem: JointProblem,
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
        self.W, self.b = np.array(state.coef, float), np.array(state.intercept, float)
        self.res = problem.residual(self.W, self.b)
        self.center = np.zeros_like(self.res)
        if state.dual is not None:
            levels = problem.levels[:, None]
            self.center[:] = np.clip(state.dual.T, levels - 1.0, levels)
        self.sigma = self._first_sigma(state)
        self.gram = BlockGram(problem, state.gram, state.inside)
        self.reach = np.inf  # rows closer than this to a kink are in play
        self.steps = self.idle = 0
        self.demand = 1.0  # on the inner problem, tighter where certificates lag behind
        self.promised = np.inf  # the gap that the last round should have reached
        a = self._everything().a if state.dual is None else self.center
        self.best = certify(problem, self.W, self.b, self.res, a)
        self.floor = 1e-15 * self.best.scale

    def run(self) -> tuple[JointCertificate, State, int]:
        """Return the best certificate, the state to start from next, and the steps."""
        self._tell(self.best)
        while not (self.converged or self.steps >= self.max_iter):
            everything = self._everything()
            active = self._in_play(everything)
            settled = self._descend(active)
            self._verify(active, everything)
            if self.converged or self.idle >= _PATIENCE:
                break
            self._next_sigma(settled, everything)
        best = self.best
        state = State(
            best.coef, best.intercept, best.dual.T.copy(), self.sigma,
            self.gram.matrices, self.gram.inside,
        )  # fmt: skip
        return best, state, self.steps

    @property
    def target(self) -> float:
        """The gap at which to stop."""
        return max(self.tol * self.best.scale, self.floor)

    @property
    def converged(self) -> bool:
        """Whether the best certificate is good enough."""
        return self.best.gap <= self.target

    def _first_sigma(self, state: State) -> float:
        if state.sigma is not None:
            return state.sigma
        share = _SIZE if state.dual is None else _WARM_SIZE
        return max(share * self.problem.spread(self.res), 1e-300)

    def _everything(self) -> JointRows:
        rows = JointRows(self.problem, None, self.res, self.center)
        rows.evaluate(self.sigma)
        return rows

    def _in_play(self, everything: JointRows) -> JointRows:
        """Choose the rows near a kink and sum up the others, if they are many."""
        if not np.isfinite(self.reach):
            return everything
        p, distance = self.problem, np.empty_like(self.res)
        kink_distance(
            self.res.ravel(), self.center.ravel(), p.lo, p.hi, 0.0, 0.0, self.sigma,
            distance.ravel(),
        )  # fmt: skip
        rows = np.flatnonzero(distance.min(axis=0) < self.reach)
        if len(rows) > 0.5 * len(p.y):
            return everything
        self.gram.restrict(rows)
        return everything.select(rows, self.sigma)

    def _descend(self, active: JointRows) -> bool:
        """Take Newton steps until the inner problem is solved; say whether it was."""
        for step in range(_STEPS):
            if step > 0:
                active.evaluate(self.sigma)
            rho = self._rho(active)
            if self._settled(active, rho, step):
                return True
            if self.steps >= self.max_iter:
                return False
            direction = self._direction(active, rho)
            slope = float(rho @ direction)
            if not slope < 0:
                return True
            if not self._advance(active, direction, slope):
                return False
            self.steps += 1
        return False

    def _rho(self, active: JointRows) -> NDArray:
        """Return the gradient of the smoothed objective, flat, intercepts last."""
        p = self.problem
        rho = (p.alpha * self.W - active.gradient @ p.T.T / p.n).T.ravel()
        if p.fit_intercept:
            rho = np.append(rho, -active.total / p.n)
        return rho

    def _settled(self, active: JointRows, rho: NDArray, step: int) -> bool:
        p, main = self.problem, self.W.size
        inexact = rho[:main] @ rho[:main] / (2 * p.alpha)
        if p.fit_intercept:
            free = np.maximum(active.inside @ active.problem.weights, 1e-3)
            inexact += (rho[main:] ** 2 / free).sum() * p.n * self.sigma / 2
        young = active.young / p.n
        self.promised = inexact + young
        if self.promised <= 0.9 * self.demand * self.target:
            return True
        enough = max(_INEXACT * young, 1e-3 * self.target)
        return step > 0 and inexact <= self.demand * enough

    def _direction(self, active: JointRows, rho: NDArray) -> NDArray:
        factor = 1.0 / (self.problem.n * self.sigma)
        self.gram.move(active.problem, active.rows, active.inside)
        try:
            return self.gram.direction(rho, factor)
        except np.linalg.LinAlgError:  # updates have drifted, or hardly any row is left
            self.gram.clear()
            self.gram.move(active.problem, active.rows, active.inside)
            return self.gram.safe_direction(rho, factor)

    def _advance(self, active: JointRows, direction: NDArray, start: float) -> bool:
        """Search along `direction`; say whether any step was possible."""
        p, part = self.problem, active.problem
        D = direction[: self.W.size].reshape(self.W.T.shape).T
        shift = direction[self.W.size :] if p.fit_intercept else np.zeros_like(self.b)
        move = part.predict(D, shift)
        rest = np.vdot(active.rest_gradient, D @ p.T) + active.rest_total @ shift
        slope, bend = p.alpha * np.vdot(self.W, D) - rest / p.n, p.alpha * np.vdot(D, D)
        line = (
            active.res.ravel(),
            move.ravel(),
            part.entry_weights,
            active.center.ravel(),
        )

        def derivatives(t: float) -> tuple[float, float]:
            first, second = slope_along(
                t, *line, part.lo, part.hi, 0.0, 0.0, self.sigma
            )
            return first / p.n + slope + bend * t, second / p.n + bend

        t = convex_step(derivatives, start)
        self.W = self.W + t * D
        self.b = self.b + t * shift
        active.res = active.res - t * move
        return t > 0

    def _verify(self, active: JointRows, everything: JointRows) -> None:
        """Certify over all rows with fresh sums, and see how far predictions moved."""
        p, before, a = self.problem, self.res, everything.a
        if active.rows is not None:
            a[:, active.rows] = active.a
        self.res = p.residual(self.W, self.b)
        found = certify(p, self.W, self.b, self.res, a, active.gradient)
        if found.gap <= max(self.tol * found.scale, self.floor):
            found = certify(p, self.W, self.b, self.res, a)
        self._tell(found)
        late = found.gap > 2.0 * self.promised or self.promised <= self.target
        if found.gap > self.target and late:  # balancing the dual point has its price
            reached = self.promised / self.target
            self.demand = max(0.1 * min(self.demand, reached), _MOST_DEMAND)
        self.idle = 0 if found.gap < 0.9 * self.best.gap else self.idle + 1
        if found.gap < self.best.gap:
            self.best = found
        some = np.s_[:, :: max(1, len(p.y) // 2000)]
        self.reach = 2.0 * float(np.max(np.abs(self.res[some] - before[some])))

    def _next_sigma(self, settled: bool, everything: JointRows) -> None:
        if settled:
            self.center = everything.a
            self.sigma *= _SHRINK
        else:
            self.sigma *= 2.0
            self.reach = np.inf
            self._return_to_best()

    def _return_to_best(self) -> None:
        """Leave a place to which rounding has led, or that takes too many steps."""
        self.W, self.b, self.center = self.best[:3]
        self.res = self.problem.residual(self.W, self.b)

    def _tell(self, certificate: JointCertificate) -> None:
        if self.report is not None:
            self.report(self.steps, certificate)
