"""Semismooth Newton inside a proximal method on the dual, for linear-quadratic losses.

The loss is smoothed by sigma around the current dual point (its Moreau envelope there);
Newton's method with an exact line search minimizes that piecewise quadratic function;
the dual point moves to the new slope and sigma shrinks (Li, Sun and Toh, "A Highly
Efficient Semismooth Newton Augmented Lagrangian Method for Solving Lasso Problems",
2018, describe the scheme). A loss that is smooth already needs no smoothing, and the
method is then plain Newton, unless its curved part is narrow for the residuals it
meets. Rows far from every kink rest until a check over all rows ends each round, so a
wrong guess repairs itself. With them at rest the problem may have no minimizer, so a
round ends early where predictions move further than the rows at rest allow.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.linear_quadratic import slope_along
from nbsketch.solvers._certified.certificate import Certificate, certify
from nbsketch.solvers._certified.line_search import convex_step
from nbsketch.solvers._scalar.active_rows import ActiveRows, all_rows
from nbsketch.solvers._scalar.gram import RowGram
from nbsketch.solvers._scalar.problem import Problem
from nbsketch.solvers.solution import State

Report = Callable[[int, Certificate], None]

_COLD = 1.5  # first sigma over the mean residual: equal ones must not all hit a bound
_WARM = 0.02  # the same from a dual point nearby; both for slopes of about one
_SHRINK = 0.2  # of sigma; a faster decrease than 0.1 was seen to stall
_SMOOTH = 5.0  # times the gam of a smooth loss: a smaller sigma would not help it
_INEXACT = 0.1  # of the remaining gap: how exactly the inner problem is solved
_STEPS = 50  # Newton steps in a round
_PATIENCE = 20  # rounds without a better certificate


class SemismoothNewton:
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
        self.w = np.array(state.coef, dtype=float)
        self.b = float(state.intercept) if problem.fit_intercept else 0.0
        self.res = problem.residual(self.w, self.b)
        start = np.zeros_like(self.res) if state.dual is None else state.dual
        self.center = np.clip(start, problem.lo, problem.hi)
        self.sigma = self._first_sigma(state)
        self.gram = RowGram(problem, state.gram, state.inside)
        self.reach = np.inf  # rows closer than this to a kink are in play
        self.steps = self.idle = 0
        self.whole = self._evaluate_all()
        self.proposed = self.whole.a  # the center of the next round
        self.best = self._certify(self.whole.a, self.whole.gradient)
        self.floor = max(1e-15 * self.best.scale, self._rounding())

    def run(self) -> tuple[Certificate, State, int]:
        """Return the best certificate, the state to start from next, and the steps."""
        self._tell(self.best)
        while not (self.converged or self.steps >= self.max_iter):
            before = self.steps
            active = self.whole.select(self.sigma, self.reach)
            settled = self._descend(active)
            self._verify(active)
            if self._hopeless(before):
                break
            self._next_round(settled, active)
        sigma = self.sigma if self.sigma > 0 else None
        state = State(
            self.best.coef, self.best.intercept, self.best.dual, sigma,
            self.gram.matrix, self.gram.inside,
        )  # fmt: skip
        return self.best, state, self.steps

    @property
    def target(self) -> float:
        """The gap at which to stop."""
        return max(self.tol * self.best.scale, self.floor)

    @property
    def converged(self) -> bool:
        """Whether the best certificate is good enough."""
        return self.best.gap <= self.target

    def _first_sigma(self, state: State) -> float:
        p = self.problem
        if state.sigma is not None:
            return self._useful(state.sigma)
        size = np.abs(self.res[(p.weights > 0) & (self.res != 0)])
        if len(size) == 0:
            return self._useful(1.0)
        steepest = float(np.maximum(p.hi, -p.lo).max()) if p.gam > 0 else 1.0
        share = _COLD if state.dual is None else _WARM
        typical = float(np.minimum(size, 20.0 * np.median(size)).mean())
        return self._useful(share * typical / steepest)

    def _useful(self, sigma: float) -> float:
        """Return sigma, or 0 if the loss is smooth enough by itself."""
        return sigma if sigma > _SMOOTH * self.problem.gam else 0.0

    def _rounding(self) -> float:
        """Return the gap that rounding of the residuals alone may leave."""
        p = self.problem
        noise = 2.0**-52 * float(p.weights @ np.abs(p.y)) / p.n
        return noise if p.gam == 0 else noise**2 / p.gam

    def _evaluate_all(self) -> ActiveRows:
        whole = all_rows(self.problem, self.res, self.center)
        whole.evaluate(self.sigma)
        return whole

    def _descend(self, active: ActiveRows) -> bool:
        """Take Newton steps until the inner problem is solved; say whether it was."""
        if active.rows is not None:
            self.gram.restrict(active.rows)
        for step in range(_STEPS):
            rho = self._residual_gradient(active)
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
            active.evaluate(self.sigma)
            if active.strayed:
                return False
            if self.report is not None and active.rows is None:
                self._tell(self._certify(active.a, active.gradient, active.res))
        return False

    def _residual_gradient(self, active: ActiveRows) -> NDArray:
        """Return the gradient of the smoothed objective, that of the intercept last."""
        p = self.problem
        rho = p.alpha * self.w - active.gradient / p.n
        return np.append(rho, -active.total / p.n) if p.fit_intercept else rho

    def _settled(self, active: ActiveRows, rho: NDArray, step: int) -> bool:
        if step == 0 and (self.sigma == 0 or self.idle > 0):
            return False  # a point like this has failed to convince already
        p = self.problem
        inexact = rho[: p.rank] @ rho[: p.rank] / (2 * p.alpha)
        if p.fit_intercept:
            held = float(active.problem.weights @ active.inside)
            free = 2 * max(self.gram.pivot, held)
            inexact += rho[-1] ** 2 * p.n * (p.gam + self.sigma) / free
        young = active.young / p.n
        if inexact + young <= 0.9 * self.target:
            return True
        if self.sigma == 0 or step == 0:
            return False
        return bool(inexact <= max(_INEXACT * young, 1e-3 * self.target))

    def _direction(self, active: ActiveRows, rho: NDArray) -> NDArray:
        factor = 1.0 / (self.problem.n * (self.problem.gam + self.sigma))
        self.gram.move(active.problem, active.rows, active.inside)
        try:
            return self.gram.direction(rho, factor)
        except np.linalg.LinAlgError:  # updates have drifted, or alpha is tiny
            self.gram.sharpen()
            inside = active.problem.take(np.flatnonzero(active.inside))
            return self.gram.sure_direction(inside, rho, factor)

    def _advance(self, active: ActiveRows, direction: NDArray, start: float) -> bool:
        """Search along `direction`; say whether any step was possible."""
        p, part = self.problem, active.problem
        d = direction[: p.rank]
        shift = float(direction[-1]) if p.fit_intercept else 0.0
        move = part.design.mv(d)
        move += shift
        rest = (active.rest_gradient @ d + active.rest_total * shift) / p.n
        slope, bend = p.alpha * (self.w @ d) - rest, p.alpha * (d @ d)

        def derivatives(t: float) -> tuple[float, float]:
            first, second = slope_along(
                t, active.res, move, part.weights, active.center, part.lo, part.hi,
                p.gam, p.eps, self.sigma,
            )  # fmt: skip
            return first / p.n + slope + bend * t, second / p.n + bend

        t = convex_step(derivatives, start)
        farthest = float(np.max(np.abs(move)))
        if t * farthest > active.reach:
            t = active.reach / farthest
        self.w = self.w + t * d
        self.b += t * shift
        active.res = active.res - t * move
        return t > 0

    def _verify(self, active: ActiveRows) -> None:
        """Certify over all rows with fresh sums, and see how far predictions moved."""
        p, before, a = self.problem, self.res, active.a
        if active.rows is not None:
            a = self.whole.a.copy()
            a[active.rows] = active.a
        self.res = p.residual(self.w, self.b)
        found = self._certify(a, active.gradient)
        if found.gap <= max(self.tol * found.scale, self.floor):
            found = self._certify(a)
        self._tell(found)
        self.idle = 0 if found.gap < 0.9 * self.best.gap else self.idle + 1
        if found.gap < self.best.gap:
            self.best = found
        some = np.s_[:: max(1, len(before) // 2000)]
        moved = float(np.max(np.abs(self.res[some] - before[some])))
        if moved > 0:
            self.reach = 2.0 * moved
        self.proposed = a

    def _hopeless(self, before: int) -> bool:
        """Whether rounding rules, `before` being the steps when the round began."""
        if self.sigma == 0:
            return self.idle >= 3 or self.steps == before
        return self.idle >= _PATIENCE

    def _next_round(self, settled: bool, active: ActiveRows) -> None:
        """Move the center and shrink sigma; after a failure, make it easier."""
        if self.converged:
            return
        if self.sigma > 0 and settled:
            self.center = self.proposed
            self.sigma = self._useful(_SHRINK * self.sigma)
        else:
            self.reach = np.inf
            if active.rows is None:  # rows at rest are not to blame
                self.sigma *= 2.0
                if not self.gram.exact:
                    self.gram.sharpen()
        self.whole = self._evaluate_all()

    def _certify(
        self, a: NDArray, gradient: NDArray | None = None, res: NDArray | None = None
    ) -> Certificate:
        res = self.res if res is None else res
        return certify(self.problem, self.w, self.b, res, a, gradient)

    def _tell(self, certificate: Certificate) -> None:
        if self.report is not None:
            self.report(self.steps, certificate)
