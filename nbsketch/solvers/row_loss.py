r"""Losses of n rows in the form used by the certified solvers.

A row loss is a convex function :math:`\psi_i` of the residual r = y - f of each row,
with a conjugate that is finite on [lo_i, hi_i]. It defines values, dual points,
curvatures and Fenchel-Young terms, and solvers use nothing else: a new kind of loss is
a class in `nbsketch.losses` and one here. A loss of 1 - y f is a loss of y - f with
bounds multiplied by the sign of y, so no features are multiplied by labels.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, kl_div

from nbsketch._jit import losses as jit
from nbsketch.losses import ELQ, GammaLoss, LogisticLoss, Loss, PoissonLoss

# Losses and residuals above this multiple of the median are truncated in their means.
_OUTLYING = 20.0
# Number of losses whose median is computed.
_SAMPLED = 2048
# Maximum exponent of a mean, so that products with zero weights are not NaN.
_LARGEST = 500.0


class RowPoint(NamedTuple):
    """The derivatives of the smoothed loss at residuals, and two sums.

    Attributes
    ----------
    a : ndarray of shape (n,) or (m, n)
        Dual point: the first derivatives.
    curvature : ndarray of the same shape
        Second derivatives times ``gam + sigma``. For a loss with kinks, whether a row
        is strictly between them.
    total, young : float
        Weighted sums of a and of the Fenchel-Young terms.
    """

    a: NDArray
    curvature: NDArray
    total: float
    young: float


@dataclass(frozen=True)
class RowLoss:
    """Extended linear-quadratic losses: see `nbsketch.losses` for the four numbers.

    Residuals, weights and dual points have the shape of the bounds.

    Attributes
    ----------
    lo, hi : ndarray of shape (n,), or (m, n) for m losses per row
        Bounds of the dual point.
    gam, eps : float
        Curvature of the conjugate, and its slope at zero.
    has_kinks : bool
        Class attribute: the loss is piecewise quadratic, and can be smoothed.
    """

    has_kinks = True

    lo: NDArray
    hi: NDArray
    gam: float = 0.0
    eps: float = 0.0

    def take(self, index: Any) -> Self:
        """Return the losses at an index of the bounds."""
        lo = np.ascontiguousarray(self.lo[index])
        return replace(self, lo=lo, hi=np.ascontiguousarray(self.hi[index]))

    def clip(self, a: NDArray) -> NDArray:
        """Return a dual point clipped to the bounds."""
        return np.clip(a, self.lo, self.hi)

    def between(self, a: NDArray) -> NDArray:
        """Return the rows whose dual point is strictly between kinks."""
        inside = (a > self.lo) & (a < self.hi)
        return inside & (a != 0.0) if self.eps > 0 else inside

    @property
    def steepest(self) -> float:
        """The largest slope of a smooth loss; 1 for the others."""
        return max(float(self.hi.max()), -float(self.lo.min())) if self.gam > 0 else 1.0

    def point(
        self, res: NDArray, weights: NDArray, center: NDArray, sigma: float
    ) -> RowPoint:
        """Return the dual point of the loss smoothed by sigma around a center."""
        a = np.empty(res.shape)
        inside = np.empty(res.shape, dtype=bool)
        sums = jit.dual_point(
            res.ravel(),
            weights.ravel(),
            center.ravel(),
            *self._numbers,
            sigma,
            a.ravel(),
            inside.ravel(),
        )
        return RowPoint(a, inside, *sums)

    def slopes(
        self,
        t: float,
        res: NDArray,
        move: NDArray,
        weights: NDArray,
        center: NDArray,
        sigma: float,
    ) -> tuple[float, float]:
        """Return two derivatives of the smoothed loss sum at ``res - t move``."""
        return jit.slope_along(
            t,
            res.ravel(),
            move.ravel(),
            weights.ravel(),
            center.ravel(),
            *self._numbers,
            sigma,
        )

    def values(self, res: NDArray) -> NDArray:
        """Return the losses."""
        numbers: Any = self.gam, self.eps, self.lo, self.hi
        return ELQ(*numbers).value(res)

    def young(self, res: NDArray, weights: NDArray, a: NDArray) -> float:
        """Return ``sum_i s_i (psi_i(r_i) + psi_i*(a_i) - a_i r_i)``, term by term."""
        return jit.young_sum(res.ravel(), weights.ravel(), a.ravel(), *self._numbers)

    def kink_distance(self, res: NDArray, center: NDArray, sigma: float) -> NDArray:
        """Return the distance of each residual before its dual point changes.

        0 strictly between kinks; the bounds must be finite.
        """
        v = res + sigma * center
        x = v - np.clip(v, -self.eps, self.eps)
        width = self.gam + sigma
        beyond = np.maximum(x - self.hi * width, self.lo * width - x)
        return np.maximum(np.maximum(beyond, 0.0), self.eps - np.abs(v))

    @property
    def _numbers(self) -> tuple[Any, Any, float, float]:
        return self.lo.ravel(), self.hi.ravel(), self.gam, self.eps


class DevianceRows(RowLoss):
    """Half deviances ``t log(t / m) - t + m`` of a positive m; no smoothing needed.

    The dual point is ``sign (m - t)``, the curvature m = exp(sign (r - r0)) unless a
    subclass overrides it; Fenchel-Young terms are divergences of the same form.

    Attributes
    ----------
    sign : float or ndarray of shape (n,)
        Direction in which m grows with the residual.
    """

    has_kinks = False
    numbers: ClassVar[ELQ]
    sign: Any

    @property
    @abstractmethod
    def goals(self) -> Any:
        """The numbers t, at which the losses are zero."""

    @abstractmethod
    def means(self, res: NDArray) -> NDArray:
        """Return the numbers m."""

    def curvatures(self, means: NDArray) -> NDArray:
        """Return the curvatures at numbers m."""
        return means

    def point(
        self, res: NDArray, weights: NDArray, center: NDArray, sigma: float
    ) -> RowPoint:
        """Return the dual point and the curvature."""
        means = self.means(res)
        a = self.sign * (means - self.goals)
        return RowPoint(a, self.curvatures(means), float(np.vdot(weights, a)), 0.0)

    def slopes(
        self,
        t: float,
        res: NDArray,
        move: NDArray,
        weights: NDArray,
        center: NDArray,
        sigma: float,
    ) -> tuple[float, float]:
        """Return two derivatives of the loss sum at ``res - t move``."""
        a, curvature, *_ = self.point(res - t * move, weights, center, sigma)
        change = weights * move
        return -float(np.vdot(change, a)), float(np.vdot(change * move, curvature))

    def values(self, res: NDArray) -> NDArray:
        """Return the losses."""
        return kl_div(self.goals, self.means(res))

    def young(self, res: NDArray, weights: NDArray, a: NDArray) -> float:
        """Return the weighted sum of the Fenchel-Young terms."""
        terms = kl_div(self.goals + self.sign * a, self.means(res))
        return float(np.vdot(weights, terms))


class LogisticRows(DevianceRows):
    """The logistic loss, where m is the probability of the other class."""

    numbers = ELQ(1.0, 0.0, 0.0, 1.0)
    goals = 0.0

    @cached_property
    def sign(self) -> NDArray:
        """The labels -1 and 1: one bound is 0, the other one the label."""
        return self.lo + self.hi

    def means(self, res: NDArray) -> NDArray:
        """Return the probabilities ``1 / (1 + exp(y f))`` for the label y = sign."""
        return expit(self.sign * res - 1.0)

    def curvatures(self, means: NDArray) -> NDArray:
        """Return the curvatures m (1 - m)."""
        return means * (1.0 - means)

    def values(self, res: NDArray) -> NDArray:
        """Return the losses."""
        return np.logaddexp(0.0, self.sign * res - 1.0)

    def young(self, res: NDArray, weights: NDArray, a: NDArray) -> float:
        """Return the weighted sum of the Fenchel-Young terms, of both classes."""
        same = kl_div(1.0 - self.sign * a, 1.0 - self.means(res))
        return super().young(res, weights, a) + float(np.vdot(weights, same))


class PoissonRows(DevianceRows):
    """The Poisson loss; its targets, the upper bounds, are linked to log(y + 1/2)."""

    numbers = ELQ(1.0, 0.0, -np.inf, np.inf)
    sign = -1.0

    @property
    def goals(self) -> NDArray:
        """The targets."""
        return self.hi

    def means(self, res: NDArray) -> NDArray:
        """Return the means exp(f)."""
        return (self.hi + 0.5) * np.exp(np.minimum(-res, _LARGEST))


class GammaRows(DevianceRows):
    """The gamma loss, of ratios m of targets and means."""

    numbers = ELQ(1.0, 0.0, -1.0, np.inf)
    sign = 1.0
    goals = 1.0  # the ratio of a perfect mean

    def means(self, res: NDArray) -> NDArray:
        """Return the ratios y / exp(f)."""
        return np.exp(np.minimum(res, _LARGEST))


# Losses that are not linear-quadratic.
_KINDS: dict[type[Loss], Any] = {
    LogisticLoss: LogisticRows,
    PoissonLoss: PoissonRows,
    GammaLoss: GammaRows,
}


def has_row_loss(loss: Loss) -> bool:
    """Return whether `row_loss` supports a loss; else `solve_generic` may."""
    return type(loss) in _KINDS or loss.elq is not None


def conjugate_numbers(loss: Loss) -> ELQ:
    """Return curvature, slope and bounds of the conjugate, or raise `TypeError`."""
    kind = _KINDS.get(type(loss))
    return loss.linear_quadratic() if kind is None else kind.numbers


def row_loss(loss: Loss, y: NDArray) -> RowLoss:
    """Return the losses of rows with targets (or labels) y; ``link(y)`` for a mean."""
    gam, eps, least, most = conjugate_numbers(loss)
    is_negative = (y <= 0) & loss.is_classification
    lo = np.where(is_negative, -most, least)
    hi = np.where(is_negative, -least, most)
    if isinstance(loss, PoissonLoss):
        hi = loss.targets(y)
    return _KINDS.get(type(loss), RowLoss)(lo, hi, gam, eps)


def pinball_rows(levels: NDArray, n: int, ordered: bool = False) -> RowLoss:
    """Return the losses (m, n): those of levels, then those of gaps if `ordered`."""
    gaps = np.zeros(len(levels) - 1 if ordered else 0)
    lo = np.append(levels - 1.0, gaps - np.inf)
    hi = np.append(levels, gaps)
    return RowLoss(np.tile(lo[:, None], n), np.tile(hi[:, None], n))


def typical_limit(positive: NDArray) -> float:
    """Return the limit of losses or residuals that are not outliers."""
    return _OUTLYING * float(np.median(positive)) if len(positive) else np.inf


def typical_mean(positive: NDArray) -> float:
    """Return the mean of positive numbers with outliers truncated."""
    return float(np.minimum(positive, typical_limit(positive)).mean())


def loss_sums(losses: NDArray, weights: NDArray) -> tuple[float, float]:
    """Return the weighted sums of losses, and of losses with outliers truncated.

    A gap relative to an objective dominated by outliers would be loose for other rows.
    """
    sample = np.s_[:: max(1, len(losses) // _SAMPLED)]
    positive = losses[sample][(losses[sample] > 0) & (weights[sample] > 0)]
    typical = np.minimum(losses, typical_limit(positive))
    return float(weights @ losses), float(weights @ typical)


def balance(
    a: NDArray,
    weights: NDArray,
    lo: NDArray,
    hi: NDArray,
    rate: NDArray,
    goal: float = 0.0,
) -> NDArray:
    """Return a shifted along `rate`, within its bounds, to the weighted sum `goal`.

    A dual point must have this sum if there is an intercept. If the rows with a
    positive rate cannot absorb the shift, all rows share the remainder.
    """
    for shared in (False, True):
        direction = np.ones(len(a), bool) if shared else rate
        for _ in range(20):
            total = weights @ a - goal
            if abs(total) <= 1e-15 * (weights @ np.abs(a)):
                return a
            room = np.where(total > 0, a > lo, a < hi)
            rate = weights @ (direction * room)
            if rate <= 0:
                break
            moved = total / rate * direction
            a = np.clip(np.subtract(a, moved, out=moved), lo, hi, out=moved)
    return a
