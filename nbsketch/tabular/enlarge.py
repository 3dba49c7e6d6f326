"""Larger leaves, up to all rows, for members whose left-out error falls with them.

Smooth functions nearly free of noise gain from more rows around a point; noisy ones
hardly do.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from nbsketch.tabular.efforts import TREE_ROWS
from nbsketch.tabular.leaves import fit_leaf
from nbsketch.tabular.members import Training
from nbsketch.tabular.metric import EXACT_ROWS
from nbsketch.tabular.problem import Problem, weighted_error
from nbsketch.tabular.scales import Fitted
from nbsketch.tabular.trees import Grown, grow_member
from nbsketch.tabular.whole import fit_whole, keeps_all_pairs

# More rows are worth their time if leaves of twice as many have this ratio of errors,
# for members whose error is at most so many times the least.
_FALL, _WORST = 0.97, 1.15
# Rows of larger leaves, where all rows are too many.
_LARGER_ROWS = 2 * TREE_ROWS
# The left-out error of all rows is estimated from above: it may be so much larger.
_SLACK = 1.05


def enlarge(
    problem: Problem,
    grown: list[Grown],
    samples: list[list[NDArray]],
    wanted: NDArray,
) -> list[Grown]:
    """Return the members, on larger leaves or all rows where this lowers their error.

    `samples` are smaller leaves for each member, with which its error is compared. Up
    to `EXACT_ROWS` rows the global ridge has all of them.
    """
    data, out = problem.data, list[Grown]()
    if not problem.effort.enlarges or len(data.Y) <= EXACT_ROWS:
        return grown
    errors = [weighted_error(one.residual, data.weights) for one in grown]
    for one, sample, error in zip(grown, samples, errors, strict=True):
        lacks = error <= _WORST * min(errors) and lacks_rows(data, one, sample, wanted)
        over = problem.budget.is_over()
        problem.budget.skipped += lacks and over
        out.append(_enlarged(problem, one, wanted) if lacks and not over else one)
    return out


def lacks_rows(
    data: Training, grown: Grown, sample: list[NDArray], wanted: NDArray
) -> bool:
    """Return whether the error of a member is well below that on smaller leaves.

    `sample` are some of these, `wanted` (n,) are the rows with left-out residuals.
    """
    small = np.full(grown.residual.shape, np.nan)
    for index in sample:
        rows, Y, weights, labels = data.take(index)
        known = rows, Y, grown.member.tau, weights, labels
        with suppress(np.linalg.LinAlgError):
            leaf = fit_leaf(grown.form, *known, left_out=wanted[index])
            small[index] = np.nan if leaf.residual is None else leaf.residual
    large = np.where(np.isnan(small), np.nan, grown.residual)
    small = np.where(np.isnan(large), np.nan, small)
    least = _FALL * weighted_error(small, data.weights)
    return bool(weighted_error(large, data.weights) < least)


def _enlarged(problem: Problem, grown: Grown, wanted: NDArray) -> Grown:
    """Return a member on all rows, or on larger leaves if they are too many."""
    data, member = problem.data, grown.member
    family, tau = member.family, member.tau
    before = weighted_error(grown.residual, data.weights)
    double = before < problem.effort.global_below
    if data.labels is None and keeps_all_pairs(len(data.Y), tau, double=double):
        found = fit_whole(family, member.scales, data, tau, grown.diagonal, problem.rng)
        if (
            found is not None
            and weighted_error(found[1], data.weights) < _SLACK * before
        ):
            whole = member._replace(trees=(found[0],))
            return grown._replace(member=whole, residual=found[1])
    fitted = Fitted(np.nan, tau, member.scales)
    larger = grow_member(problem, family, fitted, _LARGER_ROWS, wanted)
    return larger._replace(partition=grown.partition)
