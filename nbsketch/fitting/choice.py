r"""The choice of penalty and width on a sample of the rows, for fits on all of them.

What carries over from the sample to all rows is :math:`\lambda = n \alpha`, the noise
variance over the signal variance of a Gaussian process. The search starts from ridge
regression on a few landmarks, whose leave-one-out errors are in closed form; few
landmarks ask for a penalty that is at least as strong as that of all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nbsketch._machine.memory import fits
from nbsketch._report.progress import report
from nbsketch.fitting.objective import (
    FeatureSolution,
    counted_rows,
    vertex,
    without_tails,
)
from nbsketch.fitting.objectives import LeastSquaresObjective
from nbsketch.fitting.sketched import SketchedData
from nbsketch.gram import SymmetricGram, fold
from nbsketch.losses import SquareLoss
from nbsketch.rows.inputs import is_pairwise
from nbsketch.solvers.conjugate import solve_columns, values_dtype
from nbsketch.solvers.left_out import OrderEffect
from nbsketch.solvers.solution import Solution, State

# Landmarks of the first choice.
_LANDMARKS = 200
# Rows of the sample that are fitted, and validation rows: at most a third of all.
LARGEST_FIT = 3200
_VALIDATION = 1600
# Splits of few rows, so that together they have about as many validation rows.
_SPLITS = 3
# Factors of learned length scales, which are tried one after the other while they are
# better.
_SHORTER = (0.7, 0.5)
# A kernel of smoothness 3/2, stretched by a factor, has small eigenvalues divided by
# its third power.
_DECAY = 3
# Lambda is searched on a grid of this ratio, at most so far from where it begins.
_RATIO = 4.0
_MOST_STEPS = 28
# After so many steps, others are tried while each has less than this share of the error
# before, as weaker penalties have for targets without noise.
_FEW_STEPS = 7
_FALL = 0.8
# It begins at no less than this share of k(x, x): few landmarks may need no penalty. It
# ends at this share of that: weaker penalties are lost in rounding.
_LEAST_START = 1e-3
_WEAKEST = 1e-7
# Accuracy of the fits on the sample, and the rank of their preconditioner; fits with a
# larger gap do not count.
_TOL = 2e-3
_PASSES = 32
_RANK = 450
_LARGEST_GAP = 0.05
# The same for losses other than the square, with the steps of a fit.
_DUAL_TOL = 1e-2
_DUAL_STEPS = 60
# Up to so many rows blocks of the kernel matrix are copied rather than evaluated.
_STORED_ROWS = 3200


class Choice(NamedTuple):
    """A validation error, and the kernel and lambda = n alpha that it belongs to."""

    error: float
    kernel: Any
    shift: float
    fitted: NDArray = np.empty(0)  # at the validation rows
    states: Sequence[State | None] = ()  # of each split, to start from
    gap: float = 0.0  # the largest relative one of the splits


def choose_on_sample(
    data: SketchedData, objective: Any, kind: type[SplitSample]
) -> tuple[SketchedData, float, OrderEffect | None]:
    """Choose alpha, and the width of learned length scales, on a sample of a kind.

    Returns the rows with the kernel of this width, alpha, and whether the order of the
    rows contradicts it.
    """
    kernel = data.kernel
    n = data.rows.shape[0]
    relative = objective.relative()
    first = kind.first(data, relative)
    sample = kind.draw(data, relative)
    least = _LEAST_START * sample.variance(kernel) * relative.slope_ratio()
    sample = replace(sample, weakest=_WEAKEST * least)
    start = max(n * first.alpha, least)
    if data.inputs.length_scales is None:
        best = sample.best(sample.search(kernel, start))
    else:
        best = _choose_width(sample, kernel, start)
    return (
        _with_kernel(data, best.kernel),
        objective.loss_scale * best.shift / n,
        first.order,
    )


def _choose_width(sample: SplitSample, kernel: Any, start: float) -> Choice:
    """Return the best width and lambda, the search of which begins at `start`.

    Learned length scales stay as they are unless shorter ones are clearly better.
    """
    grid = sample.search(kernel, start)
    learned = sample.best(grid)
    for count, width in enumerate(_SHORTER, start=1):
        progress = {"iteration": count, "total": len(_SHORTER) + 1}
        if report("penalty", objective=learned.error, **progress):
            break
        shift = learned.shift / width**_DECAY
        shorter = sample.near(_scaled(kernel, width), shift)
        if not sample.is_better(shorter, grid):
            break
        # The lambda that follows from that of longer ones may be far from its own best.
        grid = sample.grown(shorter)
    return sample.best(grid)


def _order(choice: Choice) -> tuple[float, float]:
    return choice.error, -choice.shift


def _scaled(kernel: Any, factor: float) -> Any:
    """Return a kernel with its bandwidth times a factor."""
    widths = np.asarray(kernel.bandwidth, dtype=np.float64) * factor
    return replace(kernel, bandwidth=tuple(widths.ravel().tolist()))


def _with_kernel(data: SketchedData, kernel: Any) -> SketchedData:
    before: Any = data.kernel
    if kernel is before:
        return data
    width = np.ravel(before.bandwidth)
    learned = np.flatnonzero(np.isfinite(width))[:1]  # none if all rows are equal
    factor: Any = np.prod(np.ravel(kernel.bandwidth)[learned] / width[learned])
    scales = data.inputs.length_scales * factor
    inputs = data.inputs._replace(kernel=kernel, length_scales=scales)
    return data._replace(
        inputs=inputs, sketch_map=replace(data.sketch_map, kernel=kernel)
    )


@dataclass(frozen=True)
class SplitSample:
    """A sample of the rows, part of it to fit and part to validate.

    With folds, validation rows are from the last one.
    """

    # The first lambdas that are tried, the next weaker ones, and those of the other
    # widths, in steps of the grid.
    _FIRST: ClassVar[tuple[int, ...]] = (0, -1, -2)
    _WEAKER: ClassVar[tuple[int, ...]] = (-1, -2)
    _NEAR: ClassVar[tuple[int, ...]] = (1, 0, -1)
    # Rows that are fitted, at most.
    most_rows = LARGEST_FIT

    rows: Any
    objective: Any  # on these rows
    # Places among the rows: those that are fitted, and those that validate.
    splits: list[tuple[NDArray, NDArray]]
    rng: np.random.Generator
    weakest: float = 0.0  # lambda that is tried
    # What has been solved, from which solutions nearby start.
    solved: list[Choice] = field(default_factory=list)
    # The last kernel and its matrix.
    matrices: list[tuple[Any, Any]] = field(default_factory=list)

    @classmethod
    def first(cls, data: SketchedData, objective: Any) -> FeatureSolution:
        """Return ridge regression on a few landmarks, with the order of the rows.

        The search begins at its penalty.
        """
        landmarks = data.subsampled(min(_LANDMARKS, data.rows.shape[0]))
        _, design = landmarks.design()
        return objective.fit(design, None, data.rng)

    @classmethod
    def draw(cls, data: SketchedData, objective: Any) -> Self:
        """Draw the rows that are fitted and those that validate, in each split."""
        index = data.rng.permutation(data.rows.shape[0])
        count = min(_VALIDATION, len(index) // 3)
        n_splits = 1
        if objective.folds is None:
            n_splits = min(_SPLITS, max(1, round(_VALIDATION / count)))
        else:
            test, removed = objective.folds[-1]
            left_out = index[np.isin(index, test)][:_VALIDATION]
            count = len(left_out)
            index = np.append(left_out, index[~np.isin(index, removed)])
        order = index[: count + cls.most_rows]
        places = np.arange(len(order))
        parts = places[: n_splits * count].reshape(n_splits, count)
        splits = [(np.delete(places, part), part) for part in parts]
        rows = take_rows(data.kernel, data.rows, order)
        return cls(rows, objective.take(order), splits, data.rng)

    @cached_property
    def validation(self) -> Any:
        """The objective on the rows that validate, of all splits."""
        return self.objective.take(np.concatenate([part for _, part in self.splits]))

    def search(self, kernel: Any, shift: float) -> list[Choice]:
        """Return a grid of lambda that grows from `shift` toward less error."""
        grid = _steps(_snapped(shift), *self._FIRST)
        return self.grown(self.errors(kernel, grid))

    def grown(self, choices: list[Choice]) -> list[Choice]:
        """Return a grid of lambda that has grown toward less error.

        Weak penalties that do not converge are left behind.
        """
        kernel = choices[0].kernel
        while len(choices) < _MOST_STEPS:
            choices = self.scored(choices)
            best = choices.index(min(choices, key=_order))
            error = choices[best].error
            if report("penalty", iteration=len(choices), objective=error):
                break
            is_long = len(choices) >= _FEW_STEPS
            if is_long and _FALL * choices[abs(best - 1)].error <= error < np.inf:
                break
            weaker = _steps(choices[-1].shift, *self._WEAKER)
            weaker = weaker[weaker >= self.weakest]
            if best == 0:
                stronger = _steps(choices[0].shift, 2, 1)
                choices = self.errors(kernel, stronger) + choices
            elif best == len(choices) - 1 and len(weaker):
                choices = choices + self.errors(kernel, weaker)
            else:
                break
        return choices

    def near(self, kernel: Any, shift: float) -> list[Choice]:
        """Return a grid of lambda close to `shift`."""
        return self.errors(kernel, _steps(_snapped(shift), *self._NEAR))

    def best(self, grid: list[Choice]) -> Choice:
        """Return the minimizer of the parabola through the best of a grid."""
        return _interpolated(self.scored(grid))

    def variance(self, kernel: Any) -> float:
        """Return the variance of the features of the kernel, of some of the rows.

        Without an intercept it is their mean square, and where all rows are equal.
        """
        some = slice(_LANDMARKS)
        K = kernel(take_rows(kernel, self.rows, some))
        square = float(np.mean(K.diagonal()))
        centered = square - float(np.mean(K)) * self.objective.fit_intercept
        return centered if centered > 0 else square

    def scored(self, choices: list[Choice]) -> list[Choice]:
        """Return choices whose errors are on the same rows, as they are here."""
        return choices

    def is_better(self, choices: list[Choice], others: list[Choice]) -> bool:
        """Return whether the best of some choices is clearly better than the others.

        Where fits do not converge, it is the one that does.
        """
        scored = self.scored(choices + others)
        grids = scored[: len(choices)], scored[len(choices) :]
        pair = [min(grid, key=_order) for grid in grids]
        if not all(np.isfinite(choice.error) for choice in pair):
            return pair[0].error < pair[1].error
        fitted = [choice.fitted for choice in pair]
        rows = self._counted(fitted)
        validation = self.validation.take(rows)
        ours, theirs = (validation.losses(values[rows]) for values in fitted)
        gap = max(choice.gap for choice in pair)
        return is_lower(ours, theirs, validation.weights, gap)

    def _counted(self, fitted: list[NDArray]) -> NDArray:
        """Return the validation rows that are outliers under no fit."""
        least = np.min([np.abs(self.validation.targets - f) for f in fitted], axis=0)
        return counted_rows(self.validation, least)

    def errors(self, kernel: Any, shifts: NDArray) -> list[Choice]:
        """Return the validation error of each lambda; infinite without convergence."""
        states = self._nearest(kernel, shifts[0])
        splits = zip(self.splits, states, strict=True)
        parts = [self._left_out(kernel, shifts, *split) for split in splits]
        choices = []
        for shift, *ends in zip(shifts, *parts, strict=True):
            fitted, solutions = zip(*ends, strict=True)
            values = np.concatenate(fitted)
            error = np.inf
            gap = max(s.relative_gap for s in solutions)
            if gap <= _LARGEST_GAP:
                error = float(self.validation.errors(values).sum())
            states = [s.state for s in solutions]
            choices.append(Choice(error, kernel, float(shift), values, states, gap))
        self.solved.extend(choices)
        return choices

    def _nearest(self, kernel: Any, shift: float) -> Sequence[State | None]:
        """Return the states of the solutions of the nearest lambda, if there are."""
        solved = [choice for choice in self.solved if choice.kernel is kernel]
        if not solved:
            return [None] * len(self.splits)
        return min(solved, key=lambda c: abs(np.log(c.shift / shift))).states

    def _left_out(
        self,
        kernel: Any,
        shifts: NDArray,
        split: tuple[NDArray, NDArray],
        state: State | None,
    ) -> Iterator[tuple[NDArray, Solution]]:
        """Yield values at rows left out, and the solution, for each lambda."""
        fitted, left_out = split
        part = self.objective.take(fitted)
        alphas = shifts / len(fitted)
        solutions = list(self._solutions(kernel, fitted, part, alphas, state))
        coef = np.hstack([s.coef for s in solutions])
        predictions = self._products(kernel, left_out, fitted, coef)
        columns = np.split(predictions, len(solutions), axis=1)
        for s, values in zip(solutions, columns, strict=True):
            yield values + s.intercept, s

    def _solutions(
        self,
        kernel: Any,
        fitted: NDArray,
        part: Any,
        alphas: NDArray,
        state: State | None,
    ) -> Iterable[Solution]:
        """Return the solution for each penalty on the rows that are fitted."""
        rows = take_rows(kernel, self.rows, fitted)
        # Rounded values have errors of their own, which would ask for more penalty.
        dtype = values_dtype(rows.shape[0], float(alphas.min()), _TOL)
        return solve_columns(
            SymmetricGram(kernel, rows, dtype=dtype), part.rotated(), alphas,
            rank=min(_RANK, len(part.targets) // 2), tol=_TOL, max_passes=_PASSES,
            callback=listen, rng=self.rng,
        )  # fmt: skip

    def _products(
        self, kernel: Any, left_out: NDArray, fitted: NDArray, coef: NDArray
    ) -> NDArray:
        """Return values of kernel expansions of fitted rows at rows left out."""
        rows = take_rows(kernel, self.rows, fitted)
        others = take_rows(kernel, self.rows, left_out, fitted)
        return products(kernel, others, rows, coef)


def is_lower(
    losses: NDArray, others: NDArray, weights: NDArray | None, gap: float
) -> bool:
    """Return whether a mean loss is clearly lower than another one of the same rows.

    By more than one standard error of the mean of their differences, and by more than
    fits with a relative gap are accurate.
    """
    gains = others - losses
    shares = np.ones(len(gains)) if weights is None else weights
    shares = shares / shares.sum()
    gain = shares @ gains
    error = np.linalg.norm(shares * (gains - gain))
    return bool(gain > max(error, gap * (shares @ others)))


def take_rows(kernel: Any, rows: Any, index: Any, columns: Any = None) -> Any:
    """Return some rows; kernel values with some columns, None for the same ones."""
    if not is_pairwise(kernel):
        return rows[index]
    return rows[index][:, index if columns is None else columns]


def products(kernel: Any, others: Any, rows: Any, coef: NDArray) -> NDArray:
    """Return k(others, rows) @ coef, in double precision for rows of any type.

    Coefficients of weak penalties are large, and their products cancel.
    """
    return fold(kernel, others, kernel.take(rows), coef.T).T


def gram(kernel: Any, rows: Any, dtype: Any = np.float64) -> SymmetricGram | NDArray:
    """Return the kernel matrix as an operator, of few rows in memory."""
    K = SymmetricGram(kernel, rows, dtype=dtype)
    n = K.shape[0]
    stored = n <= _STORED_ROWS and fits(8.0 * n**2, copies=3)
    return K.block(np.arange(n)) if stored else K


def listen(*progress: float) -> bool:
    """Return whether to stop a fit to the sample, as a callback of its solver."""
    return report("penalty")


def _snapped(shift: float) -> float:
    """Return the nearest quarter of a step, so that rounding changes no choice."""
    return float(_RATIO ** (round(4 * np.log(shift) / np.log(_RATIO)) / 4))


def _steps(shift: float, *counts: int) -> NDArray:
    """Return lambdas that are some steps of the grid away."""
    return shift * _RATIO ** np.array(counts, dtype=np.float64)


def _interpolated(choices: list[Choice]) -> Choice:
    """Return the minimum of a parabola in log lambda through the best of a grid.

    The grid is even in log lambda. At an end, and beside a lambda that has not
    converged, it is the best itself.
    """
    i = choices.index(min(choices, key=_order))
    errors = [choice.error for choice in choices[max(0, i - 1) : i + 2]]
    if len(errors) < 3 or not np.isfinite(errors).all():
        return choices[i]
    move = vertex(*errors)
    shift = _snapped(choices[i].shift / _RATIO**move)
    least = errors[1] - move * (errors[0] - errors[2]) / 4
    return Choice(least, choices[i].kernel, shift)


class DualSample(SplitSample):
    """A sample of the rows on which penalty and width are chosen."""

    # The weaker the penalty, the longer a solution takes: one at a time. The lambda of
    # another width follows from that of the first.
    _FIRST: ClassVar[tuple[int, ...]] = (1, 0)
    _WEAKER: ClassVar[tuple[int, ...]] = (-1,)
    _NEAR: ClassVar[tuple[int, ...]] = (0,)
    most_rows = 1600

    @classmethod
    def first(cls, data: SketchedData, objective: Any) -> FeatureSolution:
        """Return ridge regression on a few landmarks, its penalty that of the loss."""
        Y = without_tails(objective)
        weights = objective.weights
        args = Y, weights, objective.fit_intercept, SquareLoss(), np.eye(Y.shape[1])
        square = LeastSquaresObjective(*args, folds=objective.folds)
        fitted = super().first(data, square)
        return fitted._replace(alpha=fitted.alpha * objective.slope_ratio())

    @classmethod
    def draw(cls, data: SketchedData, objective: Any) -> Self:
        """Draw the rows that are fitted and those that validate, in each split."""
        return super().draw(data, objective.cheaper())

    def _solutions(
        self,
        kernel: Any,
        fitted: NDArray,
        part: Any,
        alphas: NDArray,
        state: State | None,
    ) -> Iterable[Solution]:
        """Return the solution for each penalty on the rows that are fitted."""
        K = self._matrix(kernel)
        K = K[np.ix_(fitted, fitted)] if isinstance(K, np.ndarray) else K.take(fitted)
        return part.dual_path(
            K, alphas, tol=_DUAL_TOL, max_iter=_DUAL_STEPS, state=state,
            callback=listen, random_state=self.rng,
        )  # fmt: skip

    def _products(
        self, kernel: Any, left_out: NDArray, fitted: NDArray, coef: NDArray
    ) -> NDArray:
        """Return values of kernel expansions of fitted rows at rows left out."""
        K = self._matrix(kernel)
        if isinstance(K, np.ndarray):
            return K[np.ix_(left_out, fitted)] @ coef
        return super()._products(kernel, left_out, fitted, coef)

    def _matrix(self, kernel: Any) -> SymmetricGram | NDArray:
        """Return the kernel matrix of all rows, which serves all splits and penalties.

        It is kept until another kernel is asked for.
        """
        if not (self.matrices and self.matrices[0][0] is kernel):
            self.matrices[:] = [(kernel, gram(kernel, self.rows))]
        return self.matrices[0][1]

    def scored(self, choices: list[Choice]) -> list[Choice]:
        """Return choices with errors on the rows that are outliers under none."""
        finite = [choice for choice in choices if np.isfinite(choice.error)]
        if not finite:
            return choices
        fitted = [choice.fitted for choice in finite]
        rows = self._counted(fitted)
        validation = self.validation.take(rows)
        errors = iter([validation.mean_loss(values[rows]) for values in fitted])
        return [
            c._replace(error=next(errors)) if np.isfinite(c.error) else c
            for c in choices
        ]
