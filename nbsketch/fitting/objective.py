"""The problem of a fit: checked data, and the objective on features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nbsketch._report.progress import solver_callback
from nbsketch._report.validation import check_choice
from nbsketch.fitting.penalty import AlphaPath, LeftOutErrors, without_tails
from nbsketch.fitting.plan import JOINT_ROWS, Plan, SolveOptions, iterative_size
from nbsketch.rows.inputs import TrainingRows
from nbsketch.rows.outliers import medians
from nbsketch.solvers import stochastic
from nbsketch.solvers._newton.start import shared
from nbsketch.solvers.design import Design
from nbsketch.solvers.left_out import Folds, OrderEffect
from nbsketch.solvers.solution import Solution, State

# No tolerance is reduced below this one.
_FINEST = 1e-12


@dataclass(frozen=True)
class Objective(ABC):
    """Targets, weights and intercept of a problem on features."""

    # Whether features are stored; None: only if they are small.
    keep_features: ClassVar[bool | None] = True
    # Whether all penalties share one decomposition.
    is_closed_form = False
    # Whether a solution minimizes the objective, so that a gap bounds its distance.
    is_certified = True

    targets: NDArray
    weights: NDArray | None
    fit_intercept: bool
    # Rows left out together; None: single rows, or a random part.
    folds: Folds | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_choice("fit_intercept", self.fit_intercept, [False, True])

    def default_size(self) -> int:
        """Return the default size of a sketch."""
        return iterative_size(len(self.targets), len(self._parts))

    @property
    def loss_kind(self) -> str | None:
        """Kind of the exact problem on all rows; None: a sketch is required.

        "square", "smooth" or "kinked", the kinds of the loss of one output, or "joint".
        """
        return None

    @property
    def is_robust(self) -> bool:
        """Whether the loss is robust to outliers."""
        return True

    @property
    def begins_near_ridge(self) -> bool:
        """Whether paths of small data begin near the penalty of ridge regression."""
        return True

    def has_solution(self, rows: NDArray) -> bool:
        """Return whether a fit to some of the rows has a finite solution."""
        return True

    def fitted_loss(self) -> float:
        """Return the objective below which weaker penalties change little; 0: none."""
        return 0.0

    @property
    def loss_scale(self) -> float:
        """Factor of the losses relative to those of `relative`."""
        return 1.0

    def relative(self) -> Self:
        """Return the objective for targets in units of `unit`."""
        return self

    def cheaper(self) -> Self:
        """Return a cheaper objective with a similar best penalty."""
        return self

    @property
    def n_levels(self) -> int:
        """Number of coupled quantile levels; 1 for other losses."""
        return 1

    def has_features(self, size: int) -> bool:
        """Return whether Newton steps on the features of a sketch are affordable."""
        return self.n_levels == 1 or size * self.n_levels <= JOINT_ROWS

    def choose_alpha(self, design: Design, rng: np.random.Generator) -> float:
        """Return the penalty with the lowest held-out loss."""
        return LeftOutErrors(self.cheaper(), design, rng).choose_alpha()

    def is_expensive(self, rank: int) -> bool:
        """Return whether a path of penalties on this many features is slow."""
        return False

    def errors_left_out(
        self, design: Design, alpha: float | None, rng: np.random.Generator
    ) -> AlphaPath:
        """Return held-out errors for one penalty or a path (None)."""
        return LeftOutErrors(self, design, rng).path(alpha)

    def path(
        self, design: Design, alphas: Iterable[float], options: SolveOptions
    ) -> Iterator[FeatureSolution]:
        """Yield the solution for each penalty, warm-started from the previous one."""
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
        """Solve for one penalty, with a warm start if available."""
        center = self._center()
        parts = replace(self, targets=self.targets - center)._parts
        common = self._options(options._asdict())
        design = shared(design, len(parts))
        states = start.states if start else (None,) * len(parts)
        solutions = [
            self._solve(design, y, alpha, state=state, **common)
            for y, state in zip(parts, states, strict=True)
        ]
        solution = self._combine(solutions, alpha, options.tol)
        return solution._replace(intercept=solution.intercept + center)

    def _center(self) -> NDArray:
        """Return the medians that are subtracted from targets and added to intercepts.

        Residuals of targets far from zero lose digits. Labels and rates, the targets of
        losses that are not robust, are unchanged.
        """
        if not (self.fit_intercept and self.is_robust):
            return np.zeros(self.targets.shape[1])
        return medians(self.targets, self.weights)

    def descend(
        self, design: Design, alpha: float, solver: stochastic.StochasticSolver
    ) -> FeatureSolution:
        """Solve by stochastic steps."""
        options = self._stochastic | self._weighting | {"alpha": alpha}
        callback = solver_callback("steps", 0.0)
        problems = (
            stochastic.stochastic_problem(design, y, **options) for y in self._parts
        )
        solutions = [stochastic.solve_stochastic(p, solver, callback) for p in problems]
        solution = self._combine(solutions, alpha, np.inf)
        with np.errstate(over="ignore", invalid="ignore"):
            loss = self.mean_loss(design.mv(solution.coef) + solution.intercept)
        limit = stochastic.DIVERGED * self.constant_loss()
        stochastic.check_steps(loss, limit, "learning_rate")
        return solution

    @abstractmethod
    def losses(self, fitted: NDArray) -> NDArray:
        """Return the loss of each row for predictions of shape (n, d)."""

    @abstractmethod
    def slope_ratio(self) -> float:
        """Return the mean slope of the loss over the mean residual."""

    @property
    @abstractmethod
    def _parts(self) -> tuple[NDArray, ...]:
        """Targets of the problems that are solved separately."""

    @property
    @abstractmethod
    def _stochastic(self) -> dict[str, Any]:
        """The loss and its shape, in the form of `stochastic_problem`."""

    @abstractmethod
    def _solve(self, design: Design, y: NDArray, alpha: float, **options: Any) -> Any:
        """Return the solution for one part of the targets."""

    def take(self, rows: NDArray) -> Self:
        """Return the objective on a subset of rows, without folds."""
        weights = None
        if self.weights is not None and self.weights[rows].any():
            weights = self.weights[rows] / self.weights[rows].mean()
        return replace(self, targets=self.targets[rows], weights=weights, folds=None)

    def mean_loss(self, fitted: NDArray) -> float:
        """Return the weighted mean loss of predictions."""
        return float(np.average(self.losses(fitted), weights=self.weights))

    def constant_loss(self) -> float:
        """Return the mean loss of the median of each output; of 0 without intercept."""
        constant = medians(self.targets, self.weights) * self.fit_intercept
        return self.mean_loss(np.broadcast_to(constant, self.targets.shape))

    def errors(self, fitted: NDArray) -> NDArray:
        """Return the cross-validation errors, per output or combined."""
        return np.array([self.mean_loss(fitted)])

    def _centered(self) -> NDArray:
        """Return the targets, without gross errors, minus their weighted medians."""
        return without_tails(self, 0.0) - medians(self.targets, self.weights)

    @property
    def _weighting(self) -> dict[str, Any]:
        return {"sample_weight": self.weights, "fit_intercept": self.fit_intercept}

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return options with the weights, and a tolerance that gross errors leave.

        They dominate the objective, but not the solution.
        """
        tol = options["tol"]
        finest = max(tol * self._usual_share, min(tol, _FINEST))
        return options | self._weighting | {"tol": finest}

    @cached_property
    def _usual_share(self) -> float:
        """The share of the loss of a constant that remains without gross errors."""
        if not self.is_robust:
            return 1.0
        usual = replace(self, targets=without_tails(self, 0.0)).constant_loss()
        return min(1.0, usual / (self.constant_loss() or np.inf)) or 1.0

    def _combine(
        self, solutions: Sequence[Solution], alpha: float, tol: float
    ) -> FeatureSolution:
        """Return the solutions of the parts as one."""
        # Stochastic methods have no certificate, so there is no shortfall.
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


class Problem(NamedTuple):
    """The problem solved by a fit.

    Attributes
    ----------
    rows : ndarray or csr_array of shape (n, q)
        Checked training samples.
    objective : Objective
        Objective on their features.
    plan : Plan
        Settings of sketch and solver.
    single_output : bool
        Whether the fitted attributes have no axis of outputs.
    held_out : TrainingRows or None
        Samples excluded from the fit, for calibrating intervals.
    kept : ndarray of shape (n,) or None
        Indices of the used samples among those given. None: all of them.
    validation : tuple of rows and ndarray of shape (m, d), or None
        Samples and targets on which a spectral filter chooses its parameter.
    """

    rows: Any
    objective: Objective
    plan: Plan
    single_output: bool
    held_out: TrainingRows | None = None
    kept: NDArray | None = None
    validation: tuple[Any, NDArray] | None = None


class FeatureSolution(NamedTuple):
    """A solution: f(x) = coef^T z(x) + intercept.

    Expanded, f(x) = coef^T S k_x + intercept.
    """

    coef: NDArray  # (r, d)
    intercept: NDArray  # (d,)
    alpha: float
    objective: float
    gap: float  # relative
    n_iter: int = 1
    shortfall: str | None = None  # a warning, if the accuracy was not reached
    states: tuple[State | None, ...] = ()
    rank: int = 0  # number of features
    path: dict[str, NDArray] | None = None  # from which a filter's alpha was chosen
    order: OrderEffect | None = None  # if alpha was chosen by leave-one-out

    @classmethod
    def of_rows(cls, solution: Solution, alpha: float, tol: float) -> FeatureSolution:
        """Return the solution with one coefficient per row or landmark."""
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

    def expanded(self, projection: NDArray, origin: NDArray | None) -> FeatureSolution:
        """Return the solution in terms of the sketched kernel functions.

        `origin` has been subtracted from the features.
        """
        b = self.intercept if origin is None else self.intercept - origin @ self.coef
        coef = projection @ self.coef
        return self._replace(coef=coef, intercept=b, rank=len(self.coef))

    def as_start(self) -> FeatureSolution:
        """Return the solution as a warm start for another penalty."""
        states = (s._replace(sigma=None) if s else None for s in self.states)
        return self._replace(states=tuple(states))
