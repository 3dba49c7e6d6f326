"""Gross errors: rows whose targets nothing explains."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.tuning import FAMILIES
from nbsketch.tabular.base import Ridge
from nbsketch.tabular.members import form_of
from nbsketch.tabular.noise import fit_sizes
from nbsketch.tuning.rows import Rows
from nbsketch.tuning.search import isotropic_start

# Residuals, in robust standard deviations, from which a row is suspect: with 8 clean
# heavy tails are, with 12 clusters of errors of some 17 deviations are not; one pass in
# place of `_PASSES` misses planted errors.
_OUT = 12.0
# Largest local size of residuals, and largest residual that it is fitted to, relative
# to the median: gross errors must not pass for noise.
_LARGEST = 30.0
# Largest share of suspect rows, and the share of their sum of squares that a model of
# all rows may explain: more are no errors but part of the law.
_MOST, _SKILL = 0.05, 0.1
_PASSES = 3
_SAMPLE = (2000, 100)
_NORMAL = 1.4826


def inliers(rows: Rows, family: str, rng: np.random.Generator) -> NDArray:
    """Return the indices of the rows whose targets are not gross errors.

    A row is suspect if its residual from a small model, fitted without the suspect
    ones of the pass before, exceeds 12 robust standard deviations, in units of the
    local size of residuals where this is above the typical one: where the small
    model fits badly, or the noise is larger. All rows are returned if more than 5 %
    are suspect, or if a model of all rows explains a tenth of their sum of squares,
    beyond what chance explains.
    """
    every = kept = rows.kept
    Z = rows.transform(every)
    for k in range(_PASSES):
        residual, size = _residuals(rows.keep(kept, np.inf), every, Z, family, rng)
        scaled = np.abs(residual / size)
        sigma = _NORMAL * np.median(scaled, axis=0)
        if not (sigma > 0).all():
            return every
        suspect = (scaled > _OUT * sigma).any(axis=1)
        if not suspect.any() or suspect.mean() > _MOST:
            return every
        if k == 0 and _skill(residual[suspect], rows.Y, every[suspect]) > _SKILL:
            return every
        before, kept = kept, every[~suspect]
        if np.array_equal(before, kept):
            break
    return kept


def _residuals(
    rows: Rows, every: NDArray, Z: NDArray, family: str, rng: np.random.Generator
) -> tuple[NDArray, NDArray]:
    """Return residuals of all rows from a model of one length scale, and their sizes.

    `Z` are the preprocessed rows `every`. Both results are (n, d). Rows of the sample
    that the model is fitted to have their left-out residuals. Sizes are local ones
    relative to the median, at least one.
    """
    drawn = np.sort(rows.draw(rng, _SAMPLE[0]))
    point = isotropic_start(rows, FAMILIES[family], rng)
    form = form_of(family, np.exp(point[:-1]))
    weights, labels = _of(rows.weights, drawn), _of(rows.labels, drawn)
    place = np.searchsorted(every, drawn)
    ridge = Ridge(form, Z[place], weights, _SAMPLE[1], rng, labels)
    base, left_out = ridge.fit(rows.Y[drawn])
    residual = rows.Y[every] - base.predict(form, Z)
    if labels is None:
        residual[place] = left_out
    residual -= np.median(residual, axis=0)
    most = _LARGEST * np.median(np.abs(residual), axis=0)
    base, left_out = fit_sizes(ridge, np.clip(residual[place], -most, most))
    logs = base.predict(form, Z)
    if labels is None:
        logs[place] = left_out
    logs -= np.median(logs, axis=0)
    return residual, np.exp(np.clip(logs, 0.0, np.log(_LARGEST)))


def _of(values: NDArray | None, index: NDArray) -> NDArray | None:
    return None if values is None else values[index]


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
    return (explained - chance) / total if total else -np.inf
