"""Detect columns that lose differences: large integers and large offsets."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._report.validation import (
    check_spread,
    extremes,
    listed,
    varying_features,
    warn,
)
from nbsketch.kernels import KERNELS, GaussianKernel, StationaryKernel
from nbsketch.rows.partitions import PartitionedRows
from nbsketch.rows.transform import PREPROCESSINGS

# Larger integers are not all exact in double precision.
_EXACT = 2.0**53
# Number of first rows used to detect variation in data that are not in memory.
_HEAD = 10
# Ranges up to this share of the magnitude, in units of rounding, cause no warning: they
# result from arithmetic with a constant.
_ULPS = 4


def check_differences(estimator: Any, name: str, X: Any, rows: Any) -> None:
    """Warn of columns with different values that are equal or count as equal.

    Squares of differences that underflow are an error. `rows` are the rows of X,
    converted to floats.
    """
    labels = getattr(estimator, "feature_names_in_", None)
    check_spread(name, rows, labels)
    if isinstance(rows, PartitionedRows):
        rows = rows[np.arange(min(_HEAD, len(rows)))]
    else:
        warn_of_equal_integers(name, X, rows, labels)
    if _has_units(estimator):
        warn_of_constants(name, rows, labels)


def warn_of_equal_integers(name: str, X: Any, rows: Any, labels: Any) -> None:
    """Warn of columns of X with different values that are equal in double precision."""
    is_sparse = sp.issparse(rows)
    ends = extremes(rows) if is_sparse else [f.reduce(rows) for f in (np.fmin, np.fmax)]
    large = np.flatnonzero(np.maximum(-ends[0], ends[1]) > _EXACT)
    lost = [j for j in large.tolist() if _loses_values(_column(X, j), _column(rows, j))]
    if lost:
        warn(
            f"`{name}` has different integers above 2**53 in "
            f"{listed('column', np.array(lost), labels)} that are equal in double "
            "precision: subtract an offset first, or drop identifiers"
        )


def warn_of_constants(name: str, rows: Any, labels: Any) -> None:
    """Warn of columns that vary so little that they count as constant."""
    low, high = extremes(rows)
    least = _ULPS * np.finfo(rows.dtype).eps * np.maximum(-low, high)
    columns = np.flatnonzero((high - low > least) & ~varying_features(rows))
    if len(columns):
        warn(
            f"`{name}` varies in {listed('column', columns, labels)} by hardly more "
            "than rounding of its magnitude, and counts as constant there: unless this "
            "is rounding, subtract an offset first"
        )


def _has_units(estimator: Any) -> bool:
    """Return whether columns are scaled to units estimated from their values."""
    kernel = estimator.kernel
    family = KERNELS.get(kernel, GaussianKernel) if isinstance(kernel, str) else kernel
    if isinstance(family, StationaryKernel):
        bandwidth = family.bandwidth
    elif isinstance(family, type) and issubclass(family, StationaryKernel):
        bandwidth = estimator.bandwidth
    else:
        bandwidth = 1.0
    is_scaled = getattr(estimator, "preprocessing", None) in PREPROCESSINGS
    return is_scaled or bandwidth is None or isinstance(bandwidth, str)


def _column(X: Any, j: int) -> Any:
    """Return the stored values of a column of an array or a frame, in their dtype."""
    if sp.issparse(X):
        return X.tocsc()[:, [j]].data
    if hasattr(X, "iloc"):
        return X.iloc[:, j]
    names = getattr(X, "column_names", getattr(X, "columns", None))
    if names is not None:
        return X[names[j]]
    return np.asarray(X, dtype=None if hasattr(X, "dtype") else object)[:, j]


def _loses_values(given: Any, converted: NDArray) -> bool:
    """Return whether conversion makes different values equal, ignoring NaN."""
    present = ~np.isnan(converted)
    distinct = {v for v, is_value in zip(given, present, strict=True) if is_value}
    return len(distinct) > len(np.unique(converted[present]))
