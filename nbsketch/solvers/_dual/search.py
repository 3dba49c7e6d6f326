r"""Semismooth Newton steps in the coefficients of a kernel matrix, as a generator.

The loss is smoothed by sigma around a dual point (its Moreau envelope there), unless it
is smooth. If n alpha c differs from the dual point a of the residuals, the Newton
equation gives d = a / (n alpha) - c for rows beyond a kink and a linear system for rows
between kinks. Steps use an exact line search; once the inner problem is solved, the
dual point becomes the center and sigma decreases.

X. Li, D. Sun, K.-C. Toh, "A highly efficient semismooth Newton augmented Lagrangian
method for solving Lasso problems", 2018.

Newton directions: the linear system of the rows between kinks.

.. math:: (K_{BB} + \lambda W^{-1}) d_B + E \delta = r_B, \qquad E^\top d_B = t

with the indicators E of the outputs, by a Cholesky factorization if B is small, else by
preconditioned conjugate gradients among the d with the given sums.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._machine.memory import fits
from nbsketch.solvers._certified.search import convex_step
from nbsketch.solvers._dual.matrix import Steps, run_together
from nbsketch.solvers._dual.problem import DualProblem, Point
from nbsketch.solvers._linear.cholesky import (
    LowRankPreconditioner,
    raised_cholesky,
    solve_positive_upper,
)
from nbsketch.solvers._linear.conjugate_gradients import (
    ConjugateGradients,
    SymmetricOperator,
)
from nbsketch.solvers.row_loss import typical_mean
from nbsketch.solvers.solution import Certificate, State

# Up to this many rows a factorization is as fast as the steps that it replaces, for
# most systems and for systems that take many steps.
DIRECT = 1500
DIRECT_HARD = 4000
# Up to this share of the rows, products with K_BB are faster than with K.
_PART = 0.4
STEPS = 100
# Share of the trace added to the diagonal of an indefinite matrix.
_JITTER = 1e-15
# Coarse fits have factors in single precision if the smallest addition to the diagonal
# is this multiple of the jitter: 1e-4 of the mean diagonal.
_COARSE_TOL = 1e-3
_COARSE = 1e11
# First sigma plus gam relative to the mean residual: most rows are between kinks. With
# 100, more steps factorize nearly all rows (1.4 to 1.7 times the time for four losses
# at a gap of 1e-2); with 5, weak penalties of joint levels lose digits. With a warm
# start it is smaller.
_COLD = 10.0
_WARM = 1.0
# One of this many first steps from there that is shorter leads nowhere: a cold start
# takes 6 to 19 steps where that one took 28 to more than 40 (pinball loss, weak
# penalties).
_EARLY = 2
_ASTRAY = 0.1
# Factors of sigma after rounds of one, two, three and more steps.
_SHRINK = 0.3, 0.5, 0.7, 0.8
# Multiple of gam below which a sigma is useless.
_SMOOTH = 0.5
# Factor of sigma after a linear system that conjugate gradients cannot solve: sigma
# stays there, and decreases by a factor after a round that ends with few of their
# steps.
_GROW = 3.0
_EASIER = 0.5
_EASY = 30
# A round ends when the inner problem is solved to this share of the cost of smoothing,
# or exactly if that is small enough for the certificate.
_INEXACT = 0.01
_EXACT = 1e-9
# Linear systems are solved to this share of the cost of smoothing, and of the error
# before the step.
_ACCURACY = 0.003
_FORCING = 0.003
# Certificates are computed if the estimated gap is below this multiple of the target.
_NEAR = 3.0
# Maximum steps in a round, and rounds of a smooth loss without progress.
_LONG = 40
_PATIENCE = 8
# Rows for measuring errors of the predictions, and a safety factor.
_SAMPLED = 64
_SAFETY = 1.5
# A gap below this share of the initial objective counts as zero.
_ROUNDING = 1e-15


class InsideSystem(NamedTuple):
    """The system of the rows of positive weight."""

    weights: NDArray  # (n,), W
    shift: float  # lambda
    right: NDArray  # (n,), used only on these rows
    output: NDArray  # (n,), number of the output of each row
    total: NDArray | None  # of d for each output; None without intercepts
    tolerance: float  # largest weighted square of the residual
    coarse: bool  # whether single precision suffices for the factor


class Direction(NamedTuple):
    """Its solution."""

    d: NDArray  # (n,), zero for other rows
    intercept: NDArray
    product: NDArray | None  # K d, if known
    steps: int | None  # of conjugate gradients; None if they did not converge


def solve_inside(
    K: SymmetricOperator,
    precondition: Callable[[], LowRankPreconditioner],
    system: InsideSystem,
    hard: bool,
) -> Steps[Direction]:
    """Solve the system; complete products with K are left to the caller.

    If conjugate gradients take many steps (`hard`), more rows are factorized, as many
    as fit into memory.
    """
    rows = np.flatnonzero(system.weights)
    hard = hard and fits(8.0 * len(rows) ** 2, copies=2)
    if len(rows) <= (DIRECT_HARD if hard else DIRECT):
        return _factorize(K, rows, system)
    preconditioner = precondition()
    preconditioner.reweight(system.weights)
    if len(rows) > _PART * len(system.weights):
        return (yield from _iterate(preconditioner, system, system.weights > 0))
    return _in_part(K.take(rows), preconditioner, system, rows)


def _in_part(
    part: SymmetricOperator,
    preconditioner: LowRankPreconditioner,
    system: InsideSystem,
    rows: NDArray,
) -> Direction:
    """Solve with the block of these rows as a separate operator."""
    names = "weights", "right", "output"
    smaller = system._replace(**{name: getattr(system, name)[rows] for name in names})
    inside = np.ones(len(rows), dtype=bool)
    steps = _iterate(preconditioner.restricted(rows), smaller, inside)
    (direction,) = run_together(part, [steps])
    d = np.zeros(len(system.weights))
    d[rows] = direction.d
    return direction._replace(d=d, product=None)


def _factorize(K: SymmetricOperator, rows: NDArray, system: InsideSystem) -> Direction:
    """Solve by Cholesky factors, with as much jitter as necessary."""
    d = np.zeros(len(system.weights))
    sums = _Sums(system, rows)
    if not len(rows):
        return Direction(d, np.zeros(sums.count), d, 0)
    matrix = K.block(rows)
    matrix.flat[:: len(rows) + 1] += system.shift / system.weights[rows]
    jitter = _JITTER * float(np.trace(matrix))
    added = system.shift / float(system.weights.max())
    if system.coarse and added * len(rows) > _COARSE * jitter:
        matrix = matrix.astype(np.float32)
    # LAPACK reads columns, and the matrix is symmetric: its transpose is copied faster.
    upper, _ = raised_cholesky(matrix.T, 0.0, jitter)
    # A power of two: targets of any unit are in the range of single precision.
    _, exponent = np.frexp(np.abs(system.right[rows]).max())
    sides = np.column_stack([np.ldexp(system.right[rows], -exponent), sums.indicators])
    solved = solve_positive_upper(upper, sides.astype(matrix.dtype)).astype(float)
    sums.set(solved[:, 1:])
    d[rows] = sums.project(np.ldexp(solved[:, 0], exponent), system.total)
    return Direction(d, sums.shift, None, 0)


class _Sums:
    """Sums of vectors over the rows of each output, and moves that change them.

    `indicators` belong to the outputs with intercepts, on a subset of rows; `shift` are
    the multipliers of the last projection.
    """

    def __init__(self, system: InsideSystem, rows: NDArray) -> None:
        self.count = 0 if system.total is None else len(system.total)
        outputs = np.arange(self.count)
        self.indicators = (system.output[rows, None] == outputs).astype(float)
        self.shift = np.zeros(self.count)

    def set(self, moves: NDArray) -> None:
        """Set the moves: the inverse of a matrix, times the indicators."""
        self.moves = moves
        sums = self.indicators.T @ moves
        if self.count == 1 and sums.item():  # a decomposition is a tenth of a small fit
            self.inverse = 1 / sums
        else:
            self.inverse = np.linalg.pinv(sums, hermitian=True)

    def project(self, z: NDArray, total: NDArray | None = None) -> NDArray:
        """Return z with sums `total`; zero if None."""
        excess = self.indicators.T @ z
        if total is not None:
            excess -= total
        self.shift = self.inverse @ excess
        return z - self.moves @ self.shift


def _iterate(
    preconditioner: LowRankPreconditioner, system: InsideSystem, inside: NDArray
) -> Steps[Direction]:
    """Solve by conjugate gradients on directions whose sums are zero."""
    W = system.weights
    shift = np.array([system.shift])
    scale = np.divide(system.shift, W, out=np.zeros(len(W)), where=inside)
    sums = _Sums(system, np.arange(len(W)))
    sums.indicators *= inside[:, None]
    sums.set(preconditioner.solve(sums.indicators, np.repeat(shift, sums.count)))
    d = np.zeros(len(W))
    Kd = np.zeros(len(W))
    if system.total is not None and system.total.any():
        d = sums.project(d, system.total)
        Kd = yield d
    r = (system.right - Kd - scale * d) * inside
    steps = ConjugateGradients(
        r[:, None],
        lambda R, _: sums.project(preconditioner.solve(R, shift)[:, 0])[:, None],
    )
    for count in range(STEPS + 1):
        steps.turn()
        residual = steps.R[:, 0] - sums.indicators @ sums.shift
        if float(W @ residual**2) <= system.tolerance:
            return Direction(d, sums.shift, Kd, count)
        if count == STEPS:
            break
        p = steps.D[:, 0]
        Kp = yield p
        (length,) = steps.step(((Kp + scale * p) * inside)[:, None])
        if not length:
            break
        d = d + length * p
        Kd = Kd + length * Kp
    return Direction(d, sums.shift, Kd, None)


def cold_start(problem: DualProblem) -> State:
    """Return the medians as constants; zero for labels.

    The best constants of other losses take as many steps (1225 for 1233, four penalties
    of seven losses).
    """
    constants = np.zeros(problem.outputs)
    lo = problem.rows.lo.reshape(problem.outputs, -1)
    if problem.fit_intercept and not (lo != lo[:, :1]).any():
        constants = np.median(problem.y.reshape(problem.outputs, -1), axis=1)
    return State(np.zeros(problem.n), constants)


class DualLimits(NamedTuple):
    """Stopping criteria."""

    tol: float
    steps: int
    late: Callable[[], bool]  # whether time or passes are used up


class DualSearch:
    """The search for one problem: a column of targets, or coupled outputs.

    A round has one sigma and one center; `point` belongs to the current coefficients.
    """

    sigma: float
    point: Point
    length: int  # steps of the round

    def __init__(
        self,
        K: SymmetricOperator,
        problem: DualProblem,
        precondition: Callable[[], LowRankPreconditioner],
        start: State,
        limits: DualLimits,
        report: Callable[[int], None],
    ) -> None:
        self.K = K
        self.problem = problem
        self.limits = limits
        self.report = report
        self.precondition = cache(precondition)
        self.start = start
        self.steps = self.stale = 0
        self.output = problem.spread(np.arange(problem.outputs))
        count = min(_SAMPLED, problem.n)
        self.sampled = np.random.default_rng(0).choice(problem.n, count, replace=False)
        self.least = 0.0  # sigma for which linear systems can be solved
        self.inner: int | None = 0  # steps in the last system; None: too many
        self.hard = False  # whether a system has taken many steps
        self.best: Any = None
        self.floor = 0.0

    def run(self) -> Steps[Certificate]:
        """Search until certified, stalled or at a limit; return the best point."""
        p = self.problem
        yield from self._begin(self.start)
        cold = cold_start(p)
        values = p.rows.values
        # Exponential losses of another penalty may overflow.
        if p.weights @ (values(self._res) - values(p.y - p.spread(cold.intercept))) > 0:
            yield from self._begin(cold)
        yield from self._certify(p.feasible(self.c))
        self.floor = _ROUNDING * self.best.scale
        self._begin_round(self.sigma)
        while not (self.converged or self._must_stop):
            step = yield from self._step()
            if self._is_astray(step):
                yield from self._begin(cold_start(p))
            self.point = self._point()
            self.length += 1
            yield from self._assess()
            if self.inner is None and self.sigma > 0:
                self.least = _GROW * self.sigma
                self._begin_round(self.least)
            elif step == 0:
                break
            elif self.sigma > 0 and self._is_settled:
                self._sharpen()
        if not self.converged:
            yield from self._certify(p.feasible(self.c))
        return self.best

    def _begin(self, start: State) -> Steps[None]:
        """Go to a start, with the sigma that goes with it."""
        self.start = start
        self.c = start.coef
        self.b = start.intercept
        self.fitted = yield self.c
        self.center = np.zeros(self.problem.n) if start.dual is None else start.dual
        self.sigma = self._first_sigma(_COLD if start.dual is None else _WARM)

    def _begin_round(self, sigma: float) -> None:
        self.sigma = sigma
        self.point = self._point()
        self.length = 0

    def _sharpen(self) -> None:
        """Center the smoothing at the dual point, with a smaller sigma."""
        self.center = self.point.a
        if self._is_easy:
            self.least *= _EASIER
        factor = _SHRINK[min(self.length, len(_SHRINK)) - 1]
        self._begin_round(self._useful(max(factor * self.sigma, self.least)))

    def _is_astray(self, step: float) -> bool:
        """Return whether the first steps have shown that the start is a bad one."""
        is_early = self.steps <= _EARLY and self.start.dual is not None
        return is_early and self.sigma > 0 and step < _ASTRAY

    @property
    def converged(self) -> bool:
        """Whether the best certificate reaches the target."""
        return bool(self.best.gap + self.best.noise <= self._goal)

    @property
    def _goal(self) -> float:
        return max(self.limits.tol * self.best.scale, self.floor)

    @property
    def _is_easy(self) -> bool:
        """Whether the last linear system took few steps."""
        return self.inner is not None and self.inner <= _EASY

    @property
    def _must_stop(self) -> bool:
        """Whether a limit is reached, or the certificate does not improve."""
        spent = self.steps >= self.limits.steps or self.limits.late()
        rounding = self.best.gap <= self._goal / 2 and self.best.noise > self._goal
        return spent or rounding or self.stale > _PATIENCE or self.length >= _LONG

    @property
    def _res(self) -> NDArray:
        return self.problem.y - self.fitted - self.problem.spread(self.b)

    def _point(self) -> Point:
        p = self.problem
        smoothing = self.sigma, self.center
        point = p.point(self._res, *smoothing)
        stuck = p.totals(point.curvature) == 0
        if p.fit_intercept and stuck.any():
            # Without rows between kinks, nothing else changes the intercept.
            free = p.intercept(p.y - self.fitted, self.b, *smoothing)
            self.b = np.where(stuck, free, self.b)
            point = p.point(self._res, *smoothing)
        return point

    def _first_sigma(self, share: float) -> float:
        p = self.problem
        if not p.rows.has_kinks:
            return 0.0
        sizes = np.abs(self._res)
        sizes = sizes[(sizes > 0) & (p.weights > 0)]
        if not len(sizes):
            return 0.0
        return self._useful(share * typical_mean(sizes) / p.rows.steepest - p.rows.gam)

    def _useful(self, sigma: float) -> float:
        return sigma if sigma > _SMOOTH * self.problem.rows.gam else 0.0

    @property
    def _error(self) -> float:
        """The approximate gap of the inner problem."""
        p = self.problem
        square = float(p.weights @ (p.ratio(self.c) - self.point.a) ** 2)
        return square * self.point.smoothness / (2 * p.n)

    @property
    def _is_settled(self) -> bool:
        """Whether to decrease sigma; not if the exact inner solution would suffice."""
        young = self.point.young
        share = _INEXACT if young > self._goal / 2 else _EXACT
        return self._error <= share * young

    def _step(self) -> Steps[float]:
        """Move along a Newton direction; return the step."""
        d, Kd, shift = yield from self._direction()
        t = self._line_search(d, Kd, shift)
        self.c = self.c + t * d
        self.fitted = self.fitted + t * Kd
        self.b = self.b + t * shift
        self.steps += 1
        return t

    def _direction(self) -> Steps[tuple[NDArray, NDArray, NDArray]]:
        """Return the Newton directions of c, of K c and of the intercepts."""
        p = self.problem
        point = self.point
        weights = point.curvature
        distance = p.shift * self.c - p.weights * point.a  # gradient
        between = weights > 0
        d = np.where(between, 0.0, -distance / p.shift)
        offset = yield d
        scaled = np.divide(distance, weights, out=np.zeros(p.n), where=between)
        right = -point.smoothness * scaled - offset
        total = -p.totals(self.c + d) if p.fit_intercept else None
        system = InsideSystem(
            weights, p.shift * point.smoothness, right, self.output, total,
            self._tolerance, coarse=self.limits.tol >= _COARSE_TOL,
        )  # fmt: skip
        inside = yield from solve_inside(self.K, self.precondition, system, self.hard)
        self.inner = inside.steps
        self.hard = self.hard or not self._is_easy
        d = d + inside.d
        product = inside.product
        if product is None:
            product = (yield d) - offset
        shift = inside.intercept if p.fit_intercept else np.zeros(p.outputs)
        return d, offset + product, shift

    @property
    def _tolerance(self) -> float:
        """The largest weighted square of the residual of a linear system."""
        error = _FORCING * self._error
        if self.sigma > 0:
            error = min(error, _ACCURACY * self.point.young)
        return 2 * self.problem.n * self.point.smoothness * error

    def _line_search(self, d: NDArray, Kd: NDArray, shift: NDArray) -> float:
        p = self.problem
        res = self._res
        move = Kd + p.spread(shift)
        smoothed = move, p.weights, self.center, self.sigma
        slope = p.alpha * float(self.c @ Kd)
        curvature = p.alpha * float(d @ Kd)
        first = slope - float((p.weights * self.point.a) @ move) / p.n
        if not first < 0:
            return 0.0
        return convex_step(
            lambda t: p.rows.slopes(t, res, *smoothed), first, p.n, slope, curvature
        )

    def _assess(self) -> Steps[None]:
        """Certify the current point if its estimated gap is small; report the best."""
        p = self.problem
        a = p.feasible(self.c)
        estimate = p.rows.young(self._res, p.weights, a) / p.n
        if estimate <= _NEAR * self._goal:
            yield from self._certify(a)
        self.report(self.steps)

    def _certify(self, a: NDArray) -> Steps[None]:
        p = self.problem
        difference = p.coefficients(a) - self.c
        difference[np.abs(difference) <= 1e-15 * np.abs(self.c)] = 0
        fitted = self.fitted + (yield difference)
        rounding = self._rounding(p.coefficients(a), fitted)
        certificate = p.certify(a, fitted, self.b, rounding)
        total = certificate.gap + certificate.noise
        before = np.inf if self.best is None else self.best.gap + self.best.noise
        self.stale = 0 if total < 0.9 * before or self.sigma > 0 else self.stale + 1
        if total < before or self.best is None:
            self.best = certificate

    def _rounding(self, c: NDArray, fitted: NDArray) -> float:
        """Return the error of K c, measured on a sample of the rows."""
        errors = fitted[self.sampled] - self.K.exact(self.sampled, c)
        return _SAFETY * float(np.sqrt(np.mean(errors**2)))
