"""Many rows: a base on few landmarks, and members on leaves for what it leaves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbsketch._progress import report
from nbsketch.tabular.base import Base, Ridge
from nbsketch.tabular.efforts import LEAF_ROWS, LEFT_OUT_TREES
from nbsketch.tabular.influence import fitted_shares
from nbsketch.tabular.members import Member, fit_tree, form_of
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
from nbsketch.tuning.rows import prepare


def fit_on_base(
    problem: Problem, scales: list[Scales]
) -> tuple[Base, list[Member], NDArray, NDArray]:
    """Fit the base, and members to what it leaves; see `fit_alone`."""
    data, effort, rng = problem.data, problem.effort, problem.rng
    form = scales[0].form
    ridge = Ridge(form, data.rows, data.weights, effort.landmarks, rng, data.labels)
    base, base_residual = ridge.fit(data.Y)
    data = data._replace(Y=data.Y - base.predict(form, data.rows))
    index = ridge.validation
    # A row also pulls the base toward itself, which the leaves undo in part.
    change = base_residual - data.Y[index]
    members, residuals = [], []
    problem = problem._replace(data=data)
    for k, start in enumerate(scales):
        end = problem.budget.share_end(len(scales) - k)
        member, residual = _fit_member(problem, start, index, end)
        members.append(member)
        share = _passed(problem, member, index, change, base_residual, ridge)
        residuals.append(residual[index] + share[:, None] * change)
    return base, members, np.stack([*residuals, base_residual]), index


def _passed(
    problem: Problem,
    member: Member,
    index: NDArray,
    change: NDArray,
    residual: NDArray,
    ridge: Ridge,
) -> NDArray:
    """Return the share of each change of the base that passes through the leaves.

    With blocks of rows that are left out together it is one, which is too large.
    """
    data = problem.data
    if data.labels is not None:
        return np.ones(len(index))
    tree, form = member.trees[0].partition, form_of(member.family, member.scales)
    few = range(min(problem.effort.sampled, tree.n_leaves))
    leaves, hat = [tree.leaf(i) for i in few], ridge.influence
    return fitted_shares(form, member.tau, data, leaves, index, change, residual, hat)


def _fit_member(
    problem: Problem, start: Scales, index: NDArray, end: float
) -> tuple[Member, NDArray]:
    """Return a member and left-out residuals (n, d), those of `index` at least.

    No more trees than needed are grown after the time `end`.
    """
    data, effort, rng = problem.data, problem.effort, problem.rng
    wanted = np.zeros(len(data.Y), dtype=bool)
    wanted[index] = True
    found = _refined(problem, start)
    form = form_of(start.family, found.inverse)
    trees, residuals = [], list[NDArray]()
    for k in range(effort.trees):
        tree, residual = fit_tree(
            form,
            data,
            grow(data.rows, found.inverse, LEAF_ROWS, rng),
            found.tau,
            left_out=wanted & (k < LEFT_OUT_TREES),
        )
        trees.append(tree)
        if residual is not None:
            residuals.append(residual)
        report("leaves", iteration=k + 1, total=effort.trees)
        if len(residuals) == LEFT_OUT_TREES and problem.budget.is_over(end):
            break
    problem.budget.skipped += effort.trees - len(trees)
    member = Member(start.family, found.inverse, found.tau, tuple(trees))
    return member, _averaged(residuals, len(trees))


def _averaged(residuals: list[NDArray], count: int) -> NDArray:
    """Return residuals of the mean of `count` trees from those of two of them.

    The variance of a mean of T exchangeable residuals is c + (v - c) / T, for their
    covariance c and variance v: residuals of the mean of two are scaled accordingly.
    """
    first, second = residuals
    known = np.isfinite(first) & np.isfinite(second)
    common = max(float((first * second)[known].sum()), 0.0)
    single = float((np.square(first) + np.square(second))[known].sum()) / 2
    of_two = (common + single) / 2
    factor = (common + (single - common) / count) / of_two if of_two > 0 else 1.0
    return np.sqrt(factor) * (first + second) / 2


def _refined(problem: Problem, start: Scales) -> Fitted:
    """Return scales, width and penalty, chosen on some leaves.

    Scales learned again within other leaves are kept if they lower the error.
    """
    data, rng = problem.data, problem.rng
    effort = problem.budget.affordable(problem.effort)
    problem.budget.skipped += problem.effort.rounds - effort.rounds
    tree = grow(data.rows, start.inverse, LEAF_ROWS, rng)
    judged = sampled_leaves(tree, effort.sampled, rng)
    rest = problem.rows
    rows = prepare(
        rest.X, data.Y, data.weights, rest.scaler, rest.kept, labels=data.labels
    )
    within = sampled_leaves(tree, effort.rounds, rng)
    learned = learn_within(rows, start, within, rng, problem.budget)
    again = SampleError(data, learned, judged).best_penalty()
    found = SampleError(data, start, judged).best_penalty(again.tau)
    if again.error < found.error:
        start, found = learned, again
    return best_width(data, start, judged, found)
