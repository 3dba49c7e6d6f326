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
from scipy.special import kl_div

from nbsketch._jit.logistic import logistic_point, logistic_slope
from nbsketch.losses import ELQ
from nbsketch.solvers._certified.gram import gram_of
from nbsketch.solvers._scalar.problem import ScalarProblem, row_bounds
from nbsketch.solvers.design import ArrayDesign, Design


class Shared(NamedTuple):
    """What the parts of a problem share."""

    numbers: ELQ
    turned: bool  # whether bounds are turned by the sign of the target
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
        Residuals for losses with kinks, predictions for the logistic loss.
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
        lo, hi = row_bounds(shared.numbers, y, shared.turned)
        problem = ScalarProblem(
            design=_NoFeatures(len(y), shared.rank), y=y,
            weights=np.ones(len(y)) if weights is None else weights,
            uniform=weights is None, lo=lo, hi=hi, numbers=shared.numbers,
            turned=shared.turned, alpha=shared.alpha,
            fit_intercept=shared.fit_intercept, n=shared.n,
        )  # fmt: skip
        start = np.clip(np.zeros(len(y)) if dual is None else dual, lo, hi)
        nothing, none = np.empty(0), np.zeros(len(y), dtype=bool)
        return cls(problem, nothing, start, start, none, none, nothing)

    def balanced(self, shift: Shift) -> NDArray:
        """Return the dual point, shifted within its bounds."""
        p, a = self.problem, self.a
        if shift.paced:
            a = np.clip(a - shift.paced * self.pace, p.lo, p.hi)
        return np.clip(a - shift.even, p.lo, p.hi) if shift.even else a

    def losses(self) -> NDArray:
        """Return the loss of each row."""
        return self.problem.losses(self.point)

    def young(self, a: NDArray) -> float:
        """Return the sum of the Fenchel-Young terms of another dual point."""
        return self.problem.young_sum(self.point, a)

    def slopes(self, t: float, sigma: float) -> tuple[float, float]:
        """Return two derivatives of the loss sum along the last direction."""
        known = self.point, self.move, self.center, sigma
        return self.problem.slopes(t, *known)


class LogisticPart(Part):
    """Rows of the logistic loss; `pace` is the curvature."""

    def losses(self) -> NDArray:
        """Return the loss of each row."""
        return np.logaddexp(0.0, -self.problem.y * self.point)

    def young(self, a: NDArray) -> float:
        """Return the sum of the Fenchel-Young terms of another dual point."""
        p = self.problem
        error, shifted = p.y * self.a, p.y * a
        terms = kl_div(shifted, error) + kl_div(1 - shifted, 1 - error)
        return float(p.weights @ terms)

    def slopes(self, t: float, sigma: float) -> tuple[float, float]:
        """Return two derivatives of the loss sum along the last direction."""
        p = self.problem
        return logistic_slope(t, self.point, self.move, p.y, p.weights)


def evaluated(
    Z: NDArray,
    part: Part,
    coef: NDArray,
    intercept: float,
    sigma: float,
    recenter: bool,
) -> tuple[Part, tuple]:
    """Return the part at a point; sums: ``Z^T (s a)``, s a, Young terms, counts.

    The counts are the weight and the number of rows between kinks, and how many of them
    have changed since the last Gram matrix.
    """
    p, design = part.problem, ArrayDesign._trusted(Z)
    center = part.a if recenter else part.center
    res = p.y - design.mv(coef) - intercept
    a, inside = np.empty(len(res)), np.empty(len(res), dtype=bool)
    total, young = p.dual_point(res, center, sigma, a, inside)
    gradient = design.rmv(p.weights * a)
    changed = np.count_nonzero(inside != part.counted)
    counts = float(p.weights @ inside), np.count_nonzero(inside), changed
    new = replace(part, point=res, center=center, a=a, pace=inside, move=np.empty(0))
    return new, (gradient, total, young, *counts)


def logistic_evaluated(
    Z: NDArray, part: Part, coef: NDArray, intercept: float
) -> tuple[Part, tuple]:
    """Return the part at a point; sums: ``Z^T (s a)``, s a, and the curvature."""
    p, design = part.problem, ArrayDesign._trusted(Z)
    f = design.mv(coef) + intercept
    a, curvature = np.empty_like(f), np.empty_like(f)
    logistic_point(f, p.y, a, curvature)
    push = p.weights * a
    sums = design.rmv(push), float(push.sum()), float(p.weights @ curvature)
    return replace(part, point=f, a=a, pace=curvature, move=np.empty(0)), sums


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
    down, up = (p.weights @ (pace * room) for room in (a > p.lo, a < p.hi))
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
    sums = part.young(a), float(p.weights @ losses), capped, float(p.weights @ a)
    return a, (change, *sums)


def _with_features(Z: NDArray, part: Part) -> ScalarProblem:
    design: Any = ArrayDesign._trusted(Z)
    return replace(part.problem, design=design)
