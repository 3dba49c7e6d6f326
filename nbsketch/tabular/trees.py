"""Exact fits on the leaves of random trees."""

from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.threads import run_blocks
from nbsketch._report.fields import array, stored
from nbsketch.gram import CompiledForm, Product
from nbsketch.kernels import StationaryKernel
from nbsketch.tabular.leaves import Leaf, fit_leaf
from nbsketch.tuning.rows import Training
from nbsketch.tuning.trees import Partition

# Penalties to try if a leaf is singular: factors of ten.
_RAISED = 12
# Maximum leaves times columns whose rows stay packed between predictions: 25 MB a tree.
_PACKED = 1000


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
        if len(self.intercept) != self.partition.n_leaves:
            raise ValueError(
                f"`intercept` must have length {self.partition.n_leaves}, got "
                f"{len(self.intercept)}"
            )

    @cached_property
    def _prepared(self) -> dict[int, Product]:
        """The functions of the leaves evaluated so far."""
        return {}

    def predict(
        self, kernel: StationaryKernel, training: NDArray, rows: NDArray
    ) -> NDArray:
        """Return the values at preprocessed rows (m, p), of shape (m, d)."""
        out = np.empty((len(rows), self.coef.shape[1]))
        leaf = self.partition.route(rows)
        order = np.argsort(leaf, kind="stable")
        starts = self.partition.starts
        bounds = np.searchsorted(leaf[order], np.arange(self.partition.n_leaves + 1))

        prepared = self._prepared

        def work(i: int) -> None:
            mine = order[bounds[i] : bounds[i + 1]]
            leaf = prepared.get(i)
            if leaf is None:
                coef = np.ascontiguousarray(self.coef[starts[i] : starts[i + 1]].T)
                leaf = Product(kernel, training[self.partition.leaf(i)], coef)
            if len(prepared) * training.shape[1] < _PACKED:
                prepared[i] = leaf
            out[mine] = leaf(rows[mine]).T + self.intercept[i]

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
    """Fit the leaves in parallel; return the tree and its residuals (n, d).

    `left_out` (n,) selects the rows whose leave-one-out residuals are computed; the
    others have NaN, see `fit_leaf`. The result does not depend on the number of
    threads: each leaf is solved by one thread.
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
