"""Members that are exact on the leaves of a tree: a kernel with learned scales."""

from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.threads import run_blocks
from nbsketch._machine.memory import fits
from nbsketch._report.fields import array, positive, stored
from nbsketch._report.validation import check_choice
from nbsketch.gram import CompiledForm, Product
from nbsketch.kernels import LEARNABLE, StationaryKernel
from nbsketch.tabular.leaves import Leaf, fit_leaf
from nbsketch.tabular.machine import Member
from nbsketch.tabular.scales import Scales, kernel_of
from nbsketch.tuning.rows import Training
from nbsketch.tuning.trees import Partition, grow

# Penalties to try if a leaf is singular: factors of ten.
_RAISED = 12
# Maximum leaves times columns whose rows stay packed between predictions: 25 MB a tree.
_PACKED = 1000
# Matrices of a leaf at once, and a size that is within any limit: leaves of 4000 rows
# took 190 MB of a limit of 50 MB.
_MATRICES = 3
_LEAST_LEAF = 500


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
        partition = self.partition
        out = np.empty((len(rows), self.coef.shape[1]))
        leaf = partition.route(rows)
        order = np.argsort(leaf, kind="stable")
        starts = partition.starts
        bounds = np.searchsorted(leaf[order], np.arange(partition.n_leaves + 1))

        prepared = self._prepared

        def work(i: int) -> None:
            mine = order[bounds[i] : bounds[i + 1]]
            leaf = prepared.get(i)
            if leaf is None:
                coef = np.ascontiguousarray(self.coef[starts[i] : starts[i + 1]].T)
                leaf = Product(kernel, training[partition.leaf(i)], coef)
            if len(prepared) * training.shape[1] < _PACKED:
                prepared[i] = leaf
            out[mine] = leaf(rows[mine]).T + self.intercept[i]

        run_blocks(work, np.flatnonzero(np.diff(bounds)))
        return out


@stored
class Leaves(Member):
    """A kernel, its penalty and its tree.

    Without an additional rough kernel: 1.020 times the error (13 problems of more than
    1500 rows, three splits; up to 1.073) in 0.79 of the time, 1.032 on few rows.

    Attributes
    ----------
    family : str
        Key of `nbsketch.kernels.LEARNABLE`.
    scales : ndarray of shape (p,)
        Inverse length scales.
    tau : float
        Penalty of the leaves.
    tree : Tree
        The leaves and their exact solutions.
    """

    family: str
    scales: Annotated[NDArray, array("p", positive=True)]
    tau: Annotated[float, positive]
    tree: Tree

    def __post_init__(self) -> None:
        """Check the family, and that the tree splits existing columns."""
        check_choice("family", self.family, LEARNABLE)
        if self.tree.partition.feature.max() >= len(self.scales):
            raise ValueError(
                f"`tree` must split {len(self.scales)} columns, got more of them"
            )

    @cached_property
    def kernel(self) -> StationaryKernel:
        """The kernel with its length scales."""
        return kernel_of(self.family, self.scales)

    def predict(self, rows: NDArray, training: NDArray) -> NDArray:
        """Return the values (m, d) at preprocessed rows, given those of training."""
        return self.tree.predict(self.kernel, training, rows)

    def summary(self) -> tuple[str, str]:
        """Return the entry of a summary."""
        count = self.tree.partition.n_leaves
        text = "all rows" if count == 1 else f"{count} leaves"
        return "member", f"{self.family}, {text}, penalty {self.tau:.1e}"


def fit_on_tree(
    data: Training,
    scales: Scales,
    largest: int,
    rng: np.random.Generator,
    left_out: NDArray | bool = True,
) -> tuple[Leaves, NDArray]:
    """Fit a member to the leaves of a tree; return it with residuals (n, d).

    `scales` include the penalty. `left_out` (n,) selects the rows whose leave-one-out
    residuals are computed; the others have NaN, see `fit_leaf`. Leaves have up to
    `largest` rows. The mean of two trees has the same error (0.999 on three sets of
    4000 rows). Their matrices fit into the memory limit. The result does not depend on
    the number of threads: each leaf is solved by one thread.
    """
    largest = min(largest, len(data.Y))
    while largest > _LEAST_LEAF and not fits(8.0 * largest**2, copies=_MATRICES):
        largest //= 2
    partition = grow(data.rows, scales.inverse, largest, rng)
    starts = partition.starts
    form = scales.form
    left_out = np.broadcast_to(left_out, len(data.Y))
    coef = np.empty_like(data.Y)
    intercept = np.empty((partition.n_leaves, coef.shape[1]))
    residual = np.empty_like(coef)

    def work(i: int) -> None:
        index = partition.leaf(i)
        leaf = _fit_raised(form, data.take(index), scales.tau, left_out[index])
        coef[starts[i] : starts[i + 1]] = leaf.coef
        intercept[i] = leaf.intercept
        residual[index] = leaf.residual

    run_blocks(work, range(partition.n_leaves))
    return Leaves(*scales, Tree(partition, coef, intercept)), residual


def _fit_raised(
    form: CompiledForm, data: Training, tau: float, left_out: NDArray
) -> Leaf:
    """Fit a leaf, with a larger penalty if its matrix is singular."""
    for factor in 10.0 ** np.arange(_RAISED):
        try:
            return fit_leaf(form, data, tau * factor, left_out)
        except np.linalg.LinAlgError as error:
            singular = error
    raise singular
