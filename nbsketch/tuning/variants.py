r"""Two variants of the criterion: blocks left out together, the evidence of few rows.

Where neighboring rows nearly repeat each other (time series, repeated measurements),
leave-one-out residuals favor interpolation. Blocks of rows are left out together
instead: without the rows of block B their residuals are

.. math:: e_B = (I - H_{BB})^{-1} r_B
              = y_B - F_B (F^T F - F_B^T F_B + \tau I)^{-1} (F^T y - F_B^T y_B)

for the map H from targets to the fit and whitened rows F. The second form, a refit from
the Gram matrix of all rows minus that of the block, is used: nothing cancels in it.

Of few rows all are landmarks. With weights w, the targets are modeled as Gaussian of
covariance :math:`\sigma^2 \Sigma`, :math:`\Sigma = K + \tau\, \mathrm{diag}(1 / w)`.
With :math:`A = \Sigma^{-1}`, the criterion is

.. math:: \frac{1}{m} \log\det\Sigma + \log \frac{1}{m} \mathrm{tr}(Y^T A Y):

minus twice the logarithm of the evidence per row, at the best sigma and up to constants
(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 5.4.1).
Beside it stands the left-out error (section 5.4.2), the logarithm of the weighted mean
of the squares of :math:`(A Y)_i / A_{ii}`. Minimized on few rows it varies more with
the rows than the evidence does: .044 against .027 on a smooth function of ten columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nbsketch._blas import eigh, factor, invert_factor, symmetric_product
from nbsketch.tuning.criterion import (
    Fit,
    LeaveOneOut,
    Sample,
    Slope,
    distance_of,
    origin_of,
)

# Smallest share of the weight outside of a block, against rounding.
_LEAST_REST = 1e-10
# Added to the diagonal of K: above rounding errors, without effect.
_JITTER = 1e-8
# From this tau on, covariances are inverted in single precision: 30 % less time, and
# values with errors below 2e-5.
_LEAST_TAU = 0.02
_TINY = np.finfo(np.float64).tiny


class LeaveBlocksOut(LeaveOneOut):
    """The criterion for samples with blocks; the mean is over rows that are left out.

    Notes
    -----
    With g_B = (I - H_BB)^-1 times the derivative in e_B, the derivative in H_BB is the
    symmetric part of g_B e_B^T; it takes the place of diag(q) in `LeaveOneOut`.
    """

    def __init__(self, sample: Sample, family: int) -> None:
        super().__init__(sample, family)
        labels = np.asarray(sample.blocks)
        self._blocks = [
            np.flatnonzero(labels == k) for k in np.unique(labels[labels >= 0])
        ]
        # The intercept is one more column, without a penalty.
        self._ones = self._roots / np.sqrt(len(labels))
        self._factors: list[Any] = []

    def _least_level(self, root: NDArray, tau: float) -> int:
        return 2  # differences of Gram matrices lose the digits of single precision

    @property
    def _count(self) -> float:
        return float(sum(self._weights[rows].sum() for rows in self._blocks))

    def _left_out(self, fit: Fit) -> NDArray:
        out = np.zeros_like(self._target)
        cross = self._F.T @ self._target
        self._factors = [self._factor(fit.inner, rows) for rows in self._blocks]
        for rows, cholesky in zip(self._blocks, self._factors, strict=True):
            F, y = self._augmented(rows), self._target[rows]
            # The mean of all targets is zero.
            rest = np.vstack([cross, np.zeros((1, len(y.T)))]) - F.T @ y
            out[rows] = y - F @ scipy.linalg.cho_solve(cholesky, rest)
        return out

    def _left_out_path(self, taus: NDArray) -> Iterator[NDArray]:
        gram, cross = self._F.T @ self._F, self._F.T @ self._target
        out = np.zeros((len(taus), *self._target.shape))
        for rows in self._blocks:
            out[:, rows] = self._block_path(rows, gram, cross, taus)
        yield from out

    def _block_path(
        self, rows: NDArray, gram: NDArray, cross: NDArray, taus: NDArray
    ) -> NDArray:
        """Return the residuals of a block for each tau, by one eigendecomposition."""
        F, y, roots = self._F[rows], self._target[rows], self._roots[rows, None]
        rest = len(self._T) - self._weights[rows].sum()
        rest = max(rest, _LEAST_REST * len(self._T))
        F_mean, y_mean = -(roots.T @ F) / rest, -(roots.T @ y) / rest
        values, vectors = eigh(gram - F.T @ F - rest * F_mean.T @ F_mean)
        projected = vectors.T @ (cross - F.T @ y - rest * F_mean.T @ y_mean)
        Q, target = (F - roots * F_mean) @ vectors, y - roots * y_mean
        shrink = 1 / (np.maximum(values, 0) + taus[:, None])
        return np.stack([target - Q @ (s[:, None] * projected) for s in shrink])

    def _slope(
        self, fit: Fit, factor: NDArray, left_out: NDArray, squares: NDArray
    ) -> Slope:
        g, product = factor * left_out, np.zeros_like(self._T)
        for rows, cholesky in zip(self._blocks, self._factors, strict=True):
            F = self._augmented(rows)
            g[rows] += F @ scipy.linalg.cho_solve(cholesky, F.T @ g[rows])
            e, T = left_out[rows], self._T[rows]
            product[rows] = (g[rows] @ (e.T @ T) + e @ (g[rows].T @ T)) / 2
        return Slope(g, np.zeros((len(g), 1)), product)

    def _augmented(self, rows: NDArray) -> NDArray:
        return np.column_stack([self._F[rows], self._ones[rows]])

    def _factor(self, inner: NDArray, rows: NDArray) -> Any:
        """Return the Cholesky factor of the penalized Gram matrix without some rows."""
        F = self._augmented(rows)
        rest = -F.T @ F
        rest[:-1, :-1] += inner
        rest[-1, -1] = max(rest[-1, -1] + 1, _LEAST_REST)
        return scipy.linalg.cho_factor(rest, lower=True, check_finite=False)


def criterion_of(sample: Sample, family: int) -> LeaveOneOut:
    """Return the criterion that leaves out blocks, or rows if there are no blocks."""
    if sample.blocks is None:
        return LeaveOneOut(sample, family)
    return LeaveBlocksOut(sample, family)


class _Solved(NamedTuple):
    """The inverse A of the covariance, the logarithm of its determinant, and A Y."""

    inverse: NDArray  # (m, m), of which the lower triangle counts
    log_determinant: float
    dual: NDArray  # (m, d)


class ExactCriterion:
    """The criterion as a function of the point (log inverse scales, log tau).

    An evaluation takes time m^3 + m^2 q and memory 5 m^2.

    Parameters
    ----------
    sample : Sample
        Rows, targets and positive weights. Landmarks, threshold and blocks are not
        used.
    family : int
        One of the codes of `nbsketch._jit.tuning.FAMILIES`.

    Attributes
    ----------
    error : float
        Left-out error at the last point.
    """

    def __init__(self, sample: Sample, family: int) -> None:
        m = len(sample.X)
        weights = np.ones(m) if sample.weights is None else sample.weights
        self._X = np.ascontiguousarray(sample.X - origin_of(sample.X))
        self._distance = distance_of(family)
        self._weights, self._noise = weights, 1 / weights
        target = sample.Y - weights @ sample.Y / weights.sum()
        self._target = np.asfortranarray(target)
        self._K, self._slopes = np.empty((2, m, m))
        # Whether in single precision, 0, or in double, 1: see `LeaveOneOut`.
        self.level, self.error = 0, np.inf

    def __call__(self, point: NDArray) -> tuple[float, NDArray]:
        """Return the criterion and its gradient."""
        tau, (A, log_determinant, dual) = np.exp(point[-1]), self._solve(point)
        m, total = len(A), max(float((self._target * dual).sum()), _TINY)
        # Half of the derivative in the covariance, times m: its lower triangle.
        W = A.T.astype(np.float64, copy=False)
        W -= dual @ (dual.T * (m / total))
        by_tau = tau * float(self._noise @ W.diagonal()) / m
        W *= self._slopes
        X, inverse = self._X, np.exp(point[:-1])
        by_scales = self._distance.by_scales(np.triu(W, 1), X, X, inverse)
        value = log_determinant / m + float(np.log(total / m))
        return value, np.append(by_scales * (2 / m), by_tau)

    def left_out(self, point: NDArray) -> float:
        """Return the left-out error at a point."""
        self._solve(point)
        return self.error

    def _solve(self, point: NDArray) -> _Solved:
        rows = self._X * np.exp(point[:-1])
        self._distance.fill(rows, rows, self._K, self._slopes)
        tau = float(np.exp(point[-1]))
        self._K[np.diag_indices(len(rows))] += tau * self._noise + _JITTER
        self.level = max(self.level, int(tau < _LEAST_TAU))
        # Symmetric: the transpose is in Fortran order.
        root = self._K.T.astype(np.float64 if self.level else np.float32, copy=False)
        factor(root)
        log_determinant = 2 * float(np.log(root.diagonal()).sum(dtype=np.float64))
        invert_factor(root)
        (lauum,) = scipy.linalg.get_lapack_funcs(("lauum",), (root,))
        A, _ = lauum(root, lower=1, overwrite_c=1)
        dual = symmetric_product(A, self._target.astype(A.dtype)).astype(np.float64)
        squares = np.square(dual / A.diagonal()[:, None]).sum(axis=1)
        mean = float(self._weights @ squares) / len(A)
        self.error = float(np.log(max(mean, _TINY)))
        return _Solved(A, log_determinant, dual)
