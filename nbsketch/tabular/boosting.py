"""Boosted trees as a partner: fitted by scikit-learn, stored as arrays."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)

from nbsketch._jit.partition import BLOCK, LANES, tree_sums
from nbsketch._jit.threads import run_slices
from nbsketch._report.fields import array, stored
from nbsketch._report.validation import check_indices
from nbsketch.tabular.scales import LARGE
from nbsketch.tuning.rows import Training

# Rounds end after 15 without improvement, or at this number of trees; more than two
# classes take one tree each per round. Small trees and large steps take two thirds of
# the time of scikit-learn's defaults, for 0.998 of the log loss of the pool (seven
# sets).
_OPTIONS = {
    "early_stopping": True,
    "n_iter_no_change": 15,
    "validation_fraction": 0.2,  # where scikit-learn, before 1.7, takes no fold
    "learning_rate": 0.2,
    "max_leaf_nodes": 15,
}
_MOST_TREES = 400
# Rows times columns times classes of all folds; above, fewer folds, at least one.
_MOST_NUMBERS = 5 * 10**7
# On large tables trees are more accurate than leaves of 1600 rows, and have larger
# leaves: 0.83 and 0.81 of the kernel model's error on two tables of 300,000 rows
# (flights of 2013, births by state and day).
_LARGE_LEAVES = 63
# No trees up to this number of rows, or of rows per class.
_LEAST_ROWS = 1500
_LEAST_CLASS = 10
# Log odds of a class missing in a fit.
_ABSENT = -700.0
# Approximate seconds for one row in one tree.
_SECONDS = 2e-9
# Maximum number of leaves of a tree: the bits of an integer.
_MOST_LEAVES = 64


def boosting(n: int, counts: NDArray, seed: int) -> list[Any]:
    """Return the estimators of "auto" for n rows: one or none.

    `counts` (c,) are the numbers of rows of the classes; empty for regression.
    """
    classes = len(counts)
    if counts.min() < _LEAST_CLASS if classes else n <= _LEAST_ROWS:
        return []
    boosted = HistGradientBoostingRegressor
    if classes:
        boosted = HistGradientBoostingClassifier
    rounds = _MOST_TREES if classes < 3 else max(_MOST_TREES // classes, 1)
    model = boosted(max_iter=rounds, random_state=seed, **_OPTIONS)
    return [model.set_params(max_leaf_nodes=_LARGE_LEAVES) if n > LARGE else model]


def affordable_folds(
    folds: list[NDArray], data: Training, classes: int, left_out: NDArray
) -> list[NDArray]:
    """Return the folds that trees are fitted without: fewer for a large table.

    A single fold is the rows `left_out`, which have leave-one-out scores of the kernel
    model, if they are fewer than a fold. Blocks of rows stay together.
    """
    most = _MOST_NUMBERS // (data.rows.size * max(classes, 1))
    if most > 1 or data.labels is not None:
        return folds[: max(most, 1)]
    return [min(folds[0], left_out, key=len)]


@stored
class BoostedTrees:
    """Fits of boosted trees without each fold.

    Attributes
    ----------
    feature, threshold, value : ndarray of shape (nodes,)
        Columns and thresholds of splits; -1 and values at leaves; concatenated trees.
    child : ndarray of int of shape (2, nodes)
        Children of each node; the left one is the next node.
    roots, column : ndarray of int of shape (trees,)
        First node of each tree, and the position of its fit and output in the
        baselines.
    baseline : ndarray of shape (fits, d)
        Values without trees: targets, or log probabilities up to a constant.
    is_classifier : bool
        Whether the values are log probabilities.
    """

    feature: Annotated[NDArray, array("_nodes", "i")]
    threshold: Annotated[NDArray, array("_nodes")]
    value: Annotated[NDArray, array("_nodes")]
    child: Annotated[NDArray, array("_two _nodes", "i")]
    roots: Annotated[NDArray, array("_trees", "i")]
    column: Annotated[NDArray, array("_trees", "i")]
    baseline: Annotated[NDArray, array("_fits _outputs")]
    is_classifier: bool

    name: ClassVar[str] = "boosted trees"

    def __post_init__(self) -> None:
        """Check that paths lead to leaves and that positions exist."""
        roots = self.roots
        is_leaf = self.feature < 0
        index = np.arange(len(is_leaf))
        check_indices("roots", roots, len(index))
        check_indices("column", self.column, self.baseline.size)
        sizes = np.diff(roots, append=len(index))
        if roots[0] != 0 or (sizes <= 0).any():
            raise ValueError("`roots` must ascend from 0, got others")
        leaves = np.add.reduceat(is_leaf, roots, dtype=np.intp)
        if (sizes != 2 * leaves - 1).any() or leaves.max() > _MOST_LEAVES:
            raise ValueError(
                f"`roots` must be of binary trees with up to {_MOST_LEAVES} leaves"
            )
        ends = np.repeat(roots + sizes, sizes)
        left = self.child[0]
        right = self.child[-1]
        goes_down = (left == index + 1) & (right > left) & (right < ends)
        if len(self.child) != 2 or not (goes_down | is_leaf).all():
            raise ValueError("`child` must be of binary trees, got other nodes")

    @cached_property
    def _layout(self) -> tuple[NDArray, ...]:
        """The splits, leaves and columns of the trees as `tree_sums` needs them."""
        is_leaf = self.feature < 0
        before: NDArray = np.cumsum(is_leaf) - is_leaf
        starts = np.append(before[self.roots], np.count_nonzero(is_leaf))
        nodes = np.flatnonzero(~is_leaf)
        first = starts[np.searchsorted(self.roots, nodes, side="right") - 1]
        left, right = np.left_shift(1, before[self.child[:, nodes]] - first)
        splits = self.feature[nodes], self.threshold[nodes], ~(right - left)
        return *splits, self.value[is_leaf], starts, self.column

    @classmethod
    def of(cls, fits: list[list[Any]], classes: int) -> BoostedTrees:
        """Return the fits of scikit-learn: for each fold, one per output.

        `classes`: number of classes, with one classifier per fold; 0: regression.
        """
        d = classes or len(fits[0])
        baseline = np.full((len(fits), d), _ABSENT)
        trees = list[tuple[NDArray, int]]()
        for i, models in enumerate(fits):
            for k, model in enumerate(models):
                raw = np.ravel(model._baseline_prediction)
                outputs = np.array([k])
                if classes:
                    baseline[i, model.classes_] = 0.0
                    outputs = model.classes_[-len(raw) :]  # two classes: the second
                baseline[i, outputs] = raw
                for parts in model._predictors:
                    pairs = zip(parts, outputs + i * d, strict=True)
                    trees += [(tree.nodes, place) for tree, place in pairs]
        nodes = np.concatenate([tree for tree, _ in trees])
        sizes = np.array([len(tree) for tree, _ in trees])
        roots = np.cumsum(sizes) - sizes
        child = np.stack([nodes["left"], nodes["right"]]).astype(np.int64)
        is_leaf = nodes["is_leaf"].astype(bool)
        return cls(
            feature=np.where(is_leaf, -1, nodes["feature_idx"]).astype(np.int64),
            threshold=nodes["num_threshold"].astype(np.float64),
            value=nodes["value"].astype(np.float64),
            child=child + np.repeat(roots, sizes),
            roots=roots,
            column=np.array([place for _, place in trees]),
            baseline=baseline,
            is_classifier=classes > 0,
        )

    def predict(self, rows: NDArray) -> NDArray:
        """Return the means over the fits, (n, d), at encoded rows."""
        n, q = rows.shape
        width = min(BLOCK, -(-n // LANES) * LANES)
        blocks = -(-n // width)
        padded = np.zeros((blocks * width, q))
        padded[:n] = rows
        columns = np.ascontiguousarray(padded.reshape(blocks, width, q).swapaxes(1, 2))
        out = np.tile(self.baseline.reshape(-1, 1), (blocks, 1, width))
        leaves = np.empty((blocks, width), dtype=np.int64)
        seconds = width * len(self.roots) * _SECONDS
        run_slices(tree_sums, blocks, seconds, columns, *self._layout, leaves, out)
        values = out.reshape(blocks, *self.baseline.shape, width)
        if self.is_classifier:
            values = softmax(values, axis=2)
        means = values.mean(axis=1).swapaxes(1, 2)
        return means.reshape(-1, means.shape[2])[:n]
