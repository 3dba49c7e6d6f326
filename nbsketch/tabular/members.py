"""Members that are exact on the leaves of a tree: a kernel with learned scales."""

from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from nbsketch._machine.memory import fits
from nbsketch._report.fields import array, positive, stored
from nbsketch._report.validation import check_choice
from nbsketch.kernels import LEARNABLE, StationaryKernel
from nbsketch.tabular.problem import Member, Points
from nbsketch.tabular.scales import Scales, kernel_of
from nbsketch.tabular.trees import Tree, fit_tree
from nbsketch.tuning.rows import Training
from nbsketch.tuning.trees import grow

# Matrices of a leaf at once, and a size that is within any limit: leaves of 4000 rows
# took 190 MB of a limit of 50 MB.
_MATRICES = 3
_LEAST_LEAF = 500


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

    def predict(self, points: Points) -> NDArray:
        """Return the values (m, d) at some points."""
        return self.tree.predict(self.kernel, points.training, points.rows)

    def n_numbers(self) -> int:
        """Return the number of coefficients and of row indices in the tree."""
        return self.tree.coef.size + len(self.tree.coef)

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
    residuals are computed; the others have NaN. Leaves have up to `largest` rows. The
    mean of two trees has the same error (0.999 on three sets of 4000 rows). Their
    matrices fit into the memory limit.
    """
    while largest > _LEAST_LEAF and not fits(8.0 * largest**2, copies=_MATRICES):
        largest //= 2
    partition = grow(data.rows, scales.inverse, largest, rng)
    tree, residual = fit_tree(
        scales.form, data, partition, scales.tau, left_out=left_out
    )
    return Leaves(*scales, tree), residual
