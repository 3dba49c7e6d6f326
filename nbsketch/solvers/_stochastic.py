"""The problem of the stochastic methods: checked data and the exact objective."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch import losses
from nbsketch._jit.sgd import COLUMNS, LOGISTIC, MARGIN, RADIAL
from nbsketch._report.validation import check_real
from nbsketch.solvers._certified import checks
from nbsketch.solvers.design import Design
from nbsketch.solvers.row_loss import conjugate_numbers


@dataclass(frozen=True)
class StochasticProblem:
    """Checked data of the problem; predictions are ``Z coef mix + b``."""

    design: Design
    targets: NDArray  # (n, d), or (n, 1) for d outputs
    weights: NDArray
    loss: losses.Loss
    kind: int
    numbers: NDArray  # (4, d)
    alpha: float
    mix: NDArray  # (d', d)
    fit_intercept: bool
    scalar: bool  # one output, and arrays without its axis

    @property
    def n_outputs(self) -> int:
        """Number of outputs d."""
        return self.mix.shape[1]

    def split(self, point: NDArray) -> tuple[NDArray, NDArray]:
        """Return views of coefficients (r, d') and intercept in a flat point."""
        size = len(point) - self.n_outputs
        return point[:size].reshape(len(self.mix), -1).T, point[size:]

    def answer(self, coef: NDArray, intercept: NDArray) -> tuple[NDArray, Any]:
        """Return coefficients and intercept in the form returned by solvers."""
        coef = np.ascontiguousarray(coef)
        return (coef[:, 0], float(intercept[0])) if self.scalar else (coef, intercept)

    def middle(self) -> NDArray:
        """Return the starting value of the intercept, of shape (d,)."""
        if isinstance(self.loss, losses.SquareLoss | losses.SquaredHingeLoss):
            return np.average(self.targets, axis=0, weights=self.weights)
        rows = self.targets[self.weights > 0]
        if self.kind == LOGISTIC:  # half a row more per class: both are finite
            high, low = (self.weights @ (s * self.targets > 0) for s in (1, -1))
            return np.log((high + 0.5) / (low + 0.5))
        if rows.shape[1] < self.n_outputs:
            return np.quantile(rows[:, 0], self.numbers[3])
        return np.median(rows, axis=0)

    def objective(self, coef: NDArray, intercept: NDArray) -> float:
        """Return the exact value at coefficients (r, d')."""
        # a diverged point may still be finite; its value then shows the divergence
        with np.errstate(over="ignore", invalid="ignore"):
            predictions = self.design.mv(coef) @ self.mix + intercept
            loss = self.weights @ self._values(predictions) / len(self.weights)
            return float(loss + self.alpha / 2 * np.vdot(coef, coef))

    def _values(self, predictions: NDArray) -> NDArray:
        if self.loss.is_classification:
            return self.loss.value(self.targets * predictions).sum(axis=1)
        residuals = self.targets - predictions
        if self.kind == RADIAL:
            return self.loss.norm_value(residuals)
        if self.scalar:
            return self.loss.value(residuals[:, 0])
        lo, hi = self.numbers[2:]
        return np.maximum(lo * residuals, hi * residuals).sum(axis=1)


def stochastic_problem(
    design: Design,
    Y: ArrayLike,
    loss: losses.Loss | str,
    alpha: float,
    sample_weight: ArrayLike | None,
    fit_intercept: bool,
    T: NDArray | None = None,
    quantiles: Sequence[float] | None = None,
) -> StochasticProblem:
    """Check the arguments of `solve_sgm`, and for several outputs.

    `T` (d', d) is a factor of the output matrix, M = T^T T; None: the identity. With
    levels `quantiles` (d,) of a joint pinball loss, the d losses are added and the
    level of `loss` is ignored. These two are not checked.
    """
    loss = losses.as_loss(loss)
    n = design.shape[0]
    targets = _targets(Y, n, loss)
    scalar = targets.ndim == 1 and quantiles is None
    targets = targets.reshape(n, -1)
    n_outputs = targets.shape[1] if quantiles is None else len(quantiles)
    return StochasticProblem(
        design, targets, checks.weights(sample_weight, n), loss,
        _kind(loss, scalar or quantiles is not None),
        _numbers(loss, quantiles, n_outputs), check_real("alpha", alpha, low=0),
        np.eye(n_outputs) if T is None else T, bool(fit_intercept), scalar,
    )  # fmt: skip


def _targets(Y: ArrayLike, n: int, loss: losses.Loss) -> NDArray:
    # a copy, because a read-only array would need another compilation
    targets = np.array(Y, dtype=float, order="C")
    if targets.ndim not in (1, 2) or len(targets) != n or targets.size == 0:
        raise ValueError(f"`Y` must have shape ({n},) or ({n}, d), got {targets.shape}")
    checks.targets("Y", targets, targets.shape)
    if targets.ndim == 2 and not (loss.is_radial or loss.is_classification):
        raise ValueError(
            f"`Y` must have shape ({n},) for {loss!r}, got {targets.shape}"
        )
    return checks.labels("Y", targets, loss)


def _kind(loss: losses.Loss, by_column: bool) -> int:
    if type(loss) is losses.LogisticLoss:
        return LOGISTIC
    if loss.elq is None:
        raise TypeError(
            "`loss` must be logistic or give `elq` numbers for stochastic steps, got "
            f"{loss!r}"
        )
    if loss.is_classification:
        return MARGIN
    if by_column:
        return COLUMNS
    loss.check_radial()
    return RADIAL


def _numbers(
    loss: losses.Loss, quantiles: Sequence[float] | None, n_outputs: int
) -> NDArray:
    numbers = np.empty((4, n_outputs))
    numbers[:] = np.array(conjugate_numbers(loss))[:, None]
    if quantiles is not None:
        numbers[3] = quantiles
        numbers[2] = numbers[3] - 1.0
    return numbers
