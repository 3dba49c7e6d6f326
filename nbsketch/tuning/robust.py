"""Trimming of outliers: 1 % of gross errors would dominate the squared error."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbsketch.tuning.blocked import criterion_of
from nbsketch.tuning.rows import Rows
from nbsketch.tuning.search import Budget, Round, isotropic_start, learn

# Residuals, in standard deviations, beyond which a row is trimmed, and within which it
# is restored.
OUT, _IN = 4.0, 5.0
# Largest share of trimmed rows.
_SHARE = 0.05
_SHORT = Round(2000, 100, 6)
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
    residuals, in units of the standard deviation of the targets of the inliers.
    """
    candidates, point = rows, isotropic_start(rows, family, rng)
    for limit in (OUT, _IN, _IN):
        residuals = _residuals(rows, candidates, point, family, rng)
        usual = inliers(residuals, limit)
        cut = _CUT * float(np.median(np.linalg.norm(residuals[usual], axis=1)))
        rows = rows.keep(candidates.kept[usual], cut)
        if limit == OUT:
            point = isotropic_start(rows, family, rng)
        point = learn(rows, point, [_SHORT], rng, budget, family)
    spread = np.sqrt(rows.Y[rows.kept].var(axis=0).mean())
    return rows.kept, cut / spread if spread > 0 else np.inf


def _residuals(
    rows: Rows, candidates: Rows, point: NDArray, family: int, rng: np.random.Generator
) -> NDArray:
    """Return residuals of all candidates (k, d) for a small fit to some of `rows`.

    Rows in the fit have their leave-one-out residuals.
    """
    drawn = rows.draw(rng, _SHORT.rows)
    criterion = criterion_of(rows.take(drawn, _SHORT.landmarks), family)
    predict = criterion.predictor(point)
    residuals = np.vstack(
        [rows.Y[b] - predict(rows.transform(b)) for b in candidates.blocks()]
    )
    # The mean of the targets is not in the predictions.
    residuals -= np.median(residuals, axis=0)
    residuals[np.searchsorted(candidates.kept, drawn)] = criterion.residuals(point)
    return residuals


def inliers(residuals: NDArray, limit: float = OUT) -> NDArray:
    """Return a mask of the rows within `limit` deviations, at least 95 % of all."""
    sigma = _NORMAL * np.median(np.abs(residuals), axis=0)
    sizes = np.abs(residuals / np.where(sigma > 0, sigma, 1.0)).max(axis=1)
    return sizes <= max(limit, float(np.quantile(sizes, 1 - _SHARE)))
