"""Order statistics of conformal prediction, and quantiles between fitted levels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Relative rounding error of sums of weights.
_ROUNDING = 1e-12


def conformal_quantile(
    scores: NDArray,
    coverage: ArrayLike,
    weights: NDArray | None = None,
    new_weight: Any = None,
) -> Any:
    r"""Return the score that a new one passes with at most the remaining probability.

    .. math:: \inf \Bigl\{ t : \sum_{i: s_i \le t} w_i
              \ge c \,\bigl(\textstyle\sum_i w_i + w\bigr) \Bigr\} ,

    the :math:`\lceil (m + 1) c \rceil`-th smallest of m scores if all weights are
    equal, infinity if the scores are too few. The last axis of `scores` is ranked.

    Parameters
    ----------
    scores : ndarray of shape (m,) or (n, m)
        Scores, the same for all new rows or one set for each.
    coverage : float or array of shape (n,)
        Probability c.
    weights : ndarray of shape (m,), optional
        Weights of the scores. None: equal weights.
    new_weight : float or array of shape (n,), optional
        Weight w of the new row. None: the mean of `weights`.

    References
    ----------
    R. J. Tibshirani, R. F. Barber, E. J. Candes and A. Ramdas, "Conformal Prediction
    Under Covariate Shift", NeurIPS 2019, Section 2.

    Examples
    --------
    >>> import numpy as np
    >>> float(conformal_quantile(np.arange(1.0, 10.0), 0.8))
    8.0
    >>> float(conformal_quantile(np.arange(1.0, 10.0), 0.95))
    inf
    """
    m = scores.shape[-1]
    w = np.ones(m) if weights is None else weights
    if m == 0 or not w.any():
        return np.full(
            np.broadcast(np.empty(scores.shape[:-1]), coverage).shape, np.inf
        )
    order = np.argsort(scores, axis=-1, kind="stable")
    mass = np.cumsum(w[order], axis=-1) * (1 + _ROUNDING)
    required = np.asarray(coverage) * (
        w.sum() + (w.mean() if new_weight is None else new_weight)
    )
    ranked = np.take_along_axis(scores, order, axis=-1)
    ranked = np.concatenate([ranked, np.full((*scores.shape[:-1], 1), np.inf)], axis=-1)
    if scores.ndim == 1:
        return ranked[np.searchsorted(mass, required)]
    rank = (mass < np.reshape(required, (-1, 1))).sum(axis=1)
    return np.take_along_axis(ranked, rank[:, None], axis=1)[:, 0]


def between_levels(levels: NDArray, quantiles: NDArray, wanted: ArrayLike) -> NDArray:
    """Interpolate quantiles (n, d) of ascending levels at others, (n, wanted).

    Below the first and above the last level, the quantile of that level is returned.
    """
    wanted = np.clip(wanted, levels[0], levels[-1])
    if len(levels) == 1:
        return np.repeat(quantiles, np.size(wanted), axis=1)
    right = np.clip(np.searchsorted(levels, wanted), 1, len(levels) - 1)
    share = (wanted - levels[right - 1]) / (levels[right] - levels[right - 1])
    return (1 - share) * quantiles[:, right - 1] + share * quantiles[:, right]
