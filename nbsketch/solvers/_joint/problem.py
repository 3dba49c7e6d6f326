"""The joint quantile problem: data, certificate and the start of a search.

Arrays over the rows are output-major, (d, n): one output is contiguous, and flattened
they are what the scalar kernels take, with one pair of bounds per entry.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.linear_quadratic import loss_values, young_sum
from nbsketch.solvers._certified.certificate import balance, typical_loss
from nbsketch.solvers._certified.checks import typical_size
from nbsketch.solvers.design import Design


@dataclass(frozen=True)
class JointProblem:
    """Minimize ``sum_ij s_i psi_j(y_i - (Z W T)_ij - b_j) / n + (alpha / 2) |W|^2``.

    psi_j is the pinball loss of the j-th level: its dual point lies in the interval
    [level - 1, level]. `n` stays that of the whole problem when the rows are only those
    still in play.
    """

    design: Design
    y: NDArray
    weights: NDArray
    uniform: bool  # all weights are one
    levels: NDArray
    T: NDArray
    alpha: float
    fit_intercept: bool
    n: float

    @property
    def rank(self) -> int:
        """Number of features."""
        return self.design.shape[1]

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

    def residual(self, W: NDArray, b: NDArray) -> NDArray:
        """Return the residuals, of shape (d, n)."""
        return self.y - self.predict(W, b)

    def spread(self, res: NDArray) -> float:
        """Return the typical size of a residual."""
        return typical_size(np.abs(res[:, self.weights > 0]))

    def take(self, rows: NDArray) -> "JointProblem":
        """Return the same problem with the sums over `rows` only."""
        return replace(
            self,
            design=self.design.gather(rows),
            y=self.y[rows],
            weights=self.weights[rows],
        )

    def sample(self, rows: NDArray) -> "JointProblem":
        """Return the smaller problem of `rows` alone: a mean over them, same alpha."""
        part = self.take(rows)
        weights = part.weights / part.weights.mean()
        return replace(part, weights=weights, n=float(len(rows)))


class JointCertificate(NamedTuple):
    """A primal and a dual point, and what they prove of each other."""

    coef: NDArray
    intercept: NDArray
    dual: NDArray
    objective: float
    gap: float
    scale: float


def certify(
    problem: JointProblem,
    W: NDArray,
    b: NDArray,
    res: NDArray,
    a: NDArray,
    gradient: NDArray | None = None,
) -> JointCertificate:
    """Return the certificate of (W, b) and a; `gradient` is ``Z^T (s a)^T``."""
    p = problem
    if gradient is None:
        gradient = p.design.rmv((p.weights * a).T)
    imbalance = np.zeros(len(b))
    if p.fit_intercept:
        a, gradient = _balanced(p, a, gradient)
        imbalance = a @ p.weights
    flat = res.ravel(), p.entry_weights, a.ravel()
    young = young_sum(*flat, p.lo, p.hi, 0.0, 0.0) + np.abs(b * imbalance).sum()
    losses = np.empty(res.size)
    loss_values(res.ravel(), p.lo, p.hi, 0.0, 0.0, losses)
    row_losses = losses.reshape(res.shape).sum(axis=0)
    rho = p.alpha * W - gradient @ p.T.T / p.n
    penalty = p.alpha / 2 * float(np.vdot(W, W))
    objective = float(p.weights @ row_losses / p.n + penalty)
    gap = float(young / p.n + np.vdot(rho, rho) / (2 * p.alpha))
    scale = typical_loss(row_losses, p.weights, p.n) + penalty
    return JointCertificate(W.copy(), b.copy(), a.copy(), objective, gap, scale)


def _balanced(
    p: JointProblem, a: NDArray, gradient: NDArray
) -> tuple[NDArray, NDArray]:
    """Return `a` with a weighted sum of zero for every output, and its gradient."""
    lo, hi = p.lo.reshape(a.shape), p.hi.reshape(a.shape)
    pace = ((a > lo) & (a < hi)).astype(float)
    balanced = np.array(
        [
            balance(*row)
            for row in zip(a, [p.weights] * len(a), lo, hi, pace, strict=True)
        ]
    )
    rows = np.flatnonzero((balanced != a).any(axis=0))
    if len(rows):
        step = p.weights[rows] * (balanced[:, rows] - a[:, rows])
        gradient = gradient + p.design.rmv(step.T, rows)
    return balanced, gradient
