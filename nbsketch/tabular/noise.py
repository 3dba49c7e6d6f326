r"""The law of the errors on new rows, and gross errors: residuals scaled locally.

The residual of a row is :math:`\sigma(x) z`: the logarithm of its size is regressed on
x, and z has the empirical law of the left-out residuals divided by the left-out sigma.
A quantile of z with the correction of split conformal prediction (Lei et al., JASA 113,
2018) covers a new row with at least the stated probability if rows are exchangeable and
left-out residuals have the law of new ones.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.tuning import FAMILIES
from nbsketch._report.fields import array, check_fields, stored
from nbsketch.gram import evaluate
from nbsketch.rows.outliers import (
    MOST,
    NORMAL,
    are_explained,
    deviations,
    drawn_rows,
    medians,
    suspect_targets,
)
from nbsketch.tabular.ridge import LandmarkFunction, Ridge
from nbsketch.tabular.scales import SMOOTH, form_of
from nbsketch.tuning.rows import Rows, Training, at_rows, moments_of
from nbsketch.tuning.search import isotropic_start

# Landmarks of the regression of log sizes.
_LANDMARKS = 200
# Residuals below this share of the median size count as so large in logarithms.
_LEAST = 0.05
# Rounding of ranks.
_SLACK = 1e-6
# Residuals, in robust standard deviations, from which a row is suspect: with 8 clean
# heavy tails are, with 12 clusters of errors of some 17 deviations are not; one pass in
# place of `_PASSES` misses planted errors.
_OUT = 12.0
# Largest local size of residuals, and largest residual that it is fitted to, relative
# to the median: gross errors must not pass for noise.
_LARGEST = 30.0
# Share of their sum of squares that a model of all rows may explain: more are no errors
# but part of the law.
_SKILL = 0.1
# Rows between half the limit and the limit, relative to those beyond it: where they are
# more, there is no gap, as in heavy tails,
_TAIL = 0.4
# unless half of those beyond are as far away as this.
_FAR = 100.0
# Larger shares of suspect rows are another population, such as amounts beside zeros.
_POPULATION = 0.25
# Passes. In the first one targets beyond this number of deviations are clipped: they
# would be the scale of all residuals (with 30 clean ones look like errors, with 100
# clusters of sentinels are missed).
_PASSES = 6
_CLIP = 60.0
_SAMPLE = (2000, 100)


@stored
class Noise:
    """A fitted law of errors.

    Attributes
    ----------
    size : LandmarkFunction
        Logarithm of sigma, one for each output.
    ends : ndarray of shape (2, d)
        Limits of that logarithm: the range to which it was fitted. Among rows far from
        all others the regression may be off by any factor.
    scores : ndarray of shape (m, d)
        Ascending left-out residuals, divided by sigma.
    shares : ndarray of shape (m, d)
        Their weights, which add up to m.
    """

    size: LandmarkFunction
    ends: Annotated[NDArray, array("_ends d")]
    scores: Annotated[NDArray, array("_scores d")]
    shares: Annotated[NDArray, array("_scores d")]

    def __post_init__(self) -> None:
        """Check that quantiles of the scores are those of a law."""
        check_fields(self)
        if (np.diff(self.scores, axis=0) < 0).any() or (self.shares < 0).any():
            raise ValueError("`scores` must ascend, of no negative share, got others")
        if len(self.ends) != 2 or (self.ends[0] > self.ends[1]).any():
            raise ValueError("`ends` must be two rows that ascend, got others")

    def sigma(self, rows: NDArray) -> NDArray:
        """Return the local scale of errors at preprocessed rows, (n, d)."""
        return np.exp(np.clip(self.size.values(rows), *self.ends))

    def quantiles(self, levels: NDArray) -> NDArray:
        """Return quantiles of the scores, (levels, d), without a correction."""
        return np.stack([self._quantile(level, 0.0) for level in levels])

    def levels(self, scores: NDArray) -> NDArray:
        """Return the levels of scores (n, d, k): the inverse of `quantiles`."""
        out = np.empty(scores.shape)
        columns = zip(self.scores.T, self.shares.T, strict=True)
        for k, (values, shares) in enumerate(columns):
            place = (np.cumsum(shares) - shares / 2) / len(values)
            out[:, k] = np.interp(scores[:, k], values, place, left=0.0, right=1.0)
            if values[-2:][0] == values[-1]:  # a jump, to 1
                out[:, k][scores[:, k] >= values[-1]] = 1.0
        return out

    def limits(self, coverage: float) -> NDArray:
        """Return the limits of an interval of the scores, (2, d).

        Each is an order statistic that a new score passes with probability at most
        (1 - coverage) / 2; infinite if there are too few scores.
        """
        tail = (1 - coverage) / 2
        return np.stack([self._quantile(tail, -1.0), self._quantile(1 - tail, 1.0)])

    def _quantile(self, level: float, side: float) -> NDArray:
        """Return a quantile of each output; `side` moves it out by one score."""
        m = len(self.scores)
        out = np.empty(self.scores.shape[1])
        columns = zip(self.scores.T, self.shares.T, strict=True)
        for k, (values, shares) in enumerate(columns):
            place = np.cumsum(shares) - shares / 2
            # The rank of the order statistic among m + 1 exchangeable scores.
            rank = m * level if not side else (m + 1) * level - 0.5
            if side and not 0.5 - _SLACK <= rank <= m - 0.5 + _SLACK:
                out[k] = side * np.inf
            else:
                out[k] = np.interp(rank, place, values)
        return out


def fit_noise(
    scales: NDArray,
    rows: NDArray,
    residual: NDArray,
    weights: NDArray | None,
    rng: np.random.Generator,
) -> Noise:
    """Fit the law of left-out residuals (m, d) at preprocessed rows (m, p).

    `scales` (p,) are the inverse length scales of the size of errors.
    """
    left_out = np.isfinite(residual).all(axis=1)
    rows = rows[left_out]
    residual = residual[left_out]
    w = np.ones(len(rows)) if weights is None else weights[left_out]
    w = w / w.mean()
    ridge = Ridge(scales, rows, w, _LANDMARKS, rng)
    size, logs, ends = fit_sizes(ridge, residual)
    scores = residual[ridge.validation] / np.exp(logs)
    order = np.argsort(scores, axis=0)
    shares = w[ridge.validation][order]
    scores = np.take_along_axis(scores, order, axis=0)
    return Noise(size, ends, scores, shares * len(scores) / shares.sum(axis=0))


def expected_error(residual: NDArray, weights: NDArray | None = None) -> NDArray:
    """Return the root mean squares (d,) of left-out residuals (m, d), if finite."""
    left_out = np.isfinite(residual).all(axis=1)
    squares = np.square(residual[left_out])
    return np.sqrt(np.average(squares, axis=0, weights=at_rows(weights, left_out)))


def fit_sizes(
    ridge: Ridge, residual: NDArray
) -> tuple[LandmarkFunction, NDArray, NDArray]:
    """Regress the logarithm of the size of residuals (m, d) on the rows of `ridge`.

    Returns
    -------
    size : LandmarkFunction
        The regression.
    logs : ndarray of shape (m', d)
        Its left-out values at the validation rows of `ridge`, within `ends`.
    ends : ndarray of shape (2, d)
        Least and largest of the logarithms that it is fitted to.
    """
    sizes = np.abs(residual)
    least = _LEAST * np.median(sizes, axis=0)
    floor = np.where(least > 0, least, np.maximum(sizes.max(axis=0), 1e-300))
    logs = np.log(np.maximum(sizes, floor))
    size, left_out = ridge.fit(logs)
    ends = np.stack([logs.min(axis=0), logs.max(axis=0)])
    return size, np.clip(logs[ridge.validation] - left_out, *ends), ends


class Suspects(NamedTuple):
    """Rows whose targets look like gross errors.

    Attributes
    ----------
    rows : ndarray of int of shape (k,)
        Their indices, ascending.
    reason : str
        Why they are used nevertheless; empty if they are left out.
    """

    rows: NDArray
    reason: str = ""


def gross_errors(rows: Rows, rng: np.random.Generator) -> Suspects:
    """Return the rows whose targets look like gross errors.

    A row is suspect if its residual from a small model, fitted without the suspect
    ones of the pass before, exceeds 12 robust standard deviations, in units of the
    local size of residuals where this is above the typical one: where the small
    model fits badly, or the noise is larger. There is none without a scale of noise
    (`nbsketch.rows.outliers`), or if a model of all rows explains a tenth of their sum
    of squares, beyond what chance explains.
    """
    every = kept = rows.kept
    Z = rows.transform(every)
    weights = at_rows(rows.weights, every)
    for k in range(_PASSES):
        part, Y = _standardized(rows, kept, _CLIP if k == 0 else np.inf)
        clipped, size = _residuals(part, every, Z, rng)
        residual = clipped + Y[every] - part.Y[every]
        sizes = deviations(residual / size, part.Y[every], None, weights)
        is_suspect = sizes > _OUT
        if not is_suspect.any():
            return Suspects(every[:0])
        if k == 0 and _skill(clipped, part.Y[every], is_suspect) > _SKILL:
            return Suspects(every[:0])
        if np.average(is_suspect, weights=weights) > _POPULATION:
            return Suspects(every[:0])
        before, kept = kept, every[~is_suspect]
        if np.array_equal(before, kept):
            break
    return _judged(residual, Y[every], sizes, weights, every)


def errors_beside(
    scales: NDArray,
    rows: NDArray,
    Y: NDArray,
    residual: NDArray,
    weights: NDArray | None,
) -> Suspects:
    """Return the rows that look like gross errors after a fit that left none out.

    `residual` (m, d) are the left-out residuals of targets Y at preprocessed rows, of
    which 1000 are judged; `scales` (p,) are inverse length scales.
    """
    left_out = np.isfinite(residual).all(axis=1)
    w = left_out * (1.0 if weights is None else weights)
    drawn = drawn_rows(w)
    kernel = partial(evaluate, form_of(SMOOTH, scales))
    if not len(drawn):
        return Suspects(drawn)
    left_out = partial(residual.__getitem__, drawn)
    is_suspect = suspect_targets(kernel, rows[drawn], Y[drawn], left_out)
    share = is_suspect.mean()
    reason = f"at most {100 * MOST:g} % are left out"
    if share <= MOST:
        reason = "they stand out from a robust regression only"
    return Suspects(np.sort(drawn[is_suspect]), reason)


def _standardized(rows: Rows, kept: NDArray, limit: float) -> tuple[Rows, NDArray]:
    """Return the rows to draw from `kept`, with clipped targets, and all targets.

    Both are standardized by the clipped targets of these rows. At most 5 % are clipped,
    those beyond `limit` robust standard deviations.
    """
    Y = rows.Y[kept]
    weights = at_rows(rows.weights, kept)
    center = medians(Y, weights)
    away = np.abs(Y - center)
    most = np.maximum(NORMAL * medians(away, weights), np.finfo(float).tiny) * limit
    is_few = np.average(away > most, axis=0, weights=weights) <= MOST
    most = np.where(is_few, most, np.inf)
    clipped = np.clip(rows.Y, center - most, center + most)
    mean, spread = moments_of(clipped[kept], weights)
    part = replace(rows, Y=(clipped - mean) / spread, kept=kept)
    return part, (rows.Y - mean) / spread


def _judged(
    residual: NDArray,
    Y: NDArray,
    sizes: NDArray,
    weights: NDArray | None,
    every: NDArray,
) -> Suspects:
    """Return the suspect rows of the last pass, and why they are used if they are."""
    is_suspect = sizes > _OUT
    beyond = np.average(is_suspect, weights=weights)
    before = np.average(sizes > _OUT / 2, weights=weights) - beyond
    has_gap = before <= _TAIL * beyond or np.median(sizes[is_suspect]) >= _FAR
    if beyond > MOST or not has_gap:
        return Suspects(every[:0])
    explained = are_explained(residual, Y, weights).any()
    reason = "" if explained else "the other targets cannot be predicted"
    return Suspects(every[is_suspect], reason)


def _residuals(
    rows: Rows, every: NDArray, Z: NDArray, rng: np.random.Generator
) -> tuple[NDArray, NDArray]:
    """Return residuals of all rows from a model of one length scale, and their sizes.

    `Z` are the preprocessed rows `every`. Both results are (n, d). Rows of the sample
    that the model is fitted to have their left-out residuals. Sizes are local ones
    relative to the median, at least one.
    """
    drawn = np.sort(rows.draw(rng, _SAMPLE[0]))
    scales = np.exp(isotropic_start(rows, FAMILIES[SMOOTH], rng)[:-1])
    data = Training.of(rows, drawn)
    place = np.searchsorted(every, drawn)
    ridge = Ridge(scales, data.rows, data.weights, _SAMPLE[1], rng, data.labels)
    base, left_out = ridge.fit(data.Y)
    residual = rows.Y[every] - base.values(Z)
    if data.labels is None:
        residual[place] = left_out
    residual -= np.median(residual, axis=0)
    most = _LARGEST * np.median(np.abs(residual), axis=0)
    base, left_out, _ = fit_sizes(ridge, np.clip(residual[place], -most, most))
    logs = base.values(Z)
    if data.labels is None:
        logs[place] = left_out
    logs -= np.median(logs, axis=0)
    return residual, np.exp(np.clip(logs, 0.0, np.log(_LARGEST)))


def _skill(residual: NDArray, Y: NDArray, mask: NDArray) -> float:
    """Return the share of the squares of some targets that a model explains.

    It is a lower bound, by one standard error: the sum of products of residuals and
    predictions has this error if gross errors have random signs, and among a few rows
    such products are large by chance.
    """
    residual = residual[mask]
    away = (Y - np.median(Y, axis=0))[mask]
    total = float(np.square(away).sum())
    explained = total - float(np.square(residual).sum())
    chance = 2 * float(np.linalg.norm(residual * (away - residual)))
    return (explained - chance) / total if total else -np.inf
