"""Rows that tuning had better not see: a wild 1 % would own the squared error."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbsketch.tuning.criterion import LeaveOneOut
from nbsketch.tuning.rows import Rows
from nbsketch.tuning.search import Budget, Round, isotropic_start, learn

# A row is left out beyond so many standard deviations, let in again within so many.
OUT, _IN = 4.0, 5.0
# The largest share of rows that is left out.
_SHARE = 0.05
_SHORT = Round(2000, 100, 6)
# From a median absolute deviation to a standard deviation, and to three of these.
_NORMAL = 1.4826
_CUT = 3 * _NORMAL


def trim(
    rows: Rows, family: int, rng: np.random.Generator, budget: Budget
) -> tuple[NDArray, float]:
    """Return the indices of the rows that are not wild, and a size of usual residuals.

    From a fit with one length-scale, leave out rows whose residual is beyond 4 standard
    deviations, at most 5 %; search shortly on the others; look at all rows again with a
    limit of 5; twice. The size is three standard deviations, in units of the standard
    deviation of the targets of these rows.
    """
    candidates, point = rows.kept, isotropic_start(rows, family, rng)
    for limit in (OUT, _IN, _IN):
        residuals = _residuals(rows, point, family, rng)[candidates]
        usual = inliers(residuals, limit)
        cut = _CUT * float(np.median(np.linalg.norm(residuals[usual], axis=1)))
        rows = rows.keep(candidates[usual], cut)
        if limit == OUT:
            point = isotropic_start(rows, family, rng)
        point = learn(rows, point, [_SHORT], rng, budget, family)
    spread = np.sqrt(rows.Y[rows.kept].var(axis=0).mean())
    return rows.kept, cut / spread if spread > 0 else np.inf


def _residuals(
    rows: Rows, point: NDArray, family: int, rng: np.random.Generator
) -> NDArray:
    """Return residuals (n, d) of a small fit; for rows it has seen, without them."""
    drawn = rows.draw(rng, _SHORT.rows)
    criterion = LeaveOneOut(rows.take(drawn, _SHORT.landmarks), family)
    predict = criterion.predictor(point)
    residuals = np.empty(rows.Y.shape)
    for some in rows.blocks():
        X = rows.scaler.transform(rows.X[some]).astype(np.float64, copy=False)
        residuals[some] = rows.Y[some] - predict(X)
    # The mean of the targets is not in the predictions.
    residuals -= np.median(residuals, axis=0)
    residuals[drawn] = criterion.residuals(point)
    return residuals


def inliers(residuals: NDArray, limit: float = OUT) -> NDArray:
    """Return which rows are within so many deviations; at least 95 % of them are."""
    sigma = _NORMAL * np.median(np.abs(residuals), axis=0)
    sizes = np.abs(residuals / np.where(sigma > 0, sigma, 1.0)).max(axis=1)
    return sizes <= max(limit, float(np.quantile(sizes, 1 - _SHARE)))
