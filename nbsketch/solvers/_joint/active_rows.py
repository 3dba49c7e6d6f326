"""The rows in play in one round of the joint method, and what the others add."""

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.linear_quadratic import dual_point
from nbsketch.solvers._joint.problem import JointProblem

# Refresh the gradient by its changes while fewer rows than this share have changed.
_FEW = 0.4


class JointRows:
    """Residuals, centers and dual points of some rows, all of shape (d, rows).

    `gradient` (r, d), `total` (d,) and `young` are sums over all rows of the problem;
    those at rest add a constant to each.
    """

    def __init__(
        self, problem: JointProblem, rows: NDArray | None, res: NDArray, center: NDArray
    ) -> None:
        self.problem, self.rows = problem, rows
        # flat views of these go to the kernels: a chosen column comes back strided
        self.res, self.center = np.ascontiguousarray(res), np.ascontiguousarray(center)
        self.a, self.inside = np.empty(res.shape), np.empty(res.shape, dtype=bool)
        self.gradient = self.rest_gradient = np.zeros((problem.rank, len(res)))
        self.rest_total = np.zeros(len(res))
        self.rest_young = 0.0
        self._pushed: NDArray | None = None  # s a at the last gradient

    def evaluate(self, sigma: float) -> None:
        """Refresh the dual point and the sums that follow from it."""
        p = self.problem
        _, young = dual_point(
            self.res.ravel(), p.entry_weights, self.center.ravel(), p.lo, p.hi,
            0.0, 0.0, sigma, self.a.ravel(), self.inside.ravel(),
        )  # fmt: skip
        push = p.weights * self.a
        self._push(push)
        self.total = self.rest_total + push.sum(axis=1)
        self.young = self.rest_young + young

    def _push(self, push: NDArray) -> None:
        before, self._pushed = self._pushed, push
        if before is not None:
            change = push - before
            rows = np.flatnonzero(change.any(axis=0))
            if len(rows) < _FEW * push.shape[1]:
                step = self.problem.design.rmv(change[:, rows].T, rows)
                self.gradient = self.gradient + step
                return
        self.gradient = self.rest_gradient + self.problem.design.rmv(push.T)

    def select(self, rows: NDArray, sigma: float) -> "JointRows":
        """Return `rows` alone, evaluated; the others become the constant rest."""
        part = self.problem.take(rows)
        chosen = JointRows(part, rows, self.res[:, rows], self.center[:, rows])
        chosen.evaluate(sigma)
        chosen.rest_gradient = self.gradient - chosen.gradient
        chosen.rest_total = self.total - chosen.total
        chosen.rest_young = max(self.young - chosen.young, 0.0)
        chosen.gradient, chosen.total, chosen.young = (
            self.gradient,
            self.total,
            self.young,
        )
        return chosen
