r"""The search for length scales: evidence of few rows, then a check, then a polish.

Descents are over the logarithms eta of the inverse length scales and of tau, with a
weak penalty toward one length scale for all added to each criterion,

.. math:: \frac{\kappa}{n} \Big( \sum_k \log(1 + (\eta_k - \bar\eta)^2)
          + 3 \log(1 + (\log \tau - \log 0.01)^2) \Big);

its slow growth allows very large length scales for features that do not matter. The
last term decides where the evidence hardly does: as all length scales grow and tau
falls, the kernel tends to that of a smoothing spline.

1. The evidence of 600 rows, all of them landmarks, is minimized until it is flat. (The
   left-out error of a few landmarks rewards scales that suit these landmarks; where its
   descent stops decides the result, hence rounding does.)
2. The left-out error of other rows says how noisy the targets are, and whether the
   point is better than its start. If not, or if there is hardly any noise, the search
   begins again from shorter length scales, and gives up early unless the evidence is
   larger there.
3. Noisy targets, for which a stationary process is a crude model, with rows to spare:
   a few steps on the left-out error and the evidence, in two rounds on 2000 rows drawn
   anew, kept unless the error of other rows rises. The same without the evidence for
   targets so smooth that hardly an error is left. Others go on with the evidence of
   more rows.

Where blocks of rows are left out, and for classes, there is no evidence: the left-out
error is minimized in a few rounds on rows drawn anew, and checked in the same way.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.kernels import median_distance
from nbsketch.tuning.blocked import LeaveBlocksOut
from nbsketch.tuning.criterion import ExactCriterion, LeaveOneOut, Sample, distance_of
from nbsketch.tuning.descent import Budget, Criterion, Curvature, Descent
from nbsketch.tuning.rows import Rows

# kappa: a length scale e times as large as the others costs 7 / n in the criterion.
PULL = 10.0
# Share of that in tau, and the tau: a smaller one makes problems that are harder to
# solve (Adam on a smooth function: 1.4 times the error of the closed form, not 4.6)
# and the errors on five sets by up to 9 % larger, on one 5 % smaller.
TAU_PULL = 3.0
_USUAL_TAU = 0.01
_START = (1000, 100)  # rows and landmarks of the isotropic start
_MEDIAN_ROWS = 300  # of its median distance
# First value of tau, per row of the sample.
_TAU = 1e-4
# Moves of a point to try: of the common factor of the scales, and of tau.
_WIDE = np.log([0.25, 0.5, 1.0, 2.0, 4.0]), np.log(10) * np.linspace(-4, 4, 17)
# Left-out blocks of rows may favor nearly linear models: far larger length scales.
_WIDER = np.log([1 / 64, 1 / 16, *np.exp(_WIDE[0])]), _WIDE[1]
NEAR = np.zeros(1), np.linspace(-2, 2, 9)
# Limits of the logarithms of inverse length scales and of tau. Evidence of smooth
# functions asks for a tau near 0 and huge length scales: with many rows, where solvers
# are iterative, a larger limit has .6 to .9 of the error on five sets of 4000 rows
# without noise (1.0 to 1.7 times it with 1000 rows, in closed form). Between these
# numbers of rows it rises evenly in their logarithm, so that the error has no step.
LONGEST = -9.0
LIMITS = (LONGEST, 6.0)
TAU_LIMITS = (-21.0, 14.0)
_FEW = 1500  # rows, with solvers in closed form
_MANY = 4000  # rows, with iterative solvers
_ITERATIVE_LIMIT = -13.0
_CHECK = 800  # rows
# With fewer rows to spare, polish does not pay (.235 to .269).
_SPARE = 1000
# Rises of the logarithm of the error that are noise of such a check: without it, one
# seed in two on housing prices keeps a point 6 % worse.
_DOUBT = 0.03
# Logarithm of the left-out error below which a second start mends one search in four
# and polish does harm (.027 to .04),
_CLEAN = -4.5
# and below which polish helps (.0029 to .0021).
_SMOOTH = -9.0
# The second start: inverse length scales larger by this factor.
_SHORTER = 1.5


class Stage(NamedTuple):
    """Rows and iterations of a descent.

    For rounds by the left-out error also the landmarks of each, and its share; the rest
    of the criterion is evidence.
    """

    rows: int
    iterations: int
    landmarks: tuple[int, ...] = ()
    share: float = 1.0


# 300 rows choose a wrong minimum in one set of ten, 1000 take three times as long for
# errors 2 % smaller. A descent is flat after 20 to 40 iterations.
_EVIDENCE = Stage(600, 40)
_FURTHER = Stage(800, 5)
# A short search, of trimming and of the selection of features.
SHORT = Stage(500, 15)
# Rounds on rows drawn anew. Noisy targets: against one round of 5 iterations on 1500
# rows, three splits each, -5 % error on powerplant, -2 % on california, -5 % on a sum
# of functions, +2 % on pol; with all of the left-out error, errors spread by 11 %.
_NOISY = Stage(2000, 10, (200, 400), 0.8)
# Smooth targets, on the rows of the evidence: other rows have twice the error on
# parkinsons.
_EXACT = Stage(1500, 5, (300,))
# Rounds by the left-out error, and their landmarks (the last with rows to spare). With
# 7 iterations, 15 % more error on a time series of 576 columns.
_ROUNDS = Stage(2000, 20, (100, 200, 400))


def least_log_tau(n: int) -> float:
    """Return the limit of log tau for so many rows."""
    share = np.log(n / _FEW) / np.log(_MANY / _FEW)
    return float(np.interp(share, [0, 1], [TAU_LIMITS[0], _ITERATIVE_LIMIT]))


def criterion_of(sample: Sample, family: int, share: float = 1.0) -> LeaveOneOut:
    """Return the criterion that leaves out blocks, or rows if there are no blocks."""
    if sample.blocks is None:
        return LeaveOneOut(sample, family, share)
    return LeaveBlocksOut(sample, family)


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


def settle(
    sample: Sample, family: int, point: NDArray, moves: tuple[NDArray, NDArray]
) -> tuple[float, NDArray]:
    """Move tau and the common factor of the scales; return the best value and point."""
    criterion = criterion_of(sample, family)
    log_taus = point[-1] + moves[1]
    tried = []
    if sample.log_tau is not None:
        log_taus = np.array([sample.log_tau])
    for move in moves[0]:
        log_inverse = point[:-1] + move
        errors = criterion.path(log_inverse, log_taus)
        best = int(errors.argmin())
        tried.append((float(errors[best]), np.append(log_inverse, log_taus[best])))
    return min(tried, key=lambda pair: pair[0])


class Descents:
    """Searches for length scales and tau, on some rows and within a budget."""

    def __init__(
        self, rows: Rows, family: int, rng: np.random.Generator, budget: Budget
    ) -> None:
        self._rows = rows
        self._family = family
        self._rng = rng
        self._budget = budget
        self._has_spare = len(rows.kept) >= _NOISY.rows + _SPARE

    def learn(self, point: NDArray) -> NDArray:
        """Return the best point of a search from a point."""
        if self._budget.is_spent:
            return point
        return (self.by_evidence if self._rows.is_noisy else self.by_left_out)(point)

    def learn_briefly(self, point: NDArray) -> NDArray:
        """Return the point after a short first descent, without a check."""
        if self._budget.is_spent:
            return point
        if not self._rows.is_noisy:
            return self._rounds(point, _ROUNDS.landmarks[:1])
        drawn = self._rows.draw(self._rng, SHORT.rows)
        return self._by_evidence(drawn, point, SHORT).point

    def by_evidence(self, start: NDArray) -> NDArray:
        """Return the point of the three stages."""
        drawn = self._rows.draw(self._rng, _EXACT.rows + _CHECK)
        first, further = np.split(drawn, [_EVIDENCE.rows])
        # Rows that hardly suffice for a check are checked in the sample.
        others = further[:_CHECK] if 4 * len(further) >= len(first) else first
        errors = self._exact(others)
        minimum = self._by_evidence(first, start, _EVIDENCE)
        error = errors.left_out(minimum.point)
        if error < _CLEAN or error >= errors.left_out(start):
            minimum = self._second(first, start, minimum)
            error = errors.left_out(minimum.point)
        if self._has_spare and not _SMOOTH <= error <= _CLEAN:
            used, others = np.split(drawn, [_EXACT.rows])
            if error > _CLEAN:
                kept = np.setdiff1d(self._rows.kept, others)
                polished = self.polished(minimum.point, kept, _NOISY)
            else:
                polished = self.polished(minimum.point, used, _EXACT)
            errors = self._exact(others)
            doubt = _DOUBT if error > _CLEAN else 0.0
            if _lowest(errors, polished) < _lowest(errors, minimum.point) + doubt:
                return polished
        elif len(further):
            args = minimum.point, _FURTHER, minimum.curvature
            return self._by_evidence(drawn, *args).point
        return minimum.point

    def by_left_out(self, start: NDArray) -> NDArray:
        """Return the point of rounds on rows drawn anew, or of the better start."""
        landmarks = _ROUNDS.landmarks
        if not self._has_spare:
            return self._rounds(start, landmarks[:-1])
        kept = self._rows.draw(self._rng, _CHECK)
        rows = self._rows
        check = criterion_of(rows.take(kept, landmarks[-1]), self._family)
        self._rows = rows.keep(np.setdiff1d(rows.kept, kept), rows.cut)

        def error(point: NDArray) -> float:
            return float(check.path(point[:-1], point[-1] + NEAR[1]).min())

        tried = [start, self._rounds(start, landmarks)]
        if error(tried[1]) >= error(start):
            tried.append(self._rounds(_shorter(start), landmarks))
        return min(tried, key=error)

    def polished(self, point: NDArray, kept: NDArray, stage: Stage) -> NDArray:
        """Return the point after rounds by the left-out error on some rows."""
        for landmarks in stage.landmarks:
            all_rows = len(kept) <= stage.rows  # in the order of the draw
            rows = kept if all_rows else self._rng.choice(kept, stage.rows, False)
            sample = self._rows.take(rows, landmarks)
            criterion = criterion_of(sample, self._family, stage.share)
            point = self.descended(criterion, sample, point, stage.iterations).point
        return point

    def descended(
        self,
        criterion: Criterion,
        sample: Sample,
        point: NDArray,
        iterations: int,
        curvature: Curvature | None = None,
    ) -> Descent:
        """Return the descent of a penalized criterion after some iterations."""
        given = sample.log_tau
        n = len(self._rows.kept)
        tau = (least_log_tau(n), TAU_LIMITS[1]) if given is None else (given, given)
        ends = zip(LIMITS, tau, strict=True)
        low, high = (np.append(np.full(len(point) - 1, a), b) for a, b in ends)
        weight = PULL / n
        penalty = partial(penalized, weight, TAU_PULL * weight * self._rows.is_noisy)
        descent = Descent(criterion, point, (low, high), curvature, penalty)
        descent.run(iterations, self._budget)
        return descent

    def _by_evidence(
        self, drawn: NDArray, point: NDArray, stage: Stage, curvature: Any = None
    ) -> Descent:
        """Return a descent of the evidence, which may go on with a known curvature."""
        sample = self._rows.take(drawn[: stage.rows], 1)
        criterion = ExactCriterion(sample, self._family)
        return self.descended(criterion, sample, point, stage.iterations, curvature)

    def _second(self, drawn: NDArray, start: NDArray, first: Descent) -> Descent:
        """Return a descent from shorter length scales, or the first if that is lower.

        It is abandoned if it is not the lower one after a short search.
        """
        brief = _EVIDENCE._replace(iterations=SHORT.iterations)
        second = self._by_evidence(drawn, _shorter(start), brief)
        if second.value >= first.value:
            return first
        second.run(_EVIDENCE.iterations - brief.iterations, self._budget)
        return second

    def _rounds(self, point: NDArray, landmarks: tuple[int, ...]) -> NDArray:
        """Return the point after rounds by the left-out error, on rows drawn anew."""
        for count in landmarks:
            drawn = self._rows.draw(self._rng, _ROUNDS.rows)
            stage = _ROUNDS._replace(landmarks=(count,))
            point = self.polished(point, drawn, stage)
        return point

    def _exact(self, drawn: NDArray) -> ExactCriterion:
        return ExactCriterion(self._rows.take(drawn, 1), self._family)


def _shorter(point: NDArray) -> NDArray:
    return np.append(point[:-1] + _SHORTER, point[-1])


def _lowest(errors: ExactCriterion, point: NDArray) -> float:
    """Return the left-out error with the best of three tau: landmarks change it."""
    moves = np.log([0.5, 1.0, 2.0])
    return min(errors.left_out(np.append(point[:-1], point[-1] + m)) for m in moves)


def penalized(
    weight: float, by_tau: float, point: NDArray, value: float, gradient: NDArray
) -> tuple[float, NDArray]:
    """Add the penalty toward one length scale for all and a usual tau."""
    away = point[:-1] - point[:-1].mean()
    value += weight * float(np.log1p(np.square(away)).sum())
    slope = 2 * weight * away / (1 + np.square(away))
    gradient[:-1] += slope - slope.mean()
    away = point[-1] - np.log(_USUAL_TAU)
    value += by_tau * float(np.log1p(np.square(away)))
    gradient[-1] += 2 * by_tau * away / (1 + np.square(away))
    return value, gradient
