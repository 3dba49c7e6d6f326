"""Random trees of median splits along relevant columns, with exact fits of leaves."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.partition import TILE, route
from nbsketch._jit.threads import run_blocks, run_slices
from nbsketch._report.fields import array, check_fields, stored
from nbsketch.gram import CompiledForm, Product
from nbsketch.kernels import StationaryKernel
from nbsketch.tabular.leaves import Leaf, fit_leaf
from nbsketch.tabular.problem import Training

# Rows whose variances choose the column of a split.
_SAMPLE = 2000
# Smallest share of the rows of a node on either side of a split.
_LEAST_SHARE = 0.1
# Variances are multiplied by uniform numbers from this to one.
_JITTER = 0.2
_SECONDS_PER_ROW = 5e-8
# Penalties that are tried if a leaf is singular: factors of ten.
_RAISED = 12


@stored
class Partition:
    """A binary tree as arrays; see `grow`.

    Attributes
    ----------
    feature : ndarray of int of shape (nodes,)
        Column of the split of each node; -1 at leaves.
    threshold : ndarray of shape (nodes,)
        Rows with values up to it go left.
    child : ndarray of int of shape (nodes,)
        Left child, which the right one follows; at leaves the number of the leaf.
    order : ndarray of int of shape (n,)
        Rows, leaf by leaf, ascending within each leaf.
    starts : ndarray of int of shape (leaves + 1,)
        Where each leaf begins in `order`.
    """

    feature: Annotated[NDArray, array("_nodes", "i")]
    threshold: Annotated[NDArray, array("_nodes")]
    child: Annotated[NDArray, array("_nodes", "i")]
    order: Annotated[NDArray, array("n", "i")]
    starts: Annotated[NDArray, array("_starts", "i")]

    def __post_init__(self) -> None:
        """Check that each row is in one leaf, and that paths go down to leaves."""
        check_fields(self)
        starts = self.starts
        order = self.order
        n = len(self.order)
        if starts[0] != 0 or starts[-1] != n or (np.diff(starts) <= 0).any():
            raise ValueError(f"`starts` must go up from 0 to {n}, got others")
        if not np.array_equal(np.sort(order), np.arange(n)):
            raise ValueError("`order` must have each row in one leaf, got others")
        child = self.child
        index = np.arange(len(self.child))
        # Children come after their parents, so that no path has a cycle.
        inner = (child > index) & (child < len(child) - 1)
        at_leaf = (child >= 0) & (child < self.n_leaves)
        if not np.where(self.feature < 0, at_leaf, inner).all():
            raise ValueError("`child` must be that of a binary tree, got other nodes")

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        return len(self.starts) - 1

    def leaf(self, i: int) -> NDArray:
        """Return the rows of leaf i."""
        return self.order[self.starts[i] : self.starts[i + 1]]

    def leaves(self) -> list[NDArray]:
        """Return the rows of each leaf."""
        return np.split(self.order, self.starts[1:-1])

    def route(self, rows: NDArray) -> NDArray:
        """Return the leaf of each row, (n,)."""
        out = np.empty(len(rows), dtype=np.int64)
        args = rows, self.feature, self.threshold, self.child, out
        tiles = -(-len(rows) // TILE)
        run_slices(route, tiles, TILE * _SECONDS_PER_ROW, *args)
        return out


def grow(
    rows: NDArray, scales: NDArray, largest: int, rng: np.random.Generator
) -> Partition:
    """Return a tree of median splits whose leaves have at most `largest` rows.

    A node is split at the median of the column of largest variance, in units of the
    length scales and times a random number from 0.2 to 1. If fewer than a tenth of the
    rows are on one side, the mean is tried instead, then the next column. A node that
    no column splits stays a leaf, whatever its size; so does one of equal rows.

    Parameters
    ----------
    rows : ndarray of shape (n, p)
        Rows.
    scales : ndarray of shape (p,)
        Inverse length scales.
    largest : int
        Largest number of rows of a leaf.
    rng : Generator
        Random state.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.tabular.trees import grow
    >>> rows = np.arange(8.0)[:, None]
    >>> tree = grow(rows, np.ones(1), 4, np.random.default_rng(0))
    >>> tree.leaf(0).tolist(), tree.route(np.array([[3.4], [3.6]])).tolist()
    ([0, 1, 2, 3], [0, 1])
    """
    feature = [-1]
    threshold = [0.0]
    child = [0]
    todo = [(0, np.arange(len(rows)))]
    leaves = list[NDArray]()
    while todo:
        node, index = todo.pop()
        split = _split(rows, scales, index, rng) if len(index) > largest else None
        if split is None:
            child[node] = len(leaves)
            leaves.append(index)
            continue
        feature[node], threshold[node], child[node] = (*split, len(feature))
        feature += [-1, -1]
        threshold += [0.0, 0.0]
        child += [0, 0]
        left = rows[index, split[0]] <= split[1]
        todo += [(child[node] + 1, index[~left]), (child[node], index[left])]
    return Partition(
        np.array(feature),
        np.array(threshold),
        np.array(child),
        np.concatenate(leaves),
        np.cumsum([0, *map(len, leaves)]),
    )


@stored
class Tree:
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
    coef: Annotated[NDArray, array("n d")]
    intercept: Annotated[NDArray, array("_leaves d")]

    def __post_init__(self) -> None:
        """Check that each leaf has a constant."""
        check_fields(self)
        if len(self.intercept) != self.partition.n_leaves:
            raise ValueError(
                f"`intercept` must have length {self.partition.n_leaves}, got "
                f"{len(self.intercept)}"
            )

    def predict(
        self, kernel: StationaryKernel, training: NDArray, rows: NDArray
    ) -> NDArray:
        """Return the values at preprocessed rows (m, p), of shape (m, d)."""
        out = np.empty((len(rows), self.coef.shape[1]))
        leaf = self.partition.route(rows)
        order = np.argsort(leaf, kind="stable")
        starts = self.partition.starts
        bounds = np.searchsorted(leaf[order], np.arange(self.partition.n_leaves + 1))

        def work(i: int) -> None:
            mine = order[bounds[i] : bounds[i + 1]]
            coef = np.ascontiguousarray(self.coef[starts[i] : starts[i + 1]].T)
            landmarks = training[self.partition.leaf(i)]
            values = Product(kernel, landmarks, coef)(rows[mine])
            out[mine] = values.T + self.intercept[i]

        run_blocks(work, np.flatnonzero(np.diff(bounds)))
        return out


def fit_tree(
    form: CompiledForm,
    data: Training,
    partition: Partition,
    tau: float,
    *,
    left_out: NDArray | bool,
) -> tuple[Tree, NDArray]:
    """Fit the leaves in parallel; return the tree and left-out residuals (n, d).

    `left_out` (n,) selects the rows whose residuals are computed; the others have NaN,
    see `fit_leaf`. The result does not depend on the number of threads: each leaf is
    solved by one.
    """
    (n, d), starts = data.Y.shape, partition.starts
    coef = np.empty((n, d))
    intercept = np.empty((partition.n_leaves, d))
    left_out = np.broadcast_to(left_out, n)
    residual = np.full((n, d), np.nan)

    def work(i: int) -> None:
        index = partition.leaf(i)
        leaf = _fit_raised(form, data, index, tau, left_out[index])
        coef[starts[i] : starts[i + 1]] = leaf.coef
        intercept[i] = leaf.intercept
        if leaf.residual is not None:
            residual[index] = leaf.residual

    run_blocks(work, range(partition.n_leaves))
    return Tree(partition, coef, intercept), residual


def _fit_raised(
    form: CompiledForm, data: Training, index: NDArray, tau: float, left_out: NDArray
) -> Leaf:
    """Fit a leaf, with a larger penalty if its matrix is singular."""
    rows, Y, *options = data.take(index)
    for factor in 10.0 ** np.arange(_RAISED):
        try:
            return fit_leaf(form, rows, Y, tau * factor, *options, left_out=left_out)
        except np.linalg.LinAlgError as error:
            singular = error
    raise singular


def _split(
    rows: NDArray, scales: NDArray, index: NDArray, rng: np.random.Generator
) -> tuple[int, float] | None:
    """Return the column and the threshold of a split, None if there is none."""
    sample = index
    if len(index) > _SAMPLE:
        sample = rng.choice(index, _SAMPLE, replace=False)
    spread = rows[sample].var(axis=0) * np.square(scales)
    spread *= rng.uniform(_JITTER, 1.0, len(spread))
    for column in np.argsort(-spread, kind="stable"):
        if spread[column] <= 0:
            return None
        values = rows[index, column]
        for center in (np.median, np.mean):
            threshold = float(center(values))
            share = np.count_nonzero(values <= threshold) / len(values)
            if _LEAST_SHARE <= share <= 1 - _LEAST_SHARE:
                return int(column), threshold
    return None
