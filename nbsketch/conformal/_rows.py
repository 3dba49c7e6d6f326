"""Weights and groups of samples in conformal estimators, and fits to subsets."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import has_fit_parameter

from nbsketch._report import validation
from nbsketch.rows.inputs import check_weights, labels_of_rows


class Marks(NamedTuple):
    """Weights (None: equal) and groups (None: no groups) of n samples."""

    weights: NDArray | None
    groups: Any

    @classmethod
    def of(cls, sample_weight: Any, groups: Any, n: int) -> Marks:
        """Return checked weights and groups of n samples."""
        labels = None if groups is None else labels_of_rows("groups", groups)
        if labels is not None:
            validation.check_length("groups", labels, n)
        return cls(check_weights(sample_weight, np.empty((n, 0))), labels)

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
