r"""Kernel least squares as a linear system in the dual coefficients, column by column.

.. math:: (K + \lambda_j W^{-1}) a_j + b_j 1 = y_j, \qquad 1^\top a_j = 0,
          \qquad \lambda_j = n \alpha / \mu_j

for the eigenvalues :math:`\mu_j > 0` of the output matrix. With
:math:`r = y - K a - \lambda W^{-1} a - b`, the duality gap of a and of the dual point
:math:`\lambda a` is :math:`\sum_i w_i r_i^2 / 2n`, whatever a is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._conjugate.operator import SymmetricOperator


class ColumnGaps(NamedTuple):
    """Objective and certified gap of each column of coefficients."""

    objective: NDArray  # (d,)
    gap: NDArray  # (d,), from the residual
    noise: NDArray  # (d,), what rounding of the kernel values adds to the gap

    @property
    def relative_gap(self) -> NDArray:
        """Return the whole gap over the objective, 0 where both are."""
        whole = self.gap + self.noise
        with np.errstate(divide="ignore"):
            return np.divide(whole, self.objective, out=whole * 0, where=whole > 0)


class KernelSystem:
    """The system of d columns that share K and the weights.

    Parameters
    ----------
    K : SymmetricOperator of shape (n, n)
        Kernel matrix.
    Y : ndarray of shape (n, d)
        Targets.
    shifts : ndarray of shape (d,)
        lambda, positive.
    weights : ndarray of shape (n,), optional
        Non-negative weights of mean one. Rows of weight zero have no coefficient.
    fit_intercept : bool
        Whether b is free.
    """

    def __init__(
        self,
        K: SymmetricOperator,
        Y: NDArray,
        shifts: NDArray,
        weights: NDArray | None,
        fit_intercept: bool,
    ) -> None:
        self.K, self.shifts, self.fit_intercept = K, shifts, fit_intercept
        self.n, self.d = Y.shape
        self.weights = weights
        self._kept = None if weights is None or weights.all() else weights > 0
        self._inverse = None
        if weights is not None:
            self._inverse = np.divide(
                1, weights, out=np.zeros(self.n), where=weights > 0
            )[:, None]
        self.mean = self.means(Y) * fit_intercept
        self.Y = Y - self.mean

    def means(self, V: NDArray) -> NDArray:
        """Return the weighted means of columns."""
        return V.mean(axis=0) if self.weights is None else self.weights @ V / self.n

    def project(self, V: NDArray) -> NDArray:
        """Return V without what no coefficients can have: a mean, or dropped rows."""
        if self._kept is None:
            return V - V.mean(axis=0) if self.fit_intercept else V
        V = V * self._kept[:, None]
        if not self.fit_intercept:
            return V
        return V - np.outer(self._kept, V.sum(axis=0) / self._kept.sum())

    def shifted(self, A: NDArray, columns: NDArray) -> NDArray:
        """Return lambda W^{-1} A for some columns."""
        scaled = A * self.shifts[columns]
        return scaled if self._inverse is None else scaled * self._inverse

    def intercept(self, fitted: NDArray) -> NDArray:
        """Return the best b, less the means of the targets, for K A."""
        if not self.fit_intercept:
            return np.zeros(fitted.shape[1])
        return self.means(self.Y - fitted)

    def residual(self, A: NDArray, fitted: NDArray, columns: NDArray) -> NDArray:
        """Return the projected residual of some columns, given K A."""
        return self.project(self.Y[:, columns] - fitted - self.shifted(A, columns))

    def certify(self, A: NDArray, fitted: NDArray) -> ColumnGaps:
        """Return the certificate of coefficients, given K A."""
        columns = np.arange(self.d)
        errors = self.Y - fitted - self.intercept(fitted)
        residual = errors - self.shifted(A, columns)
        penalty = self.shifts * (A * fitted).sum(axis=0)
        objective = (self._square(errors) + penalty) / (2 * self.n)
        square = self._square(residual)
        noise = self._rounding() * np.linalg.norm(A, axis=0)
        both = (np.sqrt(square) + noise) ** 2
        return ColumnGaps(
            objective, square / (2 * self.n), (both - square) / (2 * self.n)
        )

    def _square(self, R: NDArray) -> NDArray:
        if self.weights is None:
            return np.einsum("ij,ij->j", R, R)
        return np.einsum("i,ij,ij->j", self.weights, R, R)

    def _rounding(self) -> float:
        """Return the norm of K A - exact for A of norm 1, from independent errors."""
        size = float(np.finfo(self.K.dtype).eps) * float(np.abs(self.K.diag()).max())
        heaviest = 1.0 if self.weights is None else float(self.weights.max()) ** 0.5
        return size * heaviest * self.n**0.5
