"""Objectives by outputs: scalar ones, vectors, and quantile levels of one target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nbsketch.fitting.objective import Objective, weighted_mean
from nbsketch.fitting.sizes import joint_size
from nbsketch.losses import LogLinkLoss, Loss, PinballLoss
from nbsketch.solvers._newton.start import class_starts
from nbsketch.solvers.design import Design
from nbsketch.solvers.dual import dual_path, joint_dual_path
from nbsketch.solvers.newton import solve_joint_pinball, solve_scalar
from nbsketch.solvers.radial import solve_radial
from nbsketch.solvers.row_loss import has_row_loss
from nbsketch.solvers.solution import Solution, State

# Features times levels, and times classes if there are more than two, up to which a
# path of penalties takes less than a few seconds.
_SMALL_JOINT, _SMALL_CLASSES = 400, 1000
# More classes than this hardly change the choice of their common penalty.
_MOST_CLASSES = 4


@dataclass(frozen=True)
class ScalarObjective(Objective):
    """One output, or one for each class against the rest: a column of targets each."""

    loss: Loss

    @property
    def loss_kind(self) -> str | None:
        """Kind of the loss in the rule for all rows, which ends for others."""
        if not self.has_dual_path:
            return None
        return "smooth" if self.loss.is_smooth else "kinked"

    @property
    def is_robust(self) -> bool:
        """Whether the loss is robust to outliers; labels have none."""
        return not (self.loss.is_classification or isinstance(self.loss, LogLinkLoss))

    def choose_alpha(self, design: Design, rng: np.random.Generator) -> float:
        """Return the penalty of least held-out loss, of at most four classes."""
        return super(ScalarObjective, self.with_few_parts()).choose_alpha(design, rng)

    def with_few_parts(self) -> Self:
        """Return the objective of the four largest classes."""
        return replace(self, targets=self.targets[:, _largest_classes(self.targets)])

    def _is_expensive(self, rank: int) -> bool:
        classes = self.targets.shape[1]
        return classes > 2 and rank * classes > _SMALL_CLASSES

    @property
    def _parts(self) -> tuple[NDArray, ...]:
        return tuple(self.targets.T)

    def _starts(self, design: Design, alpha: float) -> tuple[State | None, ...]:
        args = self.targets, self.loss, alpha, self.weights, self.fit_intercept
        return class_starts(design, *args)

    @property
    def _stochastic(self) -> dict[str, Any]:
        return {"loss": self.loss}

    @property
    def has_dual_path(self) -> bool:
        """Whether the loss is linear-quadratic or logistic."""
        return has_row_loss(self.loss)

    def dual_path(
        self, K: Any, alphas: Iterable[float], **options: Any
    ) -> Iterator[Solution]:
        """Yield the solution on all rows of a kernel matrix for each penalty."""
        settings = options | self._weighting
        yield from dual_path(K, self.targets, self.loss, alphas, **settings)

    def _solve(self, design: Design, y: NDArray, alpha: float, **options: Any) -> Any:
        return solve_scalar(design, y, self.loss, alpha, **options)

    def spread(self) -> float:
        """Return the mean absolute deviation of the targets; 1 for labels."""
        return 1.0 if self.loss.is_classification else super().spread()

    def losses(self, fitted: NDArray) -> NDArray:
        """Return the loss of each row, summed over the columns."""
        return self.loss.of_rows(self.targets, fitted).sum(axis=1)

    def slope_ratio(self) -> float:
        """Return the mean slope of the loss over the mean residual; 1 for labels.

        Of a loss of means it is the mean curvature.
        """
        if self.loss.is_classification:
            return 1.0
        if isinstance(self.loss, LogLinkLoss):
            curvatures = self.loss.targets(self.targets) ** (2 - self.loss.power)
            return weighted_mean(curvatures, self.weights) or 1.0
        residual = self._centered()
        slopes = np.abs(self.loss.derivative(residual))
        return _ratio(slopes, np.abs(residual), self.weights)


@dataclass(frozen=True)
class RadialObjective(Objective):
    """Several outputs: a loss of the Euclidean norm of the residual."""

    loss: Loss
    factor: NDArray  # T with T^T T = M

    @property
    def _parts(self) -> tuple[NDArray, ...]:
        return (self.targets,)

    @property
    def _stochastic(self) -> dict[str, Any]:
        return {"loss": self.loss, "T": self.factor}

    def _solve(self, design: Design, y: NDArray, alpha: float, **options: Any) -> Any:
        return solve_radial(design, y, self.loss, self.factor, alpha, **options)

    def _couple(self, coef: NDArray) -> NDArray:
        return coef @ self.factor

    def losses(self, fitted: NDArray) -> NDArray:
        """Return the loss of each row."""
        return self.loss.norm_value(self.targets - fitted)

    def slope_ratio(self) -> float:
        """Return the mean slope of the loss over the mean residual."""
        norms = np.linalg.norm(self._centered(), axis=1)
        return _ratio(np.abs(self.loss.derivative(norms)), norms, self.weights)


@dataclass(frozen=True)
class JointQuantileObjective(Objective):
    """Several quantile levels of one target, coupled by an output matrix."""

    quantiles: tuple[float, ...]
    factor: NDArray  # T with T^T T = M
    # Whether the quantiles of each row are constrained to ascend.
    non_crossing: bool = False

    def default_size(self) -> int:
        """Return the default size of a sketch."""
        return joint_size(len(self.targets), len(self.quantiles))

    @property
    def has_dual_path(self) -> bool:
        """Whether nothing constrains the levels but their output matrix."""
        return not self.non_crossing

    def dual_path(
        self, K: Any, alphas: Iterable[float], **options: Any
    ) -> Iterator[Solution]:
        """Yield the solution on all rows of a kernel matrix for each penalty."""
        settings = options | self._weighting
        levels = self.targets[:, 0], self.quantiles, self.factor
        yield from joint_dual_path(K, *levels, alphas, **settings)

    def choose_alpha(self, design: Design, rng: np.random.Generator) -> float:
        """Return the penalty of least held-out loss, without constraints."""
        free = replace(self, non_crossing=False)
        return super(JointQuantileObjective, free).choose_alpha(design, rng)

    def _is_expensive(self, rank: int) -> bool:
        return rank * len(self.factor) > _SMALL_JOINT

    @property
    def _parts(self) -> tuple[NDArray, ...]:
        return (self.targets[:, 0],)

    @property
    def _stochastic(self) -> dict[str, Any]:
        shape = {"T": self.factor, "quantiles": self.quantiles}
        return {"loss": PinballLoss(), **shape}

    def _solve(self, design: Design, y: NDArray, alpha: float, **options: Any) -> Any:
        args = y, self.quantiles, self.factor, alpha
        return solve_joint_pinball(
            design, *args, non_crossing=self.non_crossing, **options
        )

    def _couple(self, coef: NDArray) -> NDArray:
        return coef @ self.factor

    def losses(self, fitted: NDArray) -> NDArray:
        """Return the pinball loss of each row, summed over the levels."""
        levels = np.array(self.quantiles)
        residual = self.targets - fitted
        return np.maximum(levels * residual, (levels - 1) * residual).sum(axis=1)

    def slope_ratio(self) -> float:
        """Return the mean slope of the loss over the mean residual."""
        residual = self._centered()
        return _ratio(np.full(residual.shape, 0.5), np.abs(residual), self.weights)


def _largest_classes(targets: NDArray) -> NDArray:
    """Return the columns of the largest classes, all of them if they are few."""
    size = np.count_nonzero(targets > 0, axis=0)
    order = np.argsort(-size, kind="stable")
    return np.sort(order[:_MOST_CLASSES])


def _ratio(slopes: NDArray, residuals: NDArray, weights: NDArray | None) -> float:
    slope, size = weighted_mean(slopes, weights), weighted_mean(residuals, weights)
    return slope / size if size > 0 and slope > 0 else 1.0
