"""The problems that a certified search solves: their base, checks, Gram matrix."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_matrix
from nbsketch.losses import Loss
from nbsketch.solvers.design import Design
from nbsketch.solvers.row_loss import typical_mean
from nbsketch.solvers.solution import State

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


def check_targets(name: str, value: ArrayLike, shape: tuple[int, ...]) -> NDArray:
    """Return `value` as a finite float array of the given shape."""
    array = np.ascontiguousarray(value, dtype=float)
    if array.shape != shape:
        raise ValueError(f"`{name}` must have shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"`{name}` must be finite, got NaN or infinity")
    return array


def check_labels(name: str, values: NDArray, loss: Loss) -> NDArray:
    """Return `values` if they suit the loss: -1 and +1 for a classification loss."""
    if loss.is_classification and not np.isin(values, (-1.0, 1.0)).all():
        raise ValueError(
            f"`{name}` must hold -1 and +1 only for {loss!r}, got "
            f"{np.unique(values)[:5]}"
        )
    return values


def check_weights(sample_weight: ArrayLike | None, n: int) -> NDArray:
    """Return the weights of the rows, one each if None."""
    if sample_weight is None:
        return np.ones(n)
    # a copy, for a read-only array would be compiled for once more
    weights = np.array(sample_weight, dtype=float)
    if weights.shape != (n,):
        raise ValueError(f"`sample_weight` must have shape ({n},), got {weights.shape}")
    if not (np.isfinite(weights).all() and weights.min() >= 0 and weights.any()):
        raise ValueError(
            "`sample_weight` must be finite and nonnegative with a positive sum, got a "
            f"minimum of {weights.min()} and a sum of {weights.sum()}"
        )
    return weights


def check_factor(T: ArrayLike, n_outputs: int | None = None) -> NDArray:
    """Return T as a float matrix, with one column per output if that is given."""
    return check_matrix("T", T, n_features=n_outputs).astype(float)


def check_state(state: State, *shapes: tuple[int, ...]) -> None:
    """Raise an error if coef, intercept or dual of `state` have other shapes."""
    values: tuple[Any, ...] = (state.coef, state.intercept, state.dual)
    for name, value, shape in zip(State._fields, values, shapes, strict=False):
        if value is not None and np.shape(value) != shape:
            raise ValueError(
                f"`state.{name}` must have shape {shape}, got {np.shape(value)}: "
                "`state` must hold a solution of a problem with the same numbers of "
                "rows, features and outputs"
            )


def gram_of(part: Problem, rows: NDArray | None, exact: bool) -> NDArray:
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
