"""Rows of tables, and small tables with what only large ones have: several leaves."""

from contextlib import ExitStack
from typing import NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.tuning import FAMILIES
from nbsketch.tabular import fit, scales
from nbsketch.tuning.criterion import ExactCriterion, LandmarkCriterion
from nbsketch.tuning.rows import Rows, Training


def prepare(X, Y, weights, scaler, kept, family="matern-3/2", **options):
    """Return rows for learning length scales, with standardized targets."""
    weights = np.ones(len(Y)) if weights is None else weights
    rows = Rows(X, Y, weights, scaler, kept, FAMILIES[family], **options)
    return rows.standardized()[0]


def training(rows, Y, weights=None, labels=None):
    """Return rows for fitting members, of equal weights by default."""
    return Training(rows, Y, np.ones(len(rows)) if weights is None else weights, labels)


class Sample(NamedTuple):
    """Rows of a criterion for length scales, of which the first are landmarks."""

    X: NDArray
    Y: NDArray
    weights: NDArray
    landmarks: NDArray
    family: int
    cut: float = np.inf
    blocks: NDArray | None = None

    @property
    def data(self):
        return Training(self.X, self.Y, self.weights, self.blocks)

    def by_landmarks(self):
        return LandmarkCriterion(self.data, len(self.landmarks), self.family, self.cut)

    def by_evidence(self):
        return ExactCriterion(self.data, self.family)


def small_leaves(alone=50, leaf_rows=300):
    """Return a context with a base above `alone` rows, and leaves of so few rows."""
    context = ExitStack()
    for file in (fit, scales):
        context.enter_context(mock.patch.object(file, "ALONE", alone))
    for name in "TREE_ROWS", "LARGER_ROWS":
        context.enter_context(mock.patch.object(fit, name, leaf_rows))
    return context
