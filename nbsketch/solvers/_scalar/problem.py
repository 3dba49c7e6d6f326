"""The scalar problem: checked data, bounds of the dual point, certificate."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_positive
from nbsketch.losses import Loss
from nbsketch.solvers._certified.certificate import Certificate, balance, certificate
from nbsketch.solvers._certified.checks import (
    check_labels,
    check_targets,
    check_weights,
)
from nbsketch.solvers._certified.problem import Problem
from nbsketch.solvers.design import Design
from nbsketch.solvers.row_loss import RowLoss, row_loss

# Fewer changed entries than this share: update Z^T (s a), do not recompute it.
_FEW = 0.5


@dataclass(frozen=True, kw_only=True)
class ScalarProblem(Problem):
    """Minimize ``sum_i s_i psi_i(y_i - z_i w - b) / n + (alpha / 2) |w|^2``.

    `rows` holds the losses psi_i of the rows, of the kind `loss`.
    """

    y: NDArray
    loss: Loss
    rows: RowLoss

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
        counted = self.rows.take(np.flatnonzero(self.weights > 0))
        lo, hi = counted.lo, counted.hi
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
        pace: NDArray | None = None,
    ) -> Certificate:
        """Return the certificate of (w, b) and a; `gradient` is ``Z^T (s a)``.

        `pace` says how fast rows move when a is balanced: those between kinks, if None.
        """
        if gradient is None:
            gradient = self.design.rmv(self.weights * a)
        imbalance = 0.0
        if self.fit_intercept:
            pace = self.rows.between(a) if pace is None else pace
            a, gradient, imbalance = self._balanced(a, gradient, pace)
        young = self.rows.young(res, self.weights, a) + abs(b * imbalance)
        rho = self.alpha * w - gradient / self.n
        return certificate(self, w, b, a, rho, self.rows.values(res), young)

    def take(self, rows: NDArray) -> Self:
        """Return the same problem with the sums over `rows` only."""
        return replace(super().take(rows), rows=self.rows.take(rows))

    def _balanced(
        self, a: NDArray, gradient: NDArray, pace: NDArray
    ) -> tuple[NDArray, NDArray, float]:
        """Return a with ``sum s a = 0``, its ``Z^T (s a)``, and the sum left over."""
        balanced = balance(a, self.weights, self.rows.lo, self.rows.hi, pace)
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
    """Check the arguments and build the problem of a loss with a row loss."""
    n = design.shape[0]
    y = check_labels("y", check_targets("y", y, (n,)), loss)
    return ScalarProblem(
        design=design,
        y=y,
        weights=check_weights(sample_weight, n),
        uniform=sample_weight is None,
        loss=loss,
        rows=row_loss(loss, y),
        alpha=check_positive("alpha", alpha),
        fit_intercept=bool(fit_intercept),
        n=float(n),
    )
