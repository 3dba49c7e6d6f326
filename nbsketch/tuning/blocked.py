r"""The error of leaving blocks of rows out, with its gradient in the length scales.

Where neighboring rows nearly repeat each other (time series, repeated measurements),
leave-one-out residuals favor interpolation. Blocks of rows are left out together
instead: without the rows of block B their residuals are

.. math:: e_B = (I - H_{BB})^{-1} r_B
              = y_B - F_B (F^T F - F_B^T F_B + \tau I)^{-1} (F^T y - F_B^T y_B)

for the map H from targets to the fit and whitened rows F. The second form, a refit from
the Gram matrix of all rows minus that of the block, is used: nothing cancels in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nbsketch._machine.blas import eigh
from nbsketch.tuning.criterion import Fit, LeaveOneOut, Sample, Slope

# Smallest share of the weight outside of a block, against rounding.
_LEAST_REST = 1e-10


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
        for rows, factor in zip(self._blocks, self._factors, strict=True):
            F = self._augmented(rows)
            y = self._target[rows]
            # The mean of all targets is zero.
            residual = np.vstack([cross, np.zeros((1, len(y.T)))]) - F.T @ y
            out[rows] = y - F @ scipy.linalg.cho_solve(factor, residual)
        return out

    def _left_out_path(self, taus: NDArray) -> Iterator[NDArray]:
        gram = self._F.T @ self._F
        cross = self._F.T @ self._target
        out = np.zeros((len(taus), *self._target.shape))
        for rows in self._blocks:
            out[:, rows] = self._block_path(rows, gram, cross, taus)
        yield from out

    def _block_path(
        self, rows: NDArray, gram: NDArray, cross: NDArray, taus: NDArray
    ) -> NDArray:
        """Return the residuals of a block for each tau, by one eigendecomposition."""
        F = self._F[rows]
        y = self._target[rows]
        roots = self._roots[rows, None]
        others = len(self._T) - self._weights[rows].sum()
        others = max(others, _LEAST_REST * len(self._T))
        F_mean = -(roots.T @ F) / others
        y_mean = -(roots.T @ y) / others
        values, vectors = eigh(gram - F.T @ F - others * F_mean.T @ F_mean)
        projected = vectors.T @ (cross - F.T @ y - others * F_mean.T @ y_mean)
        Q = (F - roots * F_mean) @ vectors
        target = y - roots * y_mean
        shrink = 1 / (np.maximum(values, 0) + taus[:, None])
        return np.stack([target - Q @ (s[:, None] * projected) for s in shrink])

    def _slope(
        self, fit: Fit, factor: NDArray, left_out: NDArray, squares: NDArray
    ) -> Slope:
        g = factor * left_out
        product = np.zeros_like(self._T)
        for rows, cholesky in zip(self._blocks, self._factors, strict=True):
            F = self._augmented(rows)
            g[rows] += F @ scipy.linalg.cho_solve(cholesky, F.T @ g[rows])
            e = left_out[rows]
            T = self._T[rows]
            product[rows] = (g[rows] @ (e.T @ T) + e @ (g[rows].T @ T)) / 2
        return Slope(g, np.zeros((len(g), 1)), product)

    def _augmented(self, rows: NDArray) -> NDArray:
        return np.column_stack([self._F[rows], self._ones[rows]])

    def _factor(self, inner: NDArray, rows: NDArray) -> Any:
        """Return the Cholesky factor of the penalized Gram matrix without some rows."""
        F = self._augmented(rows)
        system = -F.T @ F
        system[:-1, :-1] += inner
        system[-1, -1] = max(system[-1, -1] + 1, _LEAST_REST)
        return scipy.linalg.cho_factor(system, lower=True, check_finite=False)
