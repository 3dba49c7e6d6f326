"""How much is spent on a fit: the numbers behind ``effort=``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# A single leaf of all rows, without a base, up to this many rows.
ALONE = 1500
# Trees of a member whose left-out residuals are computed.
LEFT_OUT_TREES = 2
# Otherwise the largest leaf of a tree, and of those in which length scales and penalty
# are chosen.
TREE_ROWS, LEAF_ROWS = 1600, 800


class Effort(NamedTuple):
    """Numbers of trees, searches and samples.

    Attributes
    ----------
    trees : int
        Trees of each member.
    searches : int
        Members up to `ALONE` rows, each with its own search for length scales; one
        less, but at least two, for more than 600 rows.
    landmarks : int
        Number of landmarks of the base.
    search_size : int
        Size for which the global search is meant: above 400 it may add a last round.
    is_shared : bool
        Whether, beyond `ALONE` rows, the second family takes the length scales of the
        first, up to a factor, in place of a search.
    rounds : int
        Rounds of the search within single leaves.
    sampled : int
        Leaves whose left-out error chooses penalty and width.
    enlarges : bool
        Whether leaves are enlarged, up to all rows, where this lowers their error.
    global_below : float
        Left-out error, relative to the spread of the targets, below which a global
        ridge is tried in any case, and all rows in double precision: they win where
        targets are smooth and nearly free of noise.
    rotated_below : float
        Ratio of errors on a small sample, with a metric to without one, below which a
        global ridge is tried in any case, for smooth functions of rotated columns.
    """

    trees: int
    searches: int
    landmarks: int
    search_size: int
    is_shared: bool
    rounds: int
    sampled: int
    enlarges: bool
    global_below: float
    rotated_below: float


EFFORTS = {
    "fast": Effort(1, 2, 500, 200, True, 3, 2, False, 0.0, 0.8),
    "standard": Effort(2, 5, 500, 1000, False, 3, 4, True, 0.05, 0.97),
    "high": Effort(4, 10, 500, 1000, False, 6, 6, True, np.inf, np.inf),
}
