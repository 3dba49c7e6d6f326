r"""The law of the errors on new rows, from left-out residuals scaled locally.

The residual of a row is :math:`\sigma(x) z`: the logarithm of its size is regressed on
x, and z has the empirical law of the left-out residuals divided by the left-out sigma.
A quantile of z with the correction of split conformal prediction (Lei et al., JASA 113,
2018) covers a new row with at least the stated probability if rows are exchangeable and
left-out residuals have the law of new ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.gram import CompiledForm
from nbsketch.tabular.base import Base, Ridge

# Landmarks of the regression of log sizes.
_LANDMARKS = 200
# Residuals below this share of the median size count as so large in logarithms.
_LEAST = 0.05
# Rounding of ranks.
_SLACK = 1e-6


class Noise(NamedTuple):
    """A fitted law of errors.

    Attributes
    ----------
    size : Base
        Logarithm of sigma, one for each output.
    scores : ndarray of shape (m, d)
        Ascending left-out residuals, divided by sigma.
    shares : ndarray of shape (m, d)
        Their weights, which add up to m.
    """

    size: Base
    scores: NDArray
    shares: NDArray

    @classmethod
    def of(cls, parts: tuple[Any, ...]) -> Noise:
        """Return the law with these parts, plain tuples in a model that was loaded."""
        size, scores, shares = parts
        return cls(Base(*size), scores, shares)

    def sigma(self, form: CompiledForm, rows: NDArray) -> NDArray:
        """Return the local scale of errors at preprocessed rows, (n, d)."""
        return np.exp(self.size.predict(form, rows))

    def quantiles(self, levels: NDArray) -> NDArray:
        """Return quantiles of the scores, (levels, d), without a correction."""
        return np.stack([self._quantile(level, 0.0) for level in levels])

    def limits(self, coverage: float) -> NDArray:
        """Return the limits of an interval of the scores, (2, d).

        Each is an order statistic that a new score passes with probability at most
        (1 - coverage) / 2; infinite if there are too few scores.
        """
        rest = (1 - coverage) / 2
        return np.stack([self._quantile(rest, -1.0), self._quantile(1 - rest, 1.0)])

    def _quantile(self, level: float, side: float) -> NDArray:
        """Return a quantile of each output; `side` moves it out by one score."""
        m, out = len(self.scores), np.empty(self.scores.shape[1])
        for k, (values, shares) in enumerate(zip(*self._columns(), strict=True)):
            place = np.cumsum(shares) - shares / 2
            # The rank of the order statistic among m + 1 exchangeable scores.
            wanted = m * level if not side else (m + 1) * level - 0.5
            if side and not 0.5 - _SLACK <= wanted <= m - 0.5 + _SLACK:
                out[k] = side * np.inf
            else:
                out[k] = np.interp(wanted, place, values)
        return out

    def _columns(self) -> tuple[NDArray, NDArray]:
        return self.scores.T, self.shares.T


def fit_noise(
    form: CompiledForm,
    rows: NDArray,
    residual: NDArray,
    weights: NDArray | None,
    rng: np.random.Generator,
) -> Noise:
    """Fit the law of left-out residuals (m, d) at preprocessed rows (m, p)."""
    known = np.isfinite(residual).all(axis=1)
    rows, residual = rows[known], residual[known]
    w = np.ones(len(rows)) if weights is None else weights[known]
    w = w / w.mean()
    ridge = Ridge(form, rows, w, _LANDMARKS, rng)
    size, logs = fit_sizes(ridge, residual)
    scores = residual[ridge.validation] / np.exp(logs)
    order = np.argsort(scores, axis=0)
    shares = w[ridge.validation][order]
    scores = np.take_along_axis(scores, order, axis=0)
    return Noise(size, scores, shares * len(scores) / shares.sum(axis=0))


def fit_sizes(ridge: Ridge, residual: NDArray) -> tuple[Base, NDArray]:
    """Regress the logarithm of the size of residuals (m, d) on the rows of `ridge`.

    Returns
    -------
    size : Base
        The regression.
    logs : ndarray of shape (m', d)
        Its left-out values at the validation rows of `ridge`.
    """
    sizes = np.abs(residual)
    least = _LEAST * np.median(sizes, axis=0)
    floor = np.where(least > 0, least, np.maximum(sizes.max(axis=0), 1e-300))
    logs = np.log(np.maximum(sizes, floor))
    size, left_out = ridge.fit(logs)
    return size, logs[ridge.validation] - left_out
