"""Losses other than the square on all rows, by Newton steps on the dual.

The features of all rows would be as many as the rows. Products with the Gram matrix,
which is not stored beyond a limit of memory, replace them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nbsketch._progress import is_stopped
from nbsketch.fitting.alpha import mean_losses, without_tails
from nbsketch.fitting.exact import (
    Choice,
    Sample,
    fit_landmarks,
    listen,
    take_rows,
)
from nbsketch.fitting.least_squares import LeastSquaresObjective
from nbsketch.fitting.objective import FeatureSolution, Objective
from nbsketch.fitting.settings import SolveOptions
from nbsketch.fitting.sketched import SketchedData
from nbsketch.gram import Gram, SymmetricGram
from nbsketch.losses import SquareLoss
from nbsketch.solvers.conjugate import NotConvergedError
from nbsketch.solvers.solution import Solution, State

# Up to so many rows the features of all of them are as fast; up to so many they are
# affordable, where the dual does not converge.
_LEAST_ROWS, _FEATURE_ROWS = 500, 2000
# Up to so many rows kernel values are float64, which takes less than their rounding.
_DOUBLE_ROWS = 8000
# Relative gap at which test losses no longer change, for more rows than have features.
LEAST_TOL = 1e-4
# A chosen penalty with a larger gap is multiplied by a factor, a few times.
_LARGEST_GAP, _STRONGER, _TRIALS = 0.1, 4.0, 4
# Rows of the sample that are fitted, the accuracy and steps of these fits, and the
# largest gap of those that count.
_FITTED, _SAMPLE_TOL, _STEPS, _MOST = 1600, 1e-2, 60, 0.05


def solves_dual(objective: Objective, n: int) -> bool:
    """Return whether n rows without a sketch are solved on the dual.

    Quantile levels together have features up to a larger n.
    """
    least = _FEATURE_ROWS if objective.loss_kind is None else _LEAST_ROWS
    return n > least and objective.has_dual_path


def has_features(n: int) -> bool:
    """Return whether the features of n rows without a sketch are affordable."""
    return n <= _FEATURE_ROWS


class DualSample(Sample):
    """A sample of the rows on which penalty and width are chosen."""

    # The weaker the penalty, the longer a solution takes: one at a time. The lambda of
    # another width follows from that of the first.
    _FIRST: ClassVar[tuple[int, ...]] = (1, 0)
    _WEAKER: ClassVar[tuple[int, ...]] = (-1,)
    _NEAR: ClassVar[tuple[int, ...]] = (0,)

    @classmethod
    def first(cls, data: SketchedData, objective: Any) -> FeatureSolution:
        """Return ridge regression on a few landmarks, its penalty that of the loss."""
        Y, weights = without_tails(objective), objective.weights
        args = Y, weights, objective.fit_intercept, SquareLoss(), np.eye(Y.shape[1])
        square = LeastSquaresObjective(*args, folds=objective.folds)
        fitted = fit_landmarks(data, square)
        return fitted._replace(alpha=fitted.alpha * objective.slope_ratio())

    @classmethod
    def draw(cls, data: SketchedData, objective: Any) -> Self:
        """Draw the rows that are fitted and those that validate."""
        sample = super().draw(data, objective.with_few_parts())
        n, total = len(sample.part.targets), sample.rows.shape[0]
        kept = np.arange(min(n, _FITTED))
        order = np.concatenate([kept, np.arange(n, total)])
        rows = take_rows(data.sketch_map.kernel, sample.rows, order)
        return replace(sample, rows=rows, part=sample.part.take(kept))

    def errors(self, kernel: Any, shifts: NDArray) -> list[Choice]:
        """Return the validation loss of each lambda; infinite without convergence."""
        n, (fitted, left_out) = len(self.part.targets), self.split(kernel)
        K = SymmetricGram(kernel, fitted, dtype=np.float64)
        cross, choices = Gram(kernel, left_out, kernel.take(fitted)), []
        options: dict[str, Any] = {
            "tol": _SAMPLE_TOL,
            "max_iter": _STEPS,
            "callback": listen,
            "random_state": self.rng,
        }
        solutions = self.part.dual_path(K, shifts / n, **options)
        for shift, solution in zip(shifts, solutions, strict=True):
            values = cross @ solution.coef + solution.intercept
            error = 0.0 if solution.relative_gap <= _MOST else np.inf
            choices.append(Choice(error, kernel, float(shift), values))
        return self.scored(choices)

    def scored(self, choices: list[Choice]) -> list[Choice]:
        """Return choices with errors on the rows that are outliers under none."""
        finite = [choice for choice in choices if np.isfinite(choice.error)]
        if not finite:
            return choices
        fitted, validation = [choice.fitted for choice in finite], self.validation
        least = np.min([np.abs(validation.targets - f) for f in fitted], axis=0)
        losses = np.array([validation.losses(f) for f in fitted])
        errors = iter(mean_losses(validation, losses, least))
        return [
            c._replace(error=float(next(errors))) if np.isfinite(c.error) else c
            for c in choices
        ]


class DualFit:
    """The solutions of a problem, and the Gram matrix of all rows.

    It is in double precision once single is too coarse.
    """

    def __init__(
        self, data: SketchedData, objective: Any, options: SolveOptions
    ) -> None:
        self._data, self._objective, self._n = data, objective, len(objective.targets)
        tol = options.tol if has_features(self._n) else max(LEAST_TOL, options.tol)
        self._options = options._replace(tol=tol)

    def solve(self, alpha: float) -> FeatureSolution:
        """Return the solution for one penalty.

        One that was chosen on a sample is raised where it does not converge. If few
        rows, which have features as well, do not reach `tol`, NotConvergedError is
        raised.
        """
        for trial in range(_TRIALS):
            solution = next(self.path([alpha * _STRONGER**trial]))
            chosen = self._data.alpha is not None
            if not chosen or solution.gap <= _LARGEST_GAP or is_stopped():
                break
        reached = not solution.shortfall or self._is_limited(solution.n_iter)
        if not reached and has_features(self._n):
            raise NotConvergedError(solution.shortfall)
        return solution

    def path(self, alphas: Iterable[float]) -> Iterator[FeatureSolution]:
        """Yield the solution for each penalty, each started from the one before."""
        state = None
        self._evaluate(np.float64 if self._n <= _DOUBLE_ROWS else np.float32)
        for alpha in alphas:
            solution = self._precise(float(alpha), state)
            state = solution.state
            yield FeatureSolution.of_rows(solution, float(alpha), self._options.tol)

    def _evaluate(self, dtype: DTypeLike) -> None:
        kernel, rows = self._data.sketch_map.kernel, self._data.inputs.rows
        self._gram = SymmetricGram(kernel, rows, dtype=dtype)

    def _precise(self, alpha: float, state: State | None) -> Solution:
        solution = self._solve(alpha, state)
        coarse = not solution.converged and solution.relative_gap <= _LARGEST_GAP
        limited = self._is_limited(solution.n_iter)
        if coarse and not limited and self._gram.dtype == np.float32:
            self._evaluate(np.float64)
            solution = self._solve(alpha, solution.state)
        return solution

    def _is_limited(self, n_iter: int) -> bool:
        """Return whether a solution has ended by a limit of steps or of time."""
        return is_stopped() or n_iter >= self._options.max_iter

    def _solve(self, alpha: float, state: State | None) -> Solution:
        options = self._options._asdict() | {"random_state": self._data.rng}
        return next(
            self._objective.dual_path(self._gram, [alpha], state=state, **options)
        )
