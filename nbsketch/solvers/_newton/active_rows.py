"""The active rows of one round of Newton steps, and the constant sums of the others.

A row whose residuals are far from every kink keeps its dual point through the round, so
the inactive rows contribute constants and a step costs only the active rows.
"""

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._newton.problem import NewtonProblem

# Fewer changed rows than this share: update the gradient, do not recompute it.
_FEW_CHANGES = 0.4
# More active rows than this share: gathering them would not pay.
_MANY_ROWS = 0.5
# Evenly spread rows that are always active: they show how far the others move.
_GUARDS = 256


class ActiveRows:
    """Residuals, centers and dual points `a` of some rows, all of shape (m, rows).

    `rows` are their places in the whole problem, None for all. `gradient` (r, m) is
    ``Z^T (s a)^T``, `totals` (m,) the sums of s a and `young` that of the Fenchel-Young
    terms, each over the whole problem; the inactive rows add to them what does not
    change as long as no residual moves by more than `reach`.
    """

    def __init__(
        self,
        problem: NewtonProblem,
        rows: NDArray | None,
        res: NDArray,
        center: NDArray,
        reach: float = np.inf,
    ) -> None:
        self.problem, self.rows, self.reach = problem, rows, reach
        # flat views of these go to the kernels: a chosen column comes back strided
        self.res, self.center = np.ascontiguousarray(res), np.ascontiguousarray(center)
        self.a = self.center  # replaced, never changed in place: certificates keep it
        self.inside = np.zeros(res.shape, dtype=bool)
        self.gradient = self.inactive_gradient = np.zeros((problem.rank, len(res)))
        self.totals = self.inactive_totals = np.zeros(len(res))
        self.young = self.inactive_young = 0.0
        self._is_current = False  # whether `gradient` is that of `a`
        self._start = self.res

    @property
    def has_left(self) -> bool:
        """Whether residuals have moved so far that inactive rows may become active."""
        if not np.isfinite(self.reach):
            return False
        return bool(np.max(np.abs(self.res - self._start)) > self.reach)

    @property
    def mass(self) -> NDArray:
        """Weight of the entries strictly between kinks, for each intercept."""
        return np.square(self.problem.mix) @ (self.inside @ self.problem.weights)

    def spread(self, a: NDArray) -> NDArray:
        """Return the dual point of all rows, `a` that of the round's beginning."""
        if self.rows is None:
            return self.a
        out = a.copy()
        out[:, self.rows] = self.a
        return out

    def evaluate(self, sigma: float) -> None:
        """Move the dual point to the current residuals; refresh sums and gradient."""
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
        p, weighted = self.problem, self.problem.weighted(self.a)
        if self._is_current:
            change = weighted - p.weighted(before)
            rows = np.flatnonzero(change.any(axis=0))
            if len(rows) < _FEW_CHANGES * change.shape[1]:
                return self.gradient + p.design.rmv(change[:, rows].T, rows)
        return self.inactive_gradient + p.design.rmv(weighted.T)

    def select(self, sigma: float, reach: float) -> "ActiveRows":
        """Return the rows that a move of `reach` brings to a kink, if they are few.

        Call it on all rows, evaluated at the same sigma.
        """
        if not np.isfinite(reach):
            return self
        p, flat = self.problem, (self.res.ravel(), self.center.ravel())
        distance = p.losses.kink_distance(*flat, sigma)
        distance = distance.reshape(self.res.shape).min(axis=0)
        distance[:: max(1, len(distance) // _GUARDS)] = 0.0
        rows = np.flatnonzero(distance < reach)
        if len(rows) > _MANY_ROWS * len(distance):
            return self
        res, center = self.res[:, rows], self.center[:, rows]
        few = ActiveRows(p.take(rows), rows, res, center, reach)
        few.evaluate(sigma)
        few.inactive_gradient = self.gradient - few.gradient
        few.inactive_totals = self.totals - few.totals
        few.inactive_young = max(self.young - few.young, 0.0)
        few.gradient, few.totals = self.gradient, self.totals
        few.young += few.inactive_young
        return few
