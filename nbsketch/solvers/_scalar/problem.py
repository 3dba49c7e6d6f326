"""The scalar problem a solver works on: data, bounds of the dual point, penalty."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_positive
from nbsketch.losses import ELQ, Loss
from nbsketch.solvers.design import Design


@dataclass(frozen=True)
class Problem:
    """Minimize ``sum_i s_i psi_i(y_i - z_i w - b) / n + (alpha / 2) |w|^2``.

    `n` stays that of the whole problem when the rows are only those still in play.
    The conjugate of psi_i is ``gam a^2 / 2 + eps |a|`` on ``[lo_i, hi_i]``.
    """

    design: Design
    y: NDArray
    weights: NDArray
    uniform: bool  # all weights are one
    lo: NDArray
    hi: NDArray
    gam: float
    eps: float
    alpha: float
    fit_intercept: bool
    n: float

    @property
    def rank(self) -> int:
        """Number of features."""
        return self.design.shape[1]

    def residual(self, w: NDArray, b: float) -> NDArray:
        """Return ``y - Z w - b``."""
        out = self.design.mv(w)
        np.subtract(self.y, out, out=out)
        if b != 0.0:
            out -= b
        return out

    def take(self, rows: NDArray) -> "Problem":
        """Return the same problem with the sums over `rows` only."""
        return replace(
            self,
            design=self.design.gather(rows),
            y=self.y[rows],
            weights=self.weights[rows],
            lo=self.lo[rows],
            hi=self.hi[rows],
        )

    def sample(self, rows: NDArray) -> "Problem":
        """Return the smaller problem of `rows` alone: a mean over them, same alpha."""
        part = self.take(rows)
        weights = part.weights / part.weights.mean()
        return replace(part, weights=weights, n=float(len(rows)))


def scalar_problem(
    design: Design,
    y: ArrayLike,
    loss: Loss,
    alpha: float,
    sample_weight: ArrayLike | None,
    fit_intercept: bool,
) -> Problem:
    """Check the arguments and build the problem.

    A classification loss of 1 - y f is one of y - f with its bounds turned by the sign
    of y, so no copy of the features is ever multiplied by the labels.
    """
    n = design.shape[0]
    y = _vector("y", y, n)
    if loss.is_classification and not np.isin(y, (-1.0, 1.0)).all():
        raise ValueError(
            f"`y` must hold -1 and +1 only for {loss!r}, got {np.unique(y)[:5]}"
        )
    uniform = sample_weight is None
    weights = np.ones(n) if uniform else _vector("sample_weight", sample_weight, n)
    if weights.min() < 0 or not weights.any():
        raise ValueError(
            "`sample_weight` must be nonnegative with a positive sum, got a minimum of "
            f"{weights.min()} and a sum of {weights.sum()}"
        )
    numbers = loss.elq or ELQ(0.0, 0.0, 0.0, 1.0)  # logistic: the box of the hinge
    lo, hi = np.full(n, numbers.lo), np.full(n, numbers.hi)
    if loss.is_classification:
        lo, hi = np.where(y > 0, lo, -hi), np.where(y > 0, hi, -lo)
    return Problem(
        design, y, weights, uniform, lo, hi, numbers.gam, numbers.eps,
        check_positive("alpha", alpha), bool(fit_intercept), float(n),
    )  # fmt: skip


def _vector(name: str, value: Any, n: int) -> NDArray:
    array = np.ascontiguousarray(value, dtype=float)
    if array.shape != (n,):
        raise ValueError(f"`{name}` must have shape ({n},), got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"`{name}` must be finite, got NaN or infinity")
    return array
