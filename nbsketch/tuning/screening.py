r"""Selection of relevant features among many, before length scales are learned.

Gradients of a fit on hundreds of features are noise: a search for length scales needs a
start with the relevant features. In stages, the features with significant `evidence` on
the residuals are added, a small ridge regression is fitted to the added features alone,
and its leave-one-out residuals are tested in the next stage, until no feature is
significant or the leave-one-out error does not decrease. This finds main effects,
interactions of order two, and effects of any order that change the variance given one
feature; a parity of three binary features is not found.

`rank_basis`: orthonormal functions of the ranks of a feature.

With u the rank of a value divided by the number of rows, the functions are
:math:`\cos(\pi a u)`, a = 1, 2, ..., orthonormalized on the rows in this order. They do
not depend on the units of a feature, and outliers have no large values.

`evidence`: tests of many features for an effect on residuals.

Three tests of each feature on its `rank_basis`, under the hypothesis that the residuals
are exchangeable: a main effect (the sum of squares of its correlations with the
residuals, chi-squared), an effect on the variance (the same for squared residuals), and
an interaction (the largest correlation of the residuals with a product of functions of
two features). Evidence is :math:`-\log p` with Bonferroni's correction for the number
of tests of each kind.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.special
from numpy.typing import NDArray
from scipy.stats import rankdata

from nbsketch._machine.memory import slices
from nbsketch.rows.transform import InputScaler
from nbsketch.tuning.descent import Budget
from nbsketch.tuning.rows import Rows
from nbsketch.tuning.search import (
    NEAR,
    SHORT,
    Descents,
    criterion_of,
    isotropic_start,
    settle,
)

# Number of features at a time: their functions fit into the cache.
_BLOCK = 16
# Minimum root mean square of a function after orthogonalization; below it, the function
# is dropped. A binary feature keeps one function.
_LEAST = 0.1
# Number of functions of a feature tested for an effect on the variance.
_VARIANCE_FUNCTIONS = 3
_PAIR_FUNCTIONS = 3  # maximum number of functions per feature in products
# Maximum number of multiplications for the products of all pairs, for one output.
_PAIR_WORK = 8e9
# Number of tested directions of the outputs.
_OUTPUTS = 3
_CLIP = 5.0  # limit of residuals, in standard deviations
_CLIP_SQUARE = 9.0  # limit of their squares, in variances
# Clipped residuals of a heavy tail have a smaller deviation and are clipped again.
_CLIPPINGS = 3
# Standard deviation below which a score is constant.
_CONSTANT = 1e-6
_TINY = 1e-300
_ROWS = 3000  # maximum of the tests
_LEAST_ROWS = 300
_CELLS = 16_000_000  # maximum of rows times features
# Number of functions of each feature.
_FUNCTIONS = 6
# Significant evidence: a level of 2 % for all tests of a kind together.
_SIGNIFICANT = -np.log(0.02)
_STAGES = 8
# Features added in one stage: at most as many as before, or this number.
_FEW = 8
# Features more correlated than this are not added in the same stage.
_ALIKE = 0.5
_SHARE = 10  # minimum number of rows per feature
_MOST = 150  # features
# Number of landmarks for the residuals of a stage.
_LANDMARKS = 200


def rank_basis(X: NDArray, count: int) -> NDArray:
    """Return `count` functions of each column of X (m, q), of shape (count, q, m).

    Each has mean zero and mean square one over the rows, or is zero if the column has
    too few distinct values.
    """
    m, q = X.shape
    basis = np.empty((count, q, m), dtype=np.float32)
    for part in slices(q, _BLOCK):
        ranks = (rankdata(X[:, part].T, axis=1) - 0.5) / m  # in (0, 1)
        _orthonormal_cosines(ranks.astype(np.float32), basis[:, part])
    return basis


def _orthonormal_cosines(ranks: NDArray, out: NDArray) -> None:
    """Fill `out` (count, k, m) by Gram-Schmidt and the recurrence of Chebyshev."""
    first = np.cos(np.float32(np.pi) * ranks)
    before = np.ones_like(first)
    now = first
    for a, target in enumerate(out):
        residual = now - now.mean(axis=1, keepdims=True)
        for earlier in out[:a]:
            residual -= _mean_products(residual, earlier)[:, None] * earlier
        size = np.sqrt(_mean_products(residual, residual))
        inverse = np.where(size > _LEAST, 1 / np.maximum(size, _LEAST), 0.0)
        np.multiply(residual, inverse.astype(np.float32)[:, None], out=target)
        before, now = now, 2 * first * now - before


def _mean_products(A: NDArray, B: NDArray) -> NDArray:
    return np.einsum("km,km->k", A, B) / np.float32(A.shape[1])


class Evidence(NamedTuple):
    """Evidence of each feature: minus the logarithm of a corrected p-value.

    Attributes
    ----------
    single : ndarray of shape (q,)
        Of a main effect or an effect on the variance, whichever is larger.
    pair : ndarray of shape (q,)
        Of an interaction with another feature.
    partner : ndarray of shape (q,)
        Index of the other feature.
    """

    single: NDArray
    pair: NDArray
    partner: NDArray

    @property
    def best(self) -> NDArray:
        """The larger of the evidence of `single` and of `pair`."""
        return np.maximum(self.single, self.pair)


def evidence(basis: NDArray, residuals: NDArray, weights: NDArray) -> Evidence:
    """Return the evidence of each feature.

    Parameters
    ----------
    basis : ndarray of shape (k, q, m)
        Functions of the q features, from `rank_basis`.
    residuals : ndarray of shape (m, d)
        Residuals or targets. If d > 3, their three leading principal components are
        tested.
    weights : ndarray of shape (m,)
        Positive weights of the residuals.
    """
    scores, squares = _scores(residuals, weights)
    single = np.maximum(
        _main_effects(basis, scores),
        _main_effects(basis[:_VARIANCE_FUNCTIONS], squares),
    )
    return Evidence(single, *_interactions(basis, scores, single))


def _scores(residuals: NDArray, weights: NDArray) -> tuple[NDArray, NDArray]:
    """Return weighted residuals and squared residuals, in single precision."""
    R = residuals - np.average(residuals, axis=0, weights=weights)
    if R.shape[1] > _OUTPUTS:
        R = R @ np.linalg.eigh(R.T @ R)[1][:, -_OUTPUTS:]
    for _ in range(_CLIPPINGS):
        size = np.sqrt(np.average(np.square(R), axis=0, weights=weights))
        R = np.clip(R / np.where(size > 0, size, 1.0), -_CLIP, _CLIP)
    squares = np.minimum(np.square(R), _CLIP_SQUARE)
    return _standardized(R, weights), _standardized(squares, weights)


def _standardized(scores: NDArray, weights: NDArray) -> NDArray:
    """Center scores, multiply them by the weights, divide by their root mean square."""
    scores = scores - np.average(scores, axis=0, weights=weights)
    scores *= weights[:, None]
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
    evidence = _log_tail(statistics, np.maximum(freedom, 1)[:, None]).max(axis=1)
    return np.where(freedom > 0, np.maximum(evidence - np.log(tested), 0.0), 0.0)


def _log_tail(statistics: NDArray, freedom: NDArray) -> NDArray:
    """Return -log P(chi-squared > x), by an expansion if P underflows."""
    half = statistics / 2
    shape = freedom / 2
    tail = scipy.special.gammaincc(shape, half)
    far = half - (shape - 1) * np.log(np.maximum(half, 1.0))
    far += scipy.special.gammaln(shape)
    return np.where(tail > _TINY, -np.log(np.maximum(tail, _TINY)), far)


def _interactions(
    basis: NDArray, scores: NDArray, single: NDArray
) -> tuple[NDArray, NDArray]:
    """Return the evidence of each feature for an interaction, and its partner.

    All pairs of features are tested, or, within the limit of work, the pairs of the
    features with the largest `single` evidence.
    """
    k, q, m = basis.shape
    most = int(np.sqrt(_PAIR_WORK / (2 * m)))
    count = int(np.clip(most // q, 1, min(k, _PAIR_FUNCTIONS)))
    chosen = np.sort(np.argsort(-single, kind="stable")[:most])
    functions = basis[:count, chosen].reshape(-1, m)
    tested = len(functions) ** 2 / 2 * scores.shape[1]
    best = np.zeros(q)
    partner = np.arange(q)
    for score in scores.T:
        z = _largest_products(functions, score, count)
        top = z.argmax(axis=1)
        value = z[np.arange(len(z)), top].astype(np.float64)
        evidence = -np.log(2) - scipy.special.log_ndtr(-value) - np.log(tested)
        better = evidence > best[chosen]
        partner[chosen[better]] = chosen[top[better]]
        best[chosen] = np.maximum(best[chosen], evidence)
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


class Selection(NamedTuple):
    """A preprocessing of selected features, and a search point in its columns."""

    scaler: InputScaler
    point: NDArray  # log inverse length scales of its columns, log tau

    @property
    def features(self) -> NDArray:
        """Ascending indices of the selected features."""
        return np.unique(self.scaler.features)

    def rescaled(self, scaler: InputScaler) -> Selection:
        """Return the selection for another scaler of the same features.

        A feature that gains or loses a column keeps its relevance, the sum of the
        squared inverse length scales of its columns.
        """
        n = self.scaler.n_features
        squares = np.bincount(self.scaler.features, np.exp(2 * self.point[:-1]), n)
        parts = np.bincount(scaler.features, minlength=n)
        is_whole = parts == np.bincount(self.scaler.features, minlength=n)
        shared = np.log(squares[scaler.features] / parts[scaler.features]) / 2
        values = np.where(
            is_whole[scaler.features], self.carried(scaler, shared), shared
        )
        return Selection(scaler, np.append(values, self.point[-1]))

    def carried(self, scaler: InputScaler, values: NDArray) -> NDArray:
        """Return values for the columns of a scaler, with this one's inserted."""
        scales = dict(zip(_columns(self.scaler), self.point[:-1], strict=True))
        pairs = zip(_columns(scaler), values, strict=True)
        return np.array([scales.get(column, value) for column, value in pairs])


def screen(rows: Rows, rng: np.random.Generator, budget: Budget) -> Selection | None:
    """Return the selected features; None if no feature is significant.

    Parameters
    ----------
    rows : Rows
        Rows, with a scaler of all features.
    rng : Generator
        Random state of the draws of rows.
    budget : Budget
        Budget of the search; each stage has a share.
    """
    drawn = rows.draw(rng, int(np.clip(_CELLS // rows.X.shape[1], _LEAST_ROWS, _ROWS)))
    basis = rank_basis(rows.X[drawn].astype(np.float64), _FUNCTIONS)
    weights = rows.weights[drawn]
    most = max(min(len(rows.kept) // _SHARE, _MOST), _FEW)
    selection = None
    residuals = rows.Y[drawn]
    least = np.inf
    for _ in range(_STAGES):
        selected: list[int] = [] if selection is None else selection.features.tolist()
        tested = evidence(basis, residuals, weights)
        new = _significant(tested, basis[0], selected)[: most - len(selected)]
        if not new:
            break
        proposed = _fitted(rows, selection, selected + new, rng, budget)
        proposed_rows = replace(rows, scaler=proposed.scaler)
        criterion = criterion_of(proposed_rows, drawn, _LANDMARKS)
        value, point = settle(criterion, NEAR, proposed.point)
        # Akaike's correction for the noise fitted by each new length scale.
        if value + 2 * len(new) / len(drawn) >= least:
            break
        selection = Selection(proposed.scaler, point)
        least = value
        residuals = criterion.residuals(point)
    return selection


def _significant(tested: Evidence, first: NDArray, selected: list[int]) -> list[int]:
    """Return the features to add, in order of their evidence.

    The partner of an interaction is added with it. Of highly correlated features (by
    their first functions, (q, m)), the best is added.
    """
    new: list[int] = []
    most = max(_FEW, len(selected))
    m = first.shape[1]
    for k in np.argsort(-tested.best, kind="stable"):
        if tested.best[k] < _SIGNIFICANT or len(new) >= most:
            break
        is_pair = tested.pair[k] > tested.single[k]
        group = [int(k), int(tested.partner[k])] if is_pair else [int(k)]
        group = [j for j in group if j not in selected and j not in new]
        alike = np.abs(first[group] @ first[new].T) / m
        if alike.max(initial=0) <= _ALIKE:
            new += group
    return new


def _fitted(
    rows: Rows,
    before: Selection | None,
    features: list[int],
    rng: np.random.Generator,
    budget: Budget,
) -> Selection:
    """Return features with length scales from a short search on them alone.

    It starts from equal length scales if at most half of the features were selected
    before, else from the previous length scales; new features start at a large
    relevance.
    """
    scaler = rows.scaler.select(features)
    selected = replace(rows, scaler=scaler)
    if before is None or 2 * len(before.features) <= len(features):
        point = isotropic_start(selected, rng)
    else:
        upper = np.sort(before.point[:-1])[-max(len(before.point) // 4, 1)]
        new = np.full(len(scaler.features), upper)
        point = np.append(before.carried(scaler, new), before.point[-1])
    search = Descents(selected, rng, budget.share(SHORT.iterations))
    return Selection(scaler, search.learn_briefly(point)[0])


def _columns(scaler: InputScaler) -> list[tuple[int, bool]]:
    """Return the feature of each column, and whether the column holds ranks."""
    plain = [(int(k), False) for k in scaler.plain]
    return plain + [(int(k), True) for k in scaler.ranked]
