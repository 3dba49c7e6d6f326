"""Which method solves a problem, and the methods: each chooses a penalty and solves.

`select_method` is the only place that decides. Each method has the steps `choose_alpha`
(and `choose_width`), `solve` and `path`:

===============  ======================================================================
`ClosedForm`     one decomposition of the features serves all penalties
`Newton`         certified Newton steps on the features
`Stochastic`     Adam or stochastic subgradient steps on the features, as asked for
`AllRows`        least squares on the Gram matrix of all rows: Cholesky, or passes
`Nystrom`        least squares on a large sketch, by passes
`Dual`           the other losses on all rows, by Newton steps on the dual
===============  ======================================================================
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from nbsketch._blas import one_thread, threads_for
from nbsketch._progress import is_asked, is_stopped, seconds_left
from nbsketch.distributed.rows import PartitionedRows
from nbsketch.fitting.dual import DualFit, DualSample, has_features, solves_dual
from nbsketch.fitting.exact import ExactFit, Sample, choose_exact
from nbsketch.fitting.objective import FeatureSolution, Objective, Problem
from nbsketch.fitting.settings import SolveOptions
from nbsketch.fitting.sizes import (
    is_dense,
    is_large,
    is_solved_by_passes,
    landmarks_size,
    newton_size,
    takes_all_rows,
)
from nbsketch.fitting.sketched import SketchedData
from nbsketch.fitting.training import dependent_rows
from nbsketch.gram.columns import kept_share
from nbsketch.kernels import StationaryKernel, as_kernel
from nbsketch.solvers.conjugate import NotConvergedError
from nbsketch.solvers.design import Design

# Rows and targets on which a spectral filter chooses its parameter.
Validation = tuple[Any, NDArray]


@dataclass(frozen=True)
class Method(ABC):
    """How a problem is solved once its rows are sketched."""

    problem: Problem
    data: SketchedData

    # Whether penalty and width are chosen on a sample of the rows.
    sample: ClassVar[type[Sample] | None] = None

    @property
    def samples(self) -> bool:
        """Whether penalty and width are chosen on a sample of the rows."""
        return self.sample is not None

    def choose_alpha(self) -> Self:
        """Return the method with the penalty, if neither it nor the size has set it."""
        data = self.data
        if self.problem.plan.alpha is not None or data.alpha is not None:
            return self
        if not self.samples:
            return self._with_alpha()
        with one_thread():
            chosen = choose_exact(data, self.problem.objective, self.sample)
        return replace(self, data=chosen)

    def choose_width(self) -> Self:
        """Return the method with the width of the kernel that goes with the penalty."""
        return self.choose_alpha() if self.samples else self

    def _with_alpha(self) -> Self:
        return self

    @property
    def alpha(self) -> float:
        """The penalty that was given or chosen."""
        given = self.problem.plan.alpha
        alpha = self.data.alpha if given is None else given
        assert alpha is not None
        return float(alpha)

    @abstractmethod
    def solve(self, validation: Validation | None = None) -> FeatureSolution:
        """Return the solution, in terms of the sketched kernel functions."""

    def path(self, alphas: Iterable[float]) -> Iterator[FeatureSolution]:
        """Yield the solution for each penalty, on one set of features."""
        with one_thread():
            projection, design = self.data.design(keep=True)
            options = self.problem.plan.options()
            for solution in self.problem.objective.path(design, alphas, options):
                yield _expanded(solution, projection)

    @property
    def _iterative(self) -> tuple[SketchedData, Objective, SolveOptions]:
        """What an iterative solver on all rows, or on a large sketch, works with."""
        return self.data, self.problem.objective, self.problem.plan.options()


class Newton(Method):
    """Certified Newton steps on the features."""

    def _with_alpha(self) -> Self:
        with one_thread():
            features = self.data.design(keep=True)
            rng = self.data.rng
            alpha = self.problem.objective.choose_alpha(features[1], rng)
        return replace(self, data=self.data._replace(features=features, alpha=alpha))

    def solve(self, validation: Validation | None = None) -> FeatureSolution:
        """Return the solution, in terms of the sketched kernel functions."""
        with one_thread():  # many small products, whatever n is
            projection, design = self.data.design(keep=True)
            solution = self._minimum(design)
        return _expanded(solution, projection)

    def _minimum(self, design: Design) -> FeatureSolution:
        options = self.problem.plan.options()
        return self.problem.objective.solve(design, self.alpha, options)


class Stochastic(Newton):
    """Adam or stochastic subgradient steps on the features, which certify nothing."""

    def _minimum(self, design: Design) -> FeatureSolution:
        solver = self.problem.plan.stochastic
        assert solver is not None
        return self.problem.objective.descend(design, self.alpha, solver)


class ClosedForm(Method):
    """One decomposition of the features, which serves all penalties.

    It serves the choice of the penalty and the solution alike, so `solve` has both.
    """

    def solve(self, validation: Validation | None = None) -> FeatureSolution:
        """Return the solution, in terms of the sketched kernel functions."""
        objective: Any = self.problem.objective
        data, given = self.data, self.problem.plan.alpha
        size, n = data.sketch.shape
        with threads_for(4.0 * size * n * size):
            projection, design = data.design(objective.keep_features)
            chosen_on = None
            if validation is not None:
                Z = data.validation_design(validation[0], projection)
                chosen_on = Z, validation[1]
            alpha = data.alpha if given is None else given
            solution = objective.fit(design, alpha, data.rng, chosen_on)
        return _expanded(solution, projection)


class AllRows(ClosedForm):
    """Least squares on the Gram matrix of all rows: Cholesky factors, or passes."""

    sample = Sample

    @property
    def samples(self) -> bool:
        """Whether penalty and width are chosen on a sample of the rows."""
        return is_solved_by_passes(self.data.sketch.shape[1])

    def solve(self, validation: Validation | None = None) -> FeatureSolution:
        """Return the solution, with a coefficient for each row."""
        with solver_threads(self.problem, self.data):
            solution = ExactFit(*self._iterative).solve(self.alpha)
        return solution._replace(order=self.data.order)

    def path(self, alphas: Iterable[float]) -> Iterator[FeatureSolution]:
        """Yield the solution for each penalty; of few rows, on their features."""
        if not self.samples:
            yield from super().path(alphas)
            return
        with one_thread():
            yield from ExactFit(*self._iterative).path(alphas)


class Nystrom(ClosedForm):
    """Least squares on a large sketch, by conjugate gradients, else in closed form."""

    sample = Sample

    def solve(self, validation: Validation | None = None) -> FeatureSolution:
        """Return the solution, in terms of the sketched kernel functions."""
        with suppress(NotConvergedError), solver_threads(self.problem, self.data):
            solution = ExactFit(*self._iterative).on_sketch(self.alpha)
            return solution._replace(order=self.data.order)
        return super().solve(validation)


class Dual(Newton):
    """Losses other than the square on all rows, by Newton steps on the dual."""

    sample = DualSample

    def solve(self, validation: Validation | None = None) -> FeatureSolution:
        """Return the solution; few rows that do not converge have features as well."""
        with suppress(NotConvergedError), one_thread():
            solution = DualFit(*self._iterative).solve(self.alpha)
            return solution._replace(order=self.data.order)
        return super().solve(validation)

    def path(self, alphas: Iterable[float]) -> Iterator[FeatureSolution]:
        """Yield the solution for each penalty; of few rows, on their features."""
        if has_features(self.data.sketch.shape[1]):
            yield from super().path(alphas)
            return
        with one_thread():
            yield from DualFit(*self._iterative).path(alphas)


def select_method(problem: Problem, data: SketchedData) -> Method:
    """Return the method that solves a problem, given its sketch."""
    return _kind(problem, data)(problem, data)


def _kind(problem: Problem, data: SketchedData) -> type[Method]:
    n, all_rows = data.sketch.shape[1], data.sketch.is_identity
    if problem.plan.stochastic is not None:
        return Stochastic
    if not problem.objective.is_closed_form:
        in_memory = not isinstance(data.inputs.rows, PartitionedRows)
        by_dual = all_rows and in_memory and solves_dual(problem.objective, n)
        return Dual if by_dual else Newton
    searched = problem.plan.alpha is None and data.alpha is None
    if not problem.objective.solves_gram or (
        all_rows and searched and not is_solved_by_passes(n)
    ):
        return ClosedForm
    if all_rows:
        return AllRows
    return Nystrom if _is_large_sketch(problem, data) else ClosedForm


def _is_large_sketch(problem: Problem, data: SketchedData) -> bool:
    """Return whether least squares on a large sketch is solved by passes over it.

    Its penalty is given, or chosen on a sample; with folds, by the closed form.
    """
    (size, n), searched = data.sketch.shape, problem.plan.alpha is None
    fixed = problem.plan.growth is None and data.size_path is None
    if not fixed or size == n:
        return False
    if searched and problem.objective.folds is not None:
        return False
    landmarks, kept = len(data.sketch.columns), kept_share(n, size)
    return is_large(size, n, landmarks, searched=searched, kept=kept)


def default_size(problem: Problem) -> int:
    """Return n for the exact machine, or the default size of a sketch."""
    (n, q), outputs = problem.rows.shape, problem.objective.targets.shape[1]
    kind = problem.objective.loss_kind
    if not may_be_exact(problem):
        return problem.objective.default_size()
    if takes_all_rows(kind, n, q, outputs):
        return n
    if kind is None:
        return problem.objective.default_size()
    if kind == "square":
        return landmarks_size(n, outputs)
    return newton_size(kind, n, outputs)


def may_be_exact(problem: Problem) -> bool:
    """Return whether nothing but time speaks against the exact machine.

    It is for stationary kernels of dense rows: others have low rank or slow values.
    With folds there is a sketch, whose penalty all of them choose.
    """
    plan, objective = problem.plan, problem.objective
    by_passes = objective.solves_gram or objective.has_dual_path
    if plan.stochastic is not None or not (plan.is_free and by_passes):
        return False
    dense = not sp.issparse(problem.rows) and objective.folds is None
    return dense and isinstance(as_kernel(plan.kernel), StationaryKernel)


def is_limited(problem: Problem) -> bool:
    """Return whether the time that is left chooses the machine.

    Few rows have their default, and rows of Dask arrays, which are not searched twice.
    """
    plan, many = problem.plan, is_solved_by_passes(problem.rows.shape[0])
    free = many and plan.is_free and plan.stochastic is None
    in_memory = not isinstance(problem.rows, PartitionedRows)
    return bool(free and in_memory and np.isfinite(seconds_left()))


def solver_threads(problem: Problem, data: SketchedData) -> AbstractContextManager:
    """Limit BLAS to one thread for iterative solvers, whatever n is."""
    n, objective = data.sketch.shape[0], problem.objective
    if problem.plan.stochastic is not None or not objective.is_closed_form:
        return one_thread()
    if not (data.sketch.is_identity and objective.solves_gram):
        return nullcontext()
    return threads_for(n**3) if is_dense(n) else one_thread()


def warn_of(solution: FeatureSolution) -> None:
    """Warn of a solution less accurate than asked for, and of dependent rows."""
    text = solution.shortfall
    if text and is_stopped():
        name = "callback" if is_asked() else "max_seconds"
        text = (
            f"`{name}` has stopped the solver after {solution.n_iter} iterations; "
            f"the relative distance from the optimum is at most {solution.gap:.1e}"
        )
    if text:  # in the line that calls `fit`
        warnings.warn(text, ConvergenceWarning, stacklevel=4)
    if solution.order is not None and solution.order.is_contradicted:
        warnings.warn(dependent_rows(solution.order), stacklevel=4)


def _expanded(solution: FeatureSolution, projection: NDArray) -> FeatureSolution:
    """Return a solution in terms of the sketched kernel functions."""
    rank = len(solution.coef)
    return solution._replace(coef=projection @ solution.coef, rank=rank)
