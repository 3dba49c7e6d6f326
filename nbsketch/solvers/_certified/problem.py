"""Base of the problems of certified searches: checks, certificate, Gram matrix.

Gaps are bounds by weak duality, computed without cancellation.

For any w, b and any a within its bounds with ``sum_i s_i a_i = 0`` (with intercept),

    P(w, b) - D(a) = sum_i s_i [psi_i(r_i) + psi_i*(a_i) - a_i r_i] / n
                     + |alpha w - Z^T (s a) / n|^2 / (2 alpha),

a sum of nonnegative terms, each exactly 0 for a row beyond a kink. The difference of
both objectives would lose all digits to a few large outliers. With several outputs,
products of residuals and dual points are inner products, and Z^T (s a) is multiplied by
the factor of the output matrix.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._report.validation import check_positive
from nbsketch.solvers._certified import checks
from nbsketch.solvers.design import Design
from nbsketch.solvers.row_loss import typical_limit, typical_mean

# Number of targets used for a starting constant; more do not improve the quantile.
_TARGETS = 10_000
# Number of losses whose median is computed.
_SAMPLED = 2048

# Shapes of the coefficients, the intercept and the dual point of a solution.
Shapes = tuple[tuple[int, ...], ...]


class Certificate(NamedTuple):
    """A primal and a dual point, and the bound that they imply.

    Attributes
    ----------
    coef : ndarray
        Coefficients.
    intercept : float or ndarray of shape (d,)
        Intercept.
    dual : ndarray
        Dual point.
    objective : float
        Objective at (coef, intercept).
    gap : float
        Upper bound on the distance of `objective` from the minimum.
    scale : float
        Reference for the gap: the objective, with outlying losses truncated.
    noise : float
        Increase of the gap by rounding of kernel values.
    """

    coef: NDArray
    intercept: Any
    dual: Any
    objective: float
    gap: float
    scale: float
    noise: float = 0.0

    @property
    def relative_gap(self) -> float:
        """The gap plus its noise, divided by the scale; 0 if both are 0."""
        total = self.gap + self.noise
        if total == 0:
            return 0.0
        return total / self.scale if self.scale > 0 else np.inf


def loss_sums(losses: NDArray, weights: NDArray) -> tuple[float, float]:
    """Return the weighted sums of losses, and of losses with outliers truncated.

    A gap relative to an objective dominated by outliers would be loose for other rows.
    """
    sample = np.s_[:: max(1, len(losses) // _SAMPLED)]
    positive = losses[sample][(losses[sample] > 0) & (weights[sample] > 0)]
    typical = np.minimum(losses, typical_limit(positive))
    return float(weights @ losses), float(weights @ typical)


@dataclass(frozen=True, kw_only=True)
class CertifiedProblem(ABC):
    """Minimize ``sum_i s_i psi_i(r_i) / n + (alpha / 2) |coef|^2``.

    `n` is the number of rows of the original problem, also after a subclass has reduced
    the rows to the active ones. A subclass adds its targets and loss.
    """

    design: Design
    weights: NDArray
    uniform: bool = False  # all weights are known to be one
    alpha: float
    fit_intercept: bool
    n: float

    @classmethod
    def of(
        cls,
        design: Design,
        alpha: float,
        sample_weight: ArrayLike | None,
        fit_intercept: bool,
        **fields: Any,
    ) -> Self:
        """Check the fields of all problems, and add the fields of a subclass."""
        n = design.shape[0]
        return cls(
            design=design, weights=checks.weights(sample_weight, n),
            uniform=sample_weight is None, alpha=check_positive("alpha", alpha),
            fit_intercept=bool(fit_intercept), n=float(n), **fields,
        )  # fmt: skip

    @property
    def rank(self) -> int:
        """Number of features."""
        return self.design.shape[1]

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """Shapes of the coefficients, the intercept and the dual point."""

    @abstractmethod
    def residual(self, coef: NDArray, intercept: Any) -> NDArray:
        """Return the residuals."""

    @abstractmethod
    def sizes(self, res: NDArray) -> NDArray:
        """Return the absolute residuals (or norms) of the rows of positive weight."""

    @abstractmethod
    def best_constant(self) -> Any:
        """Return the starting intercept for zero coefficients."""

    def flat(self, W: NDArray, b: NDArray) -> NDArray:
        """Return one vector: W column by column, then the intercepts if fitted."""
        return np.append(W.T.ravel(), b) if self.fit_intercept else W.T.ravel()

    def split(self, flat: NDArray) -> tuple[NDArray, NDArray]:
        """Return W and b of such a vector; zero intercepts if they are not fitted."""
        (rank, width), intercepts, _ = self.shapes
        b = flat[rank * width :] if self.fit_intercept else np.zeros(intercepts)
        return flat[: rank * width].reshape(width, rank).T, b

    def certificate(
        self,
        coef: NDArray,
        intercept: Any,
        dual: Any,
        rho: NDArray,
        loss: float,
        typical: float,
        young: float,
    ) -> Certificate:
        """Return the certificate of a primal and a dual point.

        Parameters
        ----------
        coef, intercept, dual
            The two points; they are stored and must not be modified.
        rho : ndarray
            ``alpha w - Z^T (s a) / n``, in the shape of `coef`.
        loss, typical : float
            Result of `loss_sums`.
        young : float
            Sum of the weighted Fenchel-Young terms, plus ``|b . sum_i s_i a_i|``, the
            imbalance by rounding.
        """
        n = self.n
        penalty = self.alpha / 2 * float(np.vdot(coef, coef))
        gap = young / n + float(np.vdot(rho, rho)) / (2 * self.alpha)
        point = coef, intercept, dual
        return Certificate(*point, loss / n + penalty, gap, typical / n + penalty)

    def spread(self, res: NDArray) -> float:
        """Return the mean size of the nonzero residuals, with outliers truncated."""
        sizes = self.sizes(res)
        sizes = sizes[sizes > 0]
        return typical_mean(sizes) if len(sizes) else 1.0

    def centered_gram(self, exact: bool) -> tuple[NDArray, NDArray, float]:
        """Return the weighted Gram matrix, the means, and the sum of the weights.

        With an intercept, the features are centered; else the means are zero.
        """
        mass = max(float(self.weights.sum()), 1e-300)
        means = self.design.rmv(self.weights) / mass * self.fit_intercept
        scale = None if self.uniform else self.weights
        gram = self.design.gram(weights=scale, exact=exact)
        gram -= mass * np.outer(means, means)
        return gram, means, mass

    def target_quantile(self, targets: NDArray, level: Any) -> Any:
        """Return quantiles of (some of) the targets of positive weight."""
        counted = targets[self.weights > 0]
        return np.quantile(counted[:: max(1, len(counted) // _TARGETS)], level, axis=0)


def gram_of(part: CertifiedProblem, rows: NDArray | None, exact: bool) -> NDArray:
    """Return the weighted Gram matrix of some rows of a problem, the intercept last.

    Unless `exact`, it is in single precision if the features are.
    """
    weights = part.weights if rows is None else part.weights[rows]
    scale = None if part.uniform else weights
    gram = part.design.gram(rows, scale, exact=exact)
    if not part.fit_intercept:
        return gram
    out = np.empty((len(gram) + 1,) * 2)
    out[:-1, :-1] = gram
    out[:-1, -1] = out[-1, :-1] = part.design.rmv(weights, rows)
    out[-1, -1] = weights.sum()
    return out


def balance(
    a: NDArray,
    weights: NDArray,
    lo: NDArray,
    hi: NDArray,
    rate: NDArray,
    goal: float = 0.0,
) -> NDArray:
    """Return a shifted along `rate`, within its bounds, to the weighted sum `goal`.

    A dual point must have this sum if there is an intercept. If the rows with a
    positive rate cannot absorb the shift, all rows share the remainder.
    """
    for shared in (False, True):
        direction = np.ones(len(a), bool) if shared else rate
        for _ in range(20):
            total = weights @ a - goal
            if abs(total) <= 1e-15 * (weights @ np.abs(a)):
                return a
            room = np.where(total > 0, a > lo, a < hi)
            rate = weights @ (direction * room)
            if rate <= 0:
                break
            moved = total / rate * direction
            a = np.clip(np.subtract(a, moved, out=moved), lo, hi, out=moved)
    return a
