"""Starting points of a search: zero coefficients, or solutions of nested samples."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nbsketch.solvers._certified.problem import Problem
from nbsketch.solvers._certified.search import CertifiedSearch
from nbsketch.solvers.solution import State

_RATIO = 8  # between the sizes of nested samples
_ROWS_PER_FEATURE = 30  # a sample with fewer is too rough a start
_SAMPLE_TOL, _SAMPLE_STEPS = 1e-4, 200


def cold_start(problem: Problem) -> State:
    """Return zero coefficients and, if it is free, a good intercept for them."""
    coef, intercept, _ = problem.shapes
    b = problem.best_constant() if problem.fit_intercept else np.zeros(intercept)[()]
    return State(np.zeros(coef), b)


def nested_sizes(n: int, rank: int) -> list[int]:
    """Return the sizes of nested samples of n rows, the largest first."""
    sizes, size = [], n // _RATIO
    while size > _ROWS_PER_FEATURE * rank:
        sizes.append(size)
        size //= _RATIO
    return sizes


def nested_start(
    problem: Problem,
    method: Callable[..., CertifiedSearch],
    start: Callable[[Any], State] = cold_start,
) -> State:
    """Return a start from nested random samples of the rows, `start` if n is small.

    `method` solves each sample roughly, starting from the smaller one before it. The
    smoothing that follows matches the remaining distance, about sqrt(r / rows).
    """
    counted = np.flatnonzero(problem.weights > 0)
    sizes = nested_sizes(len(counted), problem.rank)
    if not sizes:
        return start(problem)
    order = np.random.default_rng(0).permutation(counted)
    state: Any = None
    for size in reversed(sizes):
        part = problem.sample(np.sort(order[:size]))
        state = start(part) if state is None else state
        best = method(part, state, _SAMPLE_TOL, _SAMPLE_STEPS).run()
        spread = part.spread_at(best.coef, best.intercept)
        sigma = 0.3 * np.sqrt(problem.rank / size) * spread
        last = best.state or state
        gram = last.gram if last.inside is None else None  # else of these rows alone
        state = State(best.coef, best.intercept, None, sigma or None, gram)
    return state
