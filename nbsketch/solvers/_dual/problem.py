r"""A problem in the dual coefficients of a kernel matrix, and its certificate.

.. math:: \min_{c, b} \frac1n \sum_i s_i \psi_i(y_i - (K c)_i - b_{j(i)})
          + \frac{\alpha}{2} c^\top K c, \qquad n \alpha c = s \circ a

at the optimum, with a dual point a within the bounds of the conjugate. Each output j
has an intercept; the entries of an output are contiguous. For any such a with
:math:`\sum_{i \in j} s_i a_i = 0` for each output, and
:math:`f = K (s \circ a) / (n \alpha)`, the duality gap is a sum of Fenchel-Young
terms: no inverse of K is in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import kl_div

from nbsketch._jit.linear_quadratic import (
    dual_point,
    loss_values,
    slope_along,
    young_sum,
)
from nbsketch._jit.logistic import logistic_point, logistic_slope
from nbsketch.solvers._certified.certificate import balance, typical_loss

# Rows of the logistic loss with a smaller curvature count as linear.
_FLAT = 1e-10
# Losses below this share of the largest one are rounding, and do not count as typical.
_NOTHING = 1e-9


class Point(NamedTuple):
    """What residuals say of the (smoothed) loss."""

    a: NDArray  # (n,), dual point
    curvature: NDArray  # (n,), weighted second derivative times the smoothness
    smoothness: float  # gam + sigma; 1 for the logistic loss
    young: float  # mean of the Fenchel-Young terms: what smoothing costs


class Certificate(NamedTuple):
    """A dual point, an intercept, and the gap that they certify."""

    a: NDArray
    intercept: NDArray  # (d,)
    objective: float
    gap: float
    noise: float  # what rounding of the kernel values adds to the gap
    scale: float  # what the gap is compared with

    @property
    def relative_gap(self) -> float:
        """The whole gap over its scale, 0 where both are."""
        whole = self.gap + self.noise
        if whole == 0:
            return 0.0
        return whole / self.scale if self.scale > 0 else np.inf


@dataclass(frozen=True, kw_only=True)
class DualProblem:
    """Entries of one output or several; see `nbsketch.losses` for gam, eps, lo, hi."""

    has_kinks: ClassVar[bool] = True

    y: NDArray
    weights: NDArray
    lo: NDArray
    hi: NDArray
    gam: float
    eps: float
    alpha: float
    fit_intercept: bool
    outputs: int = 1

    @property
    def n(self) -> int:
        """Number of entries."""
        return len(self.y)

    @property
    def shift(self) -> float:
        """Lambda = n alpha."""
        return self.n * self.alpha

    def spread(self, b: NDArray) -> NDArray:
        """Return the entry of b (d,) that belongs to each entry of the problem."""
        return np.repeat(b, self.n // self.outputs)

    def totals(self, v: NDArray) -> NDArray:
        """Return the sum of v over the entries of each output."""
        return v.reshape(self.outputs, -1).sum(axis=1)

    def output(self, j: int) -> tuple[slice, Self]:
        """Return the entries of an output, and the problem of these alone."""
        size = self.n // self.outputs
        some = slice(j * size, (j + 1) * size)
        names = "y", "weights", "lo", "hi"
        parts: dict[str, Any] = {name: getattr(self, name)[some] for name in names}
        return some, replace(self, **parts, outputs=1)

    def point(self, res: NDArray, sigma: float, center: NDArray) -> Point:
        """Return the dual point of the loss smoothed by sigma around a center."""
        a, inside = np.empty(self.n), np.empty(self.n, dtype=bool)
        _, young = dual_point(
            res, self.weights, center, self.lo, self.hi, self.gam, self.eps, sigma,
            a, inside,
        )  # fmt: skip
        return Point(a, self.weights * inside, self.gam + sigma, young / self.n)

    def slopes(
        self, t: float, res: NDArray, move: NDArray, sigma: float, center: NDArray
    ) -> tuple[float, float]:
        """Return two derivatives of the smoothed loss sum at ``res - t move``."""
        return slope_along(
            t, res, move, self.weights, center, self.lo, self.hi, self.gam, self.eps,
            sigma,
        )  # fmt: skip

    def losses(self, res: NDArray) -> NDArray:
        """Return the loss of each row."""
        out = np.empty(self.n)
        loss_values(res, self.lo, self.hi, self.gam, self.eps, out)
        return out

    def young(self, res: NDArray, a: NDArray) -> float:
        """Return the weighted sum of the Fenchel-Young terms of a and residuals."""
        numbers = self.lo, self.hi, self.gam, self.eps
        return float(young_sum(res, self.weights, a, *numbers))

    def feasible(self, c: NDArray) -> NDArray:
        """Return a balanced dual point within the bounds, near n alpha c / s."""
        a = np.clip(self.ratio(c), self.lo, self.hi)
        if not self.fit_intercept:
            return a
        for j in range(self.outputs):
            some, p = self.output(j)
            inside = (a[some] > p.lo) & (a[some] < p.hi) & (a[some] != 0)
            a[some] = balance(a[some], p.weights, p.lo, p.hi, inside.astype(float))
        return a

    def ratio(self, c: NDArray) -> NDArray:
        """Return n alpha c / s, 0 for rows of weight zero."""
        return np.divide(
            self.shift * c, self.weights, out=np.zeros(self.n), where=self.weights > 0
        )

    def coefficients(self, a: NDArray) -> NDArray:
        """Return c of a dual point."""
        return self.weights * a / self.shift

    def intercept(
        self,
        res: NDArray,
        start: NDArray,
        sigma: float = 0.0,
        center: NDArray | None = None,
    ) -> NDArray:
        """Return the intercepts (d,) that are best for residuals without them."""
        b, around = np.zeros(self.outputs), np.zeros(self.n)
        if center is not None:
            around = center
        for j in range(self.outputs * self.fit_intercept):
            some, part = self.output(j)
            b[j] = part._constant(res[some], float(start[j]), sigma, around[some])
        return b

    def _constant(
        self, res: NDArray, start: float, sigma: float, center: NDArray
    ) -> float:
        ones = np.ones(self.n)

        def slope(b: float) -> float:
            return self.slopes(b, res, ones, sigma, center)[0]

        return _root(slope, start, 1e-3 * (1e-300 + float(np.abs(res - start).mean())))

    def certify(
        self, a: NDArray, fitted: NDArray, start: NDArray, error: float
    ) -> Certificate:
        """Return the certificate of a balanced dual point, with f = K c of its c.

        `error` is the root mean square error of f.
        """
        free = self.y - fitted
        b = self.intercept(free, start)
        res, c = free - self.spread(b), self.coefficients(a)
        losses, unbalanced = self.losses(res), self.totals(self.weights * a)
        young = self.young(res, a) + float(np.abs(b * unbalanced).sum())
        penalty = self.alpha / 2 * float(c @ fitted)
        above = np.where(losses > _NOTHING * losses.max(), losses, 0.0)
        scale = typical_loss(above, self.weights, self.n) + penalty
        objective = float(self.weights @ losses) / self.n + penalty
        noise = self._noise(res, a, losses, error)
        return Certificate(a, b, objective, young / self.n, noise, scale)

    def _noise(self, res: NDArray, a: NDArray, losses: NDArray, error: float) -> float:
        """Return what independent errors of predictions add to the gap."""
        both = (self.losses(res + error) + self.losses(res - error)) / 2 - losses
        slopes = self.point(res, 0.0, np.zeros(self.n)).a - a
        linear = error * float(np.linalg.norm(self.weights * slopes))
        return (float(self.weights @ np.maximum(both, 0)) + linear) / self.n


class LogisticProblem(DualProblem):
    """The logistic loss, whose conjugate is an entropy; y is -1 or +1."""

    has_kinks: ClassVar[bool] = False

    def point(self, res: NDArray, sigma: float, center: NDArray) -> Point:
        """Return the dual point y p and the curvature p (1 - p)."""
        a, curvature = np.empty(self.n), np.empty(self.n)
        logistic_point(self.y - res, self.y, a, curvature)
        curvature[curvature < _FLAT] = 0
        return Point(a, self.weights * curvature, 1.0, 0.0)

    def slopes(
        self, t: float, res: NDArray, move: NDArray, sigma: float, center: NDArray
    ) -> tuple[float, float]:
        """Return two derivatives of the loss sum at ``res - t move``."""
        return logistic_slope(t, self.y - res, move, self.y, self.weights)

    def losses(self, res: NDArray) -> NDArray:
        """Return the loss of each row."""
        return np.logaddexp(0.0, -self.y * (self.y - res))

    def young(self, res: NDArray, a: NDArray) -> float:
        """Return the weighted sum of the Fenchel-Young terms of a and residuals."""
        error = self.y * self.point(res, 0.0, a).a
        shifted = self.y * a
        terms = kl_div(shifted, error) + kl_div(1 - shifted, 1 - error)
        return float(self.weights @ terms)


def _root(slope: Any, start: float, width: float) -> float:
    """Return where a nondecreasing function changes its sign, by bisection."""
    low, high = start - width, start + width
    while slope(low) > 0 and width < 1e300:
        high, width = low, 4 * width
        low -= width
    while slope(high) < 0 and width < 1e300:
        low, width = high, 4 * width
        high += width
    for _ in range(60):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if slope(middle) > 0:
            high = middle
        else:
            low = middle
    return high
