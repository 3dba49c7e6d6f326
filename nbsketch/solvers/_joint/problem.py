"""The joint quantile problem: data, bounds of the dual point, certificate.

Arrays over the rows are output-major, (d, n): one output is contiguous, and flattened
they are what the scalar kernels take, with one pair of bounds per entry.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.linear_quadratic import loss_values, young_sum
from nbsketch.solvers._certified.certificate import Certificate, balance, certificate
from nbsketch.solvers._certified.problem import Problem


@dataclass(frozen=True, kw_only=True)
class JointProblem(Problem):
    """Minimize ``sum_ij s_i psi_j(y_i - (Z W T)_ij - b_j) / n + (alpha / 2) |W|^2``.

    psi_j is the pinball loss of the j-th level: its dual point lies in the interval
    [level - 1, level].
    """

    y: NDArray
    uniform: bool  # all weights are one
    levels: NDArray
    T: NDArray

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Shapes of the coefficients, the intercept and the dual point of a state."""
        d = len(self.levels)
        return (self.rank, len(self.T)), (d,), (len(self.y), d)

    @cached_property
    def lo(self) -> NDArray:
        """Lower bound of each entry of the dual point, flat."""
        return np.repeat(self.levels - 1.0, len(self.y))

    @cached_property
    def hi(self) -> NDArray:
        """Upper bound of each entry of the dual point, flat."""
        return np.repeat(self.levels, len(self.y))

    @cached_property
    def entry_weights(self) -> NDArray:
        """Weight of each entry, flat."""
        return np.tile(self.weights, len(self.levels))

    def predict(self, W: NDArray, b: NDArray) -> NDArray:
        """Return ``(Z W T + b)^T``, of shape (d, n)."""
        out = np.ascontiguousarray(self.design.mv(W @ self.T).T)
        if b.any():
            out += b[:, None]
        return out

    def residual(self, coef: NDArray, intercept: NDArray) -> NDArray:
        """Return the residuals, of shape (d, n)."""
        return self.y - self.predict(coef, intercept)

    def sizes(self, res: NDArray) -> NDArray:
        """Return the absolute residuals of the rows of positive weight."""
        return np.abs(res[:, self.weights > 0])

    def best_constant(self) -> Any:
        """Return the quantiles of the targets."""
        return self.target_quantile(self.y, self.levels)

    def certify(
        self,
        W: NDArray,
        b: NDArray,
        res: NDArray,
        a: NDArray,
        gradient: NDArray | None = None,
    ) -> Certificate:
        """Return the certificate of (W, b) and a; `gradient` is ``Z^T (s a)^T``."""
        if gradient is None:
            gradient = self.design.rmv((self.weights * a).T)
        imbalance = np.zeros(len(b))
        if self.fit_intercept:
            a, gradient = self._balanced(a, gradient)
            imbalance = a @ self.weights
        flat = res.ravel(), self.entry_weights, a.ravel()
        young = young_sum(*flat, self.lo, self.hi, 0.0, 0.0)
        young += float(np.abs(b * imbalance).sum())
        losses = np.empty(res.size)
        loss_values(res.ravel(), self.lo, self.hi, 0.0, 0.0, losses)
        row_losses = losses.reshape(res.shape).sum(axis=0)
        rho = self.alpha * W - gradient @ self.T.T / self.n
        return certificate(self, W, b, a, rho, row_losses, young)

    def _balanced(self, a: NDArray, gradient: NDArray) -> tuple[NDArray, NDArray]:
        """Return `a` with a weighted sum of zero for every output, and its gradient."""
        lo, hi = self.lo.reshape(a.shape), self.hi.reshape(a.shape)
        pace = ((a > lo) & (a < hi)).astype(float)
        outputs = zip(a, lo, hi, pace, strict=True)
        balanced = np.array(
            [balance(row, self.weights, *bounds) for row, *bounds in outputs]
        )
        rows = np.flatnonzero((balanced != a).any(axis=0))
        if len(rows):
            step = self.weights[rows] * (balanced[:, rows] - a[:, rows])
            gradient = gradient + self.design.rmv(step.T, rows)
        return balanced, gradient
