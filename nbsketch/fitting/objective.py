"""The problem of a fit: checked rows, the objective on their features, settings."""

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
from nbsketch.fitting.alpha import AlphaPath, LeftOut, random_folds
from nbsketch.fitting.settings import Plan, SolveOptions, StochasticSolver
from nbsketch.fitting.sizes import iterative_size
from nbsketch.fitting.sketched import TuningTarget
from nbsketch.fitting.training import TrainingRows
from nbsketch.kernels import weighted_median
from nbsketch.solvers._newton.start import shared
from nbsketch.solvers.design import Design
from nbsketch.solvers.folds import Fold, OrderEffect
from nbsketch.solvers.solution import Solution, State
from nbsketch.solvers.stochastic import solve_stochastic

# Rows times squared features up to which a path is that of all rows.
_SMALL_PATH = 1e10


@dataclass(frozen=True)
class Objective(ABC):
    """Targets, weights and intercept of a problem on features."""

    # Whether features are stored; None: only while they are small.
    keep_features: ClassVar[bool | None] = True
    # Whether all penalties share one decomposition.
    is_closed_form: ClassVar[bool] = False
    # Whether a given penalty is solved for on the Gram matrix where all rows are taken.
    solves_gram: ClassVar[bool] = False

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

    def tuning_target(self, alpha: float | None) -> TuningTarget:
        """Return the problem for which length scales are learned."""
        square = None if alpha is None else alpha / self.slope_ratio()
        args = self.targets, self.weights, self.is_robust, square
        return TuningTarget(*args, self.folds)

    def choose_alpha(self, design: Design, rng: np.random.Generator) -> float:
        """Return the penalty of least held-out loss; of few rows, in five random folds.

        It is found on a smaller problem if that of all features is expensive or beyond
        memory.
        """
        n_bytes = design.dtype.itemsize * design.shape[0] * design.shape[1]
        if self._is_expensive(design.shape[1]) or not fits(n_bytes):
            return LeftOut(self, design, rng).reduced_alpha()
        if len(self.targets) * design.shape[1] ** 2 > _SMALL_PATH:
            return LeftOut(self, design, rng).sampled_alpha()
        folds = self.folds or random_folds(len(self.targets), rng)
        return LeftOut(replace(self, folds=folds), design, rng).path().best

    def _is_expensive(self, rank: int) -> bool:
        """Return whether a path of penalties on so many features takes long."""
        return False

    def errors_left_out(
        self, design: Design, alpha: float | None, rng: np.random.Generator
    ) -> AlphaPath:
        """Return errors on rows left out, for one penalty or a path (None)."""
        return LeftOut(self, design, rng).path(alpha)

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
        return weighted_mean(np.abs(self._centered()), self.weights) or 1.0

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
            gap=float(max(s.relative_gap for s in solutions)),
            n_iter=max(1, *(s.n_iter for s in solutions)),
            shortfall=missed[0].shortfall(tol) if missed else None,
            states=tuple(s.state for s in solutions),
        )

    def _couple(self, coef: NDArray) -> NDArray:
        """Return coefficients of the outputs from those of a solver."""
        return coef


def weighted_mean(values: NDArray, weights: NDArray | None) -> float:
    """Return the mean over weighted rows and all columns."""
    if weights is None:
        return float(values.mean())
    return float(
        np.average(values.reshape(len(values), -1).mean(axis=1), weights=weights)
    )


class Problem(NamedTuple):
    """What a fit solves.

    Attributes
    ----------
    rows : ndarray or csr_array of shape (n, q)
        Checked training rows.
    objective : Objective
        The objective on their features.
    plan : Plan
        How rows are sketched and the objective is minimized.
    single_output : bool
        Whether the fitted attributes have no axis of outputs.
    held_out : TrainingRows or None
        Rows that are not fitted: they calibrate intervals.
    kept : ndarray of shape (n,) or None
        Indices of the rows among those given. None: all of them.
    """

    rows: Any
    objective: Objective
    plan: Plan
    single_output: bool
    held_out: TrainingRows | None = None
    kept: NDArray | None = None

    def with_bandwidth(self, bandwidth: float) -> Problem:
        """Return the problem with another bandwidth."""
        return self._replace(plan=replace(self.plan, bandwidth=bandwidth))


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
    def of_rows(cls, solution: Solution, alpha: float, tol: float) -> FeatureSolution:
        """Return the solution with one coefficient for each row or landmark."""
        return cls(
            solution.coef,
            np.atleast_1d(solution.intercept),
            alpha,
            solution.objective,
            solution.relative_gap,
            n_iter=max(1, solution.n_iter),
            shortfall=None if solution.converged else solution.shortfall(tol),
            rank=len(solution.coef),
        )

    def as_start(self) -> FeatureSolution:
        """Return the solution as the start for another penalty."""
        states = (s._replace(sigma=None) if s else None for s in self.states)
        return self._replace(states=tuple(states))
