"""Sample weights: a row of weight zero is left out before anything else."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import _check_sample_weight

from nbsketch._faults import explaining
from nbsketch.fitting.lazy import choose_rows


class TrainingRows(NamedTuple):
    """Rows of positive weight, the only ones that a fit works with.

    Attributes
    ----------
    X : ndarray, csr_array, LazyRows, PartitionedRows or Objects of n rows
        Inputs; for kernel values without the columns of the other rows.
    y : ndarray, csr_array or Objects of n rows
        Targets.
    weights : ndarray of shape (n,) or None
        Positive weights as given. None: equal weights.
    kept : ndarray of shape (n,) or None
        Indices of the rows among those given. None: all of them.
    n_given : int
        Number of rows given, if some are not kept.
    """

    X: Any
    y: Any
    weights: NDArray | None = None
    kept: NDArray | None = None
    n_given: int = 0

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        weights: NDArray | None,
        *,
        pairwise: bool = False,
        lazy: bool = False,
    ) -> TrainingRows:
        """Return the rows of positive weight.

        `pairwise`: X holds kernel values. `lazy`: many rows are copied when they are
        asked for, block by block.
        """
        is_square = X.shape[0] == X.shape[-1]
        if weights is None or weights.all() or (pairwise and not is_square):
            return cls(X, y, weights)  # a matrix that is not square is refused later
        kept = np.flatnonzero(weights)
        if pairwise:
            X = X[np.ix_(kept, kept)]
        else:
            X = choose_rows(X, kept) if lazy else X[kept]
        return cls(X, y[kept], weights[kept], kept, len(weights))

    def take(self, rows: NDArray, columns: NDArray | None = None) -> TrainingRows:
        """Return some rows, for kernel values with some columns."""
        X = (
            choose_rows(self.X, rows)
            if columns is None
            else self.X[np.ix_(rows, columns)]
        )
        weights = None if self.weights is None else self.weights[rows]
        kept = rows if self.kept is None else self.kept[rows]
        return TrainingRows(X, self.y[rows], weights, kept)

    @property
    def relative_weights(self) -> NDArray | None:
        """Weights of mean one, None if they are equal.

        With mean one, a row of weight two counts in the objective as the same row
        twice, and a row of weight zero as no row.
        """
        if self.weights is None or np.ptp(self.weights) == 0:
            return None
        return self.weights / self.weights.mean()


def check_weights(sample_weight: Any, X: Any) -> NDArray | None:
    """Return non-negative weights, not all zero, one for each row of X; None: None."""
    if sample_weight is None:
        return None
    with explaining({"sample_weight": sample_weight}):
        weights = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
    if not weights.any():
        raise ValueError("`sample_weight` must have a positive entry, got zeros only")
    return weights


def weights_of_classes(
    class_weight: Any, y: NDArray, weights: NDArray | None
) -> NDArray | None:
    """Return the weights of the rows times those of their classes.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        Weight of each class. "balanced": inversely proportional to the frequencies of
        the classes, with rows counted by their weights. None: ones.
    y : ndarray of shape (n,)
        Labels.
    weights : ndarray of shape (n,) or None
        Weights of the rows; classes without a row of positive weight do not exist.
    """
    if class_weight is None:
        return weights
    known = np.ones(len(y)) if weights is None else weights
    rows = np.flatnonzero(known)
    classes, index = np.unique(y[rows], return_inverse=True)
    factors = compute_class_weight(class_weight, classes=classes, y=y[rows])
    if isinstance(class_weight, str):
        counts = np.bincount(index, known[rows])
        factors = counts.sum() / (len(classes) * counts)
    out = np.zeros(len(y))
    out[rows] = known[rows] * factors[index]
    return out
