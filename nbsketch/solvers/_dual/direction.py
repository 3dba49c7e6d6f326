r"""Newton directions: the linear system of the rows between kinks.

.. math:: (K_{BB} + \lambda W^{-1}) d_B + E \delta = r_B, \qquad E^\top d_B = t

with the indicators E of the outputs, by a Cholesky factorization if B is small, else by
preconditioned conjugate gradients among the d of the given sums.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._dual.products import Steps, run_together
from nbsketch.solvers._linear.cholesky import raised_cholesky, solve_positive_upper
from nbsketch.solvers._linear.conjugate_gradients import ConjugateGradients
from nbsketch.solvers._linear.operator import PartialOperator
from nbsketch.solvers._linear.preconditioner import LowRankPreconditioner

# Up to this many rows a factorization is as fast as the steps that it saves, for most
# systems and for those that take many.
DIRECT, DIRECT_HARD = 1500, 4000
# Up to this share of the rows, products with K_BB beat those with K.
_PART = 0.4
STEPS = 100
# Share of its trace that is added to the diagonal of a matrix without a factor.
_JITTER = 1e-15


class InsideSystem(NamedTuple):
    """The system of the rows of positive weight."""

    weights: NDArray  # (n,), W
    shift: float  # lambda
    right: NDArray  # (n,), used on those rows only
    output: NDArray  # (n,), number of the output of each row
    total: NDArray | None  # of d for each output; None without intercepts
    tolerance: float  # largest weighted square of the residual


class Direction(NamedTuple):
    """Its solution."""

    d: NDArray  # (n,), zero off these rows
    intercept: NDArray
    product: NDArray | None  # K d, if it is known
    steps: int | None  # of conjugate gradients; None if they did not converge


def solve_inside(
    K: PartialOperator,
    preconditioner: LowRankPreconditioner,
    system: InsideSystem,
    hard: bool,
) -> Steps[Direction]:
    """Solve the system, whole products with K being left to the caller.

    If conjugate gradients are known to take many steps, `hard`, more rows are solved
    by a factorization.
    """
    rows = np.flatnonzero(system.weights)
    if len(rows) <= (DIRECT_HARD if hard else DIRECT):
        return _factorize(K, rows, system)
    preconditioner.reweight(system.weights)
    if len(rows) > _PART * len(system.weights):
        return (yield from _iterate(preconditioner, system, system.weights > 0))
    return _in_part(K.take(rows), preconditioner, system, rows)


def _in_part(
    part: PartialOperator,
    preconditioner: LowRankPreconditioner,
    system: InsideSystem,
    rows: NDArray,
) -> Direction:
    """Solve with the block of these rows as an operator of its own."""
    names = "weights", "right", "output"
    smaller = system._replace(**{name: getattr(system, name)[rows] for name in names})
    inside = np.ones(len(rows), dtype=bool)
    steps = _iterate(preconditioner.restricted(rows), smaller, inside)
    (direction,) = run_together(part, [steps])
    d = np.zeros(len(system.weights))
    d[rows] = direction.d
    return direction._replace(d=d, product=None)


def _factorize(K: PartialOperator, rows: NDArray, system: InsideSystem) -> Direction:
    """Solve by Cholesky factors, of a matrix with as much jitter as it takes."""
    d, sums = np.zeros(len(system.weights)), _Sums(system, rows)
    if not len(rows):
        return Direction(d, np.zeros(sums.count), d, 0)
    matrix = K.block(rows)
    matrix[np.diag_indices_from(matrix)] += system.shift / system.weights[rows]
    upper, _ = raised_cholesky(matrix, 0.0, _JITTER * float(np.trace(matrix)))
    sides = np.column_stack([system.right[rows], sums.indicators])
    solved = solve_positive_upper(upper, sides)
    sums.set(solved[:, 1:])
    d[rows] = sums.project(solved[:, 0], system.total)
    return Direction(d, sums.shift, None, 0)


class _Sums:
    """The sums of vectors over the rows of each output, and moves that change them.

    `indicators` are those of the outputs with intercepts, on some of the rows; `shift`
    are the multipliers of the last projection.
    """

    def __init__(self, system: InsideSystem, rows: NDArray) -> None:
        self.count = 0 if system.total is None else len(system.total)
        outputs = np.arange(self.count)
        self.indicators = (system.output[rows, None] == outputs).astype(float)
        self.shift = np.zeros(self.count)

    def set(self, moves: NDArray) -> None:
        """Take the moves: the inverse of a matrix, times the indicators."""
        self.moves = moves
        self.inverse = np.linalg.pinv(self.indicators.T @ moves, hermitian=True)

    def project(self, z: NDArray, total: NDArray | None = None) -> NDArray:
        """Return z with sums `total`, zero if None."""
        excess = self.indicators.T @ z
        if total is not None:
            excess -= total
        self.shift = self.inverse @ excess
        return z - self.moves @ self.shift


def _iterate(
    preconditioner: LowRankPreconditioner, system: InsideSystem, inside: NDArray
) -> Steps[Direction]:
    """Solve by conjugate gradients on directions whose sums are zero."""
    W, shift = system.weights, np.array([system.shift])
    scale = np.divide(system.shift, W, out=np.zeros(len(W)), where=inside)
    sums = _Sums(system, np.arange(len(W)))
    sums.indicators *= inside[:, None]
    sums.set(preconditioner.solve(sums.indicators, np.repeat(shift, sums.count)))
    d, Kd = np.zeros(len(W)), np.zeros(len(W))
    if system.total is not None and system.total.any():
        d = sums.project(d, system.total)
        Kd = yield d

    def precondition(R: NDArray, columns: NDArray) -> NDArray:
        return sums.project(preconditioner.solve(R, shift)[:, 0])[:, None]

    r = (system.right - Kd - scale * d) * inside
    steps = ConjugateGradients(r[:, None], precondition)
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
        d, Kd = d + length * p, Kd + length * Kp
    return Direction(d, sums.shift, Kd, None)
