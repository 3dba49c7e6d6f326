"""Bounds on the distance from the optimum, by weak duality and without cancellation.

For any w, b and any a within its bounds with ``sum_i s_i a_i = 0`` (if b is free),

    P(w, b) - D(a) = sum_i s_i [psi_i(r_i) + psi_i*(a_i) - a_i r_i] / n
                     + |alpha w - Z^T (s a) / n|^2 / (2 alpha),

a sum of nonnegative terms, each exactly 0 for a row beyond a kink. The difference of
the two objectives would lose all digits to a few large outliers. With several outputs,
products of residuals and dual points are inner products, and Z^T (s a) is multiplied
by the factor of the output matrix.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._certified.problem import Problem
from nbsketch.solvers.row_loss import typical_limit

# Losses of which the median is taken.
_SAMPLED = 2048


class Certificate(NamedTuple):
    """A primal and a dual point, and the bound that they give together.

    Attributes
    ----------
    coef : ndarray
        Coefficients.
    intercept : float or ndarray of shape (d,)
        Intercept.
    dual : ndarray
        Dual point; a `HeldRows` if it stays with the blocks of the features.
    objective : float
        Objective at (coef, intercept).
    gap : float
        Upper bound on the distance of `objective` from the minimum.
    scale : float
        What the gap is compared with: the objective, outlying losses cut down.
    noise : float
        What rounding of kernel values adds to the gap.
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
        """The gap and its noise over their scale, 0 where both are."""
        whole = self.gap + self.noise
        if whole == 0:
            return 0.0
        return whole / self.scale if self.scale > 0 else np.inf


def certificate(
    problem: Problem,
    coef: NDArray,
    intercept: Any,
    dual: NDArray,
    rho: NDArray,
    losses: NDArray,
    young: float,
) -> Certificate:
    """Return the certificate of a primal and a dual point.

    Parameters
    ----------
    problem : Problem
        Supplies weights, alpha and n.
    coef, intercept, dual
        The two points; they are kept, so nobody may change them.
    rho : ndarray
        ``alpha w - Z^T (s a) / n``, in the shape of `coef`.
    losses : ndarray of shape (n,)
        Loss of each row.
    young : float
        Sum of the weighted Fenchel-Young terms. Add to it ``|b . sum_i s_i a_i|``, what
        rounding leaves of the balance.
    """
    n, alpha = problem.n, problem.alpha
    penalty = alpha / 2 * float(np.vdot(coef, coef))
    objective = float(problem.weights @ losses) / n + penalty
    gap = young / n + float(np.vdot(rho, rho)) / (2 * alpha)
    scale = typical_loss(losses, problem.weights, n) + penalty
    return Certificate(coef, intercept, dual, objective, gap, scale)


def typical_loss(losses: NDArray, weights: NDArray, n: float) -> float:
    """Return the weighted mean loss with outlying losses cut down.

    A gap relative to an objective made of outliers would be loose for all other rows.
    """
    some = np.s_[:: max(1, len(losses) // _SAMPLED)]
    positive = losses[some][(losses[some] > 0) & (weights[some] > 0)]
    return float(weights @ np.minimum(losses, typical_limit(positive))) / n


def balance(
    a: NDArray,
    weights: NDArray,
    lo: NDArray,
    hi: NDArray,
    pace: NDArray,
    goal: float = 0.0,
) -> NDArray:
    """Return a shifted along `pace`, within its bounds, to a weighted sum of `goal`.

    A free intercept requires this of a dual point. Where the rows with a positive pace
    cannot absorb the shift, all rows share the rest.
    """
    for shared in (False, True):
        direction = np.ones(len(a), bool) if shared else pace
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
