"""Random trees of median splits along relevant columns: neighboring rows in leaves."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.partition import TILE, route
from nbsketch._jit.threads import run_slices
from nbsketch._report.fields import array, stored

# Number of rows for the variances that choose the column of a split.
_SAMPLE = 2000
# Minimum share of the rows of a node on either side of a split.
_LEAST_SHARE = 0.1
# Variances are multiplied by uniform numbers from this to one.
_JITTER = 0.2
_SECONDS_PER_ROW = 5e-8


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
        Left child; the right child is the next node. At leaves the number of the leaf.
    order : ndarray of int of shape (n,)
        Rows, leaf by leaf, ascending within each leaf.
    starts : ndarray of int of shape (leaves + 1,)
        Start of each leaf in `order`.
    """

    feature: Annotated[NDArray, array("_nodes", "i")]
    threshold: Annotated[NDArray, array("_nodes")]
    child: Annotated[NDArray, array("_nodes", "i")]
    order: Annotated[NDArray, array("n", "i")]
    starts: Annotated[NDArray, array("_starts", "i")]

    def __post_init__(self) -> None:
        """Check that each row is in one leaf, and that paths lead to leaves."""
        starts = self.starts
        order = self.order
        n = len(self.order)
        if starts[0] != 0 or starts[-1] != n or (np.diff(starts) <= 0).any():
            raise ValueError(f"`starts` must ascend from 0 to {n}, got others")
        if not np.array_equal(np.sort(order), np.arange(n)):
            raise ValueError("`order` must have each row in one leaf, got others")
        child = self.child
        # Children come after their parents, so that no path has a cycle.
        inner = (child > np.arange(len(child))) & (child < len(child) - 1)
        at_leaf = (child >= 0) & (child < self.n_leaves)
        if not np.where(self.feature < 0, at_leaf, inner).all():
            raise ValueError("`child` must be of a binary tree, got other nodes")

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
        run_slices(route, -(-len(rows) // TILE), TILE * _SECONDS_PER_ROW, *args)
        return out


def grow(
    rows: NDArray, scales: NDArray, largest: int, rng: np.random.Generator
) -> Partition:
    """Return a tree of median splits whose leaves have at most `largest` rows.

    A node is split at the median of the column of largest variance, in units of the
    length scales and times a random number from 0.2 to 1. If fewer than a tenth of the
    rows are on one side, the mean is tried instead, then the next column. A node that
    no column splits, or with equal rows, stays a leaf of any size. Consecutive leaves
    are neighbors along the columns, independent of their sign: they start on the side
    of the first row.

    Parameters
    ----------
    rows : ndarray of shape (n, p)
        Rows.
    scales : ndarray of shape (p,)
        Inverse length scales.
    largest : int
        Maximum number of rows of a leaf.
    rng : Generator
        Random state.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.tuning.trees import grow
    >>> rows = np.arange(8.0)[:, None]
    >>> tree = grow(rows, np.ones(1), 4, np.random.default_rng(0))
    >>> tree.leaf(0).tolist(), tree.route(np.array([[3.4], [3.6]])).tolist()
    ([0, 1, 2, 3], [0, 1])
    """
    nodes = [[-1, 0.0, 0]]
    todo = [(0, np.arange(len(rows)))]
    leaves = list[NDArray]()
    upward = rows[0] <= rows.mean(axis=0)
    while todo:
        node, index = todo.pop()
        split = _split(rows, scales, index, rng) if len(index) > largest else None
        if split is None:
            nodes[node][2] = len(leaves)
            leaves.append(index)
            continue
        column, center, left = split
        below = len(nodes)
        nodes[node] = [column, center, below]
        nodes += [[-1, 0.0, 0], [-1, 0.0, 0]]
        sides = [(below + 1, index[~left]), (below, index[left])]
        todo += sides if upward[column] else sides[::-1]
    starts = np.cumsum([0, *map(len, leaves)])
    feature, threshold, child = map(np.array, zip(*nodes, strict=True))
    return Partition(feature, threshold, child, np.concatenate(leaves), starts)


def _split(
    rows: NDArray, scales: NDArray, index: NDArray, rng: np.random.Generator
) -> tuple[int, float, NDArray] | None:
    """Return column, threshold and mask of the left rows of a split; None: no split."""
    sample = index
    if len(index) > _SAMPLE:
        sample = rng.choice(index, _SAMPLE, replace=False)
    spread = rows[sample].var(axis=0) * np.square(scales)
    # Factors depend on positions, the same for all scales, for a fair comparison.
    spread *= rng.uniform(_JITTER, 1.0, len(spread))
    for column in np.argsort(-spread, kind="stable"):
        if spread[column] <= 0:
            return None
        values = rows[index, column]
        for center in (_median, np.mean):
            threshold = float(center(values))
            left = values <= threshold
            share = np.count_nonzero(left) / len(values)
            if _LEAST_SHARE <= share <= 1 - _LEAST_SHARE:
                return int(column), threshold, left
    return None


def _median(values: NDArray) -> float:
    """Return the median of finite numbers; `np.median` takes longer for few."""
    middle = [(len(values) - 1) // 2, len(values) // 2]
    return np.partition(values, middle)[middle].mean()
