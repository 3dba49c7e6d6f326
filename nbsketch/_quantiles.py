"""Order statistics of conformal prediction, and quantiles between fitted levels."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._report.validation import explaining

# Relative rounding error of sums of weights, and of ends of intervals.
_ROUNDING = 1e-12


def conformal_quantile(
    scores: NDArray,
    coverage: ArrayLike,
    weights: NDArray | None = None,
    new_weight: Any = None,
) -> Any:
    r"""Return the conformal quantile: a new score is at most this with probability c.

    .. math:: \inf \Bigl\{ t : \sum_{i: s_i \le t} w_i
              \ge c \,\bigl(\textstyle\sum_i w_i + w\bigr) \Bigr\} ,

    the :math:`\lceil (m + 1) c \rceil`-th smallest of m scores if all weights are
    equal; infinity if there are too few scores. The last axis of `scores` is ranked.

    Parameters
    ----------
    scores : ndarray of shape (m,) or (n, m)
        Scores, the same for all new samples or one set per new sample.
    coverage : float or array of shape (n,)
        Probability c.
    weights : ndarray of shape (m,), optional
        Weights of the scores. None: equal weights.
    new_weight : float or array of shape (n,), optional
        Weight w of the new sample. None: the mean of `weights`.

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


def between_levels(levels: NDArray, quantiles: NDArray, others: ArrayLike) -> NDArray:
    """Interpolate quantiles (n, d) of ascending levels at others, (n, others).

    Below the first and above the last level, return the quantile of that level.
    """
    others = np.clip(others, levels[0], levels[-1])
    if len(levels) == 1:
        return np.repeat(quantiles, np.size(others), axis=1)
    right = np.clip(np.searchsorted(levels, others), 1, len(levels) - 1)
    share = (others - levels[right - 1]) / (levels[right] - levels[right - 1])
    return (1 - share) * quantiles[:, right - 1] + share * quantiles[:, right]


def uncrossed(ends: NDArray) -> NDArray:
    """Return intervals (..., 2); crossed ends are replaced by their midpoint."""
    crossed = ends[..., 0] > ends[..., 1]
    out = ends.copy()
    out[crossed] = ends[crossed].mean(axis=-1, keepdims=True)
    return out


def moved_outwards(ends: NDArray, values: NDArray) -> NDArray:
    """Return calibrated intervals (n, ..., 2), wider by the rounding of values (n, k).

    A calibration target at the end of its own interval is inside: equal new targets
    must not miss it by the rounding of v + (t - v).
    """
    size = np.abs(values).max(axis=1).reshape(-1, *[1] * (ends.ndim - 1))
    return ends + _ROUNDING * (size + np.abs(ends)) * [-1.0, 1.0]


def with_tails(levels: NDArray, quantiles: NDArray, others: ArrayLike) -> NDArray:
    r"""Interpolate as `between_levels`, with exponential tails outside.

    The other levels ascend, and so do the quantiles.

    Below the first quantile :math:`q_1` of level :math:`\tau_1`, the distribution
    function is :math:`\tau_1 e^{(z - q_1) / t}`, with the slope :math:`\tau_1 / t` at
    :math:`q_1` equal to the slope between the first two quantiles; likewise above the
    last quantile.

    Examples
    --------
    >>> import numpy as np
    >>> levels, quantiles = np.array([0.25, 0.75]), np.array([[0.0, 1.0]])
    >>> with_tails(levels, quantiles, [0.1, 0.5, 0.9]).round(2).tolist()
    [[-0.46, 0.5, 1.46]]
    """
    out = between_levels(levels, quantiles, others)
    tau = np.atleast_1d(others)
    low, high = _tail_lengths(levels, quantiles)
    out += low * np.minimum(np.log(tau / levels[0]), 0)
    out -= high * np.minimum(np.log((1 - tau) / (1 - levels[-1])), 0)
    return np.maximum.accumulate(out, axis=1)  # despite rounding


def distribution(levels: NDArray, quantiles: NDArray, values: NDArray) -> NDArray:
    """Return the distribution functions at values (n, k): the inverse of `with_tails`.

    If quantiles are equal, the function jumps to the highest of their levels, or to 1
    if the last two are equal.

    Examples
    --------
    >>> import numpy as np
    >>> levels, values = np.array([0.25, 0.75]), np.array([[-0.46, 0.5, 1.46]])
    >>> distribution(levels, np.array([[0.0, 1.0]]), values).round(2).tolist()
    [[0.1, 0.5, 0.9]]
    """
    low, high = _tail_lengths(levels, quantiles)
    rows = zip(values, quantiles, strict=True)
    out = np.array([np.interp(v, q, levels) for v, q in rows]).reshape(values.shape)
    below = quantiles[:, :1] - values
    above = values - quantiles[:, -1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        left = levels[0] * np.exp(-np.maximum(below, 0) / low)
        right = 1 - (1 - levels[-1]) * np.exp(-np.maximum(above, 0) / high)
    is_above = (above > 0) | ((above == 0) & (high == 0))  # a jump to 1
    right = np.where(high == 0, 1.0, right)
    return np.where(below > 0, left, np.where(is_above, right, out))


def as_values(y: ArrayLike, shape: tuple[int, ...]) -> NDArray:
    """Return values (*shape, k) for a `y` of shape (), (k,) or (*shape, k)."""
    with explaining({"y": y}):
        values = np.asarray(y, dtype=float)
    if np.isnan(values).any():
        raise ValueError(f"`y` must hold numbers, got {y!r:.60}")
    if values.ndim > 1 and values.shape[:-1] != shape:
        each = "".join(f"{size}, " for size in shape)
        raise ValueError(
            f"`y` must be a number or have shape (k,) or ({each}k), got shape "
            f"{values.shape}"
        )
    return np.broadcast_to(values, (*shape, values.shape[-1] if values.ndim else 1))


def _tail_lengths(levels: NDArray, quantiles: NDArray) -> tuple[NDArray, NDArray]:
    """Return the lengths t of both tails, (n, 1) each."""
    steps = np.diff(quantiles, axis=1) / np.diff(levels)
    return levels[0] * steps[:, :1], (1 - levels[-1]) * steps[:, -1:]
