"""What is to be learned on given features, whatever the loss and the number of outputs.

An objective knows its targets and its solver. It can be restricted to some rows, solved
for one alpha, and asked for the loss of predictions; so one path of alphas, one choice
of alpha and one cross-validation serve every estimator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._blas import eigh
from nbsketch.fitting.inputs import TuningTarget
from nbsketch.fitting.stochastic import StochasticSolver
from nbsketch.losses import Loss, PinballLoss
from nbsketch.solvers.design import Design
from nbsketch.solvers.joint import solve_joint_pinball
from nbsketch.solvers.newton import solve_scalar
from nbsketch.solvers.radial import solve_radial
from nbsketch.solvers.solution import Solution, State
from nbsketch.solvers.stochastic import solve_stochastic
from nbsketch.tuning.robust import inliers

# Penalties tried, relative to the one at which the penalty and the loss are level.
_RELATIVE_ALPHAS = np.logspace(1, -8, 19)
# Fewer rows a sketch does not have unless asked.
_LEAST_SIZE = 100
# Share of the rows on which they are judged, and accuracy of the fits that are judged.
_HELD_OUT = 0.2
_PATH_TOL = 1e-2
# A path ends where so many penalties in a row lose by so much against the best.
_PATIENCE, _LOSS = 2, 1.001
# Newton steps for several outputs together factorize matrices of size times outputs.
_JOINT_ROWS = 1800


class SolveOptions(NamedTuple):
    """How long and how exactly to solve."""

    tol: float = 1e-6
    max_iter: int = 1000
    callback: Callable[[int, float, float, float], Any] | None = None


class FeatureSolution(NamedTuple):
    """A solution in terms of the features: f(x) = coef^T z(x) + intercept."""

    coef: NDArray  # (r, d)
    intercept: NDArray  # (d,)
    alpha: float
    objective: float
    gap: float  # relative
    n_iter: int
    shortfall: str | None  # a warning, if the accuracy was not reached
    states: tuple[State | None, ...] = ()


@dataclass(frozen=True)
class Objective(ABC):
    """Targets, weights and intercept of a problem on features."""

    # Whether features are stored, or (None) only while they are small.
    keep_features: ClassVar[bool | None] = True
    # A sketch of which nothing is said has as many rows s as keep n s^2 below this: a
    # few seconds of work.
    _size_work: ClassVar[float] = 6e9

    targets: NDArray
    weights: NDArray | None
    fit_intercept: bool

    def default_size(self) -> int:
        """Return the default number of rows of a sketch."""
        n = len(self.targets)
        affordable = int((self._size_work / (n * self._n_solves)) ** 0.5)
        return min(n, max(_LEAST_SIZE, affordable), self._largest_size)

    @property
    def _largest_size(self) -> int:
        return 500

    @property
    def _n_solves(self) -> int:
        """How many problems there are to solve for one alpha."""
        return 1

    def tuning_target(self, alpha: float | None) -> TuningTarget:
        """Return what length-scales are to be good for; `alpha` may be given."""
        alike = None if alpha is None else alpha / self.slope_ratio()
        return TuningTarget(self.targets, self.weights, self.is_robust, alike)

    @property
    def is_robust(self) -> bool:
        """Whether the loss is_robust wild targets."""
        return True

    def fit(
        self,
        design: Design,
        alpha: float | None,
        control: SolveOptions,
        rng: np.random.Generator,
    ) -> FeatureSolution:
        """Solve for one alpha, chosen first if it is None."""
        if alpha is None:
            alpha = self.choose_alpha(design, rng)
        return self.solve(design, float(alpha), control, None)

    def path(
        self, design: Design, alphas: Iterable[float], control: SolveOptions
    ) -> Iterator[FeatureSolution]:
        """Yield the solution for each alpha, each started from the one before."""
        answer = None
        for alpha in alphas:
            answer = self.solve(design, float(alpha), control, answer)
            yield answer
            states = tuple(s._replace(sigma=None) if s else None for s in answer.states)
            answer = answer._replace(states=states)

    def default_alphas(self, design: Design) -> NDArray:
        """Return penalties from far too strong to almost none, strongest first."""
        covariance = design.gram() / design.shape[0]
        top = float(eigh(covariance)[0][-1]) if covariance.size else 0.0
        return (top if top > 0 else 1.0) * self.slope_ratio() * _RELATIVE_ALPHAS

    def choose_alpha(self, design: Design, rng: np.random.Generator) -> float:
        """Return the alpha of least loss on a fifth of the rows, held out at random.

        A single row leaves nothing to hold out: the strongest penalty.
        """
        alphas = self.default_alphas(design)
        return float(alphas[np.argmin(self._held_out(design, alphas, rng))])

    def score(
        self, design: Design, alpha: float | None, rng: np.random.Generator
    ) -> float:
        """Return the loss on rows left out, for one alpha or the best of a path."""
        alphas = self.default_alphas(design) if alpha is None else np.array([alpha])
        return float(self._held_out(design, alphas, rng).min())

    def _held_out(
        self, design: Design, alphas: NDArray, rng: np.random.Generator
    ) -> NDArray:
        """Return the loss for each alpha on a fifth of the rows, held out at random.

        The path ends where weaker penalties lose. For a robust loss, outliers under
        every penalty are excluded.
        """
        n = design.shape[0]
        if n == 1:
            return np.zeros(len(alphas))
        order = rng.permutation(n)
        count = min(n - 1, max(1, round(_HELD_OUT * n)))
        held_out, kept = np.sort(order[:count]), np.sort(order[count:])
        judge, Z = self.take(held_out), design.gather(held_out)
        control = SolveOptions(tol=_PATH_TOL)
        losses: list[NDArray] = []
        errors, least = np.empty(0), np.full(judge.targets.shape, np.inf)
        for answer in self.take(kept).path(design.gather(kept), alphas, control):
            fit = Z.mv(answer.coef) + answer.intercept
            losses.append(judge.losses(fit))
            least = np.minimum(least, np.abs(judge.targets - fit))
            errors = judge._means(np.array(losses), least)
            if (errors[-_PATIENCE:] > _LOSS * errors.min()).sum() == _PATIENCE:
                break
        return errors

    def _means(self, losses: NDArray, least: NDArray) -> NDArray:
        """Return means over the rows of losses (k, n).

        Wild targets, of which even the `least` residual of any fit is large, say
        nothing of the others.
        """
        usual = (
            np.flatnonzero(inliers(least)) if self.is_robust else np.arange(len(least))
        )
        weights = self.take(usual).weights
        return np.average(losses[:, usual], axis=1, weights=weights)

    @abstractmethod
    def solve(
        self,
        design: Design,
        alpha: float,
        control: SolveOptions,
        start: FeatureSolution | None,
    ) -> FeatureSolution:
        """Solve for one alpha, from a solution nearby if there is one."""

    @abstractmethod
    def descend(
        self, design: Design, alpha: float, solver: StochasticSolver
    ) -> FeatureSolution:
        """Solve by stochastic steps."""

    @abstractmethod
    def losses(self, fitted: NDArray) -> NDArray:
        """Return the loss of each row for predictions of shape (n, d)."""

    @abstractmethod
    def slope_ratio(self) -> float:
        """Return the size of a slope of the loss over the size of a residual."""

    def take(self, rows: NDArray) -> Objective:
        """Return the objective on some rows."""
        weights = None
        if self.weights is not None and self.weights[rows].any():
            weights = self.weights[rows] / self.weights[rows].mean()
        return replace(self, targets=self.targets[rows], weights=weights)

    def mean_loss(self, fitted: NDArray) -> float:
        """Return the weighted mean loss of predictions."""
        return float(np.average(self.losses(fitted), weights=self.weights))

    def errors(self, fitted: NDArray) -> NDArray:
        """Return what cross-validation compares, for each output or for all in one."""
        return np.array([self.mean_loss(fitted)])

    def _options(self, control: SolveOptions, state: State | None) -> dict[str, Any]:
        return {
            "sample_weight": self.weights,
            "fit_intercept": self.fit_intercept,
            "state": state,
            **control._asdict(),
        }

    def _descend(
        self,
        design: Design,
        alpha: float,
        solver: StochasticSolver,
        targets: NDArray,
        loss: Loss,
        **shape: Any,
    ) -> Solution:
        return solve_stochastic(
            design,
            targets,
            loss,
            alpha,
            sample_weight=self.weights,
            fit_intercept=self.fit_intercept,
            **shape,
            **solver.options(),
        )

    def _answer(
        self, solutions: list[Solution], alpha: float, tol: float
    ) -> FeatureSolution:
        """Put solutions of separate outputs together."""
        # A stochastic method promises nothing, so it cannot fall short.
        missed = [s for s in solutions if not s.converged and s.dual is not None]
        columns = [np.atleast_2d(s.coef.T).T for s in solutions]
        return FeatureSolution(
            coef=np.hstack(columns),
            intercept=np.hstack([np.atleast_1d(s.intercept) for s in solutions]),
            alpha=alpha,
            objective=float(sum(s.objective for s in solutions)),
            gap=max(s.relative_gap for s in solutions),
            n_iter=max(1, *(s.n_iter for s in solutions)),
            shortfall=missed[0].shortfall(tol) if missed else None,
            states=tuple(s.state for s in solutions),
        )


@dataclass(frozen=True)
class ScalarObjective(Objective):
    """One output, or one for each class against the rest: a column of targets each."""

    loss: Loss

    @property
    def is_robust(self) -> bool:
        """Whether the loss is_robust wild targets; labels are never wild."""
        return not self.loss.is_classification

    @property
    def _n_solves(self) -> int:
        return self.targets.shape[1]

    def solve(
        self,
        design: Design,
        alpha: float,
        control: SolveOptions,
        start: FeatureSolution | None,
    ) -> FeatureSolution:
        """Solve for each column on its own."""
        states = start.states if start else (None,) * self.targets.shape[1]
        solutions = [
            solve_scalar(design, y, self.loss, alpha, **self._options(control, state))
            for y, state in zip(self.targets.T, states, strict=True)
        ]
        return self._answer(solutions, alpha, control.tol)

    def descend(
        self, design: Design, alpha: float, solver: StochasticSolver
    ) -> FeatureSolution:
        """Solve by stochastic steps, for each column on its own."""
        solutions = [
            self._descend(design, alpha, solver, y, self.loss) for y in self.targets.T
        ]
        return self._answer(solutions, alpha, np.inf)

    def losses(self, fitted: NDArray) -> NDArray:
        """Return the loss of each row, summed over the columns."""
        if self.loss.is_classification:
            return self.loss.value(self.targets * fitted).sum(axis=1)
        return self.loss.value(self.targets - fitted).sum(axis=1)

    def slope_ratio(self) -> float:
        """Return the size of a slope of the loss over the size of a residual."""
        if self.loss.is_classification:
            return 1.0
        residual = self.targets - np.median(self.targets, axis=0)
        return _ratio(np.abs(self.loss.derivative(residual)), np.abs(residual))


@dataclass(frozen=True)
class RadialObjective(Objective):
    """Vector-valued: a loss of the Euclidean norm of the residual."""

    loss: Loss
    factor: NDArray  # T with T^T T = M

    def solve(
        self,
        design: Design,
        alpha: float,
        control: SolveOptions,
        start: FeatureSolution | None,
    ) -> FeatureSolution:
        """Solve for all outputs together."""
        state = start.states[0] if start else None
        options = self._options(control, state)
        solution = solve_radial(
            design, self.targets, self.loss, self.factor, alpha, **options
        )
        answer = self._answer([solution], alpha, control.tol)
        return answer._replace(coef=answer.coef @ self.factor)

    def descend(
        self, design: Design, alpha: float, solver: StochasticSolver
    ) -> FeatureSolution:
        """Solve by stochastic steps."""
        solution = self._descend(
            design, alpha, solver, self.targets, self.loss, T=self.factor
        )
        answer = self._answer([solution], alpha, np.inf)
        return answer._replace(coef=answer.coef @ self.factor)

    def losses(self, fitted: NDArray) -> NDArray:
        """Return the loss of each row."""
        return self.loss.norm_value(self.targets - fitted)

    def slope_ratio(self) -> float:
        """Return the size of a slope of the loss over the size of a residual."""
        residual = self.targets - np.median(self.targets, axis=0)
        norms = np.linalg.norm(residual, axis=1)
        return _ratio(np.abs(self.loss.derivative(norms)), norms)


@dataclass(frozen=True)
class JointQuantileObjective(Objective):
    """Several quantile levels of one target, coupled by an output matrix."""

    quantiles: tuple[float, ...]
    factor: NDArray  # T with T^T T = M

    @property
    def _largest_size(self) -> int:
        most = min(len(self.targets) // 4, _JOINT_ROWS // len(self.quantiles))
        return max(_LEAST_SIZE, most)

    def solve(
        self,
        design: Design,
        alpha: float,
        control: SolveOptions,
        start: FeatureSolution | None,
    ) -> FeatureSolution:
        """Solve for all levels together."""
        state = start.states[0] if start else None
        options = self._options(control, state)
        solution = solve_joint_pinball(
            design, self.targets[:, 0], self.quantiles, self.factor, alpha, **options
        )
        answer = self._answer([solution], alpha, control.tol)
        return answer._replace(coef=answer.coef @ self.factor)

    def descend(
        self, design: Design, alpha: float, solver: StochasticSolver
    ) -> FeatureSolution:
        """Solve by stochastic steps."""
        shape = {"T": self.factor, "quantiles": self.quantiles}
        y = self.targets[:, 0]
        solution = self._descend(design, alpha, solver, y, PinballLoss(), **shape)
        answer = self._answer([solution], alpha, np.inf)
        return answer._replace(coef=answer.coef @ self.factor)

    def losses(self, fitted: NDArray) -> NDArray:
        """Return the pinball loss of each row, summed over the levels."""
        levels = np.array(self.quantiles)
        residual = self.targets - fitted
        return np.maximum(levels * residual, (levels - 1) * residual).sum(axis=1)

    def slope_ratio(self) -> float:
        """Return the size of a slope of the loss over the size of a residual."""
        residual = self.targets - np.median(self.targets)
        return _ratio(np.full(residual.shape, 0.5), np.abs(residual))


def _ratio(slopes: NDArray, residuals: NDArray) -> float:
    size = float(residuals.mean())
    slope = float(slopes.mean())
    return slope / size if size > 0 and slope > 0 else 1.0
