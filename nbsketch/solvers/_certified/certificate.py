"""How far a point is from the optimum, by weak duality and without cancellation.

For any w, b and any a within its bounds with ``sum_i s_i a_i = 0`` (if b is free),

    P(w, b) - D(a) = sum_i s_i [psi_i(r_i) + psi_i*(a_i) - a_i r_i] / n
                     + |alpha w - Z^T (s a) / n|^2 / (2 alpha),

a sum of terms that are at least 0, and exactly 0 for a row settled beyond a kink. The
difference of two objectives would lose all digits to a few large outliers.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.linear_quadratic import loss_values, young_sum
from nbsketch.solvers._scalar.problem import Problem

# A larger loss than this many times the median is not let into the scale of the gap.
_OUTLYING = 20.0
_SAMPLED = 2048


class Certificate(NamedTuple):
    """A primal and a dual point, and what they prove of each other."""

    coef: NDArray
    intercept: float
    dual: NDArray
    objective: float
    gap: float
    scale: float


def certify(
    problem: Problem,
    w: NDArray,
    b: float,
    res: NDArray,
    a: NDArray,
    gradient: NDArray | None = None,
) -> Certificate:
    """Return the certificate of (w, b) and a; `gradient` is ``Z^T (s a)`` if known."""
    p = problem
    if gradient is None:
        gradient = p.design.rmv(p.weights * a)
    imbalance = 0.0
    if p.fit_intercept:
        interior = (a > p.lo) & (a < p.hi)
        if p.eps > 0:
            interior &= a != 0.0
        a, gradient, imbalance = balanced_pair(p, a, gradient, interior.astype(float))
    young = young_sum(res, p.weights, a, p.lo, p.hi, p.gam, p.eps)
    losses = np.empty_like(res)
    loss_values(res, p.lo, p.hi, p.gam, p.eps, losses)
    return complete(p, w, b, a, gradient, losses, young + abs(b * imbalance))


def complete(
    problem: Problem,
    w: NDArray,
    b: float,
    a: NDArray,
    gradient: NDArray,
    losses: NDArray,
    young: float,
) -> Certificate:
    """Return the certificate from the Fenchel-Young sum of a loss of any kind."""
    n, alpha = problem.n, problem.alpha
    rho = alpha * w - gradient / n
    penalty = alpha / 2 * float(w @ w)
    objective = float(problem.weights @ losses) / n + penalty
    gap = young / n + float(rho @ rho) / (2 * alpha)
    scale = typical_loss(losses, problem.weights, n) + penalty
    return Certificate(w.copy(), b, a.copy(), objective, gap, scale)


def typical_loss(losses: NDArray, weights: NDArray, n: float) -> float:
    """Return the weighted mean loss with outlying losses cut to size.

    A gap relative to an objective that is all outliers would promise nothing for the
    other rows.
    """
    some = np.s_[:: max(1, len(losses) // _SAMPLED)]
    positive = losses[some][(losses[some] > 0) & (weights[some] > 0)]
    limit = _OUTLYING * np.median(positive) if len(positive) else np.inf
    return float(weights @ np.minimum(losses, limit)) / n


def balanced_pair(
    problem: Problem, a: NDArray, gradient: NDArray, pace: NDArray
) -> tuple[NDArray, NDArray, float]:
    """Return a with ``sum s a = 0``, its ``Z^T (s a)``, and what rounding has left."""
    p = problem
    balanced = balance(a, p.weights, p.lo, p.hi, pace)
    rows = np.flatnonzero(balanced != a)
    if len(rows):
        step = p.weights * (balanced - a)
        few = len(rows) < 0.5 * len(a)
        gradient = gradient + (
            p.design.rmv(step[rows], rows) if few else p.design.rmv(step)
        )
    return balanced, gradient, float(p.weights @ balanced)


def balance(
    a: NDArray, weights: NDArray, lo: NDArray, hi: NDArray, pace: NDArray
) -> NDArray:
    """Return a shifted along `pace`, within its bounds, to a weighted sum of zero.

    A free intercept asks this of a dual point. Where the rows with a positive pace
    cannot absorb it, all rows share the rest.
    """
    for direction in (pace, np.ones_like(a)):
        for _ in range(20):
            total = weights @ a
            if abs(total) <= 1e-15 * (weights @ np.abs(a)):
                return a
            room = np.where(total > 0, a > lo, a < hi)
            rate = weights @ (direction * room)
            if rate <= 0:
                break
            a = np.clip(a - total / rate * direction, lo, hi)
    return a
