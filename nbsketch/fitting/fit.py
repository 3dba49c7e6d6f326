"""The steps of a fit.

=================  ====================================================================
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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from nbsketch._blas import one_thread, threads_for
from nbsketch._progress import is_asked, is_stopped, seconds_left
from nbsketch._validation import random_generator
from nbsketch.fitting.budget import exact_seconds, first_sketch, growth
from nbsketch.fitting.choice import choose_exact
from nbsketch.fitting.descent import Descent, Iterate, Sample
from nbsketch.fitting.dual import (
    DualSample,
    has_features,
    path_dual_rows,
    solve_dual_rows,
)
from nbsketch.fitting.exact import (
    fitted_values,
    path_all_rows,
    solve_all_rows,
    solve_large_sketch,
)
from nbsketch.fitting.folds import dependent_rows
from nbsketch.fitting.growth import grow
from nbsketch.fitting.least_squares import LeastSquaresObjective
from nbsketch.fitting.methods import (
    default_size,
    is_closed_form,
    is_dual,
    is_exact,
    is_iterative,
    is_large_sketch,
    is_limited,
    may_be_exact,
    solves_gram,
)
from nbsketch.fitting.objectives import RadialObjective, ScalarObjective
from nbsketch.fitting.problem import Problem
from nbsketch.fitting.settings import SolveOptions
from nbsketch.fitting.sizes import AutoSize, as_auto_size, is_dense
from nbsketch.fitting.sketched import SketchedData, draw_sketch
from nbsketch.fitting.solution import FeatureSolution
from nbsketch.fitting.stochastic import as_solver
from nbsketch.solvers.conjugate import NotConvergedError
from nbsketch.solvers.design import Design
from nbsketch.solvers.folds import Fold

# Share of its time that suffices for a usable solution of the exact machine.
_MOST_OF_IT = 0.8


def sketch_rows(problem: Problem) -> SketchedData:
    """Prepare and sketch the rows; let the sketch grow if its size is to be chosen."""
    target = problem.objective.tuning_target(problem.solving.alpha)
    limited, n = is_limited(problem), problem.rows.shape[0]
    size = n if limited else default_size(problem)
    data = draw_sketch(problem.rows, target, size, problem.sketching, problem.kept)
    if limited:
        return _within_time(problem, data)
    by_passes = is_iterative(problem, data) or is_large_sketch(problem, data)
    if by_passes or is_dual(problem, data):
        kind = DualSample if is_dual(problem, data) else None
        with one_thread():
            return choose_exact(data, problem.objective, problem.solving.alpha, kind)
    rule = as_auto_size(problem.sketching.size)
    return data if rule is None else _grown(problem, data, rule)


def _within_time(problem: Problem, data: SketchedData) -> SketchedData:
    """Return the exact machine if there is time for it, else the largest sketch."""
    objective, alpha = problem.objective, problem.solving.alpha
    with one_thread():
        if may_be_exact(problem) and solves_gram(problem):
            choice, solution = exact_seconds(data, objective.targets.shape[1])
            if choice + solution <= seconds_left():
                chosen = choose_exact(data, objective, alpha)
                if _MOST_OF_IT * solution <= seconds_left():
                    return chosen
    first = first_sketch(data, seconds_left())
    return _grown(problem, first, growth(problem.rows.shape[0], seconds_left()))


def _grown(problem: Problem, data: SketchedData, rule: AutoSize) -> SketchedData:
    objective, alpha = problem.objective, problem.solving.alpha
    seed = int(data.rng.integers(2**32))  # the same rows are held out for each size

    chosen = []

    def score(design: Design) -> float:
        path = objective.errors_left_out(design, alpha, random_generator(seed))
        chosen.append(path.best)
        return float(path.errors.min())

    with _threads_for_all(problem, data):
        grown = grow(rule, data, score)
    if np.isinf(seconds_left()) or is_closed_form(problem):
        return grown
    # There is no time for a second path of penalties.
    path: Any = grown.size_path
    return grown._replace(alpha=chosen[int(np.argmin(path["loss"]))])


def solve(
    problem: Problem,
    data: SketchedData,
    validation: tuple[Any, NDArray] | None = None,
) -> FeatureSolution:
    """Return the solution, in terms of the sketched kernel functions.

    `validation` are rows and targets on which a spectral filter chooses its parameter.
    """
    objective, settings = problem.objective, problem.solving
    if is_exact(problem, data):
        return _solve_by_passes(problem, data, solve_all_rows)
    if is_dual(problem, data):
        with suppress(NotConvergedError):  # few rows have features as well
            return _solve_by_passes(problem, data, solve_dual_rows)
    if is_large_sketch(problem, data):
        with suppress(NotConvergedError):  # the closed form always solves it
            return _solve_by_passes(problem, data, solve_large_sketch)
    closed_form = is_closed_form(problem)
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
        alpha = data.alpha if settings.alpha is None else settings.alpha
        solution = _solve(problem, design, settings.options(), alpha, **known)
    _warn(solution)
    return _expanded(solution, projection)


def _solve(
    problem: Problem,
    design: Design,
    options: SolveOptions,
    alpha: float | None,
    **known: Any,
) -> FeatureSolution:
    objective = problem.objective
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
        if is_iterative(problem, data):
            yield from path_all_rows(data, problem.objective, alphas, options)
            return
        if is_dual(problem, data) and not has_features(problem.rows.shape[0]):
            yield from path_dual_rows(data, problem.objective, alphas, options)
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
    Z: Any = None if exact else data.design(keep=True)[1]
    total: Any = 0.0
    mass = 0.0
    for fold in folds:
        kept, left_out = fold.kept(len(objective.targets)), fold.test
        part, validation = objective.take(kept), objective.take(left_out)
        with _threads_for_all(problem, data):
            if exact:
                known = left_out, alphas, options, kept
                fitted = fitted_values(data, part, *known)
            else:
                solutions = part.path(Z.gather(kept), alphas, options)
                outside = Z.gather(left_out)
                fitted = (outside.mv(s.coef) + s.intercept for s in solutions)
            errors = [validation.errors(values) for values in fitted]
        mass += (share := len(left_out) if weights is None else weights[left_out].sum())
        total += share * np.array(errors)
    return total / mass


class Found(NamedTuple):
    """The result of `descend`."""

    iterate: Iterate
    path: dict[str, NDArray] | None  # of validation losses
    sample: Sample  # the rows that were used
    projection: NDArray
    descent: Descent  # with its penalty and its step


def descend(
    descent: Descent,
    objective: ScalarObjective | RadialObjective,
    data: SketchedData,
    n_held_out: int,
    validation: tuple[Any, NDArray] | None,
) -> Found:
    """Minimize by stochastic gradients; return the iterate of least validation loss."""
    by, descent = descent.preconditioned(data, objective)
    with one_thread():
        projection, Z = _stored(data) if by is None else by.features(data)
        sample, held_out = Sample(Z, objective), None
        descent = descent.measured(Z)
        if validation is not None:
            rows, targets = validation
            Z_val = data.expansion.times(data.transform(rows, "X_val"), projection)
            held_out = sample.validation(descent.centered(Z_val), targets)
        elif n_held_out:
            sample, held_out = sample.split(n_held_out, data.rng)
        best, path = descent.search(sample, held_out, data.rng)
    return Found(best, path, sample, projection, descent)


def _expanded(solution: FeatureSolution, projection: NDArray) -> FeatureSolution:
    """Return a solution in terms of the sketched kernel functions."""
    rank = len(solution.coef)
    return solution._replace(coef=projection @ solution.coef, rank=rank)


def _solve_by_passes(
    problem: Problem, data: SketchedData, solver: Callable[..., FeatureSolution]
) -> FeatureSolution:
    settings = problem.solving
    alpha: Any = data.alpha if settings.alpha is None else settings.alpha
    with _threads_for_all(problem, data):
        solution = solver(data, problem.objective, float(alpha), settings.options())
    solution = solution._replace(order=data.order)
    _warn(solution, stacklevel=5)
    return solution


def _warn(solution: FeatureSolution, stacklevel: int = 4) -> None:
    """Warn of a solution less accurate than asked for, and of dependent rows."""
    text = solution.shortfall
    if text and is_stopped():
        name = "callback" if is_asked() else "max_seconds"
        text = (
            f"`{name}` has stopped the solver after {solution.n_iter} iterations; "
            f"the relative distance from the optimum is at most {solution.gap:.1e}"
        )
    if text:
        warnings.warn(text, ConvergenceWarning, stacklevel=stacklevel)
    if solution.order is not None and solution.order.is_contradicted:
        warnings.warn(dependent_rows(solution.order), stacklevel=stacklevel)


def _stored(data: SketchedData) -> tuple[NDArray, NDArray]:
    """Return the projection and the features, in memory."""
    P, design = data.design(keep=True)
    return P, design.collect()


def _threads_for_all(problem: Problem, data: SketchedData) -> AbstractContextManager:
    """Limit BLAS to one thread for iterative solvers, whatever n is."""
    n, exact = data.sketch.shape[0], data.sketch.is_identity and solves_gram(problem)
    if exact and is_dense(n):
        return threads_for(n**3)
    return one_thread() if exact or not is_closed_form(problem) else nullcontext()
