"""How much is spent on a fit: the numbers behind ``effort=``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# A single leaf of all rows, without a base, up to this many rows.
ALONE = 1500
# Otherwise the largest leaf of a tree, and of those in which length scales and penalty
# are chosen.
TREE_ROWS, LEAF_ROWS = 1600, 800


class Effort(NamedTuple):
    """Numbers of trees, and when a global ridge is tried.

    Attributes
    ----------
    trees : int
        Trees of each member.
    global_below : float
        Left-out error, relative to the spread of the targets, below which a global
        ridge is tried in any case: it wins where targets are smooth and nearly free of
        noise.
    rotated_below : float
        Ratio of errors on a small sample, with a metric to without one, below which a
        global ridge is tried in any case, for smooth functions of rotated columns.
    """

    trees: int
    global_below: float
    rotated_below: float


EFFORTS = {"fast": Effort(1, 0.0, 0.8), "high": Effort(2, np.inf, np.inf)}
