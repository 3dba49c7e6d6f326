"""Checks of the rows that estimators and transformers take, given their kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import validate_data

from nbsketch._faults import check_magnitude, explaining
from nbsketch._validation import as_csr
from nbsketch.distributed.checks import partitioned_rows
from nbsketch.distributed.collections import is_dask
from nbsketch.kernels import PrecomputedKernel, as_kernel


def checked_rows(
    estimator: Any,
    X: Any,
    *,
    reset: bool = False,
    dtype: Any = None,
    name: str = "X",
) -> Any:
    """Return X as scikit-learn checks it; sparse rows as a CSR array."""
    if is_dask(X):
        single = dtype if isinstance(dtype, np.dtype) else None
        return partitioned_rows(estimator, X, reset=reset, dtype=single, name=name)[0]
    dtype = dtype or [np.float64, np.float32]
    options = {"dtype": dtype, "order": "C", "accept_sparse": "csr"}
    with explaining({name: X}):
        rows = validate_data(estimator, X, reset=reset, **options)
    check_magnitude(name, rows)
    return as_csr(rows) if sp.issparse(rows) else rows


def training_rows(estimator: Any, X: Any, y: Any, *, uses_targets: bool) -> Any:
    """Return X checked for `fit`, and y; targets of Dask are computed with X."""
    if uses_targets and is_dask(X) and is_dask(y):
        return partitioned_rows(estimator, X, reset=True, y=y)
    return checked_rows(estimator, X, reset=True), y


def model_dtype(landmarks: Any) -> Any:
    """Return the dtype in which a fitted model computes: that of its landmarks.

    Landmarks of a precomputed kernel are indices; its values may have either dtype.
    """
    is_index = landmarks.dtype.kind == "i"
    return [np.float64, np.float32] if is_index else landmarks.dtype


def is_pairwise(kernel: Any) -> bool:
    """Return whether X holds kernel values."""
    return isinstance(kernel, PrecomputedKernel) or (
        isinstance(kernel, str) and kernel == "precomputed"
    )


def takes_sparse(kernel: Any) -> bool:
    """Return whether X may be sparse; an invalid kernel is refused in `fit`."""
    try:
        return as_kernel(kernel).takes_sparse
    except (TypeError, ValueError):
        return False
