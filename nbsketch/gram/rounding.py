"""Rows in the type of the kernel values."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from nbsketch.gram.form import CompiledForm

# Metrics of differences, which do not change if all rows are moved.
_INVARIANT = "squared", "absolute"
# Rows of which the medians are computed.
_SAMPLE = 1000


def rounded_rows(form: CompiledForm | None, X: Any, dtype: np.dtype) -> Any:
    """Return rows in a type, dense ones moved near zero first if no value changes.

    float32 keeps seven digits: few of them are left for the differences of large
    numbers, such as times in seconds since 1970. The rows are moved by medians, which
    outliers leave among the other rows.

    Examples
    --------
    >>> from nbsketch import GaussianKernel
    >>> times = np.array([[1.6e9], [1.6e9 + 1], [1.6e9 + 3]])
    >>> rounded_rows(GaussianKernel(1.0).compiled_form(1), times, np.float32).ravel()
    array([-1.,  0.,  2.], dtype=float32)
    """
    fixed = form is None or form.metric not in _INVARIANT
    if X.dtype == dtype or sp.issparse(X) or fixed:
        return X.astype(dtype, copy=False)
    center = np.median(X[:: max(1, len(X) // _SAMPLE)], axis=0)
    out = np.empty(X.shape, dtype)
    return np.subtract(X, center, out=out, casting="same_kind")
