"""A member with its left-out residuals: the mean of exact solutions on leaves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._progress import report
from nbsketch.gram import CompiledForm
from nbsketch.tabular.efforts import LEFT_OUT_TREES
from nbsketch.tabular.members import Member, Tree, fit_tree, form_of
from nbsketch.tabular.partition import Partition, grow
from nbsketch.tabular.problem import Problem
from nbsketch.tabular.scales import Fitted


class Grown(NamedTuple):
    """A member, and what the fit of its trees tells beside it.

    Attributes
    ----------
    member : Member
        The member.
    residual : ndarray of shape (n, d)
        Left-out residuals; NaN for rows that are not wanted.
    diagonal : ndarray of shape (n,)
        Largest diagonal elements of P on its leaves (`nbsketch.tabular.leaves`): dual
        coefficients over left-out residuals.
    partition : Partition
        Leaves that can be solved again: those of its first trees.
    """

    member: Member
    residual: NDArray
    diagonal: NDArray
    partition: Partition

    @property
    def form(self) -> CompiledForm:
        """The compiled form of the kernel."""
        return form_of(self.member.family, self.member.scales)


def grow_member(
    problem: Problem,
    family: str,
    found: Fitted,
    size: int,
    wanted: NDArray,
    end: float = np.inf,
) -> Grown:
    """Fit the trees of a member, with leaves of at most `size` rows.

    `wanted` (n,) selects the rows whose left-out residuals are computed. No more trees
    than one are grown after the time `end`; a single leaf needs one.
    """
    data, count = problem.data, problem.effort.trees
    form = form_of(family, found.inverse)
    trees, residuals = list[Tree](), list[NDArray]()
    diagonal = np.full(len(data.Y), np.nan)
    for k in range(count):
        partition = grow(data.rows, found.inverse, size, problem.rng)
        some = wanted & (k < LEFT_OUT_TREES)
        tree, residual = fit_tree(form, data, partition, found.tau, left_out=some)
        trees.append(tree)
        if residual is not None:
            residuals.append(residual)
            diagonal = np.fmax(diagonal, _diagonal(tree, residual))
        report("leaves", iteration=k + 1, total=count)
        if partition.n_leaves == 1:
            break
        if problem.budget.is_over(end):
            problem.budget.skipped += count - len(trees)
            break
    member = Member(family, found.inverse, found.tau, tuple(trees))
    residual = averaged(residuals, len(trees))
    return Grown(member, residual, diagonal, trees[0].partition)


def _diagonal(tree: Tree, residual: NDArray) -> NDArray:
    """Return the diagonal of P, the same for all outputs, from residuals a / P_ii."""
    coef = np.empty_like(tree.coef)
    coef[tree.partition.order] = tree.coef
    total = np.abs(residual).sum(axis=1)
    known = total > 0  # NaN is not
    out = np.full(len(total), np.nan)
    out[known] = np.abs(coef[known]).sum(axis=1) / total[known]
    return out


def averaged(residuals: list[NDArray], count: int) -> NDArray:
    """Return residuals of the mean of `count` trees from those of one or two of them.

    The variance of a mean of T exchangeable residuals is c + (v - c) / T, for their
    covariance c and variance v: residuals of the mean of two are scaled accordingly.
    """
    if len(residuals) == 1:
        return residuals[0]
    first, second = residuals
    known = np.isfinite(first) & np.isfinite(second)
    common = max(float((first * second)[known].sum()), 0.0)
    single = float((np.square(first) + np.square(second))[known].sum()) / 2
    of_two = (common + single) / 2
    factor = (common + (single - common) / count) / of_two if of_two > 0 else 1.0
    return np.sqrt(factor) * (first + second) / 2
