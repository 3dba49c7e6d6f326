r"""Tests of many features for an effect on residuals.

Three tests of each feature on its `rank_basis`, under the hypothesis that the residuals
are exchangeable: a main effect (the sum of squares of its correlations with the
residuals, chi-squared), an effect on the variance (the same for squared residuals), and
an interaction (the largest correlation of the residuals with a product of functions of
two features). Evidence is :math:`-\log p` after Bonferroni's correction for the number
of tests of a kind.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.special
from numpy.typing import NDArray

# Functions of a feature that are tested for an effect on the variance.
_VARIANCE_FUNCTIONS = 3
# Largest number of functions of a feature in products, and of multiplications that the
# products of all pairs may cost for one output.
_PAIR_FUNCTIONS, _PAIR_WORK = 3, 8e9
# Directions of the outputs that are tested.
_OUTPUTS = 3
# Limits of residuals and of their squares, in standard deviations and in variances.
# Clipped residuals of a heavy tail have a smaller deviation and are clipped again.
_CLIP, _CLIP_SQUARE, _CLIPPINGS = 5.0, 9.0, 3
# Standard deviation below which a score is constant.
_CONSTANT = 1e-6
_TINY = 1e-300


class Evidence(NamedTuple):
    """Evidence of each feature: minus the logarithm of a corrected p-value.

    Attributes
    ----------
    single : ndarray of shape (q,)
        Of a main effect or an effect on the variance, whichever is larger.
    pair : ndarray of shape (q,)
        Of an interaction with another feature.
    partner : ndarray of shape (q,)
        Index of that other feature.
    """

    single: NDArray
    pair: NDArray
    partner: NDArray

    @property
    def best(self) -> NDArray:
        """The larger of the evidence of `single` and of `pair`."""
        return np.maximum(self.single, self.pair)


def evidence(
    basis: NDArray, residuals: NDArray, weights: NDArray | None = None
) -> Evidence:
    """Return the evidence of each feature.

    Parameters
    ----------
    basis : ndarray of shape (k, q, m)
        Functions of the q features, from `rank_basis`.
    residuals : ndarray of shape (m, d)
        Residuals or targets. If d > 3, their three leading principal components are
        tested.
    weights : ndarray of shape (m,), default=None
        Positive weights of the residuals. None: equal weights.
    """
    scores, squares = _scores(residuals, weights)
    single = np.maximum(
        _main_effects(basis, scores),
        _main_effects(basis[:_VARIANCE_FUNCTIONS], squares),
    )
    return Evidence(single, *_interactions(basis, scores, single))


def _scores(residuals: NDArray, weights: NDArray | None) -> tuple[NDArray, NDArray]:
    """Return weighted residuals and squared residuals, in single precision."""
    R = residuals - np.average(residuals, axis=0, weights=weights)
    if R.shape[1] > _OUTPUTS:
        R = R @ np.linalg.eigh(R.T @ R)[1][:, -_OUTPUTS:]
    for _ in range(_CLIPPINGS):
        size = np.sqrt(np.average(np.square(R), axis=0, weights=weights))
        R = np.clip(R / np.where(size > 0, size, 1.0), -_CLIP, _CLIP)
    squares = np.minimum(np.square(R), _CLIP_SQUARE)
    return _standardized(R, weights), _standardized(squares, weights)


def _standardized(scores: NDArray, weights: NDArray | None) -> NDArray:
    """Center scores, multiply them by the weights, divide by their root mean square."""
    scores = scores - np.average(scores, axis=0, weights=weights)
    if weights is not None:
        scores = scores * weights[:, None]
    size = np.sqrt(np.square(scores).mean(axis=0))
    # The squares of labels of two classes are constant.
    varies = size > _CONSTANT
    scores = np.where(varies, scores / np.where(varies, size, 1.0), 0.0)
    return scores.astype(np.float32)


def _main_effects(basis: NDArray, scores: NDArray) -> NDArray:
    """Return the evidence of each feature for a correlation with any score."""
    k, q, m = basis.shape
    sums = (basis.reshape(k * q, m) @ scores).reshape(k, q, -1)
    statistics = np.square(sums.astype(np.float64)).sum(axis=0) / m
    freedom = basis.any(axis=2).sum(axis=0)
    tested = q * scores.shape[1]
    found = _log_tail(statistics, np.maximum(freedom, 1)[:, None]).max(axis=1)
    return np.where(freedom > 0, np.maximum(found - np.log(tested), 0.0), 0.0)


def _log_tail(statistics: NDArray, freedom: NDArray) -> NDArray:
    """Return -log P(chi-squared > x), by its expansion where P underflows."""
    half, shape = statistics / 2, freedom / 2
    tail = scipy.special.gammaincc(shape, half)
    far = half - (shape - 1) * np.log(np.maximum(half, 1.0))
    far += scipy.special.gammaln(shape)
    return np.where(tail > _TINY, -np.log(np.maximum(tail, _TINY)), far)


def _interactions(
    basis: NDArray, scores: NDArray, single: NDArray
) -> tuple[NDArray, NDArray]:
    """Return the evidence of each feature for an interaction, and its partner.

    All pairs of features are tested, or those among the features of the largest
    `single` evidence that the limit of work allows.
    """
    k, q, m = basis.shape
    most = int(np.sqrt(_PAIR_WORK / (2 * m)))
    count = int(np.clip(most // q, 1, min(k, _PAIR_FUNCTIONS)))
    chosen = np.sort(np.argsort(-single, kind="stable")[:most])
    functions = basis[:count, chosen].reshape(-1, m)
    tested = len(functions) ** 2 / 2 * scores.shape[1]
    best, partner = np.zeros(q), np.arange(q)
    for score in scores.T:
        z = _largest_products(functions, score, count)
        top = z.argmax(axis=1)
        value = z[np.arange(len(z)), top].astype(np.float64)
        found = -np.log(2) - scipy.special.log_ndtr(-value) - np.log(tested)
        better = found > best[chosen]
        partner[chosen[better]] = chosen[top[better]]
        best[chosen] = np.maximum(best[chosen], found)
    return best, partner


def _largest_products(functions: NDArray, score: NDArray, count: int) -> NDArray:
    """Return the largest correlation of a score with products, for each two features.

    ``|sum_i score_i f_a(x_ij) f_b(x_ik)| / sqrt(m)``, maximal over a and b, (q, q).
    """
    m = len(score)
    z = np.abs((functions * score) @ functions.T)
    q = len(functions) // count
    largest = z.reshape(count, q, count, q).max(axis=(0, 2)) / np.sqrt(np.float32(m))
    np.fill_diagonal(largest, 0)
    return largest
