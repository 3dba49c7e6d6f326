r"""Class probabilities from leave-one-out scores.

The score of a class is the regression of its indicator. Probabilities are

.. math:: p_k \propto \exp(a \log \max(s_k, \epsilon) + b s_k + c_k), \qquad a, b \ge 0,

with minimal log loss on leave-one-out scores: beta calibration (Kull, Silva Filho and
Flach, AISTATS 2017) with one pair of slopes for all classes. Targets are smoothed as by
Platt (1999), which keeps probabilities away from 0 and 1: the prior counts as one
sample, divided equally among the classes (Perks, J. Inst. Actuaries 73, 1947), for any
number of classes.
"""

from typing import Annotated

import numpy as np
import scipy.optimize
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from nbsketch._report.fields import array, positive, stored

# Candidates for the lower bound of scores in logarithms; the best is used.
_LEAST_SCORES = 0.003, 0.01, 0.03, 0.1
_MOST_SLOPE = 50.0
# Number of slopes of a calibration.
N_SLOPES = 2
# Number of samples that the prior of equal probabilities counts as.
_PRIOR_ROWS = 1.0


@stored
class Calibration:
    """A fitted map from scores to probabilities.

    Attributes
    ----------
    slopes : ndarray of shape (2,)
        a and b.
    offsets : ndarray of shape (c,)
        Constants of the classes.
    least : float
        Lower bound epsilon of the scores in logarithms.
    """

    slopes: Annotated[NDArray, array("_slopes")]
    offsets: Annotated[NDArray, array("classes")]
    least: Annotated[float, positive]

    def __post_init__(self) -> None:
        """Check that there are two nonnegative slopes, which preserve the order."""
        if self.slopes.shape != (2,) or (self.slopes < 0).any():
            raise ValueError(f"`slopes` must be two, not negative, got {self.slopes}")

    def probabilities(self, scores: NDArray) -> NDArray:
        """Return the probabilities of the classes, (n, c), for scores (n, c)."""
        a, b = self.slopes
        logs = np.log(np.maximum(scores, self.least))
        return softmax(a * logs + b * scores + self.offsets, axis=1)


def two_columns(scores: NDArray) -> NDArray:
    """Return the scores of both classes, given those of the second class alone."""
    return np.hstack([1 - scores, scores]) if scores.shape[1] == 1 else scores


def calibrate(scores: NDArray, classes: NDArray, weights: NDArray) -> Calibration:
    """Return the calibration with minimal log loss.

    Parameters
    ----------
    scores : ndarray of shape (n, c)
        Leave-one-out scores; rows with NaN are ignored.
    classes : ndarray of int of shape (n,)
        Class of each row.
    weights : ndarray of shape (n,)
        Sample weights.
    """
    start = np.append([1.0, 0.0], np.zeros(scores.shape[1]))
    losses = []
    fits = []
    for least in _LEAST_SCORES:
        maps = np.stack([np.log(np.maximum(scores, least)), scores])
        theta, loss = least_log_loss(maps, classes, weights, start, most=_MOST_SLOPE)
        losses.append(loss)
        fits.append(Calibration(theta[:2], theta[2:], least))
    return fits[np.argmin(losses)]


def least_log_loss(
    maps: NDArray,
    classes: NDArray,
    weights: NDArray,
    start: NDArray,
    *,
    most: float | None = None,
    penalty: float = 0.0,
) -> tuple[NDArray, float]:
    """Return the parameters of softmax(t_1 m_1 + ... + t_k m_k + c), and their loss.

    Targets are smoothed by a prior of equal probabilities, which counts as one sample.

    Parameters
    ----------
    maps : ndarray of shape (k, n, c)
        Held-out values m of the classes; rows with NaN are ignored.
    classes : ndarray of int of shape (n,)
        Class of each row.
    weights : ndarray of shape (n,)
        Sample weights.
    start : ndarray of shape (k,) or (k + c,)
        Start of t and of the constants c, which start at zero if missing.
    most : float or None, default=None
        Upper bound of t; the lower bound is zero.
    penalty : float, default=0.0
        Multiple of the squared norm of t that is added to the loss.
    """
    left_out = np.isfinite(maps).all(axis=(0, 2))
    maps = maps[:, left_out]
    classes = classes[left_out]
    (k, n, c), free = maps.shape, len(start) > len(maps)
    w = weights[left_out] / weights[left_out].sum()
    smoothing = _PRIOR_ROWS / (n + _PRIOR_ROWS)
    target = (1 - smoothing) * np.eye(c)[classes] + smoothing / c

    def objective(theta: NDArray) -> tuple[float, NDArray]:
        t = theta[:k]
        constants = theta[k:]
        values = np.einsum("k,knc->nc", t, maps)
        logp = log_softmax(values + constants if free else values, axis=1)
        away = w[:, None] * (np.exp(logp) - target)
        value = penalty * (t @ t) - w @ (logp * target).sum(axis=1)
        slopes = np.einsum("knc,nc->k", maps, away) + 2 * penalty * t
        return value, np.append(slopes, away.sum(axis=0)) if free else slopes

    bounds = [(0, most)] * k + [(None, None)] * (len(start) - k)
    solved = scipy.optimize.minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds
    )
    return solved.x, float(solved.fun)
