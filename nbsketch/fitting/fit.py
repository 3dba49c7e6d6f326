"""The steps of a fit up to its method, and what has no single solution.

=================  ====================================================================
`sketch_rows`      prepared rows (length scales learned), sketched; the sketch may grow
`fold_errors`      errors of a path of penalties in each fold of a cross-validation
`descend`          the solution by stochastic gradients with early stopping
=================  ====================================================================

An estimator makes the problem, `select_method` names the method, which chooses the
penalty and solves; the estimator publishes the solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._blas import one_thread
from nbsketch._progress import seconds_left
from nbsketch._validation import random_generator
from nbsketch.fitting.descent import Descent, Iterate, Sample
from nbsketch.fitting.exact import ExactFit, choose_exact
from nbsketch.fitting.growth import exact_seconds, first_sketch, grow, growth
from nbsketch.fitting.least_squares import LeastSquaresObjective
from nbsketch.fitting.methods import (
    default_size,
    is_limited,
    may_be_exact,
    select_method,
    solver_threads,
)
from nbsketch.fitting.objective import Problem
from nbsketch.fitting.objectives import RadialObjective, ScalarObjective
from nbsketch.fitting.sizes import AutoSize
from nbsketch.fitting.sketched import SketchedData, draw_sketch
from nbsketch.solvers.design import Design
from nbsketch.solvers.folds import Fold

# Share of its time that suffices for a usable solution of the exact machine.
_MOST_OF_IT = 0.8


def sketch_rows(problem: Problem) -> SketchedData:
    """Prepare and sketch the rows; let the sketch grow if its size is to be chosen."""
    target = problem.objective.tuning_target(problem.plan.alpha)
    limited, n = is_limited(problem), problem.rows.shape[0]
    size = n if limited else default_size(problem)
    data = draw_sketch(problem.rows, target, size, problem.plan, problem.kept)
    if limited:
        return _within_time(problem, data)
    rule = problem.plan.growth
    if rule is None or select_method(problem, data).samples:
        return data
    return _grown(problem, data, rule)


def _within_time(problem: Problem, data: SketchedData) -> SketchedData:
    """Return the exact machine if there is time for it, else the largest sketch."""
    objective, alpha = problem.objective, problem.plan.alpha
    with one_thread():
        if may_be_exact(problem) and objective.solves_gram:
            choice, solution = exact_seconds(data, objective.targets.shape[1])
            if choice + solution <= seconds_left():
                chosen = choose_exact(data, objective) if alpha is None else data
                if _MOST_OF_IT * solution <= seconds_left():
                    return chosen
    first = first_sketch(data, seconds_left())
    return _grown(problem, first, growth(problem.rows.shape[0], seconds_left()))


def _grown(problem: Problem, data: SketchedData, rule: AutoSize) -> SketchedData:
    objective, alpha = problem.objective, problem.plan.alpha
    seed = int(data.rng.integers(2**32))  # the same rows are held out for each size

    chosen = []

    def score(design: Design) -> float:
        path = objective.errors_left_out(design, alpha, random_generator(seed))
        chosen.append(path.best)
        return float(path.errors.min())

    with solver_threads(problem, data):
        grown = grow(rule, data, score)
    one_decomposition = objective.is_closed_form and problem.plan.stochastic is None
    if np.isinf(seconds_left()) or one_decomposition or grown.size_path is None:
        return grown
    # There is no time for a second path of penalties.
    return grown._replace(alpha=chosen[int(np.argmin(grown.size_path["loss"]))])


def fold_errors(
    problem: Problem, data: SketchedData, folds: Sequence[Fold], alphas: NDArray
) -> NDArray:
    """Return the mean errors (a, d) of penalties over the rows that folds leave out."""
    data = select_method(problem, data).choose_width().data
    objective, options = problem.objective, problem.plan.options()
    weights = objective.weights
    exact = data.sketch.is_identity and isinstance(objective, LeastSquaresObjective)
    Z: Any = None if exact else data.design(keep=True)[1]
    total: Any = 0.0
    mass = 0.0
    for fold in folds:
        kept, left_out = fold.kept(len(objective.targets)), fold.test
        part, validation = objective.take(kept), objective.take(left_out)
        with solver_threads(problem, data):
            if exact:
                fit = ExactFit(data, part, options)
                fitted = fit.left_out(alphas, left_out, kept)
            else:
                solutions = part.path(Z.gather(kept), alphas, options)
                outside = Z.gather(left_out)
                fitted = (outside.mv(s.coef) + s.intercept for s in solutions)
            errors = [validation.errors(values) for values in fitted]
        mass += (share := len(left_out) if weights is None else weights[left_out].sum())
        total += share * np.array(errors)
    return total / mass


class Descended(NamedTuple):
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
) -> Descended:
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
    return Descended(best, path, sample, projection, descent)


def _stored(data: SketchedData) -> tuple[NDArray, NDArray]:
    """Return the projection and the features, in memory."""
    P, design = data.design(keep=True)
    return P, design.collect()
