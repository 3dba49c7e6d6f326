"""The problem of a loss on the norm of a residual vector, and its certificate.

The outputs are turned so that the factor of the output matrix is diagonal: norms do
not change, and every output has its own scale. For any W, b and any a with rows of
length at most hi and ``sum_i s_i a_i = 0`` (if b is free),

    P(W, b) - D(a) = sum_i s_i [phi(|r_i|) + phi*(|a_i|) - a_i . r_i] / n
                     + |alpha W - Z^T (s a) diag(t) / n|^2 / (2 alpha),

a sum of terms that are at least 0.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.linear_quadratic import loss_values
from nbsketch._jit.radial import radial_young
from nbsketch.losses import ELQ
from nbsketch.solvers._certified.certificate import typical_loss
from nbsketch.solvers._certified.checks import typical_size
from nbsketch.solvers.design import Design

# A free intercept shifts the dual point where it lies between the kinks, if that takes
# less than this share of the bound, else everywhere.
_SLIGHT = 0.1


@dataclass(frozen=True)
class RadialProblem:
    """Minimize ``sum_i s_i phi(|Y_i - (Z W)_i t - b|) / n + (alpha / 2) |W|^2``.

    t scales the outputs, one by one; those after the last entry of t see b only.
    """

    design: Design
    Y: NDArray
    weights: NDArray
    numbers: ELQ
    t: NDArray
    alpha: float
    fit_intercept: bool
    n: float

    @property
    def rank(self) -> int:
        """Number of features."""
        return self.design.shape[1]

    @property
    def radial_numbers(self) -> tuple[float, float, float]:
        """The numbers gam, eps and hi of the conjugate."""
        return self.numbers.gam, self.numbers.eps, self.numbers.hi

    def predict(self, W: NDArray, b: NDArray) -> NDArray:
        """Return ``Z W t + b``, of shape (n, d)."""
        if not W.any():
            return np.tile(b, (len(self.Y), 1))
        scaled = np.zeros((self.rank, len(b)))
        scaled[:, : len(self.t)] = W * self.t
        out = self.design.mv(scaled)
        if b.any():
            out += b
        return out

    def pull(self, A: NDArray) -> NDArray:
        """Return ``Z^T A`` scaled by t, the adjoint of `predict` in W."""
        return self.design.rmv(A)[:, : len(self.t)] * self.t

    def bounded(self, a: NDArray) -> NDArray:
        """Return `a` with its rows cut to the bound on their length."""
        size = np.sqrt(np.einsum("ij,ij->i", a, a))
        return a * np.minimum(1.0, self.numbers.hi / np.maximum(size, 1e-300))[:, None]

    def residual(self, W: NDArray, b: NDArray) -> NDArray:
        """Return ``Y - Z W t - b``."""
        return self.Y - self.predict(W, b)

    def spread(self, res: NDArray) -> float:
        """Return the typical length of a residual."""
        return typical_size(np.linalg.norm(res[self.weights > 0], axis=1))

    def sample(self, rows: NDArray) -> "RadialProblem":
        """Return the smaller problem of `rows` alone: a mean over them, same alpha."""
        weights = self.weights[rows] / self.weights[rows].mean()
        design = self.design.gather(rows)
        return replace(
            self, design=design, Y=self.Y[rows], weights=weights, n=float(len(rows))
        )


class RadialCertificate(NamedTuple):
    """A primal and a dual point, and what they prove of each other."""

    coef: NDArray
    intercept: NDArray
    dual: NDArray
    objective: float
    gap: float
    scale: float


def certify(
    problem: RadialProblem,
    W: NDArray,
    b: NDArray,
    res: NDArray,
    a: NDArray,
    between: NDArray,
    pulled: NDArray,
) -> RadialCertificate:
    """Return the certificate of (W, b) and a.

    `between` marks the rows between kinks, and `pulled` is ``Z^T (s a)`` scaled by t.
    """
    p, imbalance = problem, np.zeros(len(b))
    if p.fit_intercept:
        a, pulled = _balanced(p, a, between, pulled)
        imbalance = p.weights @ a
    rho = p.alpha * W - pulled / p.n
    young = radial_young(res, p.weights, a, *p.radial_numbers)
    young += float(np.abs(b * imbalance).sum())
    losses = _losses(p, res)
    penalty = p.alpha / 2 * float(np.vdot(W, W))
    objective = float(p.weights @ losses) / p.n + penalty
    gap = young / p.n + float(np.vdot(rho, rho)) / (2 * p.alpha)
    scale = typical_loss(losses, p.weights, p.n) + penalty
    return RadialCertificate(W.copy(), b.copy(), a.copy(), objective, gap, scale)


def _losses(p: RadialProblem, res: NDArray) -> NDArray:
    size, e = np.sqrt(np.einsum("ij,ij->i", res, res)), p.numbers
    lo, hi = np.full(len(size), e.lo), np.full(len(size), e.hi)
    losses = np.empty(len(size))
    loss_values(size, lo, hi, e.gam, e.eps, losses)
    return losses


def _balanced(
    p: RadialProblem, a: NDArray, between: NDArray, pulled: NDArray
) -> tuple[NDArray, NDArray]:
    """Return `a` with a weighted sum of zero, and what ``Z^T (s a)`` becomes.

    It is shifted, and then shrunk if that broke a bound.
    """
    total, room, hi = p.weights @ a, p.weights @ between, p.numbers.hi
    if not total.any():
        return a, pulled
    pace, mass = np.ones(len(a)), p.weights.sum()
    if room > 0 and np.linalg.norm(total) <= _SLIGHT * hi * room:
        pace, mass = between, room
    shift = total / mass
    a = a - pace[:, None] * shift
    k = len(p.t)
    pulled = pulled - np.outer(p.design.rmv(p.weights * pace), shift[:k] * p.t)
    longest = float(np.sqrt(np.einsum("ij,ij->i", a, a).max()))
    shrink = hi / longest if longest > hi else 1.0
    return shrink * a, shrink * pulled
