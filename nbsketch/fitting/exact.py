"""Least squares on all rows by conjugate gradients, where the Gram matrix is too large.

The penalty and the width of the kernel are chosen on a sample of the rows. What carries
over from the sample to all rows is lambda = n alpha, the noise variance over the signal
variance of a Gaussian process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._progress import report
from nbsketch.features import is_pairwise
from nbsketch.fitting.objectives import FeatureSolution
from nbsketch.fitting.settings import SolveOptions
from nbsketch.fitting.sketched import SketchedData
from nbsketch.gram import Gram, SketchedColumns, SymmetricGram
from nbsketch.solvers.conjugate import (
    NotConvergedError,
    conjugate_path,
    solve_columns,
    values_dtype,
)
from nbsketch.solvers.exact import solve_exact
from nbsketch.solvers.nystrom import solve_nystrom
from nbsketch.solvers.solution import Solution

# Up to so many rows a Cholesky factorization of the Gram matrix is as fast.
DENSE_ROWS = 4000
# From this size on, sub-samples are solved by conjugate gradients as well: the closed
# form costs n s^2.
LARGE_SIZE = 2000
# Where conjugate gradients fail, up to so many rows there still is one.
_MOST_DENSE_ROWS = 10_000
# Relative gap at which the test error is within 0.1 % of its limit.
_TOL = 1e-3
# The sample, its share of validation rows, and the rank of its preconditioner.
_SAMPLE, _HELD_OUT, _RANK = 6000, 0.2, 600
# Factors of learned length scales; coarse lambdas, times the mean diagonal of K, at the
# middle factor, and fine ones around the best of them at all factors.
_WIDTHS, _MIDDLE = (0.5, 0.7, 1.0), 0.7
_COARSE, _FINE = (3e-5, 3e-4, 3e-3, 3e-2, 3e-1), (1 / 3, 1.0, 3.0)
# Accuracy of the fits on the sample; those with a larger gap do not count.
_SAMPLE_TOL, _SAMPLE_PASSES, _LARGEST_GAP = 2e-3, 32, 0.05


class Choice(NamedTuple):
    """A validation error, and the kernel and lambda = n alpha that it belongs to."""

    error: float
    kernel: Any
    shift: float


def choose_exact(
    data: SketchedData, objective: Any, alpha: float | None
) -> SketchedData:
    """Choose alpha, if it is not given, and the width of learned length scales."""
    if alpha is not None:
        return data
    kernel, n = data.sketch_map.kernel, data.inputs.rows.shape[0]
    sample = _Sample.draw(data, objective)
    learned = data.inputs.length_scales is not None
    widths = _WIDTHS if learned else (1.0,)
    middle = _scaled(kernel, _MIDDLE) if learned else kernel
    coarse = np.array(_COARSE) * float(np.mean(kernel.diag(sample.rows)))
    found = sample.errors(middle, coarse)
    best = min(found, key=_order)
    fine = best.shift * np.array(_FINE)
    for count, width in enumerate(widths, start=1):
        known = {"iteration": count, "total": len(widths) + 1}
        if report("penalty", objective=min(found, key=_order).error, **known):
            break
        if learned and width == _MIDDLE:
            found += sample.errors(middle, fine[[0, 2]])
        else:
            found += sample.errors(_scaled(kernel, width), fine)
    best = min(found, key=_order)
    return _with_kernel(data, best.kernel)._replace(alpha=best.shift / n)


def _order(choice: Choice) -> tuple[float, float]:
    return choice.error, -choice.shift


def _scaled(kernel: Any, factor: float) -> Any:
    """Return a kernel with its bandwidth times a factor."""
    if factor == 1.0:
        return kernel
    widths = np.asarray(kernel.bandwidth, dtype=np.float64) * factor
    return replace(kernel, bandwidth=tuple(widths.ravel().tolist()))


def _with_kernel(data: SketchedData, kernel: Any) -> SketchedData:
    before: Any = data.sketch_map.kernel
    if kernel is before:
        return data
    factor = np.ravel(kernel.bandwidth)[0] / np.ravel(before.bandwidth)[0]
    scales = data.inputs.length_scales * factor
    inputs = data.inputs._replace(kernel=kernel, length_scales=scales)
    return data._replace(
        inputs=inputs, sketch_map=replace(data.sketch_map, kernel=kernel)
    )


@dataclass(frozen=True)
class _Sample:
    """A sample of the rows, part of it to fit and part to validate.

    With folds, validation rows are from the last one.
    """

    rows: Any
    part: Any  # the objective on the rows that are fitted
    validation: Any
    rng: np.random.Generator

    @classmethod
    def draw(cls, data: SketchedData, objective: Any) -> _Sample:
        n, rng = data.inputs.rows.shape[0], data.rng
        index = rng.permutation(n)
        if objective.folds is None:
            index = index[:_SAMPLE]
            count = int(_HELD_OUT * len(index))
            fitted, left_out = index[count:], index[:count]
        else:
            left_out = index[np.isin(index, objective.folds[-1].test)]
            left_out = left_out[: int(_HELD_OUT * _SAMPLE)]
            fitted = index[~np.isin(index, objective.folds[-1].removed)]
            fitted = fitted[: _SAMPLE - len(left_out)]
        order = np.concatenate([fitted, left_out])
        rows = data.inputs.rows[order]
        if is_pairwise(data.sketch_map.kernel):
            rows = rows[:, order]
        validation, part = (objective.take(some) for some in (left_out, fitted))
        return cls(rows, part, validation, rng)

    def errors(self, kernel: Any, shifts: NDArray) -> list[Choice]:
        """Return the validation error of each lambda; infinite without convergence."""
        n = len(self.part.targets)
        fitted, left_out = self.rows[:n], self.rows[n:]
        if is_pairwise(kernel):
            fitted, left_out = fitted[:, :n], left_out[:, :n]
        K = SymmetricGram(kernel, fitted)
        solutions = solve_columns(
            K,
            self.part.targets,
            shifts / n,
            **_options(self.part),
            rank=min(_RANK, n // 2),
            tol=_SAMPLE_TOL,
            max_passes=_SAMPLE_PASSES,
            random_state=self.rng,
        )
        cross, choices = Gram(kernel, left_out, kernel.take(fitted)), []
        predictions = cross @ np.hstack([s.coef for s in solutions])
        parts = np.split(predictions, len(solutions), axis=1)
        for shift, solution, values in zip(shifts, solutions, parts, strict=True):
            error = float(self.validation.errors(values + solution.intercept).sum())
            known = solution.relative_gap <= _LARGEST_GAP
            choices.append(Choice(error if known else np.inf, kernel, float(shift)))
        return choices


def solve_all_rows(
    data: SketchedData, objective: Any, alpha: float, options: SolveOptions
) -> FeatureSolution:
    """Return the solution for one penalty."""
    return next(path_all_rows(data, objective, [alpha], options))


def path_all_rows(
    data: SketchedData,
    objective: Any,
    alphas: Iterable[float],
    options: SolveOptions,
) -> Iterator[FeatureSolution]:
    """Yield the solution for each penalty, the precision set by the smallest one."""
    alphas, rows = list(alphas), data.inputs.rows
    tol, kernel = max(_TOL, options.tol), data.sketch_map.kernel
    dtype = values_dtype(rows.shape[0], min(alphas), tol)
    K = SymmetricGram(kernel, rows, dtype=dtype)
    solutions = conjugate_path(
        K,
        objective.targets,
        alphas,
        **_options(objective),
        tol=tol,
        max_passes=max(3, options.max_iter),
        callback=options.callback,
        random_state=data.rng,
    )
    for i, alpha in enumerate(alphas):
        try:
            yield _solution(next(solutions), float(alpha), tol)
        except NotConvergedError:
            if rows.shape[0] > _MOST_DENSE_ROWS:
                raise
            yield from (_dense(data, objective, float(a)) for a in alphas[i:])
            return


def solve_large_sketch(
    data: SketchedData, objective: Any, alpha: float, options: SolveOptions
) -> FeatureSolution:
    """Return the solution on a large sub-sample of the rows, for one penalty."""
    sketch, tol = data.sketch, max(_TOL, options.tol)
    columns = SketchedColumns(data.sketch_map.kernel, data.inputs.rows, sketch)
    found = solve_nystrom(
        columns,
        objective.targets,
        alpha,
        **_options(objective),
        landmarks=sketch.columns,
        tol=tol,
        max_passes=max(3, options.max_iter),
        callback=options.callback,
    )
    return _solution(found, alpha, tol)


def _dense(data: SketchedData, objective: Any, alpha: float) -> FeatureSolution:
    """Solve by a Cholesky factorization of the Gram matrix."""
    K = np.asarray(data.sketch_map.kernel(data.inputs.rows), dtype=np.float64)
    A, b, least = solve_exact(K, objective.targets, alpha, **_options(objective))
    return FeatureSolution(
        A, b, alpha, least, 0.0, n_iter=1, shortfall=None, rank=len(K)
    )


def _options(objective: Any) -> dict[str, Any]:
    return {
        "output": objective.factor.T @ objective.factor,
        "sample_weight": objective.weights,
        "fit_intercept": objective.fit_intercept,
    }


def _solution(found: Solution, alpha: float, tol: float) -> FeatureSolution:
    return FeatureSolution(
        found.coef,
        found.intercept,
        alpha,
        found.objective,
        found.relative_gap,
        n_iter=max(1, found.n_iter),
        shortfall=None if found.converged else found.shortfall(tol),
        rank=len(found.coef),
    )
