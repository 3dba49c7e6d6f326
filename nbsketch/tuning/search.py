r"""Search for length scales: exact ridge regression on blocks, or evidence.

1. Noisy targets with enough rows, classes, and rows that are left out in blocks: a few
   rounds on small blocks of neighboring rows, see `nbsketch.tuning.blocks`. Blocks do
   not see whether a function is smooth from afar, so with noise the evidence of random
   rows is maximized from there. That point is used if the product of the errors of
   blocks and of random rows is lower (60 fits to functions with noise: 0.74 to 1.04,
   on average 0.93 of the error, in 1.24 of the time; tables hardly change).
2. Few rows, or targets with hardly any noise: the evidence of 600 rows is minimized
   until it is flat. The leave-one-out error of other rows decides whether the point is
   better than its start. If not, or if there is hardly any noise, the search restarts
   from shorter length scales, and stops early unless the evidence is larger there. It
   then continues with the evidence of more rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.kernels import median_distance
from nbsketch.tuning.blocks import left_out_error, moved, rounds
from nbsketch.tuning.criterion import ExactCriterion, LandmarkCriterion, distance_of
from nbsketch.tuning.descent import TAU_LIMITS, Budget, Curvature, Descent
from nbsketch.tuning.rows import Rows

_START = (1000, 100)  # rows and landmarks of the isotropic start
_MEDIAN_ROWS = 300  # for its median distance
# Landmarks are limited to a third of the rows, but at least this number.
_LEAST_LANDMARKS = 80
# First value of tau, per row of the sample.
_TAU = 1e-4
# Changes of a point to try: of the common factor of the scales, and of tau.
_WIDE = np.log([0.25, 0.5, 1.0, 2.0, 4.0]), np.log(10) * np.linspace(-4, 4, 17)
# Left-out blocks of rows may favor nearly linear models: far larger length scales.
_WIDER = np.log([1 / 64, 1 / 16, *np.exp(_WIDE[0])]), _WIDE[1]
NEAR = np.zeros(1), np.linspace(-2, 2, 9)
# For smooth functions the evidence prefers tau near 0 and huge length scales. With many
# rows, where solvers are iterative, a larger lower bound of tau has 0.6 to 0.9 of the
# error on five sets of 4000 rows without noise (with 1000 rows, in closed form, 1.0 to
# 1.7 times the error). Between these numbers of rows the bound is interpolated in the
# logarithm, so that the error has no jump.
_FEW = 1500  # rows, with solvers in closed form
_MANY = 4000  # rows, with iterative solvers
_ITERATIVE_LIMIT = -13.0
# Rows of the evidence and of its checks, and rows of a check.
_DRAWN = 2300
_CHECK = 800
# Logarithm of the leave-one-out error below which a second start improves one search in
# four, and blocks, which are local, are harmful.
_CLEAN = -4.5
# The second start: inverse length scales larger by this factor.
_SHORTER = 1.5


class Stage(NamedTuple):
    """Rows and iterations of a descent."""

    rows: int
    iterations: int


# 300 rows choose a wrong minimum in one set of ten; 1000 take three times as long for
# errors 2 % smaller. A descent is flat after 20 to 40 iterations.
_EVIDENCE = Stage(600, 40)
_FURTHER = Stage(800, 5)
# A short search, used for trimming and for the selection of features.
SHORT = Stage(500, 15)


def least_log_tau(n: int) -> float:
    """Return the lower bound of log tau for this number of rows."""
    share = np.log(n / _FEW) / np.log(_MANY / _FEW)
    return float(np.interp(share, [0, 1], [TAU_LIMITS[0], _ITERATIVE_LIMIT]))


def criterion_of(rows: Rows, drawn: NDArray, size: int) -> LandmarkCriterion:
    """Return the errors of left-out drawn rows; the first of them are landmarks.

    They are at most `size`, and at most a third of the rows if these are many.
    """
    count = len(drawn)
    size = min(size, max(count // 3, _LEAST_LANDMARKS), count)
    log_tau = None if rows.alpha is None else np.log(rows.alpha * count)
    return LandmarkCriterion(rows.take(drawn), size, rows.family, rows.cut, log_tau)


def isotropic_start(rows: Rows, rng: np.random.Generator) -> NDArray:
    """Return the best point with equal length scales, over bandwidths and tau."""
    criterion = _start_criterion(rows, rng)
    point = median_start(criterion.data.rows, rows.family)
    moves = _WIDE if rows.labels is None else _WIDER
    return settle(criterion, moves, point)[1]


def median_start(X: NDArray, family: int) -> NDArray:
    """Return a point with the median distance as equal length scales, and a low tau."""
    median = median_distance(X[:_MEDIAN_ROWS], distance_of(family).metric)
    return np.append(np.full(X.shape[1], -np.log(median)), np.log(_TAU * len(X)))


def _start_criterion(rows: Rows, rng: np.random.Generator) -> LandmarkCriterion:
    return criterion_of(rows, rows.draw(rng, _START[0]), _START[1])


def spread_start(rows: Rows, isotropic: NDArray) -> NDArray:
    """Return an isotropic point for all columns with the same mean distances."""
    count = len(rows.scaler.center)
    ratio = count / (len(isotropic) - 1)
    shift = np.log(ratio) * distance_of(rows.family).power
    return np.append(np.full(count, isotropic[0] - shift), isotropic[-1])


def shared_start(rows: Rows, point: NDArray) -> NDArray:
    """Return a point of features for the columns, which share that of their feature."""
    features = rows.scaler.features
    shift = np.log(np.bincount(features)) * distance_of(rows.family).power
    return np.append((point[:-1] - shift)[features], point[-1])


def outer_product_start(
    rows: Rows, point: NDArray, rng: np.random.Generator
) -> NDArray:
    """Return a start for many features: relevances in proportion to gradients.

    Three fixed-point steps on the diagonal of the average outer product of gradients of
    the fitted function (Radhakrishnan et al., Science 2024), damped by a square root.
    """
    for _ in range(3):
        slopes = _start_criterion(rows, rng).sensitivity(point)
        top = slopes.max(initial=0)
        if top <= 0:
            return point
        scales = np.sqrt(np.exp(point[:-1]) * np.maximum(slopes, 1e-4 * top))
        total = np.exp(2 * point[:-1]).sum()
        log_inverse = np.log(scales * np.sqrt(total / np.square(scales).sum()))
        point = np.append(log_inverse, point[-1])
    return point


def settle(
    criterion: LandmarkCriterion, moves: tuple[NDArray, NDArray], *points: NDArray
) -> tuple[float, NDArray]:
    """Move points by tau and a common factor of the scales; return the best value.

    The second value is its point.
    """
    tried = []
    for point, move in product(points, moves[0]):
        log_inverse = point[:-1] + move
        log_taus = point[-1] + moves[1]
        if criterion.log_tau is not None:
            log_taus = np.array([criterion.log_tau])
        errors = criterion.path(log_inverse, log_taus)
        best = errors.argmin()
        tried.append((errors[best], np.append(log_inverse, log_taus[best])))
    return min(tried, key=lambda pair: pair[0])


class Descents(NamedTuple):
    """Searches for length scales and tau, on a set of rows and within a budget."""

    rows: Rows
    rng: np.random.Generator
    budget: Budget

    def learn(self, point: NDArray, warm: NDArray | None = None) -> NDArray:
        """Return the best point of a search from a point, or a warm start near it."""
        if self.budget.is_spent:
            return point
        if self.rows.is_noisy and not self.rows.has_blocks:
            return self.by_evidence(point, warm)
        start = point
        for point in self._rounds(start):
            if not self.rows.is_noisy:
                continue
            others = self.rows.draw(self.rng, _CHECK)
            if self._exact(others).left_out(point) < _CLEAN:
                return self.by_evidence(start)
        goes_on = self.rows.is_noisy and not self.budget.is_spent
        return self._from_afar(point) if goes_on else point

    def learn_briefly(
        self,
        point: NDArray,
        curvature: Curvature | None = None,
        most: int | None = None,
    ) -> tuple[NDArray, Curvature | None]:
        """Return the point after a short first descent, without a check.

        It may continue from a curvature, and the second value is the new one. It has at
        most this number of rows.
        """
        if self.budget.is_spent:
            return point, curvature
        if not self.rows.is_noisy:
            return next(self._rounds(point)), None
        drawn = self.rows.draw(self.rng, most or SHORT.rows)
        descent = self._by_evidence(drawn, point, SHORT, curvature)
        return descent.point, descent.curvature

    def by_evidence(self, start: NDArray, warm: NDArray | None = None) -> NDArray:
        """Return the point of the greatest evidence of few rows."""
        drawn = self.rows.draw(self.rng, _DRAWN)
        first, further = np.split(drawn, [_EVIDENCE.rows])
        # If the rows hardly suffice for a check, the rows of the sample are used.
        others = further[:_CHECK] if 4 * len(further) >= len(first) else first
        errors = self._exact(others)
        minimum = self._by_evidence(first, start if warm is None else warm, _EVIDENCE)
        error = errors.left_out(minimum.point)
        if error < _CLEAN or error >= errors.left_out(start):
            minimum = self._second(first, start, minimum)
        if len(further):
            start = minimum.point
            minimum = self._by_evidence(drawn, start, _FURTHER, minimum.curvature)
        return minimum.point

    def _from_afar(self, point: NDArray) -> NDArray:
        """Return a point near that of blocks with more evidence of random rows.

        The point of blocks is kept unless the product of the errors of blocks and of
        other random rows is lower.
        """
        rows = self.rows
        rng = np.random.default_rng(0)  # the draws of the search remain the same
        drawn = rows.draw(rng, _EVIDENCE.rows + _CHECK)
        first, others = np.split(drawn, [_EVIDENCE.rows])
        errors = self._exact(others)
        data = rows.take(rows.drawn(rng))

        def log_error(point: NDArray) -> float:
            trial = np.random.default_rng(0)
            blocks = left_out_error(data, rows.family, point, trial)
            return blocks + min(map(errors.left_out, moved(point)))

        other = self._by_evidence(first, point, _EVIDENCE).point
        return min(point, other, key=log_error)

    def _rounds(self, point: NDArray) -> Iterator[NDArray]:
        """Yield the points after each round on blocks."""
        data = self.rows.take(self.rows.drawn(self.rng))
        limits = self._tau_limits(len(data.Y))
        return rounds(data, self.rows.family, point, self.rng, self.budget, limits)

    def _tau_limits(self, count: int) -> tuple[float, float]:
        """Return the bounds of log tau for a sample, equal if the penalty is given."""
        if self.rows.alpha is None:
            return least_log_tau(len(self.rows.kept)), TAU_LIMITS[1]
        given = np.log(self.rows.alpha * count)
        return given, given

    def _by_evidence(
        self, drawn: NDArray, point: NDArray, stage: Stage, curvature: Any = None
    ) -> Descent:
        """Return a descent of the evidence, which may continue from a curvature."""
        drawn = drawn[: stage.rows]
        limits = self._tau_limits(len(drawn))
        n = len(self.rows.kept)
        descent = Descent(self._exact(drawn), point, n, limits, curvature)
        descent.run(stage.iterations, self.budget)
        return descent

    def _second(self, drawn: NDArray, start: NDArray, first: Descent) -> Descent:
        """Return a descent from shorter length scales, or the first if it is lower.

        It is abandoned if it is not lower after a short search.
        """
        brief = _EVIDENCE._replace(iterations=SHORT.iterations)
        shorter = np.append(start[:-1] + _SHORTER, start[-1])
        second = self._by_evidence(drawn, shorter, brief)
        if second.value >= first.value:
            return first
        second.run(_EVIDENCE.iterations - brief.iterations, self.budget)
        return second

    def _exact(self, drawn: NDArray) -> ExactCriterion:
        return ExactCriterion(self.rows.take(drawn), self.rows.family)
