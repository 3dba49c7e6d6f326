"""Rows of a scalar problem that stay with a block of features, and their sums.

A part holds the numbers of the rows of one block: targets, residuals, dual point. The
functions of a step take the block Z and the part; they return a new part, for parts are
never changed, and a tuple of sums, which are all that leaves the block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nbsketch.losses import Loss
from nbsketch.solvers._certified.gram import gram_of
from nbsketch.solvers._scalar.problem import ScalarProblem
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.row_loss import row_loss


class Shared(NamedTuple):
    """What the parts of a problem share."""

    loss: Loss
    alpha: float
    fit_intercept: bool
    n: float
    rank: int


class Shift(NamedTuple):
    """How a dual point is balanced: along its pace, then along ones."""

    paced: float = 0.0
    even: float = 0.0


class _NoFeatures(Design):
    """The shape of features that are elsewhere."""

    dtype = np.dtype(float)

    def __init__(self, n: int, rank: int) -> None:
        self.shape = n, rank


@dataclass(frozen=True)
class Part:
    """Rows of one block.

    Attributes
    ----------
    problem : ScalarProblem
        The rows, without features.
    point : ndarray
        Residuals.
    center : ndarray
        Dual point around which the loss is smoothed.
    a, pace : ndarray
        Dual point, and how fast balancing may move it.
    counted : ndarray of bool
        Rows of the last Gram matrix.
    move : ndarray
        Change of the predictions along the last direction.
    """

    problem: ScalarProblem
    point: NDArray
    center: NDArray
    a: NDArray
    pace: NDArray
    counted: NDArray
    move: NDArray

    @classmethod
    def of(
        cls, y: NDArray, weights: NDArray | None, dual: NDArray | None, shared: Shared
    ) -> Self:
        """Return the rows as a search begins."""
        rows = row_loss(shared.loss, y)
        problem = ScalarProblem(
            design=_NoFeatures(len(y), shared.rank), y=y,
            weights=np.ones(len(y)) if weights is None else weights,
            uniform=weights is None, loss=shared.loss, rows=rows, alpha=shared.alpha,
            fit_intercept=shared.fit_intercept, n=shared.n,
        )  # fmt: skip
        start = rows.clip(np.zeros(len(y)) if dual is None else dual)
        nothing, none = np.empty(0), np.zeros(len(y), dtype=bool)
        return cls(problem, nothing, start, start, none, none, nothing)

    def balanced(self, shift: Shift) -> NDArray:
        """Return the dual point, shifted within its bounds."""
        rows, a = self.problem.rows, self.a
        if shift.paced:
            a = rows.clip(a - shift.paced * self.pace)
        return rows.clip(a - shift.even) if shift.even else a

    def losses(self) -> NDArray:
        """Return the loss of each row."""
        return self.problem.rows.values(self.point)

    def slopes(self, t: float, sigma: float) -> tuple[float, float]:
        """Return two derivatives of the loss sum along the last direction."""
        p = self.problem
        known = self.point, self.move, p.weights, self.center, sigma
        return p.rows.slopes(t, *known)


def evaluated(
    Z: NDArray,
    part: Part,
    coef: NDArray,
    intercept: float,
    sigma: float,
    recenter: bool,
) -> tuple[Part, tuple]:
    """Return the part at a point; sums: ``Z^T (s a)``, s a, Young terms, counts.

    The counts are the sum of the curvatures and, of a loss with kinks, the number of
    rows between them and of those that have changed since the last Gram matrix.
    """
    p, design = part.problem, ArrayDesign._trusted(Z)
    center = part.a if recenter else part.center
    res = p.y - design.mv(coef) - intercept
    a, inside, total, young = p.rows.point(res, p.weights, center, sigma)
    gradient = design.rmv(p.weights * a)
    changed = np.count_nonzero(inside != part.counted)
    counts = float(p.weights @ inside), np.count_nonzero(inside), changed
    new = replace(part, point=res, center=center, a=a, pace=inside, move=np.empty(0))
    return new, (gradient, total, young, *counts)


def gram_changes(
    Z: NDArray, part: Part, whole: bool, exact: bool
) -> tuple[Part, tuple]:
    """Return the part with its rows between kinks counted; the Gram matrix to add."""
    p, inside = _with_features(Z, part), part.pace
    if whole:
        found = gram_of(p, np.flatnonzero(inside), exact)
        return replace(part, counted=inside), (found,)
    entering = np.flatnonzero(inside & ~part.counted)
    leaving = np.flatnonzero(part.counted & ~inside)
    found = gram_of(p, entering, exact) - gram_of(p, leaving, exact)
    return replace(part, counted=inside), (found,)


def moved(
    Z: NDArray, part: Part, direction: NDArray, shift: float, sigma: float
) -> tuple[Part, tuple]:
    """Return the part with its move along a direction; two slopes at step 1."""
    new = replace(part, move=ArrayDesign._trusted(Z).mv(direction) + shift)
    return new, new.slopes(1.0, sigma)


def slopes(part: Part, t: float, sigma: float) -> tuple[float, float]:
    """Return two slopes at a step."""
    return part.slopes(t, sigma)


def hessian(Z: NDArray, part: Part) -> tuple:
    """Return the Gram matrix of the curvatures, its edge and its corner."""
    p, design = part.problem, ArrayDesign._trusted(Z)
    weights = p.weights * part.pace
    gram = design.gram(weights=weights, exact=False)
    return gram, design.rmv(weights), float(weights.sum())


def hessian_product(Z: NDArray, part: Part, direction: NDArray, shift: float) -> tuple:
    """Return the sums of the curvatures times the predictions of a direction."""
    p, design = part.problem, ArrayDesign._trusted(Z)
    push = p.weights * part.pace * (design.mv(direction) + shift)
    return design.rmv(push), float(push.sum())


def balance_sums(part: Part, shift: Shift, even: bool) -> tuple:
    """Return sums of the shifted dual point, and how fast it can go down and up."""
    p, a = part.problem, part.balanced(shift)
    pace = np.ones(len(a)) if even else part.pace
    down, up = (p.weights @ (pace * room) for room in (a > p.rows.lo, a < p.rows.hi))
    return float(p.weights @ a), float(p.weights @ np.abs(a)), float(down), float(up)


def positive_losses(part: Part, every: int) -> NDArray:
    """Return the positive losses among every k-th row."""
    counted = part.problem.weights[::every] > 0
    losses = part.losses()[::every]
    return losses[counted & (losses > 0)]


def certified(
    Z: NDArray, part: Part, shift: Shift, limit: float
) -> tuple[NDArray, tuple]:
    """Return the balanced dual point, and the sums of its certificate.

    These are the change of ``Z^T (s a)``, Young terms, losses, losses cut at `limit`,
    and s a.
    """
    p, a, losses = part.problem, part.balanced(shift), part.losses()
    rows = np.flatnonzero(a != part.a)
    step = p.weights[rows] * (a[rows] - part.a[rows])
    change = ArrayDesign._trusted(Z).rmv(step, rows)
    capped = float(p.weights @ np.minimum(losses, limit))
    young = p.rows.young(part.point, p.weights, a)
    sums = young, float(p.weights @ losses), capped, float(p.weights @ a)
    return a, (change, *sums)


def _with_features(Z: NDArray, part: Part) -> ScalarProblem:
    design: Any = ArrayDesign._trusted(Z)
    return replace(part.problem, design=design)
