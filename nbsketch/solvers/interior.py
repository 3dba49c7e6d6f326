r"""Sums of piecewise linear losses with hard constraints, by interior points.

.. math:: \min_{W, b} \sum_{ij} \psi_{ij}\bigl(y_i - c_i b_j - (Z W T)_{ij}\bigr)
          + \frac{\alpha}{2} \|W\|^2, \qquad
          \psi_{ij}(r) = \max_{l_{ij} \le a \le h_{ij}} a r

A pinball loss has the bounds :math:`\tau - 1` and :math:`\tau` of its dual point a. The
bounds 0 and infinity define a constraint, :math:`r \le 0`.

The constraints are on slopes, which an intercept cannot change. The Newton search of
`nbsketch.solvers.newton` makes points feasible by shifting intercepts, which its
certificate needs, so it does not apply here.
"""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._linear.cholesky import raised_cholesky, solve_positive_upper

# Maximum number of steps: 12 to 25 are enough.
_STEPS = 50
# Share of the distance to the boundary.
_SHARE = 0.99
# Lower bound of numbers that are inverted.
_LEAST = 1e-200
# Share of the trace added to the diagonal of an indefinite Hessian.
_JITTER = 1e-16


class PiecewiseProblem(NamedTuple):
    """Rows of a problem; `E` are c, 0 or 1 for each row, and the features Z."""

    E: NDArray  # (n, r + 1)
    y: NDArray  # (n,)
    low: NDArray  # (n, d)
    high: NDArray  # (n, d), may be infinite
    T: NDArray  # (d', d)
    alpha: float

    def constrained(self, D: NDArray) -> Self:
        """Return the problem with rows D (k, r + 1) constrained to be nonnegative."""
        nothing = np.zeros((len(D), self.low.shape[1]))
        return self._replace(
            E=np.vstack([self.E, D]),
            y=np.append(self.y, np.zeros(len(D))),
            low=np.vstack([self.low, nothing]),
            high=np.vstack([self.high, nothing + np.inf]),
        )

    def fitted(self, W: NDArray, b: NDArray) -> NDArray:
        """Return the predictions, (n, d)."""
        return self.E @ np.vstack([b, W @ self.T])

    @property
    def finite_high(self) -> NDArray:
        """Upper bounds, 0 for infinite ones."""
        return np.where(np.isinf(self.high), 0.0, self.high)

    def slope(self, a: NDArray) -> tuple[NDArray, NDArray]:
        """Return the sums of dual points for W and for b."""
        total = self.E.T @ a
        return total[1:] @ self.T.T, total[0]

    def factor(self, curvature: NDArray) -> NDArray:
        """Return the Cholesky factor of the Hessian, W column by column, then b."""
        size = self.E.shape[1] - 1
        d, m = self.T.shape
        H = np.zeros((size * d + m,) * 2)
        for j, t in enumerate(self.T.T):
            part = (self.E.T * curvature[:, j]) @ self.E
            at = size * d + j
            H[:-m, :-m] += np.kron(np.outer(t, t), part[1:, 1:])
            H[:-m, at] = H[at, :-m] = np.kron(t, part[1:, 0])
            H[at, at] = part[0, 0] or 1.0  # without intercept, its row is zero
        H[np.arange(size * d), np.arange(size * d)] += self.alpha
        return raised_cholesky(H, 0.0, _JITTER * float(np.trace(H)))[0]


class InteriorPoint(NamedTuple):
    """An interior point: residuals are over - under, both positive."""

    W: NDArray
    b: NDArray
    over: NDArray  # (n, d), 0 for an infinite upper bound
    under: NDArray
    a: NDArray

    @classmethod
    def first(cls, p: PiecewiseProblem) -> Self:
        """Return W = 0, the median, and dual points in the middle of their bounds."""
        b = np.full(p.T.shape[1], float(np.median(p.y)))
        residual = p.y[:, None] - p.E[:, :1] * b
        unit = np.abs(residual).mean() or 1.0
        hard = np.isinf(p.high)
        typical = (p.high[~hard] - p.low[~hard]).mean()
        over = np.where(hard, 0.0, np.maximum(residual, 0) + unit)
        under = np.maximum(-residual, 0) + unit
        a = np.where(hard, p.low + typical, (p.low + p.finite_high) / 2)
        return cls(np.zeros((p.E.shape[1] - 1, len(p.T))), b, over, under, a)

    def moved(self, move: Self, step: float) -> Self:
        """Return the point after a step."""
        return type(self)(*(x + step * dx for x, dx in zip(self, move, strict=True)))

    def mean_product(self, p: PiecewiseProblem) -> float:
        """Return the mean of the products that are zero at the solution."""
        above = p.finite_high - self.a  # over is 0 without a bound
        total = np.vdot(self.over, above) + np.vdot(self.under, self.a - p.low)
        return float(total) / (np.isfinite(p.high).sum() + p.low.size)

    def room(self, p: PiecewiseProblem, move: Self) -> float:
        """Return the largest step, at most 1, that preserves all signs."""
        pairs = (
            (self.over, move.over), (self.under, move.under),
            (p.high - self.a, -move.a), (self.a - p.low, move.a),
        )  # fmt: skip
        ratios = (x[dx < 0] / -dx[dx < 0] for x, dx in pairs)
        return min(1.0, *(float(ratio.min(initial=np.inf)) for ratio in ratios))


class System(NamedTuple):
    """The linear equations of a step, factorized."""

    p: PiecewiseProblem
    point: InteriorPoint
    above: NDArray  # over 1: the distance of the dual points to their upper bounds
    below: NDArray
    curvature: NDArray
    factor: NDArray

    @classmethod
    def at(cls, p: PiecewiseProblem, point: InteriorPoint) -> Self:
        """Return the equations at a point."""
        above = _inverse(p.high - point.a)
        below = _inverse(point.a - p.low)
        curvature = _inverse(point.over * above + point.under * below)
        return cls(p, point, above, below, curvature, p.factor(curvature))

    def move(self, over: NDArray | float, under: NDArray | float) -> InteriorPoint:
        """Return the Newton direction to these products."""
        p = self.p
        coef, b, *old, a = self.point
        aim = p.y[:, None] - p.fitted(coef, b) - over * self.above + under * self.below
        slope, totals = p.slope(a + self.curvature * aim)
        right = np.append((slope - p.alpha * coef).T.ravel(), totals)
        flat = solve_positive_upper(self.factor, right)
        W = flat[: coef.size].reshape(coef.T.shape).T
        b = flat[coef.size :]
        da = self.curvature * (aim - p.fitted(W, b))
        up = (over + old[0] * da) * self.above - old[0]
        return InteriorPoint(W, b, up, (under - old[1] * da) * self.below - old[1], da)

    def next(self) -> InteriorPoint:
        """Return the point after a predictor and a corrector."""
        p = self.p
        point = self.point
        ahead = self.move(0.0, 0.0)
        there = point.moved(ahead, point.room(p, ahead))
        ratio = there.mean_product(p) / point.mean_product(p)
        target = ratio**3 * point.mean_product(p)
        over = target + ahead.over * ahead.a
        under = target - ahead.under * ahead.a
        move = self.move(np.where(np.isinf(p.high), 0.0, over), under)
        return point.moved(move, _SHARE * point.room(p, move))


class Found(NamedTuple):
    """A solution, its objective, and a bound on the distance from the minimum."""

    W: NDArray
    b: NDArray
    objective: float
    gap: float


def solve_piecewise(p: PiecewiseProblem, tol: float) -> Found:
    """Minimize until the gap is at most `tol` times the objective.

    The predictor and corrector of S. Mehrotra, "On the implementation of a primal-dual
    interior point method", SIAM J. Optim. 1992.
    """
    point = InteriorPoint.first(p)
    best = solution = _certified(p, point)
    for _ in range(_STEPS):
        if solution.gap <= tol * solution.objective:
            break
        with np.errstate(over="ignore", invalid="ignore"):  # at the limit of rounding
            point = System.at(p, point).next()
        if not all(np.isfinite(part).all() for part in point):
            break
        solution = _certified(p, point)
        best = solution if solution.gap < best.gap else best
    return best


def _inverse(values: NDArray) -> NDArray:
    return 1 / np.maximum(values, _LEAST)


def _certified(p: PiecewiseProblem, point: InteriorPoint) -> Found:
    """Return the solution of a point, and its gap including violated constraints."""
    residual = p.y[:, None] - p.fitted(point.W, point.b)
    losses = np.maximum(p.finite_high * residual, p.low * residual)
    slope, imbalance = p.slope(point.a)
    rho = p.alpha * point.W - slope
    gap = float(np.abs(losses - point.a * residual).sum())
    gap += float(np.abs(point.b * imbalance).sum())
    gap += float(np.vdot(rho, rho)) / (2 * p.alpha)
    penalty = p.alpha / 2 * float(np.vdot(point.W, point.W))
    return Found(point.W, point.b, float(losses.sum()) + penalty, gap)
