"""Where a search begins: at zero, or at the solution of smaller problems."""

from typing import Any

import numpy as np

from nbsketch.solvers._scalar.problem import Problem
from nbsketch.solvers.solution import State

_RATIO = 8  # between the sizes of nested samples
_ROWS_PER_FEATURE = 30  # fewer rows than this per feature say too little of the whole
_SAMPLE_TOL = 1e-4


def cold_state(problem: Problem) -> State:
    """Return zero coefficients and, if it is free, a good constant for them.

    That is the quantile of the targets that minimizes a loss of the pinball kind, the
    median for the others, and 0 if the bounds depend on the row, as with two classes.
    """
    p, b = problem, 0.0
    counted = p.weights > 0
    y, lo, hi = p.y[counted], p.lo[counted], p.hi[counted]
    if p.fit_intercept and (lo == lo[0]).all() and (hi == hi[0]).all():
        level = hi[0] / (hi[0] - lo[0]) if np.isfinite(hi[0] - lo[0]) else 0.5
        b = float(np.quantile(y[:: max(1, len(y) // 10_000)], level))
    return State(np.zeros(p.rank), b)


def subsample_state(problem: Problem, method: Any) -> State | None:
    """Return a start from nested random samples of the rows, None if they are too few.

    Each sample is solved to a rough accuracy starting from the smaller one before; the
    smoothing that follows matches the distance that is left, about sqrt(r / rows).
    """
    candidates = np.flatnonzero(problem.weights > 0)
    sizes = []
    size = len(candidates) // _RATIO
    while size > _ROWS_PER_FEATURE * problem.rank:
        sizes.append(size)
        size //= _RATIO
    if not sizes:
        return None
    order = np.random.default_rng(0).permutation(candidates)[: sizes[0]]
    state = None
    for size in reversed(sizes):
        part = problem.sample(np.sort(order[:size]))
        state = state or cold_state(part)
        best, last, _ = method(part, state, _SAMPLE_TOL, 200).run()
        residual = np.abs(part.residual(best.coef, best.intercept))
        sigma = 0.3 * np.sqrt(problem.rank / size) * float(residual.mean())
        gram = last.gram if last.inside is None else None  # not tied to its rows
        state = State(best.coef, best.intercept, None, sigma or None, gram)
    return state
