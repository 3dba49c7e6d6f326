"""Trimming of outliers: 1 % of gross errors would dominate the squared error."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbsketch.tuning.blocked import criterion_of
from nbsketch.tuning.descent import Budget
from nbsketch.tuning.rows import Rows
from nbsketch.tuning.search import isotropic_start, learn_briefly

# Residuals, in standard deviations, beyond which a row is trimmed, and within which it
# is restored.
OUT, _IN = 4.0, 5.0
# Largest share of trimmed rows.
_SHARE = 0.05
# Rows and landmarks of a fit.
_FIT = 2000, 100
# From a median absolute deviation to a standard deviation, and to three of these.
_NORMAL = 1.4826
_CUT = 3 * _NORMAL


def trim(
    rows: Rows, family: int, rng: np.random.Generator, budget: Budget
) -> tuple[NDArray, float]:
    """Return the indices of the inliers, and a threshold for Huber's function.

    Fit with one length scale and trim the rows whose residual exceeds 4 standard
    deviations, at most 5 %; run a short search on the others and trim all rows anew
    with a limit of 5; twice. The threshold is three standard deviations of the
    residuals, in units of the standard deviation of the targets of the inliers. Rows
    that no fold leaves out have residuals of the fit, which do not count in deviations.
    """
    candidates, point = rows, isotropic_start(rows, family, rng)
    for limit in (OUT, _IN, _IN):
        residuals, fitted = _residuals(rows, candidates, point, family, rng)
        usual = inliers(residuals, limit, ~fitted)
        sizes = np.linalg.norm(residuals[usual & ~fitted], axis=1)
        cut = _CUT * float(np.median(sizes)) if sizes.size else 0.0
        rows = rows.keep(candidates.kept[usual], cut)
        if limit == OUT:
            point = isotropic_start(rows, family, rng)
        point = learn_briefly(rows, point, rng, budget, family)
    spread = np.sqrt(rows.Y[rows.kept].var(axis=0).mean())
    return rows.kept, cut / spread if min(cut, spread) > 0 else np.inf


def _residuals(
    rows: Rows, candidates: Rows, point: NDArray, family: int, rng: np.random.Generator
) -> tuple[NDArray, NDArray]:
    """Return residuals of all candidates (k, d) for a small fit to some of `rows`.

    Rows in the fit have the residuals of leaving them out. The second array is the mask
    of those that no fold leaves out.
    """
    drawn = rows.draw(rng, _FIT[0])
    criterion = criterion_of(rows.take(drawn, _FIT[1]), family)
    predict = criterion.predictor(point)
    residuals = rows.Y[candidates.kept] - rows.values(predict, candidates.kept)
    # The mean of the targets is not in the predictions.
    residuals -= np.median(residuals, axis=0)
    place = np.searchsorted(candidates.kept, drawn)
    inside = (
        np.zeros(len(drawn), bool) if rows.labels is None else rows.labels[drawn] < 0
    )
    residuals[place[~inside]] = criterion.residuals(point)[~inside]
    fitted = np.zeros(len(residuals), bool)
    fitted[place[inside]] = True
    return residuals, fitted


def inliers(
    residuals: NDArray, limit: float = OUT, counted: NDArray | None = None
) -> NDArray:
    """Return a mask of the rows within `limit` deviations, at least 95 % of all.

    `counted` is the mask of the rows whose residuals set the deviation. None: all rows.
    """
    counted_residuals = residuals if counted is None else residuals[counted]
    sigma = _NORMAL * np.median(np.abs(counted_residuals), axis=0)
    sizes = np.abs(residuals / np.where(sigma > 0, sigma, 1.0)).max(axis=1)
    return sizes <= max(limit, float(np.quantile(sizes, 1 - _SHARE)))
