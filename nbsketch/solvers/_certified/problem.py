"""The base of the problems that a certified search solves."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers.design import Design
from nbsketch.solvers.row_loss import typical_mean

# Targets used for a starting constant: a quantile of more would be no better.
_TARGETS = 10_000
# Rows whose residuals are brought together for their spread.
_SPREAD_ROWS = 2000


@dataclass(frozen=True, kw_only=True)
class Problem(ABC):
    """Minimize ``sum_i s_i psi_i(r_i) / n + (alpha / 2) |coef|^2``.

    `n` stays that of the whole problem when `take` has reduced the rows to those still
    active. A subclass adds its targets and loss, and names in `row_arrays` the fields
    with one entry per row.
    """

    row_arrays: ClassVar[tuple[str, ...]] = ("y", "weights")

    design: Design
    weights: NDArray
    uniform: bool = False  # all weights are known to be one
    alpha: float
    fit_intercept: bool
    n: float

    @property
    def rank(self) -> int:
        """Number of features."""
        return self.design.shape[1]

    @property
    @abstractmethod
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Shapes of the coefficients, the intercept and the dual point."""

    @abstractmethod
    def residual(self, coef: NDArray, intercept: Any) -> NDArray:
        """Return the residuals."""

    @abstractmethod
    def sizes(self, res: NDArray) -> NDArray:
        """Return the absolute residuals (or norms) of the rows of positive weight."""

    @abstractmethod
    def best_constant(self) -> Any:
        """Return the intercept to start from with zero coefficients."""

    def spread(self, res: NDArray) -> float:
        """Return the mean size of the nonzero residuals, outlying ones cut down."""
        sizes = self.sizes(res)
        sizes = sizes[sizes > 0]
        return typical_mean(sizes) if len(sizes) else 1.0

    def spread_at(self, coef: NDArray, intercept: Any) -> float:
        """Return the spread of the residuals at a point.

        Residuals that stay with the blocks of the features are those of some rows.
        """
        part = self
        if self.design.keeps_rows:
            rows = np.flatnonzero(self.weights > 0)
            part = self.take(rows[:: max(1, len(rows) // _SPREAD_ROWS)])
        return part.spread(part.residual(coef, intercept))

    def target_quantile(self, targets: NDArray, level: Any) -> Any:
        """Return quantiles of (some of) the targets of positive weight."""
        counted = targets[self.weights > 0]
        return np.quantile(counted[:: max(1, len(counted) // _TARGETS)], level, axis=0)

    def take(self, rows: NDArray) -> Self:
        """Return the same problem with the sums over `rows` only."""
        known: dict[str, Any] = {
            name: getattr(self, name)[rows] for name in self.row_arrays
        }
        return replace(self, design=self.design.gather(rows), **known)

    def sample(self, rows: NDArray) -> Self:
        """Return the smaller problem of `rows` alone: a mean over them, same alpha."""
        part = self.take(rows)
        weights = part.weights / part.weights.mean()
        return replace(part, weights=weights, n=float(len(rows)))
