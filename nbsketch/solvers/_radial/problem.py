"""The problem of a loss of the norm of residual vectors: data and certificate.

The outputs are turned so that the factor of the output matrix is diagonal: norms do
not change, and every output has its own scale. For any W, b and any a with rows of
length at most hi and ``sum_i s_i a_i = 0`` (if b is free),

    P(W, b) - D(a) = sum_i s_i [phi(|r_i|) + phi*(|a_i|) - a_i . r_i] / n
                     + |alpha W - Z^T (s a) diag(t) / n|^2 / (2 alpha),

a sum of terms that are at least 0.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.radial import radial_young
from nbsketch.losses import ELQ
from nbsketch.solvers._certified.problem import Certificate, Problem, certificate

# A free intercept shifts the dual point where it lies between the kinks, if that takes
# less than this share of the bound, else everywhere.
_SLIGHT = 0.1


@dataclass(frozen=True, kw_only=True)
class RadialProblem(Problem):
    """Minimize ``sum_i s_i phi(|Y_i - (Z W)_i t - b|) / n + (alpha / 2) |W|^2``.

    t scales the outputs, one by one; those after the last entry of t have b only.
    """

    row_arrays: ClassVar[tuple[str, ...]] = ("Y", "weights")

    Y: NDArray
    numbers: ELQ
    t: NDArray

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Shapes of the coefficients, the intercept and the dual point."""
        return (self.rank, len(self.t)), self.Y.shape[1:], self.Y.shape

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

    def transposed(self, A: NDArray) -> NDArray:
        """Return ``Z^T A`` scaled by t, the adjoint of `predict` in W."""
        return self.design.rmv(A)[:, : len(self.t)] * self.t

    def bounded(self, a: NDArray) -> NDArray:
        """Return `a` with its rows cut to the bound on their length."""
        size = np.sqrt(np.einsum("ij,ij->i", a, a))
        return a * np.minimum(1.0, self.numbers.hi / np.maximum(size, 1e-300))[:, None]

    def residual(self, coef: NDArray, intercept: NDArray) -> NDArray:
        """Return ``Y - Z W t - b``."""
        return self.Y - self.predict(coef, intercept)

    def sizes(self, res: NDArray) -> NDArray:
        """Return the norms of the residuals of the rows of positive weight."""
        return np.linalg.norm(res[self.weights > 0], axis=1)

    def best_constant(self) -> Any:
        """Return the medians of the outputs."""
        return self.target_quantile(self.Y, 0.5)

    def certify(
        self,
        W: NDArray,
        b: NDArray,
        res: NDArray,
        a: NDArray,
        between: NDArray,
        gradient: NDArray,
    ) -> Certificate:
        """Return the certificate of (W, b) and a.

        `between` marks the rows between kinks, and `gradient` is ``Z^T (s a)``, scaled
        by t.
        """
        imbalance = np.zeros(len(b))
        if self.fit_intercept:
            a, gradient = self._balanced(a, between, gradient)
            imbalance = self.weights @ a
        rho = self.alpha * W - gradient / self.n
        young = radial_young(res, self.weights, a, *self.radial_numbers)
        young += float(np.abs(b * imbalance).sum())
        losses = self.numbers.value(np.sqrt(np.einsum("ij,ij->i", res, res)))
        return certificate(self, W, b, a.copy(), rho, losses, young)

    def _balanced(
        self, a: NDArray, between: NDArray, gradient: NDArray
    ) -> tuple[NDArray, NDArray]:
        """Return `a` with a weighted sum of zero, and what ``Z^T (s a)`` becomes.

        It is shifted, and then shrunk if that broke a bound.
        """
        weights, hi = self.weights, self.numbers.hi
        total, room = weights @ a, weights @ between
        if not total.any():
            return a, gradient
        rate, mass = np.ones(len(a)), weights.sum()
        if room > 0 and np.linalg.norm(total) <= _SLIGHT * hi * room:
            rate, mass = between, room
        shift = total / mass
        a = a - rate[:, None] * shift
        k = len(self.t)
        gradient = gradient - np.outer(
            self.design.rmv(weights * rate), shift[:k] * self.t
        )
        longest = float(np.sqrt(np.einsum("ij,ij->i", a, a).max()))
        shrink = hi / longest if longest > hi else 1.0
        return shrink * a, shrink * gradient
