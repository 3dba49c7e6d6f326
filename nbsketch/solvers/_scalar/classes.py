"""Starts of several classes: a few steps of operator splitting for all at once.

The first Newton steps of a class are the expensive ones: hardly any row is at a bound,
so the Newton matrix has all rows. A step of splitting has one matrix for all classes
(`nbsketch.solvers._joint.splitting`), and its products are those of all classes too.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nbsketch.losses import Loss
from nbsketch.solvers._certified.starts import cold_start, nested_sizes
from nbsketch.solvers._joint.problem import JointProblem
from nbsketch.solvers._joint.splitting import Splitting
from nbsketch.solvers.design import Design
from nbsketch.solvers.row_loss import row_loss
from nbsketch.solvers.solution import State

# Steps, sigma relative to the mean residual of ridge regression, and the factor on it
# with which Newton's method goes on.
_STEPS, _SIGMA, _NEXT = 8, 8.0, 1.0
# Fewer problems than this do not pay for the eigendecomposition.
_LEAST = 3


@dataclass(frozen=True, kw_only=True)
class ClassesProblem(JointProblem):
    """One class against the rest for each row of the labels y (d, n), T = I."""

    loss: Loss

    @cached_property
    def bounds(self) -> tuple[NDArray, NDArray]:
        """Lower and upper bound of the dual point of each entry, of shape (d, n)."""
        rows = row_loss(self.loss, self.y)
        return rows.lo, rows.hi

    def best_constant(self) -> NDArray:
        """Return zero intercepts."""
        return np.zeros(len(self.y))


def class_starts(
    design: Design,
    labels: NDArray,
    loss: Loss,
    alpha: float,
    sample_weight: NDArray | None,
    fit_intercept: bool,
) -> tuple[State | None, ...]:
    """Return a start for each column of the labels (n, d), None where none pays.

    It pays for losses with kinks and at least three classes, unless there are so many
    rows that samples of them are a better start.
    """
    (n, d), rank = labels.shape, design.shape[1]
    numbers = loss.elq if loss.is_classification else None
    if numbers is None or numbers.gam > 0 or d < _LEAST or nested_sizes(n, rank):
        return (None,) * d
    problem = ClassesProblem(
        design=design, y=np.ascontiguousarray(labels.T), levels=np.ones(d),
        weights=np.ones(n) if sample_weight is None else sample_weight,
        uniform=sample_weight is None, T=np.eye(d), loss=loss, alpha=alpha,
        fit_intercept=fit_intercept, n=float(n),
    )  # fmt: skip
    found = Splitting(problem, cold_start(problem)).run(_STEPS, _SIGMA, _NEXT)
    return tuple(_part(found, j) for j in range(d))


def _part(found: State, j: int) -> State:
    """Return the start of one class."""
    coef, a = (np.array(part)[:, j].copy() for part in (found.coef, found.dual))
    return State(coef, float(found.intercept[j]), a, found.sigma)
