"""Which method solves a problem: rules that depend on settings, sizes and the loss."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from nbsketch._progress import seconds_left
from nbsketch.distributed.rows import PartitionedRows
from nbsketch.fitting.dual import solves_dual
from nbsketch.fitting.exact import keeps_columns
from nbsketch.fitting.problem import Problem
from nbsketch.fitting.sizes import (
    as_auto_size,
    is_large,
    is_solved_by_passes,
    takes_all_rows,
)
from nbsketch.fitting.sketched import SketchedData
from nbsketch.fitting.stochastic import as_solver
from nbsketch.kernels import StationaryKernel, as_kernel


def default_size(problem: Problem) -> int:
    """Return n for the exact machine, or the default size of a sketch."""
    (n, q), outputs = problem.rows.shape, problem.objective.targets.shape[1]
    kind = problem.objective.loss_kind
    if may_be_exact(problem) and takes_all_rows(kind, n, q, outputs):
        return n
    return problem.objective.default_size()


def may_be_exact(problem: Problem) -> bool:
    """Return whether nothing but time speaks against the exact machine.

    It is for stationary kernels of dense rows: others have low rank or slow values.
    With folds there is a sketch, whose penalty all of them choose.
    """
    stochastic = as_solver(problem.solving.solver) is not None
    by_passes = solves_gram(problem) or problem.objective.has_dual_path
    if stochastic or not (_is_free(problem) and by_passes):
        return False
    dense = not sp.issparse(problem.rows) and problem.objective.folds is None
    return dense and isinstance(as_kernel(problem.sketching.kernel), StationaryKernel)


def is_limited(problem: Problem) -> bool:
    """Return whether the time that is left chooses the machine.

    Few rows have their default, and rows of Dask arrays, which are not searched twice.
    """
    timed = np.isfinite(seconds_left()) and _is_free(problem)
    stochastic = as_solver(problem.solving.solver) is not None
    many = is_solved_by_passes(problem.rows.shape[0])
    in_memory = not isinstance(problem.rows, PartitionedRows)
    return bool(timed and many and in_memory and not stochastic)


def is_exact(problem: Problem, data: SketchedData) -> bool:
    """Return whether least squares is solved on the Gram matrix of all rows."""
    known = problem.solving.alpha is not None or data.alpha is not None
    return known and data.sketch.is_identity and solves_gram(problem)


def is_iterative(problem: Problem, data: SketchedData) -> bool:
    """Return whether least squares on all rows has a decomposition for each penalty."""
    many = is_solved_by_passes(data.sketch.shape[0])
    return many and data.sketch.is_identity and solves_gram(problem)


def is_dual(problem: Problem, data: SketchedData) -> bool:
    """Return whether a loss other than the square is solved on the dual."""
    free = data.sketch.is_identity and as_solver(problem.solving.solver) is None
    in_memory = not isinstance(data.inputs.rows, PartitionedRows)
    return free and in_memory and solves_dual(problem.objective, data.sketch.shape[0])


def is_large_sketch(problem: Problem, data: SketchedData) -> bool:
    """Return whether least squares on a large sketch is solved by passes over it.

    Its penalty is given, or chosen on a sample; with folds, by the closed form.
    """
    (size, n), searched = data.sketch.shape, problem.solving.alpha is None
    fixed = as_auto_size(problem.sketching.size) is None and data.size_path is None
    in_memory = not isinstance(problem.rows, PartitionedRows)
    applies = fixed and in_memory and solves_gram(problem)
    if not applies or size == n or (searched and problem.objective.folds is not None):
        return False
    landmarks = len(data.sketch.columns)
    return is_large(size, landmarks, searched, keeps_columns(n, size))


def is_closed_form(problem: Problem) -> bool:
    """Return whether all penalties share one decomposition."""
    return (
        problem.objective.is_closed_form and as_solver(problem.solving.solver) is None
    )


def solves_gram(problem: Problem) -> bool:
    """Return whether the exact algorithms of least squares apply."""
    return is_closed_form(problem) and problem.objective.solves_gram


def _is_free(problem: Problem) -> bool:
    """Return whether neither sketch nor size is given."""
    return problem.sketching.sketch is None and problem.sketching.size is None
