r"""Distribution of errors on new rows, and gross errors: locally scaled residuals.

The residual of a row is :math:`\sigma(x) z`: the logarithm of its size is regressed on
x, and z has the empirical distribution of the leave-one-out residuals divided by the
leave-one-out sigma. A quantile of z with the correction of split conformal prediction
(Lei et al., JASA 113, 2018) covers a new row with at least the stated probability if
rows are exchangeable and leave-one-out residuals have the distribution of new
residuals.
"""

from dataclasses import replace
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.tuning import FAMILIES
from nbsketch._report.fields import array, stored
from nbsketch.gram import evaluate
from nbsketch.rows.outliers import (
    MOST,
    NORMAL,
    are_explained,
    drawn_rows,
    medians,
    robust_scales,
    suspect_targets,
)
from nbsketch.tabular.ridge import LandmarkFunction, Ridge
from nbsketch.tabular.scales import SMOOTH, form_of
from nbsketch.tuning.rows import Rows, at_rows, moments_of
from nbsketch.tuning.search import isotropic_start

# Number of landmarks of the regression of log sizes.
_LANDMARKS = 200
# Lower bound of residuals in logarithms, as a share of the median size.
_LEAST = 0.05
# Rounding of ranks.
_SLACK = 1e-6
# Ends of intervals move outwards by this multiple of the leverage of a constant, by
# which leave-one-out residuals exceed new ones: else equal targets may all be missed.
_SHIFT = 2.0
# Robust standard deviations beyond which targets are clipped for learning a length
# scale: with 30 clean targets look like errors, with 100 sentinel values are missed.
_CLIP = 60.0
_TOO_MANY = f"at most {100 * MOST:g} % are excluded"


@stored
class Noise:
    """A fitted distribution of errors.

    Attributes
    ----------
    size : LandmarkFunction
        Logarithm of sigma, one per output.
    ends : ndarray of shape (2, d)
        Bounds of this logarithm: the range to which it was fitted. Far from all
        training rows the regression may have arbitrary errors.
    scores : ndarray of shape (m, d)
        Ascending leave-one-out residuals, divided by sigma.
    shares : ndarray of shape (m, d)
        Weights of the scores, which sum to m.
    """

    size: LandmarkFunction
    ends: Annotated[NDArray, array("_ends d")]
    scores: Annotated[NDArray, array("_scores d")]
    shares: Annotated[NDArray, array("_scores d")]

    def __post_init__(self) -> None:
        """Check that the scores and their weights define a distribution."""
        if (np.diff(self.scores, axis=0) < 0).any() or (self.shares < 0).any():
            raise ValueError("`scores` must ascend, `shares` be >= 0, got others")
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
        """Return the ends of an interval of the scores, (2, d).

        Each is an order statistic that a new score exceeds with probability at most (1
        - coverage) / 2; infinite if there are too few scores.
        """
        tail = (1 - coverage) / 2
        return np.stack([self._quantile(tail, -1.0), self._quantile(1 - tail, 1.0)])

    def _quantile(self, level: float, side: float) -> NDArray:
        """Return a quantile of each output; `side` moves it outwards by one score."""
        m = len(self.scores)
        out = np.empty(self.scores.shape[1])
        columns = zip(self.scores.T, self.shares.T, strict=True)
        for k, (values, shares) in enumerate(columns):
            place = np.cumsum(shares) - shares / 2
            ends = values + side * _SHIFT * shares / m * np.abs(values)
            # The rank of the order statistic among m + 1 exchangeable scores.
            rank = m * level if not side else (m + 1) * level - 0.5
            if side and not 0.5 - _SLACK <= rank <= m - 0.5 + _SLACK:
                out[k] = side * np.inf
            else:
                out[k] = np.interp(rank, place, ends)
        return out


def fit_noise(
    scales: NDArray,
    rows: NDArray,
    residual: NDArray,
    weights: NDArray | None,
    rng: np.random.Generator,
) -> Noise:
    """Fit the distribution of residuals (m, d) at preprocessed rows (m, p).

    `scales` (p,) are the inverse length scales of the size of errors.
    """
    w = np.ones(len(rows)) if weights is None else weights / weights.mean()
    ridge = Ridge(scales, rows, w, _LANDMARKS, rng)
    size, logs, ends = fit_sizes(ridge, residual)
    scores = residual[ridge.validation] / np.exp(logs)
    order = np.argsort(scores, axis=0)
    shares = w[ridge.validation][order]
    scores = np.take_along_axis(scores, order, axis=0)
    return Noise(size, ends, scores, shares * len(scores) / shares.sum(axis=0))


def fit_sizes(
    ridge: Ridge, residual: NDArray
) -> tuple[LandmarkFunction, NDArray, NDArray]:
    """Regress the logarithm of the size of residuals (m, d) on the rows of `ridge`.

    Returns
    -------
    size : LandmarkFunction
        The regression.
    logs : ndarray of shape (m', d)
        Leave-one-out values at the validation rows of `ridge`, within `ends`.
    ends : ndarray of shape (2, d)
        Smallest and largest of the fitted logarithms.
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
        Why they are used nevertheless; empty if they are excluded.
    """

    rows: NDArray
    reason: str = ""


def gross_errors(rows: Rows, rng: np.random.Generator) -> Suspects:
    """Return the rows whose targets look like gross errors, before a fit.

    The rule is that of `nbsketch.rows.outliers`, with a single length scale.
    """
    every = np.arange(len(rows.Y))
    drawn = drawn_rows(np.ones(len(every)) if rows.weights is None else rows.weights)
    if not len(drawn):
        return Suspects(drawn)
    order = np.concatenate([drawn, np.setdiff1d(every, drawn)])
    part, Y = _standardized(rows)
    scales = np.exp(isotropic_start(part, FAMILIES[SMOOTH], rng)[:-1])
    Y = Y[order]
    weights = at_rows(rows.weights, order)
    kernel = partial(evaluate, form_of(SMOOTH, scales))
    X = rows.transform(order)
    is_suspect, residuals = suspect_targets(kernel, X, Y, weights=weights)
    reason = ""
    if np.average(is_suspect, weights=weights) > MOST:
        reason = _TOO_MANY
    elif not are_explained(*robust_scales(residuals, Y, weights)).any():
        reason = "the other targets cannot be predicted"
    return Suspects(np.sort(order[is_suspect]), reason)


def errors_beside(
    scales: NDArray,
    rows: NDArray,
    Y: NDArray,
    residual: NDArray,
    weights: NDArray | None,
) -> Suspects:
    """Return the rows that look like gross errors after a fit to all rows.

    `residual` (m, d) are the leave-one-out residuals of targets Y at preprocessed rows,
    of which 1000 are checked; `scales` (p,) are inverse length scales.
    """
    left_out = np.isfinite(residual).all(axis=1)
    w = left_out * (1.0 if weights is None else weights)
    drawn = drawn_rows(w)
    kernel = partial(evaluate, form_of(SMOOTH, scales))
    if not len(drawn):
        return Suspects(drawn)
    left_out = partial(residual.__getitem__, drawn)
    is_suspect, _ = suspect_targets(kernel, rows[drawn], Y[drawn], left_out)
    reason = _TOO_MANY
    if is_suspect.mean() <= MOST:
        reason = "they stand out only with the learned length scales"
    return Suspects(np.sort(drawn[is_suspect]), reason)


def _standardized(rows: Rows) -> tuple[Rows, NDArray]:
    """Return the rows with clipped targets, and all targets.

    Both are standardized by the clipped targets. At most 5 % are clipped, those beyond
    60 robust standard deviations, which would dominate the scale.
    """
    weights = rows.weights
    center = medians(rows.Y, weights)
    away = np.abs(rows.Y - center)
    most = np.maximum(NORMAL * medians(away, weights), np.finfo(float).tiny) * _CLIP
    is_few = np.average(away > most, axis=0, weights=weights) <= MOST
    most = np.where(is_few, most, np.inf)
    clipped = np.clip(rows.Y, center - most, center + most)
    mean, spread = moments_of(clipped, weights)
    return replace(rows, Y=(clipped - mean) / spread), (rows.Y - mean) / spread
