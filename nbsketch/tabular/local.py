"""Many rows: a base on few landmarks, and members on leaves for what it leaves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbsketch.tabular.base import VALIDATION, Base, Ridge
from nbsketch.tabular.efforts import LEAF_ROWS, TREE_ROWS
from nbsketch.tabular.enlarge import enlarge
from nbsketch.tabular.influence import fitted_shares
from nbsketch.tabular.members import Member
from nbsketch.tabular.partition import grow
from nbsketch.tabular.problem import Problem
from nbsketch.tabular.scales import (
    Fitted,
    SampleError,
    Scales,
    best_width,
    learn_within,
    sampled_leaves,
)
from nbsketch.tabular.trees import Grown, grow_member
from nbsketch.tuning.rows import prepare


def fit_on_base(
    problem: Problem, scales: list[Scales]
) -> tuple[Base, list[Member], NDArray, NDArray]:
    """Fit the base, and members to what it leaves; see `fit_alone`."""
    data, effort, rng = problem.data, problem.effort, problem.rng
    form = scales[0].form
    landmarks, index = _landmarks(len(data.Y), effort.landmarks, rng)
    ridge = Ridge(
        form,
        data.rows,
        data.weights,
        data.rows[landmarks],
        rng,
        data.labels,
        index,
    )
    base, base_residual = ridge.fit(data.Y)
    data = data._replace(Y=data.Y - base.predict(form, data.rows))
    # A row also pulls the base toward itself, which the leaves undo in part.
    change = base_residual - data.Y[index]
    wanted = np.zeros(len(data.Y), dtype=bool)
    wanted[index] = True
    problem, grown = problem._replace(data=data), list[Grown]()
    samples = list[list[NDArray]]()
    for k, start in enumerate(scales):
        end = problem.budget.share_end(len(scales) - k)
        found, sample = _refined(problem, start)
        size = TREE_ROWS
        grown.append(grow_member(problem, start.family, found, size, wanted, end))
        samples.append(sample)
    grown, residuals = enlarge(problem, grown, samples, wanted), list[NDArray]()
    for one in grown:
        share = _passed(problem, one, index, change, base_residual, ridge)
        residuals.append(one.residual[index] + share[:, None] * change)
    members = [one.member for one in grown]
    return base, members, np.stack([*residuals, base_residual]), index


def _landmarks(n: int, count: int, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Return landmarks, and rows whose residuals are left out, both ascending.

    The latter are others, if there are as many: the base is not smooth at landmarks,
    where leaves err more than at new rows.
    """
    drawn = rng.permutation(n)
    others = drawn[count:] if n >= 2 * count else drawn
    return np.sort(drawn[:count]), np.sort(others[:VALIDATION])


def _passed(
    problem: Problem,
    grown: Grown,
    index: NDArray,
    change: NDArray,
    residual: NDArray,
    ridge: Ridge,
) -> NDArray:
    """Return the share of each change of the base that passes through the leaves.

    With blocks of rows that are left out together it is one, which is too large.
    """
    data, tree = problem.data, grown.partition
    if data.labels is not None:
        return np.ones(len(index))
    rows = problem.effort.sampled * LEAF_ROWS
    few = range(min(max(rows // TREE_ROWS, 1), tree.n_leaves))
    leaves, hat, tau = [tree.leaf(i) for i in few], ridge.influence, grown.member.tau
    return fitted_shares(grown.form, tau, data, leaves, index, change, residual, hat)


def _refined(problem: Problem, start: Scales) -> tuple[Fitted, list[NDArray]]:
    """Return scales, width and penalty, and the leaves on which they were chosen.

    Scales learned again within other leaves are kept if they lower the error.
    """
    data, rng = problem.data, problem.rng
    effort = problem.budget.affordable(problem.effort)
    problem.budget.skipped += problem.effort.rounds - effort.rounds
    tree = grow(data.rows, start.inverse, LEAF_ROWS, rng)
    sample = sampled_leaves(tree, effort.sampled, rng)
    rest = problem.rows
    rows = prepare(
        rest.X, data.Y, data.weights, rest.scaler, rest.kept, labels=data.labels
    )
    within = sampled_leaves(tree, effort.rounds, rng)
    learned = learn_within(rows, start, within, rng, problem.budget)
    again = SampleError(data, learned, sample).best_penalty()
    found = SampleError(data, start, sample).best_penalty(again.tau)
    if again.error < found.error:
        start, found = learned, again
    return best_width(data, start, sample, found), sample
