"""Rows of a problem of one term that stay with a block of features, and their sums.

A part holds the numbers of the rows of one block: targets, residuals, dual point. The
functions of a step take the block Z and the part; they return a new part, for parts are
never changed, and a tuple of sums, which are all that leaves the block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._certified.problem import gram_of
from nbsketch.solvers._newton.problem import NewtonProblem
from nbsketch.solvers.design import ArrayDesign
from nbsketch.solvers.row_loss import row_loss


class Shift(NamedTuple):
    """How a dual point is balanced: along its rates, then along ones."""

    rated: float = 0.0
    even: float = 0.0


@dataclass(frozen=True)
class Part:
    """Rows of one block; arrays over them are (1, rows).

    Attributes
    ----------
    problem : NewtonProblem
        The rows, without features.
    res : ndarray
        Residuals.
    center : ndarray
        Dual point around which the loss is smoothed.
    a, rate : ndarray
        Dual point, and how fast balancing may move it.
    counted : ndarray of bool
        Rows of the last Gram matrix.
    move : ndarray
        Change of the predictions along the last direction.
    """

    problem: NewtonProblem
    res: NDArray
    center: NDArray
    a: NDArray
    rate: NDArray
    counted: NDArray
    move: NDArray

    @classmethod
    def of(
        cls,
        y: NDArray,
        weights: NDArray | None,
        dual: NDArray | None,
        shared: NewtonProblem,
    ) -> Self:
        """Return the rows as a search begins; `shared` is the problem without rows."""
        assert shared.loss is not None
        problem = replace(
            shared, y=y, losses=row_loss(shared.loss, y), uniform=weights is None,
            weights=np.ones(len(y)) if weights is None else weights,
        )  # fmt: skip
        start = np.zeros(len(y)) if dual is None else dual
        start = np.clip(start.reshape(1, -1), *problem.bounds)
        nothing, none = np.empty((1, 0)), np.zeros(start.shape, dtype=bool)
        return cls(problem, nothing, start, start, none, none, nothing)

    def balanced(self, shift: Shift) -> NDArray:
        """Return the dual point, shifted within its bounds."""
        bounds, a = self.problem.bounds, self.a
        if shift.rated:
            a = np.clip(a - shift.rated * self.rate, *bounds)
        return np.clip(a - shift.even, *bounds) if shift.even else a

    def values(self) -> NDArray:
        """Return the loss of each row."""
        return self.problem.losses.values(self.res[0])

    def slopes(self, t: float, sigma: float) -> tuple[float, float]:
        """Return two derivatives of the loss sum along the last direction."""
        p, center = self.problem, self.center[0]
        return p.losses.slopes(t, self.res[0], self.move[0], p.weights, center, sigma)

    def with_features(self, Z: NDArray) -> NewtonProblem:
        """Return the problem of the rows, with features."""
        return replace(self.problem, design=ArrayDesign._trusted(Z))


def evaluated(
    Z: NDArray,
    part: Part,
    coef: NDArray,
    intercept: NDArray,
    sigma: float,
    recenter: bool,
) -> tuple[Part, tuple]:
    """Return the part at a point; sums: ``Z^T (s a)^T``, s a, Young terms, counts.

    The counts are the sum of the curvatures and, of a loss with kinks, the number of
    rows between them and of those that have changed since the last Gram matrix.
    """
    p, center = part.with_features(Z), part.a if recenter else part.center
    res = p.residual(coef, intercept)
    a, inside, totals, young = p.point(res, center, sigma)
    gradient = p.design.rmv(p.weighted(a).T)
    changed = np.count_nonzero(inside != part.counted)
    counts = inside @ p.weights, np.count_nonzero(inside), changed
    new = replace(part, res=res, center=center, a=a, rate=inside, move=np.empty((1, 0)))
    return new, (gradient, totals, young, *counts)


def gram_changes(
    Z: NDArray, part: Part, whole: bool, exact: bool
) -> tuple[Part, tuple]:
    """Return the part with its rows between kinks counted; the Gram matrix to add."""
    p, inside, counted = part.with_features(Z), part.rate[0], part.counted[0]
    gram = gram_of(p, np.flatnonzero(inside if whole else inside & ~counted), exact)
    if not whole:
        gram -= gram_of(p, np.flatnonzero(counted & ~inside), exact)
    return replace(part, counted=part.rate), (gram,)


def moved(
    Z: NDArray, part: Part, D: NDArray, shift: NDArray, sigma: float
) -> tuple[Part, tuple]:
    """Return the part with its move along a direction; two slopes at step 1."""
    new = replace(part, move=part.with_features(Z).predict(D, shift))
    return new, new.slopes(1.0, sigma)


def slopes(part: Part, t: float, sigma: float) -> tuple[float, float]:
    """Return two slopes at a step."""
    return part.slopes(t, sigma)


def curvature_sums(Z: NDArray, part: Part) -> tuple:
    """Return the Gram matrix of the curvatures, its edge and its corner."""
    design, weights = ArrayDesign._trusted(Z), part.problem.weights * part.rate[0]
    gram = design.gram(weights=weights, exact=False)
    return gram, design.rmv(weights), float(weights.sum())


def hessian_product(Z: NDArray, part: Part, D: NDArray, shift: NDArray) -> tuple:
    """Return the sums of the curvatures times the predictions of a direction."""
    p = part.with_features(Z)
    change = p.weights * part.rate * p.predict(D, shift)
    return p.design.rmv(change.T), change.sum(axis=1)


def balance_sums(part: Part, shift: Shift, even: bool) -> tuple:
    """Return sums of the shifted dual point, and how fast it can go down and up."""
    p, a, (lo, hi) = part.problem, part.balanced(shift)[0], part.problem.bounds
    rate = np.ones(len(a)) if even else part.rate[0]
    down, up = (p.weights @ (rate * room) for room in (a > lo[0], a < hi[0]))
    return float(p.weights @ a), float(p.weights @ np.abs(a)), float(down), float(up)


def positive_losses(part: Part, every: int) -> tuple[list[NDArray]]:
    """Return a list of the positive losses among every k-th row."""
    counted = part.problem.weights[::every] > 0
    losses = part.values()[::every]
    return ([losses[counted & (losses > 0)]],)


def certified(
    Z: NDArray, part: Part, shift: Shift, limit: float
) -> tuple[NDArray, tuple]:
    """Return the balanced dual point, and the sums of its certificate.

    These are the change of ``Z^T (s a)^T``, Young terms, losses, losses cut at `limit`,
    and s a.
    """
    p, a, losses = part.with_features(Z), part.balanced(shift), part.values()
    rows = np.flatnonzero(a[0] != part.a[0])
    step = p.weights[rows] * (a[:, rows] - part.a[:, rows])
    change = p.design.rmv(step.T, rows)
    capped = float(p.weights @ np.minimum(losses, limit))
    sums = p.young(part.res, a), float(p.weights @ losses), capped, a @ p.weights
    return a[0], (change, *sums)
