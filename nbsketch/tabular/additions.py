"""The global ridge, a member that the base is not added to, where it helps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbsketch.tabular.base import Base
from nbsketch.tabular.metric import (
    EXACT_ROWS,
    Global,
    fit_global,
    lacks_landmarks,
    metric_ratio,
)
from nbsketch.tabular.problem import Problem, weighted_error
from nbsketch.tabular.scales import Scales
from nbsketch.tabular.stack import stack_weights

# From this ratio of errors on a small sample on, a metric is not worth a search.
_UNLIKELY = 1.05
# A global ridge is used from this ratio of errors of the stack, with it to without.
_GAIN = 0.995


def with_ridge(
    problem: Problem,
    scales: Scales,
    start: tuple[Base, NDArray] | None,
    residuals: NDArray,
    stack: NDArray,
    index: NDArray,
) -> tuple[NDArray, NDArray, Global] | None:
    """Return residuals and weights of the stack with a global ridge, if it helps.

    `start`: the base and its left-out residuals, None if there is none.

    It is tried if the stack leaves little error, where all rows can be used if the base
    lacks landmarks, or if a metric lowers the error of a small sample; it is used if
    it lowers the error of the stack. Up to `ALONE` rows the members are global, and it
    needs a metric to differ.
    """
    data, budget = problem.data, problem.budget
    known = None if data.weights is None else data.weights[index]
    error = _stacked_error(stack, residuals, known)
    effort = budget.affordable(problem.effort)
    ratio = metric_ratio(scales.family, data, scales.inverse, problem.rng)
    rotated = start is not None and ratio < effort.rotated_below
    tried = error < effort.global_below
    tried = tried or _lacks_landmarks(problem, scales, start, index)
    if not (tried or rotated):
        budget.skipped += bool(error < problem.effort.global_below)
        return None
    found = fit_global(
        scales.family,
        data,
        scales.inverse,
        index,
        problem.rng,
        only_rotated=start is None or not tried,
        searches=ratio < _UNLIKELY,
    )
    if found is None:
        return None
    more = np.concatenate([residuals, found[1][None]])
    weights = stack_weights(more, known)
    if not _stacked_error(weights, more, known) < _GAIN * error:
        return None
    return more, weights, found[0]._replace(weight=float(weights[-1]))


def _stacked_error(stack: NDArray, residuals: NDArray, known: NDArray | None) -> float:
    """Return the left-out error of a stack of parts; `known` weigh the rows."""
    return weighted_error(np.einsum("k,kmd->md", stack, residuals), known)


def _lacks_landmarks(
    problem: Problem,
    scales: Scales,
    start: tuple[Base, NDArray] | None,
    index: NDArray,
) -> bool:
    """Return whether there are few enough rows to use all, and the base lacks some."""
    data = problem.data
    if start is None or len(data.Y) > EXACT_ROWS:
        return False
    return lacks_landmarks(scales.form, data, *start, index, problem.rng)
