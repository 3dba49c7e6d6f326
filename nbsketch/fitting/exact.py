"""Least squares on all rows by conjugate gradients, where the Gram matrix is too large.

`nbsketch.fitting.choice` chooses the penalty and the width of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch.fitting.choice import take_rows
from nbsketch.fitting.objective import FeatureSolution
from nbsketch.fitting.settings import SolveOptions
from nbsketch.fitting.sizes import fits_dense, is_dense
from nbsketch.fitting.sketched import SketchedData
from nbsketch.gram import Gram, SketchedColumns, SymmetricGram
from nbsketch.solvers.conjugate import (
    NotConvergedError,
    conjugate_path,
    solve_nystrom,
    values_dtype,
)

# Where conjugate gradients fail, up to so many rows there still is one.
_MOST_DENSE_ROWS = 10_000
# A chosen penalty that does not converge in so many passes is multiplied by this, at
# most so many times.
_PASSES, _STRONGER, _TRIALS = 200, 4.0, 8
# Relative gap at which the test error is within 0.1 % of its limit: no smaller `tol` is
# used, which `summary` says.
LEAST_TOL = 1e-3


def solve_all_rows(
    data: SketchedData, objective: Any, alpha: float, options: SolveOptions
) -> FeatureSolution:
    """Return the solution for one penalty.

    One that was chosen on a sample is raised until conjugate gradients converge.
    """
    if data.alpha is None:
        return next(path_all_rows(data, objective, [alpha], options))
    options = options._replace(max_iter=min(_PASSES, options.max_iter))
    for trial in range(_TRIALS):
        with suppress(NotConvergedError):
            raised = alpha * _STRONGER**trial
            return next(path_all_rows(data, objective, [raised], options))
    raise NotConvergedError(
        f"conjugate gradients do not converge on {data.inputs.rows.shape[0]} rows: "
        "pass `alpha`, or `size` for a sketch"
    )


def path_all_rows(
    data: SketchedData,
    objective: Any,
    alphas: Iterable[float],
    options: SolveOptions,
) -> Iterator[FeatureSolution]:
    """Yield the solution for each penalty, the precision set by the smallest one."""
    penalties, n = [float(alpha) for alpha in alphas], data.inputs.rows.shape[0]
    if is_dense(n):
        yield from _dense(data, objective, penalties)
        return
    solutions = _conjugate(data, objective, penalties, options)
    for i in range(len(penalties)):
        try:
            yield next(solutions)
        except NotConvergedError:
            if n > _MOST_DENSE_ROWS or not fits_dense(n):
                raise
            yield from _dense(data, objective, penalties[i:])
            return


def fitted_values(
    data: SketchedData,
    objective: Any,
    left_out: NDArray,
    alphas: Iterable[float],
    options: SolveOptions,
    kept: NDArray,
) -> Iterator[NDArray]:
    """Yield the values at rows left out of the solutions on the rows kept."""
    kernel, rows = data.sketch_map.kernel, data.inputs.rows
    fitted = take_rows(kernel, rows, kept)
    others = take_rows(kernel, rows, left_out, kept)
    cross = Gram(kernel, others, kernel.take(fitted))
    part = data._replace(inputs=data.inputs._replace(rows=fitted))
    for solution in path_all_rows(part, objective, alphas, options):
        yield cross @ solution.coef + solution.intercept


def _conjugate(
    data: SketchedData, objective: Any, alphas: list[float], options: SolveOptions
) -> Iterator[FeatureSolution]:
    """Yield the solutions by preconditioned conjugate gradients."""
    rows, tol = data.inputs.rows, max(LEAST_TOL, options.tol)
    dtype = values_dtype(rows.shape[0], min(alphas), tol)
    solutions = conjugate_path(
        SymmetricGram(data.sketch_map.kernel, rows, dtype=dtype),
        objective.targets,
        alphas,
        **objective.problem(),
        tol=tol,
        max_passes=max(3, options.max_iter),
        callback=options.callback,
        random_state=data.rng,
    )
    for alpha, solution in zip(alphas, solutions, strict=True):
        yield FeatureSolution.of_rows(solution, alpha, tol)


def solve_large_sketch(
    data: SketchedData, objective: Any, alpha: float, options: SolveOptions
) -> FeatureSolution:
    """Return the solution with a large sketch of the rows, for one penalty."""
    sketch, tol = data.sketch, max(LEAST_TOL, options.tol)
    columns = SketchedColumns(data.sketch_map.kernel, data.inputs.rows, sketch)
    solution = solve_nystrom(
        columns,
        objective.targets,
        alpha,
        **objective.problem(),
        tol=tol,
        max_passes=max(3, options.max_iter),
        callback=options.callback,
    )
    return FeatureSolution.of_rows(solution, alpha, tol)


def _dense(
    data: SketchedData, objective: Any, alphas: list[float]
) -> Iterator[FeatureSolution]:
    """Yield the solutions by Cholesky factorizations of the Gram matrix."""
    rows = data.inputs.rows.astype(np.float64, copy=False)  # float32 keeps no gap
    K = np.asarray(data.sketch_map.kernel(rows), dtype=np.float64)
    for alpha in alphas:
        yield objective.solve_gram(K, alpha)._replace(rank=len(K))
