"""The scalar problem: checked data, bounds of the dual point, certificate."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._jit.linear_quadratic import (
    dual_point,
    kink_distance,
    loss_values,
    slope_along,
    young_sum,
)
from nbsketch._validation import check_positive
from nbsketch.losses import ELQ, LogisticLoss, Loss
from nbsketch.solvers._certified.certificate import Certificate, balance, certificate
from nbsketch.solvers._certified.checks import (
    check_labels,
    check_targets,
    check_weights,
)
from nbsketch.solvers._certified.problem import Problem, rows_of
from nbsketch.solvers.design import Design

# Fewer changed entries than this share: update Z^T (s a), do not recompute it.
_FEW = 0.5
# Rows of one compiled call. Bounds of more rows, if they are equal, are stored once.
_BLOCK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ScalarProblem(Problem):
    """Minimize ``sum_i s_i psi_i(y_i - z_i w - b) / n + (alpha / 2) |w|^2``.

    The conjugate of psi_i is ``gam a^2 / 2 + eps |a|`` on ``[lo_i, hi_i]``.
    """

    row_arrays: ClassVar[tuple[str, ...]] = ("y", "weights", "lo", "hi")

    y: NDArray
    lo: NDArray
    hi: NDArray
    numbers: ELQ
    turned: bool  # whether the bounds are turned by the sign of the target

    @property
    def gam(self) -> float:
        """Curvature of the conjugate."""
        return self.numbers.gam

    @property
    def eps(self) -> float:
        """Slope of the conjugate at zero."""
        return self.numbers.eps

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Shapes of the coefficients, the intercept and the dual point."""
        return (self.rank,), (), self.y.shape

    def residual(self, coef: NDArray, intercept: float) -> NDArray:
        """Return ``y - Z w - b``."""
        out = self.design.mv(coef)
        np.subtract(self.y, out, out=out)
        if intercept != 0.0:
            out -= intercept
        return out

    def sizes(self, res: NDArray) -> NDArray:
        """Return the absolute residuals of the rows of positive weight."""
        return np.abs(res[self.weights > 0])

    def best_constant(self) -> float:
        """Return the intercept to start from with zero coefficients.

        The quantile of the targets that minimizes a loss of the pinball kind, the
        median for other losses, and 0 if the bounds depend on the row (two classes).
        """
        counted = np.flatnonzero(self.weights > 0)
        lo, hi = rows_of(self.lo, counted), rows_of(self.hi, counted)
        if not ((lo == lo[0]).all() and (hi == hi[0]).all()):
            return 0.0
        level = hi[0] / (hi[0] - lo[0]) if np.isfinite(hi[0] - lo[0]) else 0.5
        return float(self.target_quantile(self.y, level))

    def certify(
        self,
        w: NDArray,
        b: float,
        res: NDArray,
        a: NDArray,
        gradient: NDArray | None = None,
    ) -> Certificate:
        """Return the certificate of (w, b) and a; `gradient` is ``Z^T (s a)``."""
        if gradient is None:
            gradient = self.design.rmv(self.weights * a)
        imbalance = 0.0
        if self.fit_intercept:
            inside = (a > self.lo) & (a < self.hi)
            if self.eps > 0:
                inside &= a != 0.0
            a, gradient, imbalance = self.balanced(a, gradient, inside)
        young = self.young_sum(res, a) + abs(b * imbalance)
        rho = self.alpha * w - gradient / self.n
        return certificate(self, w, b, a, rho, self.losses(res), young)

    def dual_point(
        self, res: NDArray, center: NDArray, sigma: float, a: NDArray, inside: NDArray
    ) -> tuple[float, float]:
        """Fill `a` and `inside`; return two sums: see `linear_quadratic.dual_point`."""
        total = young = 0.0
        for rows, lo, hi in self._blocks():
            sums = dual_point(
                res[rows], self.weights[rows], center[rows], lo, hi, self.gam, self.eps,
                sigma, a[rows], inside[rows],
            )  # fmt: skip
            total, young = total + sums[0], young + sums[1]
        return total, young

    def young_sum(self, res: NDArray, a: NDArray) -> float:
        """Return the weighted sum of the Fenchel-Young terms."""
        return sum(
            young_sum(res[k], self.weights[k], a[k], lo, hi, self.gam, self.eps)
            for k, lo, hi in self._blocks()
        )

    def losses(self, res: NDArray) -> NDArray:
        """Return the loss of each row."""
        out = np.empty_like(res)
        for k, lo, hi in self._blocks():
            loss_values(res[k], lo, hi, self.gam, self.eps, out[k])
        return out

    def kink_distance(self, res: NDArray, center: NDArray, sigma: float) -> NDArray:
        """Return how far each residual may move before its dual point moves."""
        out = np.empty_like(res)
        for k, lo, hi in self._blocks():
            kink_distance(res[k], center[k], lo, hi, self.gam, self.eps, sigma, out[k])
        return out

    def slopes(
        self, t: float, res: NDArray, move: NDArray, center: NDArray, sigma: float
    ) -> tuple[float, float]:
        """Return two derivatives of the smoothed loss sum at ``res - t move``."""
        first = second = 0.0
        for k, lo, hi in self._blocks():
            sums = slope_along(
                t, res[k], move[k], self.weights[k], center[k], lo, hi, self.gam,
                self.eps, sigma,
            )  # fmt: skip
            first, second = first + sums[0], second + sums[1]
        return first, second

    def _blocks(self) -> Iterator[tuple[slice, NDArray, NDArray]]:
        """Yield blocks of rows with their bounds."""
        for start in range(0, len(self.y), _BLOCK):
            rows = slice(start, start + _BLOCK)
            lo, hi = (np.ascontiguousarray(bound[rows]) for bound in (self.lo, self.hi))
            yield rows, lo, hi

    def balanced(
        self, a: NDArray, gradient: NDArray, pace: NDArray
    ) -> tuple[NDArray, NDArray, float]:
        """Return a with ``sum s a = 0``, its ``Z^T (s a)``, and the sum left over."""
        balanced = balance(a, self.weights, self.lo, self.hi, pace)
        rows = np.flatnonzero(balanced != a)
        if 0 < len(rows) < _FEW * len(a):
            step = self.weights[rows] * (balanced[rows] - a[rows])
            gradient = gradient + self.design.rmv(step, rows)
        elif len(rows):
            gradient = gradient + self.design.rmv(self.weights * (balanced - a))
        return balanced, gradient, float(self.weights @ balanced)


def scalar_problem(
    design: Design,
    y: ArrayLike,
    loss: Loss,
    alpha: float,
    sample_weight: ArrayLike | None,
    fit_intercept: bool,
) -> ScalarProblem:
    """Check the arguments and build the problem of a linear-quadratic or logistic loss.

    A classification loss of 1 - y f is one of y - f with its bounds turned by the sign
    of y, so no copy of the features is multiplied by the labels.
    """
    n = design.shape[0]
    y = check_labels("y", check_targets("y", y, (n,)), loss)
    numbers = _numbers(loss)
    lo, hi = row_bounds(numbers, y, loss.is_classification)
    return ScalarProblem(
        design=design,
        y=y,
        weights=check_weights(sample_weight, n),
        uniform=sample_weight is None,
        lo=lo,
        hi=hi,
        numbers=numbers,
        turned=loss.is_classification,
        alpha=check_positive("alpha", alpha),
        fit_intercept=bool(fit_intercept),
        n=float(n),
    )


def row_bounds(numbers: ELQ, y: NDArray, turned: bool) -> tuple[NDArray, NDArray]:
    """Return the bounds of each row: arrays, or views of one number for many rows."""
    lo, hi = numbers.lo, numbers.hi
    if turned:
        return np.where(y > 0, lo, -hi), np.where(y > 0, hi, -lo)
    if len(y) <= _BLOCK:
        return np.full(len(y), lo), np.full(len(y), hi)
    return np.broadcast_to(lo, len(y)), np.broadcast_to(hi, len(y))


def _numbers(loss: Any) -> ELQ:
    if type(loss) is LogisticLoss:
        return ELQ(0.0, 0.0, 0.0, 1.0)  # the dual point of the hinge has its bounds
    return loss.linear_quadratic()
