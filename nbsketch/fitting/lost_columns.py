"""Detect columns lost to rounding in a kernel matrix, next to larger columns."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._expansion import RANK_TOL
from nbsketch._machine.blas import eigh
from nbsketch._report.validation import listed
from nbsketch._report.warning import warn
from nbsketch.kernels import (
    Kernel,
    PrecomputedKernel,
    SobolevKernel,
    TanimotoKernel,
    varying_features,
)

# Maximum number of rows (evenly spaced) and columns of the checked kernel matrix.
_ROWS = 256
_MOST_COLUMNS = 1000
# A column is small if its deviation is below this share of the largest magnitude, and
# lost if more than this share of its variance is in no eigenvector.
_SHARE = 0.1
# Eigenvalues below this share of the largest are cut on other rows, or by penalties.
_CUT = 1e3 * RANK_TOL
# Kernels whose columns have one unit, or none.
_UNITLESS = PrecomputedKernel, SobolevKernel, TanimotoKernel


def warn_of_lost_columns(model: Any, rows: Any) -> None:
    """Warn if the kernel of a model has lost columns of the training data.

    Transformed data have columns of one scale, or learned scales.
    """
    is_table = getattr(rows, "ndim", 0) == 2 and rows.shape[1] <= _MOST_COLUMNS
    is_raw = model.scaler_ is None and model.length_scales_ is None
    if not (is_table and is_raw) or isinstance(model.kernel_, _UNITLESS):
        return
    lost = lost_columns(model.kernel_, rows)
    if lost.size:
        columns = listed("column", lost, getattr(model, "feature_names_in_", None))
        warn(
            f"the kernel hardly depends on {columns} of `X`: next to columns "
            "of a larger scale they are near rounding and dropped. "
            'Standardize the columns, with preprocessing="standard" or StandardScaler'
        )


def lost_columns(kernel: Kernel, rows: Any) -> NDArray:
    """Return the columns that no eigenvector of a kernel matrix represents.

    They deviate less than others and are not functions of its leading eigenvectors.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import PolynomialKernel
    >>> from nbsketch.fitting.lost_columns import lost_columns
    >>> X = np.random.default_rng(0).normal(size=(50, 3)) * [1.0, 1e6, 1.0]
    >>> lost_columns(PolynomialKernel(degree=2), X).tolist()
    [0, 2]
    """
    X = rows[np.linspace(0, rows.shape[0] - 1, _ROWS).astype(np.intp)]
    X = X.toarray() if sp.issparse(X) else X
    X = np.unique(X.astype(np.float64), axis=0)
    variances = X.var(axis=0)
    largest = np.square(X).mean(axis=0).max()
    small = varying_features(X) & (variances < _SHARE**2 * largest)
    if not small.any():
        return np.flatnonzero(small)
    values, vectors = eigh(kernel(X))
    kept = vectors[:, values > _CUT * values[-1]]
    basis = np.linalg.qr(np.column_stack([np.ones(len(X)), kept]))[0]
    outside = X - basis @ (basis.T @ X)
    return np.flatnonzero(small & (outside.var(axis=0) > _SHARE * variances))
