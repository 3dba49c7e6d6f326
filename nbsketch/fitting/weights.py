"""Sample weights: a row of weight zero is left out before anything else."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight

from nbsketch._faults import explaining
from nbsketch.distributed.rows import PartitionedRows


class TrainingRows(NamedTuple):
    """Rows of positive weight, the only ones that a fit works with.

    Attributes
    ----------
    X : ndarray, csr_array, PartitionedRows or Objects of n rows
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
        cls, X: Any, y: Any, weights: NDArray | None, *, pairwise: bool = False
    ) -> TrainingRows:
        """Return the rows of positive weight; `pairwise`: X holds kernel values."""
        is_square = X.shape[0] == X.shape[-1]
        if weights is None or weights.all() or (pairwise and not is_square):
            return cls(X, y, weights)  # a matrix that is not square is refused later
        kept = np.flatnonzero(weights)
        X = X[np.ix_(kept, kept)] if pairwise else _rows_of(X, kept)
        return cls(X, y[kept], weights[kept], kept, len(weights))

    def take(self, rows: NDArray, columns: NDArray | None = None) -> TrainingRows:
        """Return some rows, for kernel values with some columns."""
        X = _rows_of(self.X, rows) if columns is None else self.X[np.ix_(rows, columns)]
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


def _rows_of(X: Any, rows: NDArray) -> Any:
    return X.select(rows) if isinstance(X, PartitionedRows) else X[rows]


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
