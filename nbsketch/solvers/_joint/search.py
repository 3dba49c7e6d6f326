"""Semismooth Newton inside a proximal method on the dual, for joint quantiles.

As for one output, every pinball loss is smoothed by sigma around the current dual
point, Newton's method with an exact line search minimizes the sum, the dual point moves
to the new slope and sigma shrinks. The Newton matrix couples the outputs through T.
"""

from contextlib import suppress
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._certified.certificate import Certificate
from nbsketch.solvers._certified.search import CertifiedSearch
from nbsketch.solvers._joint.active_rows import ActiveRows
from nbsketch.solvers._joint.few_rows import are_few, direction_of_entries
from nbsketch.solvers._joint.gram import LEAST_PIVOT, OutputGrams
from nbsketch.solvers._joint.problem import JointProblem
from nbsketch.solvers.solution import State

_SHRINK = 0.4  # of sigma
_SIZE, _WARM_SIZE = 0.3, 0.05  # of the typical residual: the first sigma


class JointSearch(CertifiedSearch[JointProblem]):
    """The search for joint pinball losses; arrays over the rows are (m, n).

    Attributes
    ----------
    center : ndarray of shape (m, n)
        Dual point around which the losses are smoothed.
    gram : OutputGrams
        Gram matrices of the rows between kinks, one per term.
    reach : float
        Rows closer than this to a kink are active.
    whole, active : ActiveRows
        All rows as the round began, with the dual point of its end; the active ones.
    """

    # A Newton step costs a Cholesky factorization, whatever the rows: many easy rounds,
    # solved loosely, take fewer of them than the few hard rounds of a single output.
    inexact: ClassVar[float] = 3.0

    def _begin(self, state: State) -> None:
        p = self.problem
        self.center = np.zeros_like(self.res)
        if state.dual is not None:
            self.center[:] = np.clip(state.dual.T, *p.bounds)
        self.sigma = self._first_sigma(state)
        self.gram = OutputGrams(p, state.gram, state.inside)
        self.reach = np.inf
        self._evaluate_all()

    def _first_certificate(self, state: State) -> Certificate:
        a = self.whole.a if state.dual is None else self.center
        return self.problem.certify(self.coef, self.intercept, self.res, a)

    def _first_sigma(self, state: State) -> float:
        if state.sigma is not None:
            return state.sigma
        share = _SIZE if state.dual is None else _WARM_SIZE
        return max(share * self.problem.spread(self.res), 1e-300)

    def _evaluate_all(self) -> None:
        self.whole = ActiveRows(self.problem, None, self.res, self.center)
        self.active = self.whole
        self.whole.evaluate(self.sigma)

    def _start_round(self) -> None:
        self.active = self.whole.select(self.sigma, self.reach)
        if self.active.rows is not None:
            self.gram.restrict(self.active.rows)

    def _gradient(self) -> NDArray:
        p, active = self.problem, self.active
        rho = (p.alpha * self.coef - active.gradient @ p.mixed_T.T / p.n).T.ravel()
        return np.append(rho, -p.mix @ active.total / p.n) if p.fit_intercept else rho

    def _gap_parts(self, rho: NDArray) -> tuple[float, float]:
        p, active, main = self.problem, self.active, self.coef.size
        error = rho[:main] @ rho[:main] / (2 * p.alpha)
        if p.fit_intercept:
            held = np.square(p.mix) @ (active.inside @ active.problem.weights)
            free = np.maximum(held, 1e-3)
            error += (rho[main:] ** 2 / free).sum() * p.n * self.sigma / 2
        return float(error), active.young / p.n

    def _direction(self, rho: NDArray) -> NDArray:
        active, factor = self.active, 1.0 / (self.problem.n * self.sigma)
        if are_few(int(np.count_nonzero(active.inside)), self.problem):
            known = active.problem, active.inside, rho, factor, LEAST_PIVOT
            with suppress(np.linalg.LinAlgError):
                return direction_of_entries(*known)
        self.gram.move(active.problem, active.rows, active.inside)
        try:
            return self.gram.direction(rho, factor)
        except np.linalg.LinAlgError:  # updates have drifted, or hardly any row is left
            self.gram.clear()
            self.gram.move(active.problem, active.rows, active.inside)
            return self.gram.safe_direction(rho, factor)

    def _advance(self, direction: NDArray, slope: float) -> bool:
        p, active, part = self.problem, self.active, self.active.problem
        main = self.coef.size
        D = direction[:main].reshape(self.coef.T.shape).T
        shift = direction[main:] if p.fit_intercept else np.zeros_like(self.intercept)
        move = part.predict(D, shift)
        flat = move.ravel(), part.entry_weights, active.center.ravel(), self.sigma

        def slopes(t: float) -> tuple[float, float]:
            return part.rows.slopes(t, active.res.ravel(), *flat)

        rest = np.vdot(active.rest_gradient, D @ p.mixed_T)
        rest += active.rest_total @ (shift @ p.mix)
        t = self._step_length(slopes, D, slope, rest)
        self.coef = self.coef + t * D
        self.intercept = self.intercept + t * shift
        active.res = active.res - t * move
        return t > 0

    def _evaluate(self) -> bool:
        self.active.evaluate(self.sigma)
        return True

    def _certify(self) -> Certificate:
        p, a = self.problem, self.whole.a
        before = self._compared().copy()
        if self.active.rows is not None:
            a[:, self.active.rows] = self.active.a
        self.res = p.residual(self.coef, self.intercept)
        point = self.coef, self.intercept, self.res, a
        found = p.certify(*point, self.active.gradient)
        if self._is_good(found):
            found = p.certify(*point)
        self.reach = 2.0 * float(np.max(np.abs(self._compared() - before)))
        return found

    def _next_round(self, settled: bool) -> None:
        if settled:
            self.center = self.whole.a
            self.sigma *= _SHRINK
        else:  # leave a point that rounding has led to, or that takes too many steps
            self.sigma *= 2.0
            self.reach = np.inf
            self.coef, self.intercept, self.center = self.best[:3]
            self.res = self.problem.residual(self.coef, self.intercept)
        self._evaluate_all()

    def _state(self) -> State:
        best = self.best
        return State(
            best.coef, best.intercept, best.dual.T.copy(), self.sigma,
            self.gram.matrices, self.gram.inside,
        )  # fmt: skip
