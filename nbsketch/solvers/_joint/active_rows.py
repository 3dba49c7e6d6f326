"""The active rows of one round of Newton steps, and the constant sums of the others."""

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._joint.problem import JointProblem

# Fewer changed rows than this share: update the gradient, do not recompute it.
_FEW_CHANGES = 0.4
# More active rows than this share: gathering them would not pay.
_MANY_ROWS = 0.5


class ActiveRows:
    """Residuals, centers and dual points of some rows, all of shape (m, rows).

    `gradient` (r, m), `total` (m,) and `young` are sums over all rows of the problem;
    the inactive ones add a constant to each.
    """

    def __init__(
        self, problem: JointProblem, rows: NDArray | None, res: NDArray, center: NDArray
    ) -> None:
        self.problem, self.rows = problem, rows
        # flat views of these go to the kernels: a chosen column comes back strided
        self.res, self.center = np.ascontiguousarray(res), np.ascontiguousarray(center)
        self.a, self.inside = self.center, np.zeros(res.shape, dtype=bool)
        self.gradient = self.rest_gradient = np.zeros((problem.rank, len(res)))
        self.rest_total = np.zeros(len(res))
        self.rest_young = 0.0
        self._pushed: NDArray | None = None  # s a at the last gradient

    def evaluate(self, sigma: float) -> None:
        """Refresh the dual point and the sums that follow from it."""
        p, shape = self.problem, self.res.shape
        res, center = self.res.ravel(), self.center.ravel()
        a, inside, *_ = p.rows.point(res, p.entry_weights, center, sigma)
        size = len(p.level_rows.lo)
        young = p.level_rows.young(res[:size], p.entry_weights[:size], a[:size])
        self.a, self.inside = a.reshape(shape), inside.reshape(shape)
        push = p.weights * self.a
        self._push(push)
        self.total = self.rest_total + push.sum(axis=1)
        self.young = self.rest_young + young + p.slack(self.res, self.a)

    def _push(self, push: NDArray) -> None:
        before, self._pushed = self._pushed, push
        if before is not None:
            change = push - before
            rows = np.flatnonzero(change.any(axis=0))
            if len(rows) < _FEW_CHANGES * push.shape[1]:
                step = self.problem.design.rmv(change[:, rows].T, rows)
                self.gradient = self.gradient + step
                return
        self.gradient = self.rest_gradient + self.problem.design.rmv(push.T)

    def select(self, sigma: float, reach: float) -> "ActiveRows":
        """Return the rows that a move of `reach` brings to a kink, if they are few.

        Call it on all rows, evaluated at the same sigma.
        """
        if not np.isfinite(reach):
            return self
        p = self.problem
        distance = p.rows.kink_distance(self.res.ravel(), self.center.ravel(), sigma)
        rows = np.flatnonzero(distance.reshape(self.res.shape).min(axis=0) < reach)
        if len(rows) > _MANY_ROWS * len(p.y):
            return self
        few = ActiveRows(p.take(rows), rows, self.res[:, rows], self.center[:, rows])
        few.evaluate(sigma)
        few.rest_gradient = self.gradient - few.gradient
        few.rest_total = self.total - few.total
        few.rest_young = max(self.young - few.young, 0.0)
        few.gradient, few.total, few.young = self.gradient, self.total, self.young
        return few
