"""Starts by operator splitting: of coupled outputs, and of several classes at once.

The first Newton steps are the expensive ones: hardly any entry is at a bound, so the
Newton matrix has all rows. A step of splitting has one matrix for all outputs, and its
products are those of all outputs too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch.losses import Loss
from nbsketch.solvers._certified.starts import cold_start, nested_sizes
from nbsketch.solvers._newton.problem import NewtonProblem
from nbsketch.solvers._newton.splitting import Splitting
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.row_loss import row_loss
from nbsketch.solvers.solution import State

# Steps, sigma relative to the mean residual of ridge regression (a larger one is better
# after few steps, a smaller one after many), and the factor on it with which Newton's
# method goes on.
_STEPS, _SIGMA, _NEXT = 60, 2.0, 0.5
# The same for several classes.
_CLASS_STEPS, _CLASS_SIGMA, _CLASS_NEXT = 8, 8.0, 1.0
# Fewer classes than this do not pay for the eigendecomposition.
_LEAST = 3
# Least work of a Newton step, a factorization and Gram matrices of some of the rows,
# relative to that of two products with Z.
_LARGE, _SOME_ROWS = 10.0, 0.25


def splitting_start(problem: NewtonProblem) -> State:
    """Return a start by splitting, a cold one where Newton steps are cheap."""
    start = cold_start(problem)
    if not _is_large(problem):
        return start
    problem = replace(problem, design=_single(problem.design))
    search = Splitting(problem, start)
    search.fit_constants()
    return search.run(_STEPS, _SIGMA, _NEXT)


def _single(design: Design) -> Design:
    """Return features in single precision if they are in memory: a start needs no more.

    Products then take half the time.
    """
    if not isinstance(design, ArrayDesign) or design.dtype == np.float32:
        return design
    return ArrayDesign(design.Z.astype(np.float32))


def _is_large(problem: NewtonProblem) -> bool:
    """Return whether a Newton step takes much longer than products with Z."""
    n, size, m = len(problem.weights), problem.rank * len(problem.T), len(problem.mix.T)
    products = 4 * n * problem.rank * m
    newton = size**3 / 3 + _SOME_ROWS * n * problem.rank**2 * m
    return newton > _LARGE * products


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
    y = np.ascontiguousarray(labels.T)
    problem = NewtonProblem(
        design=design, y=y, losses=row_loss(loss, y.ravel()), T=np.eye(d),
        weights=np.ones(n) if sample_weight is None else sample_weight,
        uniform=sample_weight is None, alpha=alpha, fit_intercept=fit_intercept,
        n=float(n),
    )  # fmt: skip
    start = State(np.zeros((rank, d)), np.zeros(d))
    start = Splitting(problem, start).run(_CLASS_STEPS, _CLASS_SIGMA, _CLASS_NEXT)
    return tuple(_of_class(start, j) for j in range(d))


def _of_class(start: State, j: int) -> State:
    """Return the start of one class."""
    coef, a = (np.array(part)[:, j].copy() for part in (start.coef, start.dual))
    return State(coef, float(start.intercept[j]), a, start.sigma)


def shared(design: Design, n_problems: int) -> Design:
    """Return the features for some problems, which are solved one by one."""
    alone = n_problems == 1 or design.keeps_rows
    return design if alone else SharedDesign(design)


class SharedDesign(Design):
    """Features that keep the Gram matrix of all their rows once it is computed.

    The first Newton step of every class needs it.
    """

    def __init__(self, design: Design) -> None:
        self.shape, self.dtype = design.shape, design.dtype
        self._design = design
        self._grams: dict[bool, NDArray] = {}

    def blocks(self) -> Iterator[tuple[int, int, NDArray]]:
        """Yield the blocks of the features."""
        return self._design.blocks()

    def mv(self, W: Any) -> NDArray:
        """Return ``Z W``."""
        return self._design.mv(W)

    def rmv(self, A: Any, rows: NDArray | None = None) -> NDArray:
        """Return ``Z[rows]^T A``."""
        return self._design.rmv(A, rows)

    def gram(
        self,
        rows: NDArray | None = None,
        weights: NDArray | None = None,
        *,
        exact: bool = True,
    ) -> NDArray:
        """Return ``Z[rows]^T diag(weights) Z[rows]``; keep that of all rows."""
        if rows is not None or weights is not None:
            return self._design.gram(rows, weights, exact=exact)
        if exact not in self._grams:
            self._grams[exact] = self._design.gram(exact=exact)
        return self._grams[exact].copy()

    def gather(self, rows: NDArray) -> Design:
        """Return the features of the given rows."""
        return self._design.gather(rows)

    def collect(self) -> NDArray:
        """Return all features as one array, which may be shared."""
        return self._design.collect()

    def total(
        self, function: Callable[..., tuple], *args: Any, rows: Sequence = ()
    ) -> tuple:
        """Return the sums of the tuples ``function(block, *parts, *args)``."""
        return self._design.total(function, *args, rows=rows)
