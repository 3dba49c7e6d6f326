"""What the criterion needs of a kernel: values, slopes, and sums over distances.

Kernels are functions of the squared Euclidean distance of scaled rows or, for the
product Laplacian, of the sum of their absolute differences.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.threads import run_slices
from nbsketch._jit.tuning import (
    LAPLACIAN,
    TILE,
    kernel_and_slope,
    laplacian,
    signed_sums,
    weighted_distances,
)

# Rough seconds of one term of a sum of absolute differences on one thread.
_SECONDS = 4e-10


class Euclidean:
    """Families of the squared Euclidean distance; slopes are derivatives in it."""

    metric = "euclidean"
    # Distances grow with this power of the number of columns.
    power = 0.5

    def __init__(self, family: int) -> None:
        self._family = family

    def fill(self, rows: NDArray, L: NDArray, values: NDArray, slopes: NDArray) -> None:
        """Fill kernel values and slopes of scaled rows (m, q), landmarks (l, q)."""
        norms = [np.einsum("ij,ij->i", part, part) for part in (rows, L)]
        np.matmul(rows, L.T, out=values)
        kernel_and_slope(self._family, *norms, values, slopes)

    def by_scales(
        self, W: NDArray, X: NDArray, L: NDArray, inverse: NDArray
    ) -> NDArray:
        """Return the sum of W_ij times the derivatives of the distances in eta, (q,).

        `X` and `L` are not scaled; `inverse` are the inverse length scales e^eta.
        """
        rows, columns = W @ np.ones(len(L)), np.ones(len(X)) @ W
        total = rows @ np.square(X) + columns @ np.square(L)
        total -= 2 * ((W.T @ X) * L).sum(axis=0)
        return 2 * np.square(inverse) * total

    def gradients(
        self, V: NDArray, X: NDArray, L: NDArray, inverse: NDArray
    ) -> NDArray:
        """Return the gradients (m, q) in the rows, for V = slopes times dual weights.

        The derivatives of the distances in x_k, times V, summed over the landmarks.
        """
        return 2 * np.square(inverse) * (V.sum(axis=1)[:, None] * X - V @ L)


class Manhattan:
    """The product Laplacian kernel, of the sum of absolute differences."""

    metric = "cityblock"
    power = 1.0

    def fill(self, rows: NDArray, L: NDArray, values: NDArray, slopes: NDArray) -> None:
        """Fill kernel values and slopes: see `Euclidean.fill`."""
        args = rows, np.ascontiguousarray(L.T), values, slopes
        seconds = _SECONDS * TILE * L.shape[0] * (L.shape[1] + 10)
        run_slices(laplacian, _tiles(rows), seconds, *args)

    def by_scales(
        self, W: NDArray, X: NDArray, L: NDArray, inverse: NDArray
    ) -> NDArray:
        """Return the sum of W_ij times derivatives: see `Euclidean.by_scales`."""
        out = np.empty((_tiles(X), X.shape[1]))
        args = X, np.ascontiguousarray(L.T), W, out
        seconds = _SECONDS * TILE * L.size
        run_slices(weighted_distances, _tiles(X), seconds, *args)
        return inverse * out.sum(axis=0)

    def gradients(
        self, V: NDArray, X: NDArray, L: NDArray, inverse: NDArray
    ) -> NDArray:
        """Return the gradients in the rows: see `Euclidean.gradients`."""
        out = np.empty(X.shape)
        signed_sums(X, np.ascontiguousarray(L.T), V, out)
        return inverse * out


def distance_of(family: int) -> Euclidean | Manhattan:
    """Return what the criterion needs of a family."""
    return Manhattan() if family == LAPLACIAN else Euclidean(family)


def _tiles(rows: NDArray) -> int:
    """Return the number of tiles of rows."""
    return -(-len(rows) // TILE)
