"""Samples of conformal estimators: weights, groups, duplicates, and fits to subsets.

Identical samples are split and calibrated together.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import has_fit_parameter

from nbsketch._report.validation import row_weights
from nbsketch.rows.copies import merged, representatives
from nbsketch.rows.inputs import check_weights, is_pairwise
from nbsketch.rows.splits import (
    as_folds,
    check_groups,
    merges_copies,
    pairs_of,
    warn_of_divided_copies,
)
from nbsketch.tabular.columns import Table
from nbsketch.tabular.reading import is_table


class Marks(NamedTuple):
    """Weights (None: equal) and groups (None: no groups) of n samples."""

    weights: NDArray | None
    groups: Any

    @classmethod
    def of(cls, sample_weight: Any, groups: Any, n: int) -> Marks:
        """Return checked weights and groups of n samples."""
        weights = check_weights(sample_weight, np.empty((n, 0)))
        return cls(weights, check_groups(groups, n))

    def at(self, rows: Any) -> Marks:
        """Return the weights and groups of some samples."""
        return Marks(*(None if values is None else values[rows] for values in self))


def _takes(estimator: Any, name: str) -> bool:
    """Return whether `fit` takes weights or groups, or routes them to a step."""
    if has_fit_parameter(estimator, name):
        return True
    is_routed = get_config()["enable_metadata_routing"]
    return is_routed and name in get_routing_for_object(estimator).consumes(
        "fit", [name]
    )


def fit_on(estimator: Any, X: Any, y: NDArray, marks: Marks, rows: NDArray) -> Any:
    """Return a clone of the estimator fitted to some samples; unchanged if frozen."""
    if isinstance(estimator, FrozenEstimator):
        return estimator
    if is_pairwise(getattr(estimator, "kernel", None)):
        raise ValueError(
            "`kernel` must be computed from samples for a conformal fit, got "
            f"{estimator!r}: pass the samples and a kernel of them, or a fitted "
            "FrozenEstimator"
        )
    options = {}
    weights, groups = marks.at(rows)
    if weights is not None:
        if not _takes(estimator, "sample_weight"):
            raise TypeError(
                "`sample_weight` must be None for an estimator whose fit does not take "
                f"it, got {estimator!r}"
            )
        options["sample_weight"] = weights
    has_folds = getattr(estimator, "cv", True) is not None
    if groups is not None and has_folds and _takes(estimator, "groups"):
        options["groups"] = groups
    return clone(estimator).fit(_safe_indexing(X, rows), y[rows], **options)


class DistinctRows(NamedTuple):
    """Distinct samples of positive weight, in order of first appearance.

    Attributes
    ----------
    rows : ndarray of int of shape (m,)
        Indices of the distinct samples.
    place : ndarray of int of shape (n,) or None
        Position of the distinct sample equal to each sample. None: no duplicates.
    weights : ndarray of shape (n,) or None
        Sums of the weights of identical samples. None: equal weights.
    """

    rows: NDArray
    place: NDArray | None
    weights: NDArray | None

    @classmethod
    def of(cls, X: Any, y: NDArray, weights: NDArray | None) -> DistinctRows:
        """Find the distinct samples of any input accepted by an estimator."""
        place = _compared(X, y, weights)
        sums = merged(place, weights)
        counts = row_weights(sums, y)
        rows = np.flatnonzero(counts)
        equal = weights is None and np.ptp(counts[rows]) == 0
        return cls(rows, place, None if equal else sums)

    def copies(self, index: NDArray) -> NDArray:
        """Return some of the distinct samples, followed by their duplicates."""
        chosen = self.rows[index]
        if self.place is None:
            return chosen
        equal = np.flatnonzero(np.isin(self.place, chosen))
        return np.concatenate([chosen, np.setdiff1d(equal, chosen)])

    def split(
        self, cv: Any, y: NDArray, classification: bool = False
    ) -> list[tuple[NDArray, NDArray]]:
        """Return (train, test) indices from a splitter of the distinct samples.

        Training sets include duplicates, test sets do not.
        """
        splitter = check_cv(cv, y, classifier=classification)
        pairs = splitter.split(self.rows, y[self.rows])
        return [(self.copies(train), self.rows[test]) for train, test in pairs]

    def folds(
        self, cv: Any, X: Any, y: NDArray, groups: Any, classification: bool = False
    ) -> list[tuple[NDArray, NDArray]]:
        """Return (train, test) indices; an integer splits the distinct samples.

        The blocks are contiguous, within each class for classification.
        """
        if merges_copies(cv):
            return self.split(cv, y, classification)
        with warnings.catch_warnings():
            ignored = "The groups parameter is ignored"
            warnings.filterwarnings("ignore", message=ignored, category=UserWarning)
            folds = pairs_of(cv, X, y, groups)
        warn_of_divided_copies(cv, as_folds(folds, len(y)), self.place)
        return folds


def _compared(X: Any, y: NDArray, weights: NDArray | None) -> NDArray | None:
    """Return the first sample equal to each one; None if X is not a table."""
    if sp.issparse(X):
        return representatives(X.tocsr(), y, weights)
    try:
        if is_table(X):
            return Table.of(X).representatives(y, weights)
        if np.iscomplexobj(X):
            return None  # the estimator raises the error
        rows = np.asarray(X, dtype=float)
    except (TypeError, ValueError):
        return None
    return (
        None if rows.ndim != 2 or 0 in rows.shape else representatives(rows, y, weights)
    )
