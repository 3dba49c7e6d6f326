r"""A problem in the dual coefficients of a kernel matrix, and its certificate.

.. math:: \min_{c, b} \frac1n \sum_i s_i \psi_i(y_i - (K c)_i - b_{j(i)})
          + \frac{\alpha}{2} c^\top K c, \qquad n \alpha c = s \circ a

at the optimum, with a dual point a within the bounds of the conjugate. Each output j
has an intercept; the entries of an output are contiguous. For any such a with
:math:`\sum_{i \in j} s_i a_i = 0` for each output, and :math:`f = K (s \circ a) / (n
\alpha)`, the duality gap is a sum of Fenchel-Young terms, without an inverse of K.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from nbsketch.solvers.row_loss import RowLoss, balance, loss_sums
from nbsketch.solvers.solution import Certificate

# Rows with a smaller curvature count as linear.
_FLAT = 1e-10
# Losses below this share of the largest are rounding and do not count as typical.
_NOTHING = 1e-9
# Accuracy of an intercept, relative to the width of its bracket.
_ROOT = 1e-12


class Point(NamedTuple):
    """Derivatives of the (smoothed) loss at the residuals."""

    a: NDArray  # (n,), dual point
    curvature: NDArray  # (n,), weighted second derivative times the smoothness
    smoothness: float  # gam + sigma
    young: float  # mean of the Fenchel-Young terms: the cost of smoothing


@dataclass(frozen=True, kw_only=True)
class DualProblem:
    """Entries of one output or several, with their losses `rows`."""

    y: NDArray
    weights: NDArray
    rows: RowLoss
    alpha: float = 1.0  # set for each penalty
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
        """Return the entry of b (d,) for each entry of the problem."""
        return np.repeat(b, self.n // self.outputs)

    def totals(self, v: NDArray) -> NDArray:
        """Return the sum of v over the entries of each output."""
        return v.reshape(self.outputs, -1).sum(axis=1)

    @property
    def parts(self) -> list[tuple[slice, Self]]:
        """The entries of each output, and the problem restricted to them."""
        # Not cached for one output, because an object that holds itself lives on.
        return self._parts if self.outputs > 1 else [(slice(None), self)]

    @cached_property
    def _parts(self) -> list[tuple[slice, Self]]:
        size = self.n // self.outputs
        parts = [slice(j * size, (j + 1) * size) for j in range(self.outputs)]
        return [(part, self._part(part)) for part in parts]

    def _part(self, part: slice) -> Self:
        y = self.y[part]
        weights = self.weights[part]
        return replace(self, y=y, weights=weights, rows=self.rows.take(part), outputs=1)

    def point(self, res: NDArray, sigma: float, center: NDArray) -> Point:
        """Return the dual point of the loss smoothed by sigma around a center."""
        a, curvature, _, young = self.rows.point(res, self.weights, center, sigma)
        curvature[curvature < _FLAT] = 0
        weighted = self.weights * curvature
        return Point(a, weighted, self.rows.gam + sigma, young / self.n)

    def feasible(self, c: NDArray) -> NDArray:
        """Return a balanced dual point within the bounds, near n alpha c / s."""
        a = self.rows.clip(self.ratio(c))
        if not self.fit_intercept:
            return a
        for entries, p in self.parts:
            inside = p.rows.between(a[entries]).astype(float)
            a[entries] = balance(a[entries], p.weights, p.rows.lo, p.rows.hi, inside)
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
        center: NDArray | float = 0.0,
    ) -> NDArray:
        """Return the best intercepts (d,) for residuals without intercepts."""
        b = np.zeros(self.outputs)
        if not self.fit_intercept:
            return b
        around = np.zeros(self.n) + center
        for j, (entries, part) in enumerate(self.parts):
            b[j] = part._constant(res[entries], float(start[j]), sigma, around[entries])
        return b

    def _constant(
        self, res: NDArray, start: float, sigma: float, center: NDArray
    ) -> float:
        rows = self.rows
        smoothed = np.ones(self.n), self.weights, center, sigma

        def slope(b: float) -> float:
            return rows.slopes(b, res, *smoothed)[0]

        if sigma == 0 and rows.has_kinks and rows.gam == 0:
            kinks = np.sort(np.concatenate([res - rows.eps, res + rows.eps]))
            between = (kinks[:-1] + kinks[1:]) / 2
            return float(kinks[bisect_left(between, 0.0, key=slope)])
        return _root(slope, start, 1e-3 * (1e-300 + float(np.abs(res - start).mean())))

    def certify(
        self, a: NDArray, fitted: NDArray, start: NDArray, error: float
    ) -> Certificate:
        """Return the certificate of a balanced dual point, with f = K c of its c.

        `error` is the root mean square error of f.
        """
        free = self.y - fitted
        b = self.intercept(free, start)
        res = free - self.spread(b)
        c = self.coefficients(a)
        losses = self.rows.values(res)
        unbalanced = self.totals(self.weights * a)
        young = self.rows.young(res, self.weights, a)
        young += float(np.abs(b * unbalanced).sum())
        penalty = self.alpha / 2 * float(c @ fitted)
        above = np.where(losses > _NOTHING * losses.max(), losses, 0.0)
        scale = loss_sums(above, self.weights)[1] / self.n + penalty
        objective = float(self.weights @ losses) / self.n + penalty
        noise = self._noise(res, a, losses, error)
        return Certificate(c, b, a, objective, young / self.n, scale, noise)

    def _noise(self, res: NDArray, a: NDArray, losses: NDArray, error: float) -> float:
        """Return the increase of the gap by independent errors of predictions."""
        values = self.rows.values
        with np.errstate(invalid="ignore"):  # infinite losses: then the gap is infinite
            both = (values(res + error) + values(res - error)) / 2 - losses
        slopes = self.point(res, 0.0, np.zeros(self.n)).a - a
        linear = error * float(np.linalg.norm(self.weights * slopes))
        return (float(self.weights @ np.fmax(both, 0)) + linear) / self.n


def _root(slope: Any, start: float, width: float) -> float:
    """Return the sign change of a nondecreasing function, by Brent's method."""
    low = start - width
    high = start + width
    while slope(low) > 0 and width < 1e300:
        high = low
        width = 4 * width
        low -= width
    while slope(high) < 0 and width < 1e300:
        low = high
        width = 4 * width
        high += width
    rises = slope(low) <= 0 <= slope(high)
    return float(brentq(slope, low, high, xtol=_ROOT * width)) if rises else high
