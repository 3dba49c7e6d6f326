r"""Distribution of errors on new rows: locally scaled residuals.

The residual of a row is :math:`\sigma(x) z`: the logarithm of its size is regressed on
x, and z has the empirical distribution of the leave-one-out residuals divided by the
leave-one-out sigma. A quantile of z with the correction of split conformal prediction
(Lei et al., JASA 113, 2018) covers a new row with at least the stated probability if
rows are exchangeable and leave-one-out residuals have the distribution of new
residuals.
"""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from nbsketch._report.fields import array, stored
from nbsketch.tabular.ridge import VALIDATION, LandmarkFunction, Ridge, drawn_rows
from nbsketch.tuning.rows import Training

# Number of landmarks of the regression of log sizes.
_LANDMARKS = 200
# Lower bound of residuals in logarithms, as a share of the median size.
_LEAST = 0.05
# Rounding of ranks.
_SLACK = 1e-6
# Ends of intervals move outwards by this multiple of the leverage of a constant, by
# which leave-one-out residuals exceed new ones: else equal targets may all be missed.
_SHIFT = 2.0
# They move where at least this share of the scores are equal, but for this shift.
_EQUAL = 0.1


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
        return np.exp(np.clip(self.size.predict(rows), *self.ends))

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
            shift = _SHIFT * shares / m * np.abs(values)
            first = np.searchsorted(values, values - shift, "left")
            last = np.searchsorted(values, values + shift, "right")
            ends = values + side * shift * (last - first > 1 + _EQUAL * m)
            # The rank of the order statistic among m + 1 exchangeable scores.
            rank = m * level if not side else (m + 1) * level - 0.5
            if side and not 0.5 - _SLACK <= rank <= m - 0.5 + _SLACK:
                out[k] = side * np.inf
            else:
                out[k] = np.interp(rank, place, ends)
        return out


def fit_noise(scales: NDArray, errors: Training, rng: np.random.Generator) -> Noise:
    """Fit the distribution of errors: residuals (m, d) at preprocessed rows (m, p).

    `scales` (p,) are the inverse length scales of the size of errors.
    """
    w = errors.weights / errors.weights.mean()
    sizes = np.abs(errors.Y)
    least = _LEAST * np.median(sizes, axis=0)
    floor = np.where(least > 0, least, np.maximum(sizes.max(axis=0), 1e-300))
    logs = np.log(np.maximum(sizes, floor))
    landmarks = drawn_rows(len(w), _LANDMARKS, rng)
    index = drawn_rows(len(w), VALIDATION, rng)
    data = Training(errors.rows, logs, w)
    size, left_out = Ridge(scales, data, landmarks, index).fit()
    ends = np.stack([logs.min(axis=0), logs.max(axis=0)])
    scores = errors.Y[index] / np.exp(np.clip(logs[index] - left_out, *ends))
    order = np.argsort(scores, axis=0)
    shares = w[index][order]
    scores = np.take_along_axis(scores, order, axis=0)
    return Noise(size, ends, scores, shares * len(scores) / shares.sum(axis=0))
