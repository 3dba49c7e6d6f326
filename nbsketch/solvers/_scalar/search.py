"""Semismooth Newton inside a proximal method on the dual, for linear-quadratic losses.

The loss is smoothed by sigma around the current dual point (its Moreau envelope there);
Newton's method with an exact line search minimizes that piecewise quadratic function;
the dual point moves to the new slope and sigma shrinks (Li, Sun and Toh, "A Highly
Efficient Semismooth Newton Augmented Lagrangian Method for Solving Lasso Problems",
2018, describe the scheme). A loss that is smooth already needs no smoothing, and the
method is then plain Newton, unless its curved part is narrow for the residuals it
meets. Rows far from every kink are inactive until a check over all rows ends each
round, so a wrong guess repairs itself. Without them the problem may have no minimizer,
so a round ends early where predictions move further than the inactive rows allow.
"""

from contextlib import suppress
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._certified.certificate import Certificate
from nbsketch.solvers._certified.search import CertifiedSearch
from nbsketch.solvers._scalar.active_rows import all_rows
from nbsketch.solvers._scalar.few_rows import are_few, direction_of_rows
from nbsketch.solvers._scalar.gram import RowGram
from nbsketch.solvers._scalar.problem import ScalarProblem
from nbsketch.solvers.solution import State

_COLD = 1.5  # first sigma over the mean residual: equal ones must not all hit a bound
_WARM = 0.02  # the same from a dual point nearby; both for slopes of about one
_SHRINK = 0.2  # of sigma; faster than 0.1 can stall
_SMOOTH = 5.0  # times the gam of a smooth loss: a smaller sigma would not help it
_STALLED = 3  # rounds of a smooth loss without progress


class ScalarSearch(CertifiedSearch[ScalarProblem]):
    """The search for scalar linear-quadratic losses.

    Attributes
    ----------
    center : ndarray of shape (n,)
        Dual point around which the loss is smoothed.
    gram : RowGram
        Gram matrix of the rows between kinks.
    reach : float
        Rows closer than this to a kink are active.
    whole, active : ActiveRows
        All rows as the round began; the active ones as they are now.
    proposed : ndarray of shape (n,)
        Dual point at the end of the round, the next `center`.
    """

    inexact: ClassVar[float] = 0.1
    tightens: ClassVar[bool] = False  # a further step is taken instead: see _settled

    def _begin(self, state: State) -> None:
        p = self.problem
        start = np.zeros_like(self.res) if state.dual is None else state.dual
        self.center = p.rows.clip(start)
        self.sigma = self._first_sigma(state)
        self.gram = RowGram(p, state.gram, state.inside)
        self.reach = np.inf
        self._evaluate_all()

    def _first_certificate(self, state: State) -> Certificate:
        self.proposed, gradient = self.whole.a, self.whole.gradient
        p = self.problem
        return p.certify(self.coef, self.intercept, self.res, self.proposed, gradient)

    def _first_sigma(self, state: State) -> float:
        p = self.problem
        if state.sigma is not None:
            return self._useful(state.sigma)
        share = _COLD if state.dual is None else _WARM
        return self._useful(share * self._spread() / p.rows.steepest)

    def _spread(self) -> float:
        return self.problem.spread(self.res)

    def _useful(self, sigma: float) -> float:
        """Return sigma, or 0 if the loss is smooth enough by itself."""
        return sigma if sigma > _SMOOTH * self.problem.rows.gam else 0.0

    def _smaller(self) -> float:
        return self._useful(_SHRINK * self.sigma)

    def _rounding(self) -> float:
        p = self.problem
        noise = 2.0**-52 * float(p.weights @ np.abs(p.y)) / p.n
        return noise if p.rows.gam == 0 else noise**2 / p.rows.gam

    def _evaluate_all(self) -> None:
        self.whole = self.active = all_rows(self.problem, self.res, self.center)
        self.whole.evaluate(self.sigma)

    def _start_round(self) -> None:
        self.active = self.whole.select(self.sigma, self.reach)
        if self.active.rows is not None:
            self.gram.restrict(self.active.rows)

    def _gradient(self) -> NDArray:
        p, active = self.problem, self.active
        rho = p.alpha * self.coef - active.gradient / p.n
        return np.append(rho, -active.total / p.n) if p.fit_intercept else rho

    def _settled(self, rho: NDArray, step: int) -> bool:
        if step == 0 and (self.sigma == 0 or self.idle > 0):
            return False  # the certificate of this point was not good enough
        return super()._settled(rho, step)

    def _gap_parts(self, rho: NDArray) -> tuple[float, float]:
        p, active = self.problem, self.active
        error = rho[: p.rank] @ rho[: p.rank] / (2 * p.alpha)
        if p.fit_intercept:
            free = 2 * max(self.gram.pivot, active.held)
            error += rho[-1] ** 2 * p.n * (p.rows.gam + self.sigma) / free
        return float(error), active.young / p.n

    def _direction(self, rho: NDArray) -> NDArray:
        curvature = 1.0 / (self.problem.n * (self.problem.rows.gam + self.sigma))
        active, pivot = self.active, self.gram.pivot
        inside = np.flatnonzero(active.inside)
        if are_few(inside, self.problem.rank):
            with suppress(np.linalg.LinAlgError):
                return direction_of_rows(active.problem, inside, rho, curvature, pivot)
        self.gram.move(active.problem, active.rows, active.inside)
        try:
            return self.gram.direction(rho, curvature)
        except np.linalg.LinAlgError:  # updates have drifted, or alpha is tiny
            self.gram.sharpen()
            part = active.problem.take(inside)
            return self.gram.orthogonal_direction(part, rho, curvature)

    def _advance(self, direction: NDArray, slope: float) -> bool:
        p, active = self.problem, self.active
        part, d = active.problem, direction[: p.rank]
        known = part.weights, active.center, self.sigma
        shift = float(direction[-1]) if p.fit_intercept else 0.0
        move = part.design.mv(d)
        move += shift

        def slopes(t: float) -> tuple[float, float]:
            return part.rows.slopes(t, active.res, move, *known)

        rest = active.rest_gradient @ d + active.rest_total * shift
        t = self._step_length(slopes, d, slope, rest)
        farthest = max(float(move.max()), -float(move.min()))
        if t * farthest > active.reach:
            t = active.reach / farthest
        self.coef = self.coef + t * d
        self.intercept += t * shift
        active.res = active.res - np.multiply(move, t, out=move)
        return t > 0

    def _evaluate(self) -> bool:
        self.active.evaluate(self.sigma)
        return not self.active.strayed

    def _step_certificate(self) -> Certificate | None:
        if self.active.rows is not None:
            return None
        p, now = self.problem, self.active
        return p.certify(self.coef, self.intercept, now.res, now.a, now.gradient)

    def _certify(self) -> Certificate:
        p, active = self.problem, self.active
        before = self._compared().copy()
        self.proposed = a = active.spread(self.whole.a)
        self.res = p.residual(self.coef, self.intercept)
        if active.rows is None:
            active.res = self.res  # one vector less while certificates are computed
        if (moved := float(np.max(np.abs(self._compared() - before)))) > 0:
            self.reach = 2.0 * moved
        point = self.coef, self.intercept, self.res, a
        if not self._is_good(found := p.certify(*point, active.gradient)):
            return found
        del found
        return p.certify(*point)

    def _hopeless(self, before: int, settled: bool) -> bool:
        if self.sigma == 0:
            return self.idle >= _STALLED or self.steps == before
        return super()._hopeless(before, settled)

    def _next_round(self, settled: bool) -> None:
        if self.sigma > 0 and settled:
            self.center = self.proposed
            self.sigma = self._smaller()
        else:
            self.reach = np.inf
            if self.active.rows is None:  # inactive rows are not to blame
                self.sigma *= 2.0
                if not self.gram.exact:
                    self.gram.sharpen()
        self._evaluate_all()

    def _state(self) -> State:
        best = self.best
        return State(
            best.coef, best.intercept, best.dual, self.sigma or None, self.gram.matrix,
            self.gram.inside,
        )  # fmt: skip
