r"""Newton directions: the linear system of the rows between kinks.

.. math:: (K_{BB} + \lambda W^{-1}) d_B + \delta 1 = r_B, \qquad 1^\top d_B = t

by a Cholesky factorization if B is small, else by preconditioned conjugate gradients
among the d of the given sum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nbsketch.solvers._conjugate.operator import PartialOperator
from nbsketch.solvers._dual.preconditioner import ActivePreconditioner
from nbsketch.solvers._dual.products import Products, Steps, run_together

# Up to so many rows a factorization is as fast as the steps that it saves.
DIRECT = 1500
# Up to this share of the rows, products with K_BB beat those with K.
_PART = 0.4
_STEPS = 100


class Inside(NamedTuple):
    """The system of the rows of positive weight."""

    weights: NDArray  # (n,), W
    shift: float  # lambda
    right: NDArray  # (n,), used on those rows only
    known: NDArray  # (n,), move of the predictions that is known already
    total: float | None  # of d; None without an intercept
    enough: float  # weighted square of the residual that is small enough


class Found(NamedTuple):
    """Its solution."""

    d: NDArray  # (n,), zero off these rows
    intercept: float
    product: NDArray | None  # K d, if it is known


def solve_inside(
    K: PartialOperator, preconditioner: ActivePreconditioner, system: Inside
) -> Steps[Found]:
    """Solve the system, whole products with K being left to the caller."""
    rows = np.flatnonzero(system.weights)
    if len(rows) <= DIRECT:
        return _factorize(K, rows, system)
    preconditioner.set(system.weights, system.shift)
    if len(rows) > _PART * len(system.weights):
        return (yield from _iterate(preconditioner, system, system.weights > 0))
    return _in_part(K.take(rows), preconditioner, system, rows)


def _in_part(
    part: PartialOperator,
    preconditioner: ActivePreconditioner,
    system: Inside,
    rows: NDArray,
) -> Found:
    """Solve with the block of these rows as an operator of its own."""
    names = "weights", "right", "known"
    smaller = system._replace(**{name: getattr(system, name)[rows] for name in names})
    inside = np.ones(len(rows), dtype=bool)
    steps = _iterate(preconditioner.restricted(rows), smaller, inside)
    (found,) = run_together(Products(part), [steps])
    d = np.zeros(len(system.weights))
    d[rows] = found.d
    return found._replace(d=d, product=None)


def _factorize(K: PartialOperator, rows: NDArray, system: Inside) -> Found:
    """Solve by Cholesky factors, of a matrix with as much jitter as it takes."""
    d, ones = np.zeros((2, len(system.weights)))
    if not len(rows):
        return Found(d, 0.0, d)
    matrix = K.block(rows)
    diagonal = np.diag_indices_from(matrix)
    values = matrix[diagonal] + system.shift / system.weights[rows]
    jitter = 0.0
    while True:
        matrix[diagonal] = values + jitter
        try:
            factor = scipy.linalg.cho_factor(matrix, check_finite=False)
            break
        except np.linalg.LinAlgError:
            jitter = max(10 * jitter, 1e-15 * float(values.sum()))
    both = np.column_stack([system.right[rows], np.ones(len(rows))])
    d[rows], ones[rows] = scipy.linalg.cho_solve(factor, both, check_finite=False).T
    shift = 0.0
    if system.total is not None:
        shift = float((d.sum() - system.total) / ones.sum())
    return Found(d - shift * ones, shift, None)


def _iterate(
    preconditioner: ActivePreconditioner, system: Inside, inside: NDArray
) -> Steps[Found]:
    """Solve by flexible conjugate gradients on directions that sum to zero."""
    W = system.weights
    scale = np.divide(system.shift, W, out=np.zeros(len(W)), where=inside)
    ones = preconditioner.solve(inside.astype(float))
    mass = float(ones.sum())
    free = system.total is not None

    def project(z: NDArray) -> tuple[NDArray, float]:
        mean = float(z.sum()) / mass if free else 0.0
        return z - mean * ones, mean

    d, Kd = np.zeros(len(W)), np.zeros(len(W))
    if system.total:
        d = ones * (system.total / mass)
        Kd = yield d
    r = (system.right - Kd - scale * d) * inside
    z, mean = project(preconditioner.solve(r))
    p, slope = z, float(r @ z)
    for _ in range(_STEPS):
        rest = float(W @ (r - mean) ** 2)
        if rest <= system.enough or not slope > 0:
            break
        Kp = yield p
        q = (Kp + scale * p) * inside
        size = slope / float(p @ q)
        if not 0 < size < np.inf:
            break
        d, Kd, old = d + size * p, Kd + size * Kp, r
        r = r - size * q
        z, mean = project(preconditioner.solve(r))
        beta = max(float((r - old) @ z) / slope, 0.0)
        p, slope = z + beta * p, float(r @ z)
    return Found(d, mean, Kd)
