"""A member of the stack: one kernel with learned scales, exact on leaves of trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._blas import one_thread
from nbsketch._jit.threads import run_blocks
from nbsketch.gram import CompiledForm, Product
from nbsketch.kernels import LEARNABLE, StationaryKernel
from nbsketch.tabular.leaves import fit_leaf
from nbsketch.tabular.partition import Partition

# Penalties that are tried if a leaf is singular: factors of ten.
_RAISED = 12


class Tree(NamedTuple):
    """A partition and the exact solutions on its leaves.

    Attributes
    ----------
    partition : Partition
        The leaves.
    coef : ndarray of shape (n, d)
        Dual coefficients of the rows, in the order of the partition.
    intercept : ndarray of shape (leaves, d)
        Constants of the leaves.
    """

    partition: Partition
    coef: NDArray
    intercept: NDArray


class Member(NamedTuple):
    """A kernel, its penalty and its trees.

    Attributes
    ----------
    family : str
        Key of `nbsketch.kernels.LEARNABLE`.
    scales : ndarray of shape (p,)
        Inverse length scales.
    tau : float
        Penalty of the leaves.
    trees : tuple of Tree
        Their predictions are averaged.
    is_on_base : bool
        Whether it is fitted to the residuals of the base, which is then added to its
        predictions. Otherwise it is fitted to the targets, as without a base.
    """

    family: str
    scales: NDArray
    tau: float
    trees: tuple[Tree, ...]
    is_on_base: bool = False

    @classmethod
    def of(cls, parts: tuple[Any, ...]) -> Member:
        """Return the member with these parts, plain tuples if it was loaded."""
        family, scales, tau, trees, is_on_base = parts
        made = tuple(Tree(Partition(*p), c, b) for p, c, b in trees)
        return cls(family, scales, tau, made, is_on_base)

    def describe_trees(self) -> str:
        """Return how many trees and leaves there are, in words."""
        leaves = sum(tree.partition.n_leaves for tree in self.trees)
        if leaves == 1:
            return "all rows"
        trees = "1 tree" if len(self.trees) == 1 else f"{len(self.trees)} trees"
        return f"{trees}, {leaves} leaves"


class Training(NamedTuple):
    """Rows, targets, weights and blocks that leaves are fitted to.

    Attributes
    ----------
    rows : ndarray of shape (n, p)
        Preprocessed rows.
    Y : ndarray of shape (n, d)
        Targets, standardized.
    weights : ndarray of shape (n,) or None
        Positive weights of mean one. None: ones.
    labels : ndarray of int of shape (n,) or None
        Block of each row. None: each row is left out by itself.
    """

    rows: NDArray
    Y: NDArray
    weights: NDArray | None = None
    labels: NDArray | None = None

    def take(
        self, index: NDArray
    ) -> tuple[NDArray, NDArray, NDArray | None, NDArray | None]:
        """Return the arguments of `fit_leaf` for some rows."""
        weights = None if self.weights is None else self.weights[index]
        labels = None if self.labels is None else self.labels[index]
        return self.rows[index], self.Y[index], weights, labels


def kernel_of(family: str, scales: NDArray) -> StationaryKernel:
    """Return the kernel with inverse length scales."""
    return replace(LEARNABLE[family], bandwidth=tuple((1 / scales).tolist()))


def form_of(family: str, scales: NDArray) -> CompiledForm:
    """Return the compiled form of a kernel with inverse length scales."""
    form = replace(LEARNABLE[family], bandwidth=1.0).compiled_form(len(scales))
    return replace(form, scale=form.scale * scales)


def fit_tree(
    form: CompiledForm,
    data: Training,
    partition: Partition,
    tau: float,
    *,
    left_out: NDArray | bool,
) -> tuple[Tree, NDArray | None]:
    """Fit the leaves in parallel; return the tree and left-out residuals (n, d).

    `left_out` (n,) selects the rows whose residuals are computed; see `fit_leaf`.
    The result does not depend on the number of threads: each leaf is solved by one.
    """
    (n, d), starts = data.Y.shape, partition.starts
    coef, intercept = np.empty((n, d)), np.empty((partition.n_leaves, d))
    wanted = np.broadcast_to(left_out, n)
    residual = np.full((n, d), np.nan) if wanted.any() else None

    def work(i: int) -> None:
        index = partition.leaf(i)
        rows, Y, weights, labels = data.take(index)
        for raised in range(_RAISED):
            try:
                leaf = fit_leaf(
                    form,
                    rows,
                    Y,
                    tau * 10.0**raised,
                    weights,
                    labels,
                    left_out=wanted[index],
                )
                break
            except np.linalg.LinAlgError:
                if raised == _RAISED - 1:
                    raise
        coef[starts[i] : starts[i + 1]] = leaf.coef
        intercept[i] = leaf.intercept
        if residual is not None and leaf.residual is not None:
            residual[index] = leaf.residual

    with one_thread():
        run_blocks(work, range(partition.n_leaves))
    return Tree(partition, coef, intercept), residual


def predict_member(member: Member, training_rows: NDArray, rows: NDArray) -> NDArray:
    """Return the mean over the trees of a member, (m, d), at preprocessed rows."""
    kernel = kernel_of(member.family, member.scales)
    out = np.zeros((len(rows), member.trees[0].coef.shape[1]))
    for tree in member.trees:
        leaf = tree.partition.route(rows)
        order = np.argsort(leaf, kind="stable")
        bounds = np.searchsorted(leaf[order], np.arange(tree.partition.n_leaves + 1))
        work = _leaf_work(tree, kernel, training_rows, rows, order, bounds, out)
        with one_thread():
            run_blocks(work, np.flatnonzero(np.diff(bounds)))
    return out / len(member.trees)


def _leaf_work(
    tree: Tree,
    kernel: StationaryKernel,
    training_rows: NDArray,
    rows: NDArray,
    order: NDArray,
    bounds: NDArray,
    out: NDArray,
) -> Callable[[int], None]:
    """Return the function that adds the predictions of one leaf to `out`."""
    starts = tree.partition.starts

    def work(i: int) -> None:
        mine = order[bounds[i] : bounds[i + 1]]
        coef = tree.coef[starts[i] : starts[i + 1]]
        landmarks = training_rows[tree.partition.leaf(i)]
        values = Product(kernel, landmarks, np.ascontiguousarray(coef.T))(rows[mine])
        out[mine] += values.T + tree.intercept[i]

    return work
