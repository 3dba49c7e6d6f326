r"""The exact criterion for few rows: leave-one-out error and evidence, averaged.

All m rows are landmarks. With weights w, the targets are modeled as Gaussian of
covariance :math:`\sigma^2 \Sigma`, :math:`\Sigma = K + \tau\, \mathrm{diag}(1 / w)`.
With :math:`A = \Sigma^{-1}`, the criterion is the mean of two,

.. math:: \log \frac{1}{m} \sum_i w_i \|(A Y)_i / A_{ii}\|^2, \qquad
          \frac{1}{m} \log\det\Sigma + \log \mathrm{tr}(Y^T A Y):

the logarithm of the leave-one-out error, and minus twice the logarithm of the evidence
per row, at the best sigma and up to constants (Rasmussen and Williams, Gaussian
Processes for Machine Learning, 2006, sections 5.4.1 and 5.4.2). The second varies less
with the rows, the first does not need the model to hold.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nbsketch._lapack import factor, invert_factor
from nbsketch.tuning.criterion import Sample
from nbsketch.tuning.distances import distance_of

# Added to the diagonal of K: above rounding errors, without effect.
_JITTER = 1e-8
_TINY = np.finfo(np.float64).tiny


class _Solved(NamedTuple):
    """The inverse A of the covariance, the logarithm of its determinant, and A Y."""

    inverse: NDArray  # (m, m)
    log_determinant: float
    dual: NDArray  # (m, d)


class ExactCriterion:
    """The criterion as a function of the point (log inverse scales, log tau).

    An evaluation takes time m^3 + m^2 q and memory 6 m^2.

    Parameters
    ----------
    sample : Sample
        Rows, targets and positive weights. Landmarks, threshold and blocks are not
        used.
    family : int
        One of the codes of `nbsketch._jit.tuning.FAMILIES`.
    """

    # The level of precision, see `LeaveOneOut`: double at all points.
    level = 2

    def __init__(self, sample: Sample, family: int) -> None:
        m = len(sample.X)
        weights = np.ones(m) if sample.weights is None else sample.weights
        self._X, self._distance = np.ascontiguousarray(sample.X), distance_of(family)
        self._weights, self._noise = weights, 1 / weights
        self._target = sample.Y - weights @ sample.Y / weights.sum()
        self._K, self._slopes = np.empty((2, m, m))

    def __call__(self, point: NDArray) -> tuple[float, NDArray]:
        """Return the criterion and its gradient."""
        tau = float(np.exp(point[-1]))
        solved = self._solve(point[:-1], tau)
        error, by_error = self._left_out(solved)
        evidence, by_evidence = self._evidence(solved)
        W = (by_error + by_evidence) / 2
        by_tau = tau * float(self._noise @ W.diagonal())
        W *= self._slopes
        X, inverse = self._X, np.exp(point[:-1])
        by_scales = self._distance.by_scales(W, X, X, inverse)
        return (error + evidence) / 2, np.append(by_scales, by_tau)

    def _solve(self, log_inverse: NDArray, tau: float) -> _Solved:
        rows = self._X * np.exp(log_inverse)
        self._distance.fill(rows, rows, self._K, self._slopes)
        root = np.array(self._K, order="F")
        root[np.diag_indices(len(root))] += tau * self._noise + _JITTER
        factor(root)
        log_determinant = 2 * float(np.log(root.diagonal()).sum())
        invert_factor(root)
        half, _ = scipy.linalg.lapack.dlauum(root, lower=1, overwrite_c=1)
        inverse = np.tril(half)
        inverse += np.tril(half, -1).T
        return _Solved(inverse, log_determinant, inverse @ self._target)

    def _left_out(self, solved: _Solved) -> tuple[float, NDArray]:
        """Return the log error, and its derivative in the covariance."""
        A, dual = solved.inverse, solved.dual
        diagonal = A.diagonal()[:, None]
        residual = dual / diagonal
        weighted = self._weights[:, None] * residual
        total = max(float((weighted * residual).sum()), _TINY)
        roots = np.sqrt((weighted * residual).sum(axis=1) / diagonal[:, 0])
        scaled = A * roots
        outer = A @ (weighted / diagonal) @ dual.T
        slope = scaled @ scaled.T - (outer + outer.T) / 2
        return float(np.log(total / len(A))), 2 / total * slope

    def _evidence(self, solved: _Solved) -> tuple[float, NDArray]:
        """Return minus twice the log evidence per row, and its derivative likewise."""
        A, dual = solved.inverse, solved.dual
        total = max(float((self._target * dual).sum()), _TINY)
        value = solved.log_determinant / len(A) + float(np.log(total / len(A)))
        return value, A / len(A) - dual @ dual.T / total
