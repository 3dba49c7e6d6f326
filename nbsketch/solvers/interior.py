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
# Signs of the residual's part over the fit and under it, whose dual bounds are `high`
# and `low`.
_SIGNS = np.array([1.0, -1.0])[:, None, None]


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

    def room(self, a: NDArray) -> NDArray:
        """Return the distances of dual points to both bounds, (2, n, d)."""
        return np.stack([self.high - a, a - self.low])

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
    """An interior point: a residual is the difference of two positive parts."""

    W: NDArray
    b: NDArray
    parts: NDArray  # (2, n, d), 0 for an infinite bound
    a: NDArray

    @classmethod
    def first(cls, p: PiecewiseProblem) -> Self:
        """Return W = 0, the median, and dual points in the middle of their bounds."""
        b = np.full(p.T.shape[1], float(np.median(p.y)))
        residual = p.y[:, None] - p.E[:, :1] * b
        unit = np.abs(residual).mean() or 1.0
        hard = np.isinf(p.high)
        typical = (p.high[~hard] - p.low[~hard]).mean()
        a = np.where(hard, p.low + typical, (p.low + p.finite_high) / 2)
        parts = np.maximum(_SIGNS * residual, 0) + unit
        parts[np.isinf(p.room(a))] = 0.0
        return cls(np.zeros((p.E.shape[1] - 1, len(p.T))), b, parts, a)

    def moved(self, move: Self, step: float) -> Self:
        """Return the point after a step."""
        return type(self)(*(x + step * dx for x, dx in zip(self, move, strict=True)))

    def mean_product(self, p: PiecewiseProblem) -> float:
        """Return the mean of the products that are zero at the solution."""
        room = p.room(self.a)
        finite = np.isfinite(room)
        return float((self.parts[finite] * room[finite]).mean())

    def longest(self, p: PiecewiseProblem, move: Self) -> float:
        """Return the largest step, at most 1, that preserves all signs."""
        x = np.stack([self.parts, p.room(self.a)])
        dx = np.stack([move.parts, -_SIGNS * move.a])
        falling = dx < 0
        return float((x[falling] / -dx[falling]).min(initial=1.0))


def _next(p: PiecewiseProblem, point: InteriorPoint) -> InteriorPoint:
    """Return the point after a predictor and a corrector."""
    coef, b, parts, a = point
    inverse = _inverse(p.room(a))  # of the distances of the dual point to its bounds
    curvature = _inverse((parts * inverse).sum(axis=0))
    factor = p.factor(curvature)

    def move(products: NDArray | float) -> InteriorPoint:
        """Return the Newton direction to these products of parts and distances."""
        excess = (_SIGNS * products * inverse).sum(axis=0)
        aim = p.y[:, None] - p.fitted(coef, b) - excess
        slope, totals = p.slope(a + curvature * aim)
        right = np.append((slope - p.alpha * coef).T.ravel(), totals)
        flat = solve_positive_upper(factor, right)
        W = flat[: coef.size].reshape(coef.T.shape).T
        shift = flat[coef.size :]
        da = curvature * (aim - p.fitted(W, shift))
        change = (products + _SIGNS * parts * da) * inverse - parts
        return InteriorPoint(W, shift, change, da)

    mean = point.mean_product(p)
    ahead = move(0.0)
    there = point.moved(ahead, point.longest(p, ahead))
    target = (there.mean_product(p) / mean) ** 3 * mean
    products = target + _SIGNS * ahead.parts * ahead.a
    step = move(np.where(inverse > 0, products, 0.0))
    return point.moved(step, _SHARE * point.longest(p, step))


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
            point = _next(p, point)
        if not all(np.isfinite(part).all() for part in point):
            break
        solution = _certified(p, point)
        best = solution if solution.gap < best.gap else best
    return best


def _inverse(values: NDArray) -> NDArray:
    return 1 / np.maximum(values, _LEAST)


def _certified(p: PiecewiseProblem, point: InteriorPoint) -> Found:
    """Return the solution of a point, and its gap including violated constraints."""
    W = point.W
    residual = p.y[:, None] - p.fitted(W, point.b)
    losses = np.maximum(p.finite_high * residual, p.low * residual)
    slope, imbalance = p.slope(point.a)
    rho = p.alpha * W - slope
    gap = float(np.abs(losses - point.a * residual).sum())
    gap += float(np.abs(point.b * imbalance).sum())
    gap += float(np.vdot(rho, rho)) / (2 * p.alpha)
    penalty = p.alpha / 2 * float(np.vdot(W, W))
    return Found(W, point.b, float(losses.sum()) + penalty, gap)
