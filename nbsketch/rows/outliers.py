"""Gross errors: targets whose residuals are far beyond the scale of the others.

The one rule of tuning, of the penalty of robust losses and of the models for tables.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import scipy.special
from numpy.typing import NDArray

from nbsketch._expansion import projection
from nbsketch._machine.blas import eigh
from nbsketch.kernels import weighted_median

# From a median absolute deviation to a standard deviation.
NORMAL = 1.4826
# Largest share of the rows that are left out.
MOST = 0.05
# Residuals below this share of the spread of the targets may be rounding,
_ROUNDING = 1e-6
# unless they are below this share of the scale of the targets: a model explains these,
# and single targets of 1e9 are what makes the spread large.
_EXPLAINED = 0.9
# Rows of the robust regression that tells gross errors of any share, and landmarks.
_LEAST_ROWS = 50
_MOST_ROWS = 1000
_LANDMARKS = 100
# Its penalties, for features of a mean square of one.
_TAUS = np.logspace(-5, 3, 9)[:, None, None]
# Deviations from which residuals pull no more; from twice as many on they pull less,
# and from four times as many not at all.
_CUT = 1.5
# It stops where the scale of residuals changes by a smaller share.
_PASSES = 12
_STEADY = 0.02
# Least and largest local size of residuals, in deviations.
_SIZES = 0.05, 30.0
# A gap: residuals beyond a limit, and hardly any between a share of the limit and it,
# fewer than chance leaves where tails fall with the power -1.3 of the size.
_LIMITS = 6, 8, 10, 12, 16, 24, 40, 80
_RATIOS = 2, 4, 8
_LOWEST = 3
_POWER = 1.3
_CHANCE = 1e-3
_IN_GAP = 0.4
# Fewer rows beyond the least limit have no gap.
_FEWEST = 3
# Larger shares beyond it are a population, as amounts beside zeros are: a larger share
# of targets at one end.
_MOST_BEYOND = 0.36
_MOST_EQUAL = 0.2
# A model with left-out residuals below this share of those of the robust regression has
# learned these targets.
_LEFT = 0.5


class OutlierWarning(UserWarning):
    """Some targets look like gross errors.

    `fit` of a `TabularKernelRegressor` warns if it has left rows out (`outliers_`), and
    if targets look like gross errors but are used (`suspects_`), since they are more
    than 5 % or since the other targets cannot be predicted. `fit` of a
    `SketchedKernelRegressor` with the square loss uses all of them (`suspects_`).

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from nbsketch import OutlierWarning, TabularKernelRegressor
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> y = np.sin(6 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
    >>> y[70] = 1e3
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", OutlierWarning)
    ...     model = TabularKernelRegressor(random_state=0).fit(X, y)
    >>> caught[0].category.__name__, model.outliers_.tolist()
    ('OutlierWarning', [70])
    """


def outlier_warning(count: int, n: int, reason: str) -> OutlierWarning:
    """Return the warning of `count` gross errors, left out without a reason not to."""
    text = f"{count} of {n} targets look like gross errors"
    if not reason:
        return OutlierWarning(
            f"{text} and are left out (`outliers_`): they have no part in predictions, "
            "expected errors and intervals"
        )
    return OutlierWarning(
        f"{text} (`suspects_`); {reason}, so all are used: correct the wrong ones, "
        "or pass a robust loss, as SketchedKernelRegressor(loss='pinball')"
    )


def inliers(
    residuals: NDArray,
    targets: NDArray,
    limit: float,
    counted: NDArray | None = None,
    weights: NDArray | None = None,
) -> NDArray:
    """Return a mask of the rows within `limit` deviations, at least 95 % of all.

    `counted` is the mask of the rows whose residuals set the deviation. None: all rows.
    """
    sizes = deviations(residuals, targets, counted, weights)
    method: Any = "linear" if weights is None else "inverted_cdf"
    most = np.quantile(sizes, 1 - MOST, weights=weights, method=method)
    return sizes <= max(limit, float(most))


def deviations(
    residuals: NDArray,
    targets: NDArray,
    counted: NDArray | None = None,
    weights: NDArray | None = None,
) -> NDArray:
    """Return sizes (n,) of residuals (n, d) in robust standard deviations.

    The largest over the outputs; zero for an output without a scale of noise.
    """
    used = slice(None) if counted is None else counted
    w = None if weights is None else weights[used]
    scale = noise_scale(residuals[used], targets[used], w)
    return np.abs(residuals / scale).max(axis=1)


def noise_scale(
    residuals: NDArray, targets: NDArray, weights: NDArray | None = None
) -> NDArray:
    """Return the robust standard deviations (d,) of residuals (n, d) of targets (n, d).

    Infinite for an output without a scale of noise: more than half of its targets or of
    its residuals are equal, as claims and counts are, or the residuals are rounding.
    """
    if not len(residuals):
        return np.full(residuals.shape[1], np.inf)
    sigma, bulk = _scales(residuals, targets, weights)
    varied = medians(np.abs(residuals - medians(residuals, weights)), weights)
    is_noise = sigma > _ROUNDING * targets.std(axis=0)
    is_noise |= are_explained(residuals, targets, weights)
    return np.where((varied > _ROUNDING * sigma) & (bulk > 0) & is_noise, sigma, np.inf)


def are_explained(
    residuals: NDArray, targets: NDArray, weights: NDArray | None = None
) -> NDArray:
    """Return whether a model predicts the middle of the targets, for each output (d,).

    Predictions up to rounding do not count.
    """
    sigma, bulk = _scales(residuals, targets, weights)
    return (sigma > _ROUNDING * bulk) & (sigma < _EXPLAINED * bulk)


def _scales(
    residuals: NDArray, targets: NDArray, weights: NDArray | None
) -> tuple[NDArray, NDArray]:
    """Return robust standard deviations of residuals and of targets."""
    sigma = NORMAL * medians(np.abs(residuals), weights)
    away = np.abs(targets - medians(targets, weights))
    return sigma, NORMAL * medians(away, weights)


def medians(values: NDArray, weights: NDArray | None = None) -> NDArray:
    """Return the medians of columns whose rows are repeated by their weights."""
    if weights is None:
        return np.median(values, axis=0)
    return np.array([weighted_median(column, weights) for column in values.T])


def suspect_targets(
    kernel: Callable[[Any, Any], NDArray],
    rows: Any,
    Y: NDArray,
    left_out: Callable[[], NDArray],
) -> NDArray:
    """Return a mask of the rows whose targets look like gross errors, of any share.

    A row is suspect if its left-out residual from a robust regression is beyond a gap,
    in units of the local size of residuals, and the model has not learned its target.

    Parameters
    ----------
    kernel : callable
        Kernel of two arrays of rows.
    rows : array of shape (m, p)
        Rows in random order: the first are the landmarks of the regression.
    Y : ndarray of shape (m, d)
        Targets.
    left_out : callable
        Left-out residuals (m, d) of the model.
    """
    values = kernel(rows, rows[: min(_LANDMARKS, len(Y) // 6)])
    features = values @ projection(values[: values.shape[1]])
    residuals = robust_residuals(features, Y)
    sizes = np.abs(residuals) / noise_scale(residuals, Y)
    if np.count_nonzero(sizes > _LIMITS[0]) < _FEWEST:
        return np.zeros(len(Y), dtype=bool)
    logs = np.log(np.clip(sizes, *_SIZES))
    local = logs - robust_residuals(features, logs)
    sizes /= np.exp(np.maximum(local - np.median(local, axis=0), 0.0))
    learned = np.abs(left_out()) < _LEFT * np.abs(residuals)
    columns = zip(sizes.T, learned.T, Y.T, strict=True)
    return np.any([_beyond_gap(*column) for column in columns], axis=0)


def drawn_rows(weights: NDArray) -> NDArray:
    """Return the rows that tell gross errors, drawn in proportion to weights (n,).

    They are in random order, at most 1000, each once; none if they are few.
    """
    order = np.random.default_rng(0).permutation(len(weights))  # no part of the fit
    total = np.cumsum(weights[order])
    count = min(len(order), _MOST_ROWS)
    places = np.searchsorted(total, total[-1] * (np.arange(count) + 0.5) / count)
    rows = order[np.unique(places)]
    return rows if len(rows) >= _LEAST_ROWS else rows[:0]


def robust_residuals(features: NDArray, Y: NDArray) -> NDArray:
    """Return left-out residuals (m, d), of median zero, of a robust ridge regression.

    Each fit is to the one before plus its residuals, cut down (Huber's pseudo-values).
    """
    F = features - features.mean(axis=0)
    squares, vectors = eigh(F.T @ F * (len(F) / max(np.square(F).sum(), 1e-300)))
    Q = F @ vectors
    Q *= np.sqrt(len(F) / max(np.square(F).sum(), 1e-300))
    gains = 1 / (np.maximum(squares, 0)[:, None] + _TAUS)
    leverages = np.square(Q) @ gains + 1 / len(F)
    fitted = np.broadcast_to(np.median(Y, axis=0), Y.shape)
    residuals = Y - fitted
    least = np.maximum(1e-100 * np.abs(Y).max(axis=0), 1e-150)
    for end in (np.inf, 4 * _CUT):
        before: Any = 0.0
        for _ in range(_PASSES):
            scale = np.maximum(NORMAL * medians(np.abs(residuals)), least)
            if (np.abs(scale - before) <= _STEADY * scale).all():
                break
            before = scale
            targets = fitted + scale * _pull((Y - fitted) / scale, end)
            mean = targets.mean(axis=0)
            fits = mean + Q @ (gains * (Q.T @ (targets - mean)))
            errors = (targets - fits) / np.maximum(1 - leverages, 1e-6)
            best = np.argmin(np.square(errors / scale).sum(axis=(1, 2)))
            fitted = fits[best]
            residuals = Y - targets + errors[best]
            residuals -= medians(residuals)
    return residuals


def _pull(sizes: NDArray, end: float) -> NDArray:
    """Return residuals, in deviations, cut down; those beyond `end` to zero."""
    share = np.clip((end - np.abs(sizes)) / (2 * _CUT), 0, 1)
    return np.clip(sizes, -_CUT, _CUT) * share


def _beyond_gap(sizes: NDArray, learned: NDArray, targets: NDArray) -> NDArray:
    """Return a mask of the sizes beyond a gap; of none that may be a population."""
    scale = max(NORMAL * float(np.median(sizes)), 1e-300)
    beyond = sizes > scale * _limit(sizes / scale)
    values, counts = np.unique(targets[~beyond], return_counts=True)
    ends = np.isin(values, [targets.min(), targets.max()])
    is_population = beyond.mean() > _MOST_BEYOND
    is_population |= counts[ends].max(initial=0) > _MOST_EQUAL * len(targets)
    is_population |= 2 * np.count_nonzero(learned[beyond]) > np.count_nonzero(beyond)
    return beyond & ~is_population


def _limit(sizes: NDArray) -> float:
    """Return the upper limit of the least probable gap; infinity without a gap."""
    least = _CHANCE
    found = np.inf
    for limit, ratio in product(_LIMITS, _RATIOS):
        beyond = np.count_nonzero(sizes > limit)
        between = np.count_nonzero(sizes > limit / ratio) - beyond
        if beyond and limit >= ratio * _LOWEST and between <= _IN_GAP * beyond:
            share = ratio**-_POWER
            chance = scipy.special.bdtrc(beyond - 1, beyond + between, share)
            if chance < least:
                least = chance
                found = limit
    return found
