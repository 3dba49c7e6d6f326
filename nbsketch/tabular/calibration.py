r"""Probabilities of classes from left-out scores.

The score of a class is the regression of its indicator. Probabilities are

.. math:: p_k \propto \exp(a \log \max(s_k, \epsilon) + b s_k + c_k), \qquad a, b \ge 0,

with the least log loss on left-out scores: beta calibration (Kull, Silva Filho and
Flach, AISTATS 2017) with one pair of slopes for all classes. Targets are smoothed as by
Platt (1999), which keeps probabilities away from 0 and 1: the prior counts as one row,
an equal share of it in each class (Perks, J. Inst. Actuaries 73, 1947), whatever the
number of classes.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import scipy.optimize
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from nbsketch._report.fields import array, check_fields, positive, stored

# Scores below it count as so large in logarithms: the best of these is taken.
_LEAST_SCORES = (0.003, 0.01, 0.03, 0.1)
_LIMITS = (0.0, 50.0)
# Rows for which the prior of equal probabilities counts.
_PRIOR_ROWS = 1.0


@stored
class Calibration:
    """A fitted map from scores to probabilities.

    Attributes
    ----------
    slopes : ndarray of shape (2,)
        a and b.
    offsets : ndarray of shape (c,)
        Constants of the classes, of mean zero.
    least : float
        epsilon.
    """

    slopes: Annotated[NDArray, array("_slopes")]
    offsets: Annotated[NDArray, array("classes")]
    least: Annotated[float, positive]

    def __post_init__(self) -> None:
        """Check that there are two slopes which keep the order of scores."""
        check_fields(self)
        if self.slopes.shape != (2,) or (self.slopes < 0).any():
            raise ValueError(f"`slopes` must be two, not negative, got {self.slopes}")

    def probabilities(self, scores: NDArray) -> NDArray:
        """Return the probabilities of the classes, (n, c), for scores (n, c)."""
        a, b = self.slopes
        logs = np.log(np.maximum(scores, self.least))
        return softmax(a * logs + b * scores + self.offsets, axis=1)


def two_columns(scores: NDArray) -> NDArray:
    """Return the scores of both classes if there is that of the second one alone."""
    return np.hstack([1 - scores, scores]) if scores.shape[1] == 1 else scores


def calibrate(
    scores: NDArray, classes: NDArray, weights: NDArray | None = None
) -> Calibration:
    """Return the calibration of least log loss.

    Parameters
    ----------
    scores : ndarray of shape (n, c)
        Left-out scores; rows with NaN do not count.
    classes : ndarray of int of shape (n,)
        Class of each row.
    weights : ndarray of shape (n,), default=None
        Weights of the rows. None: ones.
    """
    left_out = np.isfinite(scores).all(axis=1)
    w = np.ones(len(scores)) if weights is None else weights
    data = scores[left_out], classes[left_out], w[left_out] / w[left_out].mean()
    fits = [_fit(*data, least) for least in _LEAST_SCORES]
    return min(fits, key=lambda pair: pair[0])[1]


def smoothed_targets(classes: NDArray, count: int) -> NDArray:
    """Return the probabilities (n, c) that are fitted: those of rows and the prior."""
    smoothing = _PRIOR_ROWS / (len(classes) + _PRIOR_ROWS)
    return (1 - smoothing) * np.eye(count)[classes] + smoothing / count


def _fit(
    scores: NDArray, classes: NDArray, weights: NDArray, least: float
) -> tuple[float, Calibration]:
    n, c = scores.shape
    logs = np.log(np.maximum(scores, least))
    target = smoothed_targets(classes, c)

    def objective(theta: NDArray) -> tuple[float, NDArray]:
        a, b, offsets = theta[0], theta[1], theta[2:]
        logp = log_softmax(a * logs + b * scores + offsets, axis=1)
        away = weights[:, None] * (np.exp(logp) - target)
        value = -(weights @ (logp * target).sum(axis=1))
        by_slopes = [(away * logs).sum(), (away * scores).sum()]
        return value / n, np.append(by_slopes, away.sum(axis=0)) / n

    start = np.append([1.0, 0.0], np.zeros(c))
    bounds = [_LIMITS] * 2 + [(None, None)] * c
    solved = scipy.optimize.minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds
    )
    offsets = solved.x[2:] - solved.x[2:].mean()
    return float(solved.fun), Calibration(solved.x[:2], offsets, least)
