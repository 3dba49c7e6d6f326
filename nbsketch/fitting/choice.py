r"""Choose penalty and kernel width on a sample of the rows, for fits on all of them.

The sample and all rows share :math:`\lambda = n \alpha`, the ratio of noise variance to
signal variance of a Gaussian process. The search starts from ridge regression on a few
landmarks, whose leave-one-out errors are in closed form; few landmarks need a penalty
at least as strong as that of all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nbsketch._machine.memory import fits
from nbsketch._report.progress import report
from nbsketch._report.validation import row_weights
from nbsketch.fitting.objective import FeatureSolution
from nbsketch.fitting.objectives import LeastSquaresObjective
from nbsketch.fitting.penalty import (
    counted_rows,
    held_out_errors,
    vertex,
    without_tails,
)
from nbsketch.fitting.sketched import SketchedData
from nbsketch.gram import SymmetricGram, fold
from nbsketch.gram.form import take_rows
from nbsketch.losses import SquareLoss
from nbsketch.solvers._linear.conjugate_gradients import as_operator
from nbsketch.solvers.conjugate import solve_columns, values_dtype
from nbsketch.solvers.left_out import OrderEffect
from nbsketch.solvers.solution import Solution, State

# Number of landmarks of the first choice.
_LANDMARKS = 200
# Fitted rows of the sample; validation rows are at most a third of all.
LARGEST_FIT = 3200
_VALIDATION = 1600
# Small samples use several splits, so that they have about as many validation rows.
_SPLITS = 3
# For this few rows, whose thirds are too many to leave out, there are more.
_FOLD_ROWS = 500
_FOLDS = 5
# Factors of learned length scales, tried in this order while they improve the error.
_SHORTER = (0.7, 0.5)
# Stretching a kernel of smoothness 3/2 by a factor divides its small eigenvalues by the
# third power of the factor.
_DECAY = 3
# Ratio of the grid of lambda, and its maximum number of steps from the start.
_RATIO = 4.0
_MOST_STEPS = 28
# After this many steps, the search continues while each step reduces the error by this
# factor, as weaker penalties do for noise-free targets.
_FEW_STEPS = 7
_FALL = 0.8
# The search starts at this share of k(x, x) or above, because few landmarks may need no
# penalty, and ends at this share of it, where penalties are lost in rounding.
_LEAST_START = 1e-3
_WEAKEST = 1e-7
# Standard deviation of predictions relative to targets below which a fit is constant,
# and the relative range of the errors of such fits.
_CONSTANT = 0.1
_FLAT = 0.01
# Accuracy of the fits on the sample, and the rank of their preconditioner; fits with a
# larger gap are ignored.
_TOL = 2e-3
_PASSES = 32
_RANK = 450
_LARGEST_GAP = 0.05
# The same for losses other than the square loss, with the maximum number of steps.
_DUAL_TOL = 1e-2
_DUAL_STEPS = 60
# Ratio of errors of the median that are equal for the other quantile levels.
_EQUAL = 1.005
# Up to this many rows, blocks of the kernel matrix are copied, not evaluated.
_STORED_ROWS = 3200


class Choice(NamedTuple):
    """A validation error, with its kernel and lambda = n alpha."""

    error: float
    kernel: Any
    lam: float
    fitted: NDArray = np.empty(0)  # predictions of the validation rows
    states: Sequence[State | None] = ()  # warm start of each split
    gap: float = 0.0  # the largest relative gap of the splits


def choose_on_sample(
    data: SketchedData, objective: Any, kind: type[SplitSample]
) -> tuple[SketchedData, float, OrderEffect | None, State | None]:
    """Choose alpha, and a factor of learned length scales, on a sample of the rows.

    Return the rows with the chosen kernel, alpha, the effect of the order of the rows
    on the choice, and a warm start if there is one.
    """
    kernel = data.kernel
    n = data.rows.shape[0]
    relative, ratio = kind.relative(objective)
    first = kind.first(data, relative)
    sample = kind.draw(data, relative)
    unit = relative.slope_ratio()
    least = _LEAST_START * sample.variance(kernel) * unit
    sample = replace(sample, weakest=_WEAKEST * least, unit=unit)
    start = max(n * first.alpha, least)
    if data.inputs.length_scales is None:
        best = sample.chosen(sample.search(kernel, start))
    else:
        best = _choose_width(sample, kernel, start)
    chosen = _with_kernel(data, best.kernel)
    alpha = ratio * best.lam / n
    has_all = sample.objective.targets.shape == objective.targets.shape
    return chosen, alpha, first.order, sample.start(best) if has_all else None


def _choose_width(sample: SplitSample, kernel: Any, start: float) -> Choice:
    """Return the best width and lambda; the search starts at `start`.

    Learned length scales are unchanged unless shorter ones are clearly better.
    """
    grid = sample.search(kernel, start)
    learned = sample.best(grid)
    for count, width in enumerate(_SHORTER, start=1):
        progress = {"iteration": count, "total": len(_SHORTER) + 1}
        if report("penalty", objective=learned.error, **progress):
            break
        lam = learned.lam / width**_DECAY
        shorter = sample.near(_scaled(kernel, width), lam)
        if not sample.is_better(shorter, grid):
            break
        # The lambda predicted from longer length scales may be far from the optimum.
        grid = sample.grown(shorter)
    return sample.chosen(grid)


def _order(choice: Choice) -> tuple[float, float]:
    return choice.error, -choice.lam


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
    """A sample of the rows, divided into fitted and validation rows.

    With folds, validation rows are from the last fold.
    """

    # Steps of the grid: the first lambdas, the next weaker ones, and those of the other
    # widths.
    _FIRST: ClassVar[tuple[int, ...]] = (0, -1, -2)
    _WEAKER: ClassVar[tuple[int, ...]] = (-1, -2)
    _STRONGER: ClassVar[tuple[int, ...]] = (2, 1)
    _NEAR: ClassVar[tuple[int, ...]] = (1, 0, -1)
    # Share by which the errors of penalties differ that are equally good.
    _TIE = 0.0
    # Maximum number of fitted rows.
    most_rows = LARGEST_FIT

    rows: Any
    objective: Any  # on these rows
    # Positions of the fitted rows and of the validation rows.
    splits: list[tuple[NDArray, NDArray]]
    rng: np.random.Generator
    weakest: float = 0.0  # the smallest lambda tried
    unit: float = 1.0  # lambda of the grid, in the units of the loss
    # Solutions so far, used as warm starts.
    solved: list[Choice] = field(default_factory=list)
    # The last kernel and its matrix.
    matrices: list[tuple[Any, Any]] = field(default_factory=list)
    order: NDArray = field(default_factory=lambda: np.empty(0, int))  # among all rows

    @classmethod
    def relative(cls, objective: Any) -> tuple[Any, float]:
        """Return the objective to choose a penalty, and the ratio of penalties."""
        return objective.relative(), objective.loss_scale

    @classmethod
    def first(cls, data: SketchedData, objective: Any) -> FeatureSolution:
        """Return ridge regression on a few landmarks, with the effect of the order.

        The search starts at its penalty.
        """
        landmarks = data.subsampled(min(_LANDMARKS, data.rows.shape[0]))
        _, design = landmarks.design()
        return objective.fit(design, None, data.rng)

    @classmethod
    def draw(cls, data: SketchedData, objective: Any) -> Self:
        """Draw the fitted and the validation rows of each split."""
        index = data.rng.permutation(data.rows.shape[0])
        most = _SPLITS if len(index) > _FOLD_ROWS else _FOLDS
        count = min(_VALIDATION, len(index) // most)
        n_splits = 1
        if objective.folds is None:
            n_splits = min(most, max(1, round(_VALIDATION / count)))
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
        return cls(rows, objective.take(order), splits, data.rng, order=order)

    @cached_property
    def validation(self) -> Any:
        """The objective on the validation rows of all splits."""
        return self.objective.take(np.concatenate([part for _, part in self.splits]))

    def search(self, kernel: Any, lam: float) -> list[Choice]:
        """Return a grid of lambda, extended from `lam` toward smaller errors."""
        grid = _steps(_snapped(lam, self.unit), *self._FIRST)
        return self.grown(self.errors(kernel, grid))

    def grown(self, choices: list[Choice]) -> list[Choice]:
        """Return a grid of lambda extended toward smaller errors.

        Weak penalties whose fits do not converge are dropped.
        """
        kernel = choices[0].kernel
        plateau = 0
        while len(choices) < _MOST_STEPS:
            choices = self.scored(choices)
            best = self._strongest(choices)
            error = choices[best].error
            if report("penalty", iteration=len(choices), objective=error):
                break
            weaker = _steps(choices[-1].lam, *self._WEAKER)
            weaker = weaker[weaker >= self.weakest]
            if self._is_plateau(choices) and len(weaker):
                plateau = len(choices)
                choices = choices + self.errors(kernel, weaker)
                continue
            is_long = len(choices) - plateau >= _FEW_STEPS
            if is_long and _FALL * choices[abs(best - 1)].error <= error < np.inf:
                break
            if best == 0:
                stronger = _steps(choices[0].lam, *self._STRONGER)
                choices = self.errors(kernel, stronger) + choices
            elif best == len(choices) - 1 and len(weaker):
                choices = choices + self.errors(kernel, weaker)
            else:
                break
        return choices

    def near(self, kernel: Any, lam: float) -> list[Choice]:
        """Return a grid of lambda close to `lam`."""
        lam = _snapped(lam, self.unit)
        return self.errors(kernel, _steps(lam, *self._NEAR))

    def best(self, grid: list[Choice]) -> Choice:
        """Return the minimizer of the parabola through the best point of a grid."""
        choices = self.scored(grid)
        return _interpolated(choices, self._strongest(choices), self.unit)

    def _strongest(self, choices: list[Choice]) -> int:
        """Return the index of the strongest penalty, the first, with the least error.

        Larger errors by the share `_TIE` are due to the accuracy of the fits.
        """
        errors = np.array([choice.error for choice in choices])
        return int(np.argmax(errors <= (1 + self._TIE) * errors.min()))

    def _is_plateau(self, choices: list[Choice]) -> bool:
        """Return whether all penalties fit a constant, up to small changes."""
        errors = [choice.error for choice in choices]
        is_flat = max(errors) - min(errors) <= _FLAT * min(errors)
        least = _CONSTANT * self.validation.targets.std(axis=0)
        return is_flat and bool((choices[-1].fitted.std(axis=0) < least).all())

    def chosen(self, grid: list[Choice]) -> Choice:
        """Return the choice of a grid for the fit (unchanged here)."""
        return self.best(grid)

    def start(self, best: Choice) -> State | None:
        """Return a warm start of a fit to all rows of the sample (none here)."""
        return None

    def variance(self, kernel: Any) -> float:
        """Return the variance of the kernel features on a subset of the rows.

        Without an intercept, or if all rows are equal, it is their mean square.
        """
        subset = slice(_LANDMARKS)
        K = kernel(take_rows(kernel, self.rows, subset))
        square = float(np.mean(K.diagonal()))
        centered = square - float(np.mean(K)) * self.objective.fit_intercept
        return centered if centered > 0 else square

    def scored(self, choices: list[Choice]) -> list[Choice]:
        """Return the choices with errors on the same rows (unchanged here)."""
        return choices

    def is_better(self, choices: list[Choice], others: list[Choice]) -> bool:
        """Return whether the best of some choices is clearly better than the others.

        If fits do not converge, the converged one is better.
        """
        scored = self.scored(choices + others)
        grids = scored[: len(choices)], scored[len(choices) :]
        pair = [min(grid, key=_order) for grid in grids]
        if not all(np.isfinite(choice.error) for choice in pair):
            return pair[0].error < pair[1].error
        fitted = [choice.fitted for choice in pair]
        rows = counted_rows(self.validation, fitted)
        validation = self.validation.take(rows)
        ours, theirs = (validation.losses(values[rows]) for values in fitted)
        gap = max(choice.gap for choice in pair)
        return is_lower(ours, theirs, validation.weights, gap)

    def errors(self, kernel: Any, lams: NDArray) -> list[Choice]:
        """Return the validation error of each lambda; infinite without convergence."""
        states = self._nearest(kernel, lams[0])
        splits = zip(self.splits, states, strict=True)
        parts = [self._left_out(kernel, lams, *split) for split in splits]
        choices = []
        for lam, *ends in zip(lams, *parts, strict=True):
            fitted, solutions = zip(*ends, strict=True)
            values = np.concatenate(fitted)
            error = np.inf
            gap = max(s.relative_gap for s in solutions)
            if gap <= _LARGEST_GAP:
                error = float(self.validation.errors(values).sum())
            states = [s.state for s in solutions]
            choices.append(Choice(error, kernel, float(lam), values, states, gap))
        self.solved.extend(choices)
        return choices

    def _nearest(self, kernel: Any, lam: float) -> Sequence[State | None]:
        """Return the states of the solutions of the nearest lambda, if any."""
        solved = [choice for choice in self.solved if choice.kernel is kernel]
        if not solved:
            return [None] * len(self.splits)
        return min(solved, key=lambda c: abs(np.log(c.lam / lam))).states

    def _left_out(
        self,
        kernel: Any,
        lams: NDArray,
        split: tuple[NDArray, NDArray],
        state: State | None,
    ) -> Iterator[tuple[NDArray, Solution]]:
        """Yield the held-out predictions and the solution for each lambda."""
        fitted, left_out = split
        part = self.objective.take(fitted)
        alphas = lams / len(fitted)
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
        """Return the solution on the fitted rows for each penalty."""
        rows = take_rows(kernel, self.rows, fitted)
        # Rounded values would require a larger penalty.
        dtype = values_dtype(rows.shape[0], float(alphas.min()), _TOL)
        return solve_columns(
            SymmetricGram(kernel, rows, dtype=dtype), part.rotated(), alphas,
            rank=min(_RANK, len(part.targets) // 2), tol=_TOL, max_passes=_PASSES,
            callback=listen, rng=self.rng,
        )  # fmt: skip

    def _products(
        self, kernel: Any, left_out: NDArray, fitted: NDArray, coef: NDArray
    ) -> NDArray:
        """Return the values of kernel expansions on fitted rows at validation rows."""
        rows = take_rows(kernel, self.rows, fitted)
        others = take_rows(kernel, self.rows, left_out, fitted)
        return products(kernel, others, rows, coef)


def is_lower(
    losses: NDArray, others: NDArray, weights: NDArray | None, gap: float
) -> bool:
    """Return whether a mean loss is clearly lower than another on the same rows.

    The difference must exceed one standard error of the mean difference, and the
    accuracy of the fits.
    """
    gains = others - losses
    shares = row_weights(weights, gains)
    shares = shares / shares.sum()
    gain = shares @ gains
    error = scipy.linalg.norm(shares * (gains - gain))  # in any unit of the losses
    return bool(gain > max(error, gap * (shares @ others)))


def products(kernel: Any, others: Any, rows: Any, coef: NDArray) -> NDArray:
    """Return k(others, rows) @ coef in double precision for any dtype of the rows.

    Weak penalties have large coefficients, and their products cancel.
    """
    return fold(kernel, others, kernel.take(rows), coef.T).T


def gram(kernel: Any, rows: Any, dtype: Any = np.float64) -> SymmetricGram | NDArray:
    """Return the kernel matrix as an operator, stored if the rows are few."""
    K = SymmetricGram(kernel, rows, dtype=dtype)
    n = K.shape[0]
    stored = n <= _STORED_ROWS and fits(8.0 * n**2, copies=3)
    return K.block(np.arange(n)) if stored else K


def listen(*progress: float) -> bool:
    """Return whether to stop the fit to the sample, as a callback of a solver."""
    return report("penalty")


def _snapped(lam: float, unit: float) -> float:
    """Return the nearest quarter of a step, so that rounding changes no choice."""
    steps = round(4 * np.log(lam / unit) / np.log(_RATIO)) / 4
    return unit * float(_RATIO**steps)


def _steps(lam: float, *counts: int) -> NDArray:
    """Return lambdas at these steps of the grid."""
    return lam * _RATIO ** np.array(counts, dtype=np.float64)


def _interpolated(choices: list[Choice], i: int, unit: float) -> Choice:
    """Return the minimizer in log lambda of a parabola through the best grid point, i.

    The grid is even in log lambda. At an end, and next to a lambda without convergence,
    return the best grid point.
    """
    errors = [choice.error for choice in choices[max(0, i - 1) : i + 2]]
    if len(errors) < 3 or not np.isfinite(errors).all():
        return choices[i]
    move = np.clip(vertex(*errors), -1, 1)
    lam = _snapped(choices[i].lam / _RATIO**move, unit)
    least = errors[1] - move * (errors[0] - errors[2]) / 4
    return Choice(least, choices[i].kernel, lam)


class DualSample(SplitSample):
    """Sample for losses other than the square loss, whose fits use the dual."""

    # Each has its own fits, so one is tried at a time. The lambda of another width is
    # predicted from that of the first.
    _FIRST = (1, 0)
    _WEAKER = (-1,)
    _STRONGER = (1,)
    _NEAR = (0,)
    # Weak penalties that differ by less all interpolate, and take longer.
    _TIE = 1e-3
    most_rows = 1600

    @classmethod
    def first(cls, data: SketchedData, objective: Any) -> FeatureSolution:
        """Return ridge regression on a few landmarks, with its penalty for the loss."""
        Y = without_tails(objective)
        weights = objective.weights
        square = LeastSquaresObjective(
            Y,
            weights,
            objective.fit_intercept,
            SquareLoss(),
            np.eye(Y.shape[1]),
            folds=objective.folds,
        )
        fitted = super().first(data, square)
        return fitted._replace(alpha=fitted.alpha * objective.slope_ratio())

    @classmethod
    def draw(cls, data: SketchedData, objective: Any) -> Self:
        """Draw the fitted and the validation rows of each split."""
        return super().draw(data, objective.cheaper())

    def _solutions(
        self,
        kernel: Any,
        fitted: NDArray,
        part: Any,
        alphas: NDArray,
        state: State | None,
    ) -> Iterable[Solution]:
        """Return the solution on the fitted rows for each penalty."""
        K = as_operator(self._matrix(kernel)).take(fitted)
        return part.dual_path(
            K, alphas, tol=_DUAL_TOL, max_iter=_DUAL_STEPS, state=state,
            callback=listen, random_state=self.rng,
        )  # fmt: skip

    def _products(
        self, kernel: Any, left_out: NDArray, fitted: NDArray, coef: NDArray
    ) -> NDArray:
        """Return the values of kernel expansions on fitted rows at validation rows."""
        K = self._matrix(kernel)
        if isinstance(K, np.ndarray):
            return K.take(left_out, 0).take(fitted, 1) @ coef
        return super()._products(kernel, left_out, fitted, coef)

    def _matrix(self, kernel: Any) -> SymmetricGram | NDArray:
        """Return the kernel matrix of all rows, for all splits and penalties.

        It is kept until another kernel is requested.
        """
        if not (self.matrices and self.matrices[0][0] is kernel):
            self.matrices[:] = [(kernel, gram(kernel, self.rows))]
        return self.matrices[0][1]

    def start(self, best: Choice) -> State | None:
        """Return the mean of the solutions of all splits, in the order of all rows."""
        states: Any = self._nearest(best.kernel, best.lam)
        n = len(self.order)
        counts = np.zeros((n, 1))
        sums = np.zeros((2, n, np.shape(states[0].coef)[1]))
        for (fitted, _), state in zip(self.splits, states, strict=True):
            rows = self.order[fitted]
            counts[rows] += 1
            sums[:, rows] += state.coef, state.dual
        if not counts.all():
            return None
        coef, dual = sums / counts
        return State(coef, np.mean([s.intercept for s in states], axis=0), dual)

    def scored(self, choices: list[Choice]) -> list[Choice]:
        """Return the choices with errors on the rows without gross errors."""
        finite = [choice for choice in choices if np.isfinite(choice.error)]
        if not finite:
            return choices
        fits = [choice.fitted for choice in finite]
        errors = iter(held_out_errors(self.validation, fits).tolist())
        return [
            c._replace(error=next(errors)) if np.isfinite(c.error) else c
            for c in choices
        ]


class LevelsSample(DualSample):
    """Sample for several quantile levels on landmarks, with fits of one of them.

    On all rows, which can interpolate, the best penalty of the median without noise
    leaves no interval.
    """

    @classmethod
    def relative(cls, objective: Any) -> tuple[Any, float]:
        """Return the objective of the central level, and the ratio of the penalties."""
        return objective.central()

    def chosen(self, grid: list[Choice]) -> Choice:
        """Return the strongest penalty whose error is hardly larger than the least.

        The errors of the median are flat where outer levels are already overfitted.
        """
        best = self.best(grid)
        scored = self.scored(grid)
        limit = _EQUAL * min(choice.error for choice in scored)
        equal = [choice for choice in scored if choice.error <= limit]
        return max(best, *equal, key=lambda choice: choice.lam)
