"""Gross errors: limits of the features, and rows whose targets nothing explains."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.tuning import FAMILIES
from nbsketch.tuning.blocked import criterion_of
from nbsketch.tuning.rows import Rows
from nbsketch.tuning.search import isotropic_start

# Features are limited to their quantiles of these levels, widened by so many times the
# distance of the two.
_LEVELS, _WIDER = (0.02, 0.98), 3.0
# Residuals, in standard deviations by the median, from which a row is suspect.
_OUT = 8.0
# Largest share of suspect rows, and the share of their sum of squares that a model of
# all rows may explain: more are no errors but part of the law.
_MOST, _SKILL = 0.05, 0.1
_PASSES = 3
_SAMPLE = (2000, 100)
_NORMAL = 1.4826


def limits(X: NDArray) -> tuple[NDArray, NDArray]:
    """Return the lower and upper limits of the features, (q,).

    They are the range of each feature unless it goes far beyond the quantiles of levels
    0.02 and 0.98: by more than three times the distance of these.
    """
    low, high = X.min(axis=0), X.max(axis=0)
    inner, outer = np.quantile(X, _LEVELS, axis=0)
    width = _WIDER * (outer - inner)
    varies = width > 0  # else a rare value is the information
    bottom = np.where(varies, np.maximum(low, inner - width), low)
    top = np.where(varies, np.minimum(high, outer + width), high)
    return bottom.astype(X.dtype), top.astype(X.dtype)


def inliers(rows: Rows, family: str, rng: np.random.Generator) -> NDArray:
    """Return the indices of the rows whose targets are not gross errors.

    A row is suspect if its residual from a small model, fitted without the suspect ones
    of the pass before, exceeds 8 robust standard deviations. All rows are returned if
    more than 5 % are suspect, or if a model of all rows explains a tenth of their sum
    of squares, beyond what chance explains.
    """
    every = kept = rows.kept
    for k in range(_PASSES):
        residual = _residuals(rows.keep(kept, np.inf), every, FAMILIES[family], rng)
        sigma = _NORMAL * np.median(np.abs(residual), axis=0)
        if not (sigma > 0).all():
            return every
        suspect = (np.abs(residual) > _OUT * sigma).any(axis=1)
        if not suspect.any() or suspect.mean() > _MOST:
            return every
        if k == 0 and _skill(residual[suspect], rows.Y, every[suspect]) > _SKILL:
            return every
        before, kept = kept, every[~suspect]
        if np.array_equal(before, kept):
            break
    return kept


def _residuals(
    rows: Rows, every: NDArray, family: int, rng: np.random.Generator
) -> NDArray:
    """Return residuals of all rows from a model of one length scale, (n, d).

    Rows of the sample that it is fitted to have their left-out residuals.
    """
    drawn = rows.draw(rng, _SAMPLE[0])
    point = isotropic_start(rows, family, rng)
    criterion = criterion_of(rows.take(drawn, _SAMPLE[1]), family)
    predict = criterion.predictor(point)
    residual = rows.Y[every] - rows.values(predict, every)
    residual -= np.median(residual, axis=0)
    if rows.labels is None:
        residual[np.searchsorted(every, drawn)] = criterion.residuals(point)
    return residual


def _skill(residual: NDArray, Y: NDArray, index: NDArray) -> float:
    """Return the share of the squares of some targets that a model explains.

    It is a lower bound, by one standard error: the sum of products of residuals and
    predictions has this error if gross errors have random signs, and among a few rows
    such products are large by chance.
    """
    away = Y[index] - np.median(Y, axis=0)
    total = float(np.square(away).sum())
    explained = total - float(np.square(residual).sum())
    chance = 2 * float(np.linalg.norm(residual * (away - residual)))
    return (explained - chance) / total
