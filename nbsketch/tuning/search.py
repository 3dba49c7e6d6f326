r"""The search for length scales: short rounds of L-BFGS on samples drawn anew.

A fixed sample would be overfitted. Each round minimizes, from the last point of the
round before,

.. math:: \log \mathrm{LOO}(\eta, \log\tau)
          + \frac{\kappa}{n} \sum_k \log(1 + (\eta_k - \bar\eta)^2)

over the logarithms eta of the inverse length scales and of tau. The second term is a
weak penalty toward one length scale for all; its slow growth allows very large length
scales for features that do not matter.

For few rows, `learn_exact` minimizes the criterion of `nbsketch.tuning.exact` with the
same penalty in one descent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from nbsketch.kernels import median_distance
from nbsketch.tuning.blocked import criterion_of
from nbsketch.tuning.criterion import LeaveOneOut, Sample
from nbsketch.tuning.distances import distance_of
from nbsketch.tuning.exact import ExactCriterion
from nbsketch.tuning.rows import Rows

# kappa: a length scale e times as large as the others costs 7 / n in log LOO.
PULL = 10.0
# Rows and landmarks of the isotropic start, and rows of its median distance.
_START, _MEDIAN_ROWS = (1000, 100), 300
# First value of tau, per row of the sample.
_TAU = 1e-4
# Moves of a point to try: of the common factor of the scales, and of tau.
_WIDE = np.log([0.25, 0.5, 1.0, 2.0, 4.0]), np.log(10) * np.linspace(-4, 4, 17)
# Left-out blocks of rows may favor nearly linear models: far larger length scales.
_WIDER = np.log([1 / 64, 1 / 16, *np.exp(_WIDE[0])]), _WIDE[1]
NEAR = np.zeros(1), np.linspace(-2, 2, 9)
# Limits of the logarithms of inverse length scales and of tau.
_LIMITS, _TAU_LIMITS = (-9.0, 6.0), (-21.0, 14.0)


class Round(NamedTuple):
    """A round of the search."""

    rows: int
    landmarks: int
    iterations: int


ROUNDS = (Round(2000, 100, 8), Round(2000, 150, 6), Round(2000, 200, 6))
# The last round, if the error falls by this much with the number of landmarks.
LAST = Round(2000, 400, 5)
_FALL = 0.03
# Rows and iterations of a search by the exact criterion.
_EXACT_ROWS, _EXACT_ITERATIONS = 500, 20


class Budget:
    """Iterations and seconds that are left."""

    def __init__(
        self,
        iterations: int,
        seconds: float,
        callback: Callable[[int, float], Any] | None = None,
    ) -> None:
        self.iterations = iterations
        self._all, self._callback = iterations, callback
        self._end = time.monotonic() + seconds

    def share(self, iterations: int) -> Budget:
        """Return a separate budget, at most as large, that ends at the same time."""
        left = self._end - time.monotonic()
        return Budget(min(iterations, self.iterations), left)

    @property
    def is_spent(self) -> bool:
        """Whether no iterations or no time is left."""
        return self.iterations <= 0 or time.monotonic() >= self._end

    def spend(self, value: float) -> None:
        """Count one iteration, after which the criterion has a value."""
        self.iterations -= 1
        done = self._all - self.iterations
        if self._callback is not None and self._callback(
            done, float(np.exp(value / 2))
        ):
            self.iterations = 0


class _PrecisionError(Exception):
    """A point needs a higher precision: begin again from the best one."""


class _SpentError(Exception):
    """Ends a minimization within an iteration."""


def isotropic_start(rows: Rows, family: int, rng: np.random.Generator) -> NDArray:
    """Return the best point with one length scale: bandwidths times a path of tau."""
    sample = rows.sample(rng, *_START)
    metric = distance_of(family).metric
    median = median_distance(sample.X[:_MEDIAN_ROWS], metric)
    log_inverse = np.full(sample.X.shape[1], -np.log(median))
    point = np.append(log_inverse, np.log(_TAU * len(sample.X)))
    moves = _WIDE if rows.labels is None else _WIDER
    return settle(sample, family, point, moves)[1]


def spread_start(isotropic: NDArray, count: int, family: int) -> NDArray:
    """Return an isotropic point for `count` columns, at the same mean distances."""
    ratio = count / (len(isotropic) - 1)
    shift = np.log(ratio) * distance_of(family).power
    return np.append(np.full(count, isotropic[0] - shift), isotropic[-1])


def outer_product_start(
    rows: Rows, family: int, point: NDArray, rng: np.random.Generator
) -> NDArray:
    """Return a start for many features: relevances in proportion to gradients.

    Three fixed-point steps on the diagonal of the average outer product of gradients of
    the fitted function (Radhakrishnan et al., Science 2024), damped by a square root.
    """
    for _ in range(3):
        criterion = criterion_of(rows.sample(rng, *_START), family)
        slopes = criterion.sensitivity(point)
        top = slopes.max(initial=0)
        if top <= 0:
            return point
        scales = np.sqrt(np.exp(point[:-1]) * np.maximum(slopes, 1e-4 * top))
        total = np.exp(2 * point[:-1]).sum()
        log_inverse = np.log(scales * np.sqrt(total / np.square(scales).sum()))
        point = np.append(log_inverse, point[-1])
    return point


def learn(
    rows: Rows,
    point: NDArray,
    rounds: Iterable[Round],
    rng: np.random.Generator,
    budget: Budget,
    family: int,
) -> NDArray:
    """Run rounds of the search; return the last point."""
    for plan in rounds:
        if budget.is_spent:
            break
        sample = rows.sample(rng, plan.rows, plan.landmarks)
        criterion = criterion_of(sample, family)
        pull = PULL / len(rows.kept)
        point = _descend(criterion, sample, point, pull, plan.iterations, budget)
    return point


def learn_exact(
    rows: Rows, point: NDArray, rng: np.random.Generator, budget: Budget, family: int
) -> NDArray:
    """Minimize the exact criterion on a random part of the rows; return the best point.

    Two thirds of the rows are drawn, at most 500, so that searches differ.
    """
    if budget.is_spent:
        return point
    count = min(max(2 * len(rows.kept) // 3, 1), _EXACT_ROWS)
    sample = rows.sample(rng, count, count)
    criterion = ExactCriterion(sample, family)
    pull = PULL / len(rows.kept)
    return _descend(criterion, sample, point, pull, _EXACT_ITERATIONS, budget)


def is_rough(rows: Rows, point: NDArray, rng: np.random.Generator, family: int) -> bool:
    """Return whether more landmarks lower the error at a point by more than 3 %."""
    many = rows.sample(rng, LAST.rows, LAST.landmarks)
    few = many._replace(landmarks=many.landmarks[: ROUNDS[0].landmarks])
    errors = [
        criterion_of(sample, family).path(point[:-1], point[-1:])[0]
        for sample in (few, many)
    ]
    return errors[0] - errors[1] > _FALL


def settle(
    sample: Sample,
    family: int,
    point: NDArray,
    moves: tuple[NDArray, NDArray],
) -> tuple[float, NDArray]:
    """Move tau and the common factor of the scales; return the best value and point."""
    criterion = criterion_of(sample, family)
    log_taus, tried = point[-1] + moves[1], []
    if sample.log_tau is not None:
        log_taus = np.array([sample.log_tau])
    for move in moves[0]:
        log_inverse = point[:-1] + move
        errors = criterion.path(log_inverse, log_taus)
        best = int(errors.argmin())
        tried.append((float(errors[best]), np.append(log_inverse, log_taus[best])))
    return min(tried, key=lambda pair: pair[0])


class _Objective:
    """The penalized criterion, with the best point evaluated."""

    def __init__(
        self,
        criterion: LeaveOneOut | ExactCriterion,
        point: NDArray,
        pull: float,
        budget: Budget,
    ) -> None:
        self._criterion = criterion
        self._level = self._criterion.level
        self._pull, self._budget = pull, budget
        self.least, self.best = np.inf, point

    def __call__(self, point: NDArray) -> tuple[float, NDArray]:
        """Return the value and the gradient at a point."""
        if self._budget.is_spent:
            raise _SpentError
        value, gradient = self._criterion(point)
        self._check_precision()
        away = point[:-1] - point[:-1].mean()
        value += self._pull * float(np.log1p(np.square(away)).sum())
        slope = 2 * self._pull * away / (1 + np.square(away))
        gradient[:-1] += slope - slope.mean()
        if value < self.least:
            self.least, self.best = value, point.copy()
        return value, gradient

    def minimize(self, bounds: list[tuple[float, float]], iterations: int) -> bool:
        """Descend from the best point; return whether the precision was enough."""
        with suppress(_PrecisionError):
            scipy.optimize.minimize(
                self,
                np.clip(self.best, *np.transpose(bounds)),
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                callback=lambda _: self._budget.spend(self.least),
                options={"maxiter": iterations, "maxfun": 2 * iterations},
            )
            return True
        return False

    def _check_precision(self) -> None:
        """Compare values of one precision only, that of the first one at least."""
        before, self._level = self._level, self._criterion.level
        if self._level > before and np.isfinite(self.least):
            self.least = np.inf
            raise _PrecisionError


def _descend(
    criterion: LeaveOneOut | ExactCriterion,
    sample: Sample,
    point: NDArray,
    pull: float,
    iterations: int,
    budget: Budget,
) -> NDArray:
    """Minimize the penalized criterion; return the best point evaluated."""
    given = sample.log_tau
    by_tau = _TAU_LIMITS if given is None else (given, given)
    bounds = [_LIMITS] * (len(point) - 1) + [by_tau]
    objective = _Objective(criterion, point, pull, budget)
    with suppress(_SpentError):
        while not objective.minimize(bounds, iterations):
            pass
    return objective.best
