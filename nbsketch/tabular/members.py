"""Members that are exact on the leaves of a tree: one kernel, learned scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.threads import run_blocks
from nbsketch._report.fields import array, check_fields, positive, stored
from nbsketch._report.validation import check_choice
from nbsketch.kernels import LEARNABLE
from nbsketch.tabular.problem import Member, Points, TableProblem
from nbsketch.tabular.scales import Scales, best_penalty, kernel_of, learn_within
from nbsketch.tabular.trees import Tree, fit_tree, grow

# The largest leaf of those in which length scales and penalty are chosen.
LEAF_ROWS = 800
# Rounds of the search within single leaves, and leaves whose left-out error chooses the
# penalty.
_ROUNDS = 3
_SAMPLED = 2
# Rows of a single leaf of all rows that choose its penalty: tau is a ratio of
# variances, which does not depend on the number of rows.
_PENALTY_ROWS = 700


@stored
class Leaves(Member):
    """A kernel, its penalty and its tree.

    Without a rough kernel beside the smooth one: 1.020 of the error (13 problems of
    more than 1500 rows, three splits; up to 1.073) in 0.79 of the time, 1.032 on few
    rows.

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
    is_on_base : bool
        See `Member`. False without a base.
    """

    family: str
    scales: Annotated[NDArray, array("p", positive=True)]
    tau: Annotated[float, positive]
    tree: Tree
    is_on_base: bool = False

    def __post_init__(self) -> None:
        """Check the family, and that the tree splits columns that there are."""
        check_fields(self)
        check_choice("family", self.family, LEARNABLE)
        if self.tree.partition.feature.max() >= len(self.scales):
            raise ValueError(
                f"`tree` must split {len(self.scales)} columns, got more of them"
            )

    def predict(self, points: Points) -> NDArray:
        """Return the values (m, d) at some points."""
        kernel = kernel_of(self.family, self.scales)
        return self.tree.predict(kernel, points.training, points.rows)

    def n_numbers(self) -> int:
        """Return the number of coefficients and of places of rows in the tree."""
        return 2 * self.tree.coef.size

    def summary(self) -> tuple[str, str]:
        """Return the entry of a summary."""
        count = self.tree.partition.n_leaves
        text = "all rows" if count == 1 else f"{count} leaves"
        text += ", on what the base leaves" if self.is_on_base else ""
        return "member", f"{self.family}, {text}, penalty {self.tau:.1e}"


def with_penalty(problem: TableProblem, scales: Scales) -> Scales:
    """Return the scales with the best penalty for a single leaf of all rows."""
    sample = np.arange(len(problem.data.Y))
    if len(sample) > _PENALTY_ROWS:
        sample = np.sort(problem.rng.choice(sample, _PENALTY_ROWS, replace=False))
    return best_penalty(problem.data, scales, [sample])[1]


def fit_on_tree(
    problem: TableProblem,
    scales: Scales,
    left_out: NDArray | bool,
    *,
    largest: int,
    is_on_base: bool = False,
) -> tuple[Leaves, NDArray]:
    """Fit a member to the leaves of a tree; return it and left-out residuals (n, d).

    `scales` have their penalty. `left_out` (n,) selects the rows whose left-out
    residuals are computed; the others have NaN. Leaves have up to `largest` rows. The
    mean of two trees has the same error (0.999 on three sets of 4000 rows).
    """
    partition = grow(problem.data.rows, scales.inverse, largest, problem.rng)
    tree, residual = fit_tree(
        scales.form, problem.data, partition, scales.tau, left_out=left_out
    )
    return Leaves(*scales, tree, is_on_base), residual


def refined(
    problems: Sequence[TableProblem], starts: Sequence[Scales], rng: np.random.Generator
) -> list[Scales]:
    """Return the scales and penalty of each member, chosen on a sample of its leaves.

    Side by side, each with a random state of its own: the number of threads does not
    change them.
    """
    chosen = list(starts)
    seeds = rng.integers(2**63, size=len(starts))

    def work(k: int) -> None:
        own = problems[k]._replace(rng=np.random.default_rng(seeds[k]))
        chosen[k] = _refined(own, starts[k])

    run_blocks(work, range(len(starts)))
    return chosen


def _refined(problem: TableProblem, start: Scales) -> Scales:
    """Return scales and penalty, chosen on a sample of leaves.

    Scales learned again within other leaves are kept if they lower the error (without
    them: 1.008 of the error, 0.96 to 1.05, in 0.75 of the time).
    """
    data = problem.data
    rng = problem.rng
    rows = problem.rows
    tree = grow(data.rows, start.inverse, LEAF_ROWS, rng)
    sample = tree.drawn(_SAMPLED, rng)
    within = tree.drawn(_ROUNDS, rng)
    rows = data._replace(rows=rows.X).tuned_rows(rows.scaler)
    learned = learn_within(rows, start, within, rng, problem.budget)
    error, refined = best_penalty(data, learned, sample)
    least, global_ = best_penalty(data, start, sample, refined.tau)
    return refined if error < least else global_
