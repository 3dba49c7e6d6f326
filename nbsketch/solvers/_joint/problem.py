"""The joint quantile problem: data, bounds of the dual point, certificate.

Arrays over the rows are output-major, (d, n): one output is contiguous, and flattened
they are what the scalar kernels take, with one pair of bounds per entry.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._certified.certificate import Certificate, balance, certificate
from nbsketch.solvers._certified.problem import Problem
from nbsketch.solvers.row_loss import RowLoss


@dataclass(frozen=True, kw_only=True)
class JointProblem(Problem):
    """Minimize ``sum_ij s_i psi_j(y_i - (Z W T)_ij - b_j) / n + (alpha / 2) |W|^2``.

    psi_j is the pinball loss of the j-th level: its dual point lies in the interval
    [level - 1, level].

    If `ordered`, the quantiles of a row must ascend: d - 1 further terms, "gaps", have
    the residual ``f_(j+1) - f_j`` and the loss 0 if it is nonnegative, else infinity.
    The dual point of a gap, minus its multiplier, lies in [-infinity, 0]. Levels and
    gaps together are the m terms; each is a combination `mix` of the levels.
    """

    y: NDArray
    levels: NDArray
    T: NDArray
    ordered: bool = False

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Shapes of the coefficients, the intercept and the dual point of a state."""
        d, m = self.mix.shape
        return (self.rank, len(self.T)), (d,), (len(self.y), m)

    @cached_property
    def mix(self) -> NDArray:
        """Combinations (d, m) of the predicted levels that the terms depend on."""
        identity = np.eye(len(self.levels))
        gaps = identity[:, :-1] - identity[:, 1:]
        return np.hstack([identity, gaps]) if self.ordered else identity

    @cached_property
    def mixed_T(self) -> NDArray:
        """The factor T of all terms, of shape (d', m)."""
        return self.T @ self.mix

    @cached_property
    def bounds(self) -> tuple[NDArray, NDArray]:
        """Lower and upper bound of the dual point of each term, of shape (m, 1)."""
        gaps = self.mix.shape[1] - len(self.levels)
        lo = np.append(self.levels - 1.0, np.full(gaps, -np.inf))
        hi = np.append(self.levels, np.zeros(gaps))
        return lo[:, None], hi[:, None]

    @cached_property
    def rows(self) -> RowLoss:
        """The losses of all entries, flat, and those of the levels first."""
        lo, hi = (np.repeat(bound, len(self.y)) for bound in self.bounds)
        return RowLoss(lo, hi)

    @cached_property
    def level_rows(self) -> RowLoss:
        """The losses of the entries of the levels."""
        return self.rows.take(slice(len(self.levels) * len(self.y)))

    @cached_property
    def entry_weights(self) -> NDArray:
        """Weight of each entry, flat."""
        return np.tile(self.weights, self.mix.shape[1])

    def predict(self, W: NDArray, b: NDArray) -> NDArray:
        """Return the predictions of all terms, ``(Z W T + b)^T`` mixed: (m, n)."""
        out = np.ascontiguousarray(self.design.mv(W @ self.mixed_T).T)
        if b.any():
            out += (b @ self.mix)[:, None]
        return out

    def residual(self, coef: NDArray, intercept: NDArray) -> NDArray:
        """Return the residuals of all terms, of shape (m, n)."""
        res = -self.predict(coef, intercept)
        res[: len(self.levels)] += self.y
        return res

    def sizes(self, res: NDArray) -> NDArray:
        """Return the absolute residuals of the rows of positive weight."""
        return np.abs(res[: len(self.levels), self.weights > 0])

    def slack(self, res: NDArray, a: NDArray) -> float:
        """Return the sum of products of gaps and multipliers, and of crossings."""
        d = len(self.levels)
        gaps = self.weights * res[d:]
        return -float(np.vdot(a[d:], np.maximum(gaps, 0.0)) + np.minimum(gaps, 0).sum())

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
        """Return the certificate of (W, b) and a; `gradient` is ``Z^T (s a)^T``.

        If `ordered`, b is shifted first so that no quantiles of these rows cross.
        """
        if gradient is None:
            gradient = self.design.rmv((self.weights * a).T)
        imbalance, d = np.zeros(len(b)), len(self.levels)
        if self.fit_intercept:
            a, gradient = self._balanced(a, gradient)
            imbalance = self.mix @ (a @ self.weights)
        if self.ordered:
            b, res = self._uncrossed(b, res)
        level_res = res[:d].ravel()
        weights = self.entry_weights[: len(level_res)]
        young = self.level_rows.young(level_res, weights, a[:d].ravel())
        young += float(np.abs(b * imbalance).sum()) + self.slack(res, a)
        row_losses = self.level_rows.values(level_res).reshape(d, -1).sum(axis=0)
        rho = self.alpha * W - gradient @ self.mixed_T.T / self.n
        return certificate(self, W, b, a.copy(), rho, row_losses, young)

    def _uncrossed(self, b: NDArray, res: NDArray) -> tuple[NDArray, NDArray]:
        """Return b, its upper levels raised until no quantiles cross, and residuals."""
        d, counted = len(self.levels), self.weights > 0
        raised = np.maximum(-res[d:, counted].min(axis=1), 0.0)
        shift = np.append(0.0, np.cumsum(raised))
        res = res - (shift @ self.mix)[:, None]
        np.maximum(res[d:], 0.0, out=res[d:])  # what rounding of the sums leaves
        return b + shift, res

    def _balanced(self, a: NDArray, gradient: NDArray) -> tuple[NDArray, NDArray]:
        """Return `a` with a weighted sum of zero for every output, and its gradient."""
        d = len(self.levels)
        lo, hi = (bound[:d] for bound in self.bounds)
        pace = ((a[:d] > lo) & (a[:d] < hi)).astype(float)
        totals = -self.mix[:, d:] @ (a[d:] @ self.weights)
        balanced = a.copy()
        for j in range(d):
            known = a[j], self.weights, lo[j], hi[j], pace[j]
            balanced[j] = balance(*known, float(totals[j]))
        rows = np.flatnonzero((balanced != a).any(axis=0))
        if len(rows):
            step = self.weights[rows] * (balanced[:, rows] - a[:, rows])
            gradient = gradient + self.design.rmv(step.T, rows)
        return balanced, gradient
