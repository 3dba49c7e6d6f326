r"""Weights of a stack of models, from their left-out residuals.

.. math:: \min_w w^T E w + \rho \min_j E_{jj} \|w\|^2
          \quad \text{such that} \quad w \ge 0,\ \textstyle\sum_j w_j = 1

with E the mean products of residuals: Breiman, Stacked Regressions, Machine Learning
24, 1996. The pull toward equal weights, rho = 0.05, is relative to the error.
"""

from __future__ import annotations

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

_PULL = 0.05
# The constraint on the sum, as one more equation of least squares.
_SUM = 1e4


def stack_weights(
    residuals: NDArray, sample_weight: NDArray | None = None
) -> NDArray[np.float64]:
    """Return the weights of the models, (k,).

    Parameters
    ----------
    residuals : ndarray of shape (k, n, d)
        Left-out residuals; a row with NaN does not count.
    sample_weight : ndarray of shape (n,), default=None
        Weights of the rows. None: ones.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.tabular.stack import stack_weights
    >>> good, bad = np.array([1.0, -1.0, 1.0]), np.array([9.0, 9.0, 9.0])
    >>> stack_weights(np.stack([good, bad])[:, :, None]).round(2).tolist()
    [1.0, 0.0]
    """
    k = len(residuals)
    known = np.isfinite(residuals).all(axis=(0, 2))
    some = residuals[:, known]
    w = np.ones(known.sum()) if sample_weight is None else sample_weight[known]
    E = np.einsum("n,ind,jnd->ij", w, some, some, optimize=True) / max(len(w), 1)
    least = float(E.diagonal().min(initial=np.inf))
    if k == 1 or not np.isfinite(least) or least <= 0:
        best = np.argmin(np.nan_to_num(E.diagonal(), nan=np.inf))
        return np.eye(k)[best] if k else np.ones(0)
    # The factor of E by its eigenvectors: E may be singular.
    values, vectors = np.linalg.eigh(E / least + _PULL * np.eye(k))
    root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
    system = np.vstack([root, np.full((1, k), _SUM)])
    weights = scipy.optimize.nnls(system, np.append(np.zeros(k), _SUM))[0]
    return weights / weights.sum()
