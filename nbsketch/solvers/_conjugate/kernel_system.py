r"""Kernel least squares as a linear system in the dual coefficients, column by column.

.. math:: (K + \lambda_j W^{-1}) a_j + b_j 1 = y_j, \qquad 1^\top a_j = 0,
          \qquad \lambda_j = n \alpha / \mu_j

for the eigenvalues :math:`\mu_j > 0` of the output matrix. With
:math:`r = y - K a - \lambda W^{-1} a - b`, the duality gap of a and of the dual point
:math:`\lambda a` is :math:`\sum_i w_i r_i^2 / 2n`, whatever a is.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._conjugate.search import ColumnGaps
from nbsketch.solvers._linear.conjugate_gradients import ConjugateGradients
from nbsketch.solvers._linear.operator import SymmetricOperator
from nbsketch.solvers._linear.preconditioner import Preconditioner


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
    preconditioner : Preconditioner, optional
        Needed for a search.
    """

    passes: ClassVar[int] = 0
    slack: ClassVar[float] = 1.0  # estimates are bounds, but for rounding

    def __init__(
        self,
        K: SymmetricOperator,
        Y: NDArray,
        shifts: NDArray,
        weights: NDArray | None,
        fit_intercept: bool,
        preconditioner: Preconditioner | None = None,
    ) -> None:
        self.K, self.shifts, self.fit_intercept = K, shifts, fit_intercept
        self.shape, self.n = Y.shape, len(Y)
        self.weights, self.preconditioner = weights, preconditioner
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

    def product(self, A: NDArray, columns: NDArray) -> NDArray:
        """Return K A."""
        return self.K @ A

    def curved(self, D: NDArray, product: NDArray, columns: NDArray) -> NDArray:
        """Return the projection of K D + lambda W^{-1} D for some columns."""
        return self.project(product + self._shifted(D, columns))

    def residual(self, A: NDArray, product: NDArray, columns: NDArray) -> NDArray:
        """Return the projected residual of some columns, given K A."""
        return self.project(self.Y[:, columns] - product - self._shifted(A, columns))

    def precondition(self, R: NDArray, columns: NDArray) -> NDArray:
        """Return P^{-1} R, projected, for some columns."""
        assert self.preconditioner is not None
        return self.project(self.preconditioner.solve(R, self.shifts[columns]))

    def intercept(self, A: NDArray, product: NDArray) -> NDArray:
        """Return the best b, given K A."""
        return self.mean + self._moved_mean(product)

    def estimate(
        self, A: NDArray, product: NDArray, steps: ConjugateGradients
    ) -> ColumnGaps:
        """Return the certificate of coefficients, given K A."""
        return self.certify(A, product)

    def certify(self, A: NDArray, product: NDArray, tol: float = 0.0) -> ColumnGaps:
        """Return the certificate of coefficients, given K A."""
        errors = self.Y - product - self._moved_mean(product)
        residual = errors - self._shifted(A, slice(None))
        penalty = self.shifts * (A * product).sum(axis=0)
        objective = (self._square(errors) + penalty) / (2 * self.n)
        square = self._square(residual)
        noise = self._rounding() * np.linalg.norm(A, axis=0)
        both = (np.sqrt(square) + noise) ** 2
        return ColumnGaps(
            objective, square / (2 * self.n), (both - square) / (2 * self.n)
        )

    def _shifted(self, A: NDArray, columns: NDArray | slice) -> NDArray:
        """Return lambda W^{-1} A for some columns."""
        scaled = A * self.shifts[columns]
        return scaled if self._inverse is None else scaled * self._inverse

    def _moved_mean(self, product: NDArray) -> NDArray:
        """Return the best b, less the means of the targets."""
        if not self.fit_intercept:
            return np.zeros(product.shape[1])
        return self.means(self.Y - product)

    def _square(self, R: NDArray) -> NDArray:
        if self.weights is None:
            return np.einsum("ij,ij->j", R, R)
        return np.einsum("i,ij,ij->j", self.weights, R, R)

    def _rounding(self) -> float:
        """Return the norm of K A - exact for A of norm 1, from independent errors."""
        size = float(np.finfo(self.K.dtype).eps) * float(np.abs(self.K.diag()).max())
        heaviest = 1.0 if self.weights is None else float(self.weights.max()) ** 0.5
        return size * heaviest * self.n**0.5
