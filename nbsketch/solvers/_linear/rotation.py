"""The rotation of outputs to the eigenvectors of the output matrix, and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbsketch._blas import eigh

# Eigenvalues of an output matrix below this share of the largest count as zero.
_NULL = 1e-12


def output_basis(output: NDArray | None, n_outputs: int) -> tuple[NDArray, NDArray]:
    """Return eigenvalues and eigenvectors of an output matrix; None is the identity."""
    if output is None:
        return np.ones(n_outputs), np.eye(n_outputs)
    values, vectors = eigh(output)
    return np.where(values > _NULL * values[-1], values, 0.0), vectors


class RotatedOutputs:
    """Targets Y V for M = V D V^T; columns with D = 0 are fitted by constants alone.

    Attributes
    ----------
    targets : ndarray of shape (n, d)
        Y V.
    used : ndarray of bool, shape (d,)
        The columns with positive eigenvalues.
    values : ndarray
        The positive eigenvalues.
    """

    def __init__(self, Y: NDArray, output: NDArray | None) -> None:
        values, self._rotation = output_basis(output, Y.shape[1])
        self.targets = Y @ self._rotation
        self.used = values > 0
        self.values = values[self.used]

    def rotate(self, coef: NDArray) -> NDArray:
        """Return coefficients of the rotated outputs that are used."""
        return (coef @ self._rotation)[:, self.used]

    def restore(
        self,
        coef: NDArray,
        intercept: NDArray,
        weights: NDArray | None,
        fit_intercept: bool,
    ) -> tuple[NDArray, NDArray, float]:
        """Return coefficients, intercepts and the loss of the columns not used."""
        A = np.zeros((len(coef), self.targets.shape[1]))
        b = np.zeros(self.targets.shape[1])
        A[:, self.used], b[self.used] = coef, intercept
        unused, n = self.targets[:, ~self.used], len(self.targets)
        weights = np.ones(n) if weights is None else weights
        if fit_intercept:
            b[~self.used] = weights @ unused / n
        loss = float((weights @ np.square(unused - b[~self.used])).sum() / (2 * n))
        return A @ self._rotation.T, self._rotation @ b, loss
