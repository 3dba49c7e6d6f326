"""Certificates: gaps are bounds by weak duality, computed without cancellation.

For any w, b and any a within its bounds with ``sum_i s_i a_i = 0`` (with intercept),

    P(w, b) - D(a) = sum_i s_i [psi_i(r_i) + psi_i*(a_i) - a_i r_i] / n
                     + |alpha w - Z^T (s a) / n|^2 / (2 alpha),

a sum of nonnegative terms, each exactly 0 for a row beyond a kink. The difference of
both objectives would lose all digits to a few large outliers. With several outputs,
products of residuals and dual points are inner products, and Z^T (s a) is multiplied by
the factor of the output matrix.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers.row_loss import typical_limit

# Number of losses whose median is computed.
_SAMPLED = 2048


class Certificate(NamedTuple):
    """A primal and a dual point, and the bound that they imply.

    Attributes
    ----------
    coef : ndarray
        Coefficients.
    intercept : float or ndarray of shape (d,)
        Intercept.
    dual : ndarray
        Dual point.
    objective : float
        Objective at (coef, intercept).
    gap : float
        Upper bound on the distance of `objective` from the minimum.
    scale : float
        Reference for the gap: the objective, with outlying losses truncated.
    noise : float
        Increase of the gap by rounding of kernel values.
    """

    coef: NDArray
    intercept: Any
    dual: Any
    objective: float
    gap: float
    scale: float
    noise: float = 0.0

    @property
    def relative_gap(self) -> float:
        """The gap plus its noise, divided by the scale; 0 if both are 0."""
        total = self.gap + self.noise
        if total == 0:
            return 0.0
        return total / self.scale if self.scale > 0 else np.inf


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
