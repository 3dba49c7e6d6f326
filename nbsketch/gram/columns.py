"""The sketched columns K S^T as an operator, kept in memory or evaluated anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nbsketch._jit.normal import PARTS, add_normal_parallel, add_normal_serial
from nbsketch._jit.products import add_all
from nbsketch._jit.threads import run_tiles
from nbsketch._memory import fits
from nbsketch._validation import check_rows
from nbsketch.gram.form import KernelLike
from nbsketch.gram.lazy import fold

# Memory of the columns while no limit is set.
MEMORY = 1.5e9
# Memory of a block of rows.
_BLOCK_BYTES = 16 << 20
# Rough time on one thread of one value in both products.
_SECONDS_PER_VALUE = 3e-10


class SketchedColumns:
    r"""The matrix :math:`Z = K S^\top` of shape (n, s) and its normal equations.

    ``normal(V)`` is :math:`Z^\top W Z V` in one pass over Z. The values are kept if
    they fit into a memory limit; otherwise each pass evaluates them again, block by
    block. Sums are float64.

    Parameters
    ----------
    kernel : Kernel
        A kernel with all its parameters set.
    X : ndarray or sparse matrix of shape (n, q)
        Rows.
    sketch : Sketch of shape (s, n)
        S; only its active columns are evaluated.
    dtype : {float32, float64}, default=float32
        Type of the values.
    memory : float or None, default=None
        Bytes that the values may take. None: `nbsketch.get_memory_limit`, and at most
        1.5e9 while no limit is set.

    Attributes
    ----------
    shape : tuple of int
        (n, s).
    n_passes : int
        Number of passes over all values so far.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel, SubsamplingSketch
    >>> from nbsketch.gram import SketchedColumns
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> Z = SketchedColumns(GaussianKernel(1.0), X, SubsamplingSketch(5).draw(100, 0))
    >>> Z.normal(np.ones((5, 1))).shape
    (5, 1)
    """

    def __init__(
        self,
        kernel: KernelLike,
        X: Any,
        sketch: Any,
        *,
        dtype: DTypeLike = np.float32,
        memory: float | None = None,
    ) -> None:
        X = check_rows("X", X)
        kernel.check_domain("X", X)
        self._kernel, self._X, self._sketch = (
            kernel,
            X.astype(dtype, copy=False),
            sketch,
        )
        self._landmarks = kernel.take(self._X, sketch.columns)
        self.dtype, self.shape = np.dtype(dtype), (X.shape[0], sketch.shape[0])
        self.n_passes = 0
        n_bytes = self.dtype.itemsize * X.shape[0] * sketch.shape[0]
        kept = fits(n_bytes, unasked=MEMORY) if memory is None else n_bytes <= memory
        self._kept: list[NDArray] | None = list(self._evaluated()) if kept else None

    def core(self) -> NDArray:
        """Return S K S^T of shape (s, s), evaluated in float64."""
        rows = self._X[self._sketch.columns].astype(np.float64)
        landmarks = self._landmarks
        if np.issubdtype(landmarks.dtype, np.floating):
            landmarks = landmarks.astype(np.float64)
        weights = self._sketch.weights
        half = fold(self._kernel, rows, landmarks, weights)  # (s, s')
        core = np.asarray(weights @ half.T)
        return (core + core.T) / 2

    def normal(self, V: NDArray, weights: NDArray | None = None) -> NDArray:
        """Return Z^T W Z V for V of shape (s, d)."""
        weights = np.ones(self.shape[0]) if weights is None else weights
        V = np.ascontiguousarray(V.T, dtype=np.float64)
        out, start = np.zeros((PARTS, *V.shape)), 0
        for Z in self._blocks():
            some = weights[start : start + len(Z)]
            seconds = _SECONDS_PER_VALUE * Z.size * len(V) / PARTS
            args = Z, V, some, out
            run_tiles(add_normal_serial, add_normal_parallel, PARTS, seconds, *args)
            start += len(Z)
        return out.sum(axis=0).T

    def adjoint(self, U: NDArray) -> NDArray:
        """Return Z^T U for U of shape (n, d)."""
        out, start = np.zeros((U.shape[1], self.shape[1])), 0
        for Z in self._blocks():
            for c, total in enumerate(out):
                add_all(Z, np.ascontiguousarray(U[start : start + len(Z), c]), total)
            start += len(Z)
        return out.T

    def _blocks(self) -> Iterator[NDArray]:
        self.n_passes += 1
        yield from self._evaluated() if self._kept is None else self._kept

    def _evaluated(self) -> Iterator[NDArray]:
        """Yield blocks of rows of Z, row-major."""
        n, s = self.shape
        height = max(48, _BLOCK_BYTES // (self.dtype.itemsize * s))
        for start in range(0, n, height):
            rows = self._X[start : start + height]
            values = fold(self._kernel, rows, self._landmarks, self._sketch.weights)
            yield np.ascontiguousarray(values.T, dtype=self.dtype)
