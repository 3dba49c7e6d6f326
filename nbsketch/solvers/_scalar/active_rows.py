"""The active rows of one round of Newton steps, and the constant sums of the others.

A row whose residual is far from every kink keeps its dual point through the round, so
the inactive rows contribute constants and a step costs only the active rows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._scalar.problem import ScalarProblem

# Fewer changed entries than this share: update the gradient, do not recompute it.
_FEW_CHANGES = 0.4
# More active rows than this share: gathering them would not pay.
_MANY_ROWS = 0.5
# Evenly spread rows that are always active: they show how far the others move.
_GUARDS = 256


@dataclass
class ActiveRows:
    """Rows of a problem with their residuals `res` and current dual point `a`.

    `rows` are their places in the whole problem, None for all. `gradient` is
    ``Z^T (s a)``, `total` the sum of s a and `young` that of the Fenchel-Young terms,
    each over the whole problem; the parts of the inactive rows, whose names begin with
    `rest_`, are constant as long as no residual moves by more than `reach`.
    """

    problem: ScalarProblem
    rows: NDArray | None
    res: NDArray
    center: NDArray
    rest_gradient: NDArray
    rest_total: float = 0.0
    rest_young: float = 0.0
    reach: float = np.inf

    def __post_init__(self) -> None:
        self.a = self.center  # replaced, never changed in place: certificates keep it
        self.inside = np.zeros(len(self.res), dtype=bool)
        self.gradient = self.rest_gradient
        self.total = self.young = 0.0
        self._followed = False  # whether `gradient` is that of `a`
        self._start = self.res

    @property
    def strayed(self) -> bool:
        """Whether residuals have moved so far that inactive rows may become active."""
        if not np.isfinite(self.reach):
            return False
        return bool(np.max(np.abs(self.res - self._start)) > self.reach)

    @property
    def held(self) -> float:
        """Weight of the rows strictly between kinks."""
        return float(self.problem.weights @ self.inside)

    def spread(self, a: NDArray) -> NDArray:
        """Return the dual point of all rows, `a` that of the round's beginning."""
        if self.rows is None:
            return self.a
        out = a.copy()
        out[self.rows] = self.a
        return out

    def evaluate(self, sigma: float) -> None:
        """Move the dual point to the current residuals; refresh sums and gradient."""
        before, p = self.a, self.problem
        self.a, self.inside, total, young = p.rows.point(
            self.res, p.weights, self.center, sigma
        )
        self.total, self.young = self.rest_total + total, self.rest_young + young
        self.gradient = self._follow(before)
        self._followed = True

    def _follow(self, before: NDArray) -> NDArray:
        """Return the gradient for the new dual point."""
        design, pushed = self.problem.design, self._pushed(self.a)
        if self._followed:
            change = pushed - self._pushed(before)
            rows = np.flatnonzero(change)
            if len(rows) < _FEW_CHANGES * len(change):
                return self.gradient + design.rmv(change[rows], rows)
        return self.rest_gradient + design.rmv(pushed)

    def _pushed(self, a: NDArray) -> NDArray:
        """Return s a, which may be `a` itself."""
        return a if self.problem.uniform else self.problem.weights * a

    def select(self, sigma: float, reach: float) -> "ActiveRows":
        """Return the rows that a move of `reach` brings to a kink, if they are few.

        Call it on all rows, evaluated at the same sigma.
        """
        if not np.isfinite(reach):
            return self
        distance = self.problem.rows.kink_distance(self.res, self.center, sigma)
        distance[:: max(1, len(distance) // _GUARDS)] = 0.0
        rows = np.flatnonzero(distance < reach)
        if len(rows) > _MANY_ROWS * len(distance):
            return self
        part = self.problem.take(rows)
        pushed = part.weights * self.a[rows]
        rest = self.gradient - part.design.rmv(pushed)
        few = ActiveRows(
            part, rows, self.res[rows], self.center[rows], rest,
            self.total - float(pushed.sum()), reach=reach,
        )  # fmt: skip
        few.gradient, few.a, few._followed = self.gradient, self.a[rows], True
        few.evaluate(sigma)
        few.rest_young = max(self.young - few.young, 0.0)
        few.young += few.rest_young
        return few


def all_rows(problem: ScalarProblem, res: NDArray, center: NDArray) -> ActiveRows:
    """Return every row of the problem as active."""
    return ActiveRows(problem, None, res, center, np.zeros(problem.rank))
