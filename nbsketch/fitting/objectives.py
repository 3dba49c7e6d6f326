"""Objectives on given features, for any loss and any number of outputs.

An objective knows its targets and its solver. It can be restricted to some rows, solved
for one penalty, and asked for the loss of predictions; so one path of penalties, one
choice of the penalty and one cross-validation serve every estimator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nbsketch._memory import fits
from nbsketch._progress import solver_callback
from nbsketch._validation import check_choice
from nbsketch.fitting.alpha import AlphaPath, held_out, random_folds
from nbsketch.fitting.inputs import TuningTarget
from nbsketch.fitting.reduction import reduced_alpha, sampled_alpha
from nbsketch.fitting.settings import SolveOptions
from nbsketch.fitting.sizes import iterative_size, joint_size
from nbsketch.fitting.stochastic import StochasticSolver
from nbsketch.kernels.stationary import weighted_median
from nbsketch.losses import LogisticLoss, Loss, PinballLoss
from nbsketch.solvers._scalar.batch import shared
from nbsketch.solvers._scalar.classes import class_starts
from nbsketch.solvers.design import Design
from nbsketch.solvers.dual import dual_path
from nbsketch.solvers.folds import Fold
from nbsketch.solvers.joint import solve_joint_pinball
from nbsketch.solvers.joint_dual import joint_dual_path
from nbsketch.solvers.newton import solve_scalar
from nbsketch.solvers.order import OrderEffect
from nbsketch.solvers.radial import solve_radial
from nbsketch.solvers.solution import Solution, State
from nbsketch.solvers.stochastic import solve_stochastic

# Features times levels, and times classes if there are more than two, up to which a
# path of penalties takes less than a few seconds.
_SMALL_JOINT, _SMALL_CLASSES = 400, 1000
# More classes than this hardly change the choice of their common penalty.
_MOST_CLASSES = 4
# Rows times squared features up to which a path is that of all rows.
_SMALL_PATH = 1e10


class FeatureSolution(NamedTuple):
    """A solution: f(x) = coef^T z(x) + intercept.

    Expanded, f(x) = coef^T S k_x + intercept.
    """

    coef: NDArray  # (r, d)
    intercept: NDArray  # (d,)
    alpha: float
    objective: float
    gap: float  # relative
    n_iter: int
    shortfall: str | None  # a warning, if the accuracy was not reached
    states: tuple[State | None, ...] = ()
    rank: int = 0  # number of features
    path: dict[str, NDArray] | None = None  # on which a filter's alpha was chosen
    order: OrderEffect | None = None  # if single rows have chosen alpha

    @classmethod
    def of_rows(cls, found: Solution, alpha: float, tol: float) -> FeatureSolution:
        """Return the solution with one coefficient for each row or landmark."""
        return cls(
            found.coef,
            np.atleast_1d(found.intercept),
            alpha,
            found.objective,
            found.relative_gap,
            n_iter=max(1, found.n_iter),
            shortfall=None if found.converged else found.shortfall(tol),
            rank=len(found.coef),
        )

    def as_start(self) -> FeatureSolution:
        """Return the solution as the start for another penalty."""
        states = (s._replace(sigma=None) if s else None for s in self.states)
        return self._replace(states=tuple(states))


@dataclass(frozen=True)
class Objective(ABC):
    """Targets, weights and intercept of a problem on features."""

    # Whether features are stored; None: only while they are small.
    keep_features: ClassVar[bool | None] = True
    # Whether all penalties share one decomposition.
    is_closed_form: ClassVar[bool] = False

    targets: NDArray
    weights: NDArray | None
    fit_intercept: bool
    # Rows that are left out together; None: one by one, or a random part of them.
    folds: tuple[Fold, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_choice("fit_intercept", self.fit_intercept, [False, True])

    def default_size(self) -> int:
        """Return the default size of a sketch."""
        return iterative_size(len(self.targets), len(self._parts))

    @property
    def loss_kind(self) -> str | None:
        """Kind of the loss in the rule for all rows; None: a sketch for any n."""
        return None

    @property
    def is_robust(self) -> bool:
        """Whether the loss is robust to outliers."""
        return True

    def with_few_parts(self) -> Self:
        """Return an objective that is cheaper, and whose best penalty is as good."""
        return self

    @property
    def has_dual_path(self) -> bool:
        """Whether there is a solver on all rows, by products with their matrix."""
        return False

    def dual_path(
        self, K: Any, alphas: Iterable[float], **options: Any
    ) -> Iterator[Solution]:
        """Yield the solution on all rows of a kernel matrix for each penalty."""
        raise NotImplementedError

    def tuning_target(self, alpha: float | None) -> TuningTarget:
        """Return the problem for which length scales are learned."""
        square = None if alpha is None else alpha / self.slope_ratio()
        known = self.targets, self.weights, self.is_robust, square
        return TuningTarget(*known, self.folds)

    def fit(
        self,
        design: Design,
        alpha: float | None,
        options: SolveOptions,
        rng: np.random.Generator,
    ) -> FeatureSolution:
        """Solve for one penalty, chosen first if it is None."""
        if alpha is None:
            alpha = self.choose_alpha(design, rng)
        return self.solve(design, float(alpha), options)

    def choose_alpha(self, design: Design, rng: np.random.Generator) -> float:
        """Return the penalty of least held-out loss; of few rows, in five random folds.

        It is found on a smaller problem if that of all features is expensive or beyond
        memory.
        """
        n_bytes = design.dtype.itemsize * design.shape[0] * design.shape[1]
        if self._is_expensive(design.shape[1]) or not fits(n_bytes):
            return reduced_alpha(self, design, rng)
        if len(self.targets) * design.shape[1] ** 2 > _SMALL_PATH:
            return sampled_alpha(self, design, rng)
        folds = self.folds or random_folds(len(self.targets), rng)
        return held_out(replace(self, folds=folds), design, None, rng).best

    def _is_expensive(self, rank: int) -> bool:
        """Return whether a path of penalties on so many features takes long."""
        return False

    def errors_left_out(
        self, design: Design, alpha: float | None, rng: np.random.Generator
    ) -> AlphaPath:
        """Return errors on rows left out, for one penalty or a path (None)."""
        return held_out(self, design, alpha, rng)

    def path(
        self, design: Design, alphas: Iterable[float], options: SolveOptions
    ) -> Iterator[FeatureSolution]:
        """Yield the solution for each penalty, started from the one before."""
        solution = None
        for alpha in alphas:
            start = None if solution is None else solution.as_start()
            solution = self.solve(design, float(alpha), options, start)
            yield solution

    def solve(
        self,
        design: Design,
        alpha: float,
        options: SolveOptions,
        start: FeatureSolution | None = None,
    ) -> FeatureSolution:
        """Solve for one penalty, from a solution nearby if there is one."""
        parts = self._parts
        common = self._weighting | options._asdict()
        design = shared(design, len(parts))
        states = start.states if start else self._starts(design, alpha)
        solutions = [
            self._solve(design, y, alpha, state=state, **common)
            for y, state in zip(parts, states, strict=True)
        ]
        return self._combine(solutions, alpha, options.tol)

    def _starts(self, design: Design, alpha: float) -> tuple[State | None, ...]:
        """Return where the search of each part begins; None for its own choice."""
        return (None,) * len(self._parts)

    def descend(
        self, design: Design, alpha: float, solver: StochasticSolver
    ) -> FeatureSolution:
        """Solve by stochastic steps."""
        options = self._stochastic | self._weighting | solver.options()
        options["callback"] = solver_callback("steps", 0.0)
        solutions = [
            solve_stochastic(design, y, alpha=alpha, **options) for y in self._parts
        ]
        return self._combine(solutions, alpha, np.inf)

    @abstractmethod
    def losses(self, fitted: NDArray) -> NDArray:
        """Return the loss of each row for predictions of shape (n, d)."""

    @abstractmethod
    def slope_ratio(self) -> float:
        """Return the mean slope of the loss over the mean residual."""

    @property
    @abstractmethod
    def _parts(self) -> tuple[NDArray, ...]:
        """Targets of the problems that are solved one by one."""

    @property
    @abstractmethod
    def _stochastic(self) -> dict[str, Any]:
        """The loss and its shape, as `solve_stochastic` takes them."""

    @abstractmethod
    def _solve(self, design: Design, y: NDArray, alpha: float, **options: Any) -> Any:
        """Return the solution for one part of the targets."""

    def take(self, rows: NDArray) -> Self:
        """Return the objective on some rows, without folds."""
        weights = None
        if self.weights is not None and self.weights[rows].any():
            weights = self.weights[rows] / self.weights[rows].mean()
        targets = self.targets[rows]
        return replace(self, targets=targets, weights=weights, folds=None)

    def mean_loss(self, fitted: NDArray) -> float:
        """Return the weighted mean loss of predictions."""
        return float(np.average(self.losses(fitted), weights=self.weights))

    def errors(self, fitted: NDArray) -> NDArray:
        """Return the errors of cross-validation, for each output or for all in one."""
        return np.array([self.mean_loss(fitted)])

    def _centered(self) -> NDArray:
        """Return the targets minus their weighted medians."""
        if self.weights is None:
            return self.targets - np.median(self.targets, axis=0)
        return self.targets - [weighted_median(y, self.weights) for y in self.targets.T]

    def spread(self) -> float:
        """Return the mean absolute deviation of the targets from their medians."""
        return _mean(np.abs(self._centered()), self.weights) or 1.0

    @property
    def _weighting(self) -> dict[str, Any]:
        return {"sample_weight": self.weights, "fit_intercept": self.fit_intercept}

    def _combine(
        self, solutions: Sequence[Solution], alpha: float, tol: float
    ) -> FeatureSolution:
        """Return the solutions of the parts as one."""
        # A stochastic method certifies nothing, so it cannot fall short.
        missed = [s for s in solutions if not s.converged and s.dual is not None]
        coef = np.hstack([np.atleast_2d(s.coef.T).T for s in solutions])
        return FeatureSolution(
            coef=self._couple(coef),
            intercept=np.hstack([np.atleast_1d(s.intercept) for s in solutions]),
            alpha=alpha,
            objective=float(sum(s.objective for s in solutions)),
            gap=max(s.relative_gap for s in solutions),
            n_iter=max(1, *(s.n_iter for s in solutions)),
            shortfall=missed[0].shortfall(tol) if missed else None,
            states=tuple(s.state for s in solutions),
        )

    @abstractmethod
    def _couple(self, coef: NDArray) -> NDArray:
        """Return coefficients of the outputs from those of a solver."""


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
        return not self.loss.is_classification

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
        known = self.targets, self.loss, alpha, self.weights, self.fit_intercept
        return class_starts(design, *known)

    @property
    def _stochastic(self) -> dict[str, Any]:
        return {"loss": self.loss}

    @property
    def has_dual_path(self) -> bool:
        """Whether the loss is linear-quadratic or logistic."""
        return type(self.loss) is LogisticLoss or self.loss.elq is not None

    def dual_path(
        self, K: Any, alphas: Iterable[float], **options: Any
    ) -> Iterator[Solution]:
        """Yield the solution on all rows of a kernel matrix for each penalty."""
        known = options | self._weighting
        yield from dual_path(K, self.targets, self.loss, alphas, **known)

    def _solve(self, design: Design, y: NDArray, alpha: float, **options: Any) -> Any:
        return solve_scalar(design, y, self.loss, alpha, **options)

    def _couple(self, coef: NDArray) -> NDArray:
        return coef

    def spread(self) -> float:
        """Return the mean absolute deviation of the targets; 1 for labels."""
        return 1.0 if self.loss.is_classification else super().spread()

    def losses(self, fitted: NDArray) -> NDArray:
        """Return the loss of each row, summed over the columns."""
        if self.loss.is_classification:
            return self.loss.value(self.targets * fitted).sum(axis=1)
        return self.loss.value(self.targets - fitted).sum(axis=1)

    def slope_ratio(self) -> float:
        """Return the mean slope of the loss over the mean residual; 1 for labels."""
        if self.loss.is_classification:
            return 1.0
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
        known = options | self._weighting
        levels = self.targets[:, 0], self.quantiles, self.factor
        yield from joint_dual_path(K, *levels, alphas, **known)

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
        known = y, self.quantiles, self.factor, alpha
        return solve_joint_pinball(
            design, *known, non_crossing=self.non_crossing, **options
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
    slope, size = _mean(slopes, weights), _mean(residuals, weights)
    return slope / size if size > 0 and slope > 0 else 1.0


def _mean(values: NDArray, weights: NDArray | None) -> float:
    """Return the mean over weighted rows and all columns."""
    if weights is None:
        return float(values.mean())
    return float(
        np.average(values.reshape(len(values), -1).mean(axis=1), weights=weights)
    )
