"""Gross errors: targets whose residuals are far beyond the scale of the others.

The one rule of tuning, of the penalty of robust losses and of the models for tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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


class OutlierWarning(UserWarning):
    """Some targets look like gross errors.

    `fit` of a `TabularKernelRegressor` warns if it has left rows out (`outliers_`), and
    if targets look like gross errors but are used (`suspects_`), since they are more
    than 5 % or since the other targets cannot be predicted.

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
