"""Semismooth Newton in a proximal method on the dual, for linear-quadratic losses.

The losses are smoothed by sigma around the current dual point (their Moreau envelopes
there). Newton's method with an exact line search minimizes this piecewise quadratic
function; then the dual point moves to the new slopes and sigma decreases (Li, Sun and
Toh, "A Highly Efficient Semismooth Newton Augmented Lagrangian Method for Solving Lasso
Problems", 2018). A smooth loss needs no smoothing, and the method is plain Newton,
unless its curved part is narrow relative to the residuals. Rows far from every kink are
inactive until a check over all rows ends each round, so a wrong guess is corrected.
Without them the problem may have no minimizer, so a round ends early if predictions
move further than the inactive rows allow.

`ActiveRows`: the active rows of a round, and constant sums of the other rows.

A row whose residuals are far from every kink keeps its dual point during the round, so
inactive rows contribute constants and a step costs only the active rows.
"""

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._certified.search import CertifiedSearch
from nbsketch.solvers._newton.directions import TermGrams, are_few, direction_of_entries
from nbsketch.solvers._newton.problem import NewtonProblem
from nbsketch.solvers.solution import Certificate, State

# Below this share of changed rows, the gradient is updated instead of recomputed.
_FEW_CHANGES = 0.4
# Above this share of active rows, gathering them saves no time.
_MANY_ROWS = 0.5
# Number of rows, evenly spaced, that are always active, to show how far others move.
_GUARDS = 256
_SMOOTH = 5.0  # times the gam of a smooth loss: a smaller sigma is useless
# First sigma relative to the mean residual, the same for a warm start (both for slopes
# of about one), and the factor on sigma after a round.
_COLD = 0.3
_WARM = 0.05
_SHRINK = 0.4
_STALLED = 3  # rounds of a smooth loss without progress


class ActiveRows:
    """Residuals, centers and dual points `a` of some rows, all of shape (m, rows).

    `rows` are their positions in the full problem, None for all. `gradient` (r, m) is
    ``Z^T (s a)^T``, `totals` (m,) the sums of s a and `young` the sum of the
    Fenchel-Young terms, each over the full problem; the contribution of inactive rows
    is constant as long as no residual moves by more than `reach`.
    """

    def __init__(
        self,
        problem: NewtonProblem,
        rows: NDArray | None,
        res: NDArray,
        center: NDArray,
        reach: float = np.inf,
    ) -> None:
        self.problem = problem
        self.rows = rows
        self.reach = reach
        # flat views of these are passed to the kernels: a chosen column is strided
        self.res = np.ascontiguousarray(res)
        self.center = np.ascontiguousarray(center)
        self.a = self.center  # replaced, never modified: certificates store it
        self.inside = np.zeros(res.shape, dtype=bool)
        self.gradient = self.inactive_gradient = np.zeros((problem.rank, len(res)))
        self.totals = self.inactive_totals = np.zeros(len(res))
        self.young = self.inactive_young = 0.0
        self._is_current = False  # whether `gradient` belongs to `a`
        self._start = self.res

    @property
    def has_left(self) -> bool:
        """Whether residuals have moved so far that inactive rows may become active."""
        return bool(np.max(np.abs(self.res - self._start)) > self.reach)

    def spread(self, a: NDArray) -> NDArray:
        """Return the dual point of all rows, given `a` at the start of the round."""
        if self.rows is None:
            return self.a
        out = a.copy()
        out[:, self.rows] = self.a
        return out

    def evaluate(self, sigma: float) -> None:
        """Update the dual point for the current residuals, with sums and gradient."""
        before = self.a
        self.a, self.inside, totals, young = self.problem.point(
            self.res, self.center, sigma
        )
        self.totals = self.inactive_totals + totals
        self.young = self.inactive_young + young
        self.gradient = self._updated_gradient(before)
        self._is_current = True

    def _updated_gradient(self, before: NDArray) -> NDArray:
        """Return the gradient for the new dual point."""
        p = self.problem
        weighted = self.problem.weighted(self.a)
        if self._is_current:
            change = weighted - p.weighted(before)
            rows = np.flatnonzero(change.any(axis=0))
            if len(rows) < _FEW_CHANGES * change.shape[1]:
                return self.gradient + p.design.rmv(change[:, rows].T, rows)
        return self.inactive_gradient + p.design.rmv(weighted.T)

    def select(self, sigma: float, reach: float) -> "ActiveRows":
        """Return the rows within `reach` of a kink, if they are few.

        Call it on all rows, evaluated at the same sigma.
        """
        if not np.isfinite(reach):
            return self
        p = self.problem
        distance = p.losses.kink_distance(self.res, self.center, sigma).min(axis=0)
        distance[:: max(1, len(distance) // _GUARDS)] = 0.0
        rows = np.flatnonzero(distance < reach)
        if len(rows) > _MANY_ROWS * len(distance):
            return self
        res = self.res[:, rows]
        subset = ActiveRows(p.take(rows), rows, res, self.center[:, rows], reach)
        subset.evaluate(sigma)
        subset.inactive_gradient = self.gradient - subset.gradient
        subset.inactive_totals = self.totals - subset.totals
        subset.inactive_young = max(self.young - subset.young, 0.0)
        subset.gradient = self.gradient
        subset.totals = self.totals
        subset.young += subset.inactive_young
        return subset


class NewtonSearch(CertifiedSearch):
    """The search for linear-quadratic losses.

    Many easy rounds, solved roughly, take fewer Newton steps than few hard rounds.

    Attributes
    ----------
    center : ndarray of shape (m, n)
        Dual point around which the losses are smoothed.
    gram : TermGrams
        Gram matrices of the rows between kinks, one per term.
    reach : float
        Rows closer than this to a kink are active.
    whole, active : ActiveRows
        All rows at the start of the round; the active rows in their current state.
    proposed : ndarray of shape (m, n)
        Dual point at the end of the round, the next `center`.
    """

    inexact = 3.0

    def _begin(self, state: State) -> Certificate:
        p = self.problem
        self.center = p.center(state)
        self.sigma = self._first_sigma(state)
        self.gram = TermGrams(p, state.gram, state.inside)
        self.reach = np.inf
        self._evaluate_all()
        if state.dual is None:
            return self._point_certificate()
        # that of the given point: a solution stays a solution
        return p.certify(self.coef, self.intercept, self.res, self.center)

    def _first_sigma(self, state: State) -> float:
        if state.sigma is not None:
            return self._useful(state.sigma)
        share = _COLD if state.dual is None else _WARM
        p = self.problem
        sigma = share * p.spread(self.res) / p.losses.steepest
        return self._useful(max(sigma, 1e-300))

    def _useful(self, sigma: float) -> float:
        """Return sigma, or 0 if the loss is smooth enough."""
        return sigma if sigma > _SMOOTH * self.problem.losses.gam else 0.0

    def _rounding(self) -> float:
        p = self.problem
        noise = 2.0**-52 * float(np.sum(np.abs(p.y) @ p.weights)) / p.n
        return noise if p.losses.gam == 0 else noise**2 / p.losses.gam

    def _evaluate_all(self) -> None:
        self.whole = self.active = ActiveRows(self.problem, None, self.res, self.center)
        self._evaluate()

    def _direction(self) -> NDArray:
        curvature = 1.0 / (self.problem.n * (self.problem.losses.gam + self.sigma))
        active = self.active
        gram = self.gram
        rho = self.rho
        if are_few(int(np.count_nonzero(active.inside)), self.problem):
            with suppress(np.linalg.LinAlgError):
                return direction_of_entries(
                    active.problem, active.inside, rho, curvature, gram.pivot
                )
        with suppress(np.linalg.LinAlgError):
            gram.move(active.problem, active.rows, active.inside)
            return gram.direction(rho, curvature)
        # Updates are inaccurate, or alpha is tiny: from rows, or from eigenvalues.
        gram.sharpen()
        if self.problem.is_single:
            part = active.problem.take(np.flatnonzero(active.inside[0]))
            return gram.orthogonal_direction(part, rho, curvature)
        gram.move(active.problem, active.rows, active.inside)
        with suppress(np.linalg.LinAlgError):
            return gram.direction(rho, curvature)
        return gram.clipped_direction(rho, curvature)

    def _length(self, D: NDArray, shift: NDArray) -> float:
        p = self.problem
        active = self.active
        part = self.active.problem
        move = part.predict(D, shift)
        inactive = np.vdot(active.inactive_gradient, D @ p.mixed_T)
        inactive += active.inactive_totals @ (shift @ p.mix)
        t = self._step_length(part, active.res, move, active.center, D, float(inactive))
        farthest = max(float(move.max()), -float(move.min()))
        if t * farthest > active.reach:
            t = active.reach / farthest
        active.res = active.res - np.multiply(move, t, out=move)
        return t

    def _evaluate(self) -> bool:
        p = self.problem
        active = self.active
        active.evaluate(self.sigma)
        self.young = active.young / p.n
        inside = np.maximum(self.gram.pivot, active.problem.mass(active.inside))
        mass = inside / (p.losses.gam + self.sigma)
        self.rho, self.error = p.descent(
            self.coef, active.gradient, active.totals, mass
        )
        return not active.has_left

    def _step_certificate(self) -> Certificate | None:
        return self._point_certificate() if self.active.rows is None else None

    def _point_certificate(self) -> Certificate:
        now = self.active
        return self.problem.certify(
            self.coef, self.intercept, now.res, now.a, now.gradient
        )

    def _certify(self) -> Certificate:
        p = self.problem
        active = self.active
        before = self._compared().copy()
        self.proposed = a = active.spread(self.whole.a)
        self.res = p.residual(self.coef, self.intercept)
        if active.rows is None:
            active.res = self.res  # one vector less while certificates are computed
        if (moved := float(np.max(np.abs(self._compared() - before)))) > 0:
            self.reach = 2.0 * moved
        point = self.coef, self.intercept, self.res, a
        if not self._is_good(certificate := p.certify(*point, active.gradient)):
            return certificate
        del certificate
        return p.certify(*point)

    def _has_stalled(self, before: int) -> bool:
        if self.sigma == 0:
            return self.idle >= _STALLED or self.steps == before
        return super()._has_stalled(before)

    def _next_round(self, settled: bool) -> None:
        if self.sigma > 0 and settled:
            self.center = self.proposed
            self.sigma = self._useful(_SHRINK * self.sigma)
        else:
            self.reach = np.inf
            if self.active.rows is None:  # inactive rows are not the reason
                self.sigma *= 2.0
                if not self.gram.exact:
                    self.gram.sharpen()
        self._evaluate_all()
        self.active = self.whole.select(self.sigma, self.reach)
        if self.active.rows is not None:
            self.gram.restrict(self.active.rows)

    def _state(self) -> State:
        best = self.best
        gram = self.gram
        return State(
            best.coef, best.intercept, best.dual.T, self.sigma or None, gram.matrices,
            gram.inside,
        )  # fmt: skip
