"""Inputs as a kernel should see them: standardized features and scores of their ranks.

Distances of standardized features are at the mercy of heavy tails, those of ranks lose
the gaps between values. With a length-scale for each, a kernel on both has no need to
choose: the one that does not help is given a large length-scale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._validation import check_choice, check_matrix, random_generator

PREPROCESSINGS = ("standard", "rank", "both")

# Deviations below this share of the mean are rounding of a constant.
CONSTANT = 1e-13
# Rows that quantiles are taken of, and how many quantiles there are.
_ROWS = 20_000
_KNOTS = 257
# A feature that correlates more with its ranks than this needs no scores of them. Of
# many features only the skewed ones get them: a normal one has 0.977.
_ALIKE, _MANY, _ALIKE_OF_MANY = 0.99, 50, 0.95


@dataclass(frozen=True, eq=False)
class InputScaler:
    """A fitted transformation of inputs; `fit_scaler` makes one.

    Parameters
    ----------
    n_features : int
        Number of features of X.
    plain, ranked : ndarray of int
        Which of them are standardized, and which are replaced by scores of their ranks:
        the columns of the result, in this order.
    center, width : ndarray of shape (p,)
        What is subtracted from these p columns, and what they are divided by then.
    quantiles : ndarray of shape (k, len(ranked))
        Quantiles of the ranked features at k equal steps from 0 to 1. A value between
        two of them has a score in proportion; of equal ones it has the middle.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.tuning import fit_scaler
    >>> X = np.array([[0.0], [1.0], [2.0], [1000.0]])
    >>> fit_scaler(X, "rank").transform(X).round(2).ravel().tolist()
    [-1.34, -0.45, 0.45, 1.34]
    """

    n_features: int
    plain: NDArray
    ranked: NDArray
    center: NDArray
    width: NDArray
    quantiles: NDArray

    def transform(self, X: NDArray) -> NDArray:
        """Return the p columns for the rows of X (n, q), in the type of X."""
        X = check_matrix("X", X, n_features=self.n_features)
        out = np.empty((len(X), len(self.center)), dtype=X.dtype)
        for j, feature in enumerate(self.plain):
            column = X[:, feature].astype(np.float64)
            out[:, j] = (column - self.center[j]) / self.width[j]
        for k, feature in enumerate(self.ranked):
            j = len(self.plain) + k
            scores = _scores(X[:, feature], self.quantiles[:, k])
            out[:, j] = (scores - self.center[j]) / self.width[j]
        return out

    def without_ranks(self) -> InputScaler:
        """Return the scaler of the standardized features alone."""
        count = len(self.plain)
        return replace(
            self,
            ranked=self.ranked[:0],
            center=self.center[:count],
            width=self.width[:count],
            quantiles=self.quantiles[:, :0],
        )


def fit_scaler(
    X: NDArray, preprocessing: str, rng: Any = None, among: NDArray | None = None
) -> InputScaler:
    """Return the scaler of the rows of X.

    Parameters
    ----------
    X : ndarray of shape (n, q)
        Rows; at most 20 000 of them are looked at.
    preprocessing : {"standard", "rank", "both"}
        What a feature becomes. "both" leaves out the ranks that are all but a linear
        function of the feature, as for evenly spread or binary ones.
    rng : None, int or Generator
        Source of the draw of rows.
    among : ndarray of int, optional
        Which rows may be looked at; all by default.
    """
    check_choice("preprocessing", preprocessing, PREPROCESSINGS)
    candidates = np.arange(len(X)) if among is None else among
    if len(candidates) > _ROWS:
        candidates = random_generator(rng).choice(candidates, _ROWS, replace=False)
    rows, q = X[candidates].astype(np.float64), X.shape[1]
    every = np.arange(q)
    quantiles = np.quantile(rows, np.linspace(0, 1, min(len(rows), _KNOTS)), axis=0)
    scores = np.column_stack([_scores(rows[:, k], quantiles[:, k]) for k in every])
    plain = every[:0] if preprocessing == "rank" else every
    ranked = every[:0] if preprocessing == "standard" else every
    if preprocessing == "both":
        alike = _ALIKE if q <= _MANY else _ALIKE_OF_MANY
        ranked = ranked[_correlations(rows, scores) < alike]
    columns = np.hstack([rows[:, plain], scores[:, ranked]])
    center, width = columns.mean(axis=0), columns.std(axis=0)
    varies = (width > CONSTANT * np.abs(center)) & np.isfinite(width)
    width = np.where(varies, width, 1.0)
    return InputScaler(q, plain, ranked, center, width, quantiles[:, ranked])


def _scores(values: NDArray, quantiles: NDArray) -> NDArray:
    """Return ranks between 0 and 1; among equal quantiles, the middle."""
    steps = np.linspace(0, 1, len(quantiles))
    low = np.interp(values, quantiles, steps)
    high = np.interp(-values, -quantiles[::-1], -steps[::-1])
    return (low - high) / 2


def _correlations(rows: NDArray, scores: NDArray) -> NDArray:
    """Return the correlation of each column with its scores; 1 if one is constant."""
    a, b = rows - rows.mean(axis=0), scores - scores.mean(axis=0)
    norms = np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0)
    inner = (a * b).sum(axis=0)
    return np.divide(inner, norms, out=np.ones_like(inner), where=norms > 0)
