"""The steps of a fit.

=================  ====================================================================
`Problem`          checked rows, the objective on their features, and settings
`sketch_rows`      prepared rows (length scales learned), sketched; the sketch may grow
`solve`            the solution for one penalty, chosen if none is given
`solve_path`       the solutions for a path of penalties
`fold_errors`      errors of a path of penalties in each fold of a cross-validation
`descend`          the solution by stochastic gradients with early stopping
=================  ====================================================================

An estimator makes the problem and publishes the solution. All fits set the number of
BLAS threads here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from nbsketch._blas import one_thread, threads_for
from nbsketch._progress import is_stopped
from nbsketch._validation import random_generator
from nbsketch.distributed.rows import PartitionedRows
from nbsketch.fitting.descent import Descent, Iterate, Sample
from nbsketch.fitting.exact import (
    DENSE_ROWS,
    LARGE_SIZE,
    choose_exact,
    path_all_rows,
    solve_all_rows,
    solve_large_sketch,
)
from nbsketch.fitting.folds import dependent_rows
from nbsketch.fitting.growth import grow
from nbsketch.fitting.least_squares import LeastSquaresObjective
from nbsketch.fitting.objectives import (
    FeatureSolution,
    Objective,
    RadialObjective,
    ScalarObjective,
)
from nbsketch.fitting.settings import SketchSettings, SolveOptions, SolveSettings
from nbsketch.fitting.sizes import AutoSize, as_auto_size
from nbsketch.fitting.sketched import SketchedData, draw_sketch
from nbsketch.fitting.stochastic import as_solver
from nbsketch.fitting.weights import TrainingRows
from nbsketch.sketches import SubsamplingSketch
from nbsketch.solvers.conjugate import NotConvergedError
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.folds import Fold


class Problem(NamedTuple):
    """What a fit solves.

    Attributes
    ----------
    rows : ndarray or csr_array of shape (n, q)
        Checked training rows.
    objective : Objective
        The objective on their features.
    sketching : SketchSettings
        How rows are transformed and sketched.
    solving : SolveSettings
        How the objective is minimized.
    single_output : bool
        Whether the fitted attributes have no axis of outputs.
    held_out : TrainingRows or None
        Rows that are not fitted: they calibrate intervals.
    kept : ndarray of shape (n,) or None
        Indices of the rows among those given. None: all of them.
    """

    rows: Any
    objective: Any
    sketching: SketchSettings
    solving: SolveSettings
    single_output: bool
    held_out: TrainingRows | None = None
    kept: NDArray | None = None

    def with_bandwidth(self, bandwidth: float) -> Problem:
        """Return the problem with another bandwidth."""
        sketching = replace(self.sketching, bandwidth=bandwidth)
        return self._replace(sketching=sketching)

    def check_has_path(self) -> None:
        """Refuse settings for which there is no path of penalties on one sketch."""
        self.solving.check_solver_has_paths()
        self.sketching.check_size_is_fixed()


def sketch_rows(problem: Problem) -> SketchedData:
    """Prepare and sketch the rows; let the sketch grow if its size is to be chosen."""
    target = problem.objective.tuning_target(problem.solving.alpha)
    size = problem.objective.default_size()
    data = draw_sketch(problem.rows, target, size, problem.sketching, problem.kept)
    if _is_iterative(problem, data):
        with one_thread():
            return choose_exact(data, problem.objective, problem.solving.alpha)
    rule = as_auto_size(problem.sketching.size)
    return data if rule is None else _grown(problem, data, rule)


def _grown(problem: Problem, data: SketchedData, rule: AutoSize) -> SketchedData:
    objective, alpha = problem.objective, problem.solving.alpha
    seed = int(data.rng.integers(2**32))  # the same rows are held out for each size

    def score(design: Design) -> float:
        rng = random_generator(seed)
        return float(objective.errors_left_out(design, alpha, rng).errors.min())

    with _threads_for_all(objective):
        return grow(rule, data, score)


def solve(
    problem: Problem,
    data: SketchedData,
    validation: tuple[Any, NDArray] | None = None,
) -> FeatureSolution:
    """Return the solution, in terms of the sketched kernel functions.

    `validation` are rows and targets on which a spectral filter chooses its parameter.
    """
    objective, settings = problem.objective, problem.solving
    if _is_iterative(problem, data):
        return _solve_by_passes(problem, data, solve_all_rows)
    if _is_large_sample(problem, data):
        with suppress(NotConvergedError):  # the closed form always solves it
            return _solve_by_passes(problem, data, solve_large_sketch)
    if _solves_gram(problem, data):
        return _solve_gram(objective, data, settings.alpha)
    closed_form = _is_closed_form(problem)
    work = 4.0 * np.prod(data.sketch.shape) * data.sketch.shape[0]
    # Iterative solvers make many small products, whatever n is.
    limit = threads_for(work) if closed_form else one_thread()
    with limit:
        keep = objective.keep_features if closed_form else True
        projection, design = data.design(keep)
        known: dict[str, Any] = {"rng": data.rng}
        if validation is not None:
            Z = data.validation_design(validation[0], projection)
            known["validation"] = Z, validation[1]
        solution = _solve(problem, design, settings.options(), **known)
    _warn(solution)
    if solution.order is not None and solution.order.is_contradicted:
        warnings.warn(dependent_rows(solution.order), stacklevel=3)
    return _expanded(solution, projection)


def _solve(
    problem: Problem, design: Design, options: SolveOptions, **known: Any
) -> FeatureSolution:
    objective, alpha = problem.objective, problem.solving.alpha
    stochastic = as_solver(problem.solving.solver)
    if stochastic is None:
        return objective.fit(design, alpha, options, **known)
    alpha = objective.choose_alpha(design, **known) if alpha is None else alpha
    return objective.descend(design, float(alpha), stochastic)


def solve_path(
    problem: Problem, data: SketchedData, alphas: Iterable[float]
) -> Iterator[FeatureSolution]:
    """Yield the solution for each penalty, on one set of features."""
    settings = problem.solving
    with one_thread():
        options = settings.options()
        if _is_iterative(problem, data):
            yield from path_all_rows(data, problem.objective, alphas, options)
            return
        projection, design = data.design(keep=True)
        for solution in problem.objective.path(design, alphas, options):
            yield _expanded(solution, projection)


def fold_errors(
    problem: Problem, data: SketchedData, folds: Sequence[Fold], alphas: NDArray
) -> NDArray:
    """Return the mean errors (a, d) of penalties over the rows that folds leave out."""
    objective, options = problem.objective, problem.solving.options()
    weights = objective.weights
    exact = data.sketch.is_identity and isinstance(objective, LeastSquaresObjective)
    Z: Any = _gram(data) if exact else data.design(keep=True)[1]
    outside: Design
    total: Any = 0.0
    mass = 0.0
    for fold in folds:
        kept, left_out = fold.kept(len(objective.targets)), fold.test
        part, validation = objective.take(kept), objective.take(left_out)
        if exact:
            outside = ArrayDesign._trusted(Z[np.ix_(left_out, kept)])
            K = Z[np.ix_(kept, kept)]
            solutions = (part.solve_gram(K, float(alpha)) for alpha in alphas)
        else:
            outside = Z.gather(left_out)
            solutions = part.path(Z.gather(kept), alphas, options)
        with _threads_for_all(objective):
            errors = [
                validation.errors(outside.mv(s.coef) + s.intercept) for s in solutions
            ]
        mass += (share := len(left_out) if weights is None else weights[left_out].sum())
        total += share * np.array(errors)
    return total / mass


class Found(NamedTuple):
    """The result of `descend`."""

    iterate: Iterate
    path: dict[str, NDArray] | None  # of validation losses
    sample: Sample  # the rows that were used
    projection: NDArray


def descend(
    descent: Descent,
    objective: ScalarObjective | RadialObjective,
    data: SketchedData,
    n_held_out: int,
    validation: tuple[Any, NDArray] | None,
) -> Found:
    """Minimize by stochastic gradients; return the iterate of least validation loss."""
    with one_thread():
        projection, design = data.design(keep=True)
        sample, held_out = Sample(design.collect(), objective), None
        if validation is not None:
            rows, targets = validation
            Z_val = data.expansion.times(data.transform(rows, "X_val"), projection)
            held_out = sample.validation(Z_val, targets)
        elif n_held_out:
            sample, held_out = sample.split(n_held_out, data.rng)
        best, path = descent.search(sample, held_out, data.rng)
    return Found(best, path, sample, projection)


def _expanded(solution: FeatureSolution, projection: NDArray) -> FeatureSolution:
    """Return a solution in terms of the sketched kernel functions."""
    rank = len(solution.coef)
    return solution._replace(coef=projection @ solution.coef, rank=rank)


def _is_closed_form(problem: Problem) -> bool:
    return (
        problem.objective.is_closed_form and as_solver(problem.solving.solver) is None
    )


def _is_iterative(problem: Problem, data: SketchedData) -> bool:
    """Return whether least squares on all rows is solved by conjugate gradients."""
    objective, many = problem.objective, data.sketch.shape[0] > DENSE_ROWS
    applies = data.sketch.is_identity and _is_closed_form(problem)
    return many and applies and objective.solves_gram


def _is_large_sample(problem: Problem, data: SketchedData) -> bool:
    """Return whether least squares on a large sub-sample is solved by passes over it.

    For a given penalty only: the closed form is what chooses one.
    """
    size, sketch = data.sketch.shape[0], data.sketch
    recipe = getattr(sketch.origin, "recipe", None)
    sampled = isinstance(recipe, SubsamplingSketch) and len(sketch.columns) == size
    given = problem.solving.alpha is not None and _is_closed_form(problem)
    is_large = size >= LARGE_SIZE and not isinstance(problem.rows, PartitionedRows)
    return is_large and sampled and given and problem.objective.solves_gram


def _solve_by_passes(
    problem: Problem, data: SketchedData, solver: Callable[..., FeatureSolution]
) -> FeatureSolution:
    settings = problem.solving
    alpha: Any = data.alpha if settings.alpha is None else settings.alpha
    with one_thread():
        solution = solver(data, problem.objective, float(alpha), settings.options())
    _warn(solution, stacklevel=5)
    return solution


def _warn(solution: FeatureSolution, stacklevel: int = 4) -> None:
    """Warn if the solution is less accurate than asked for."""
    text = solution.shortfall
    if text and is_stopped():
        text = (
            f"`callback` has stopped the solver after {solution.n_iter} iterations; "
            f"the relative distance from the optimum is at most {solution.gap:.1e}"
        )
    if text:
        warnings.warn(text, ConvergenceWarning, stacklevel=stacklevel)


def _solves_gram(problem: Problem, data: SketchedData) -> bool:
    """Return whether the exact algorithm of least squares applies."""
    given = problem.solving.alpha is not None and data.sketch.is_identity
    return given and _is_closed_form(problem) and problem.objective.solves_gram


def _solve_gram(objective: Any, data: SketchedData, alpha: Any) -> FeatureSolution:
    K = np.asarray(_gram(data), dtype=np.float64)
    with threads_for(len(K) ** 3):
        solution = objective.solve_gram(K, float(alpha))
    return solution._replace(rank=len(K))


def _gram(data: SketchedData) -> NDArray:
    return data.sketch_map.kernel(data.inputs.rows)


def _threads_for_all(objective: Objective) -> AbstractContextManager:
    """Limit BLAS to one thread for iterative solvers, whatever n is."""
    return nullcontext() if objective.is_closed_form else one_thread()
