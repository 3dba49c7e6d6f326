"""The sketched columns K S^T as an operator, stored or re-evaluated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nbsketch._jit import products as jit
from nbsketch._jit.threads import run_tiles
from nbsketch._machine.memory import fits
from nbsketch._report.validation import check_rows
from nbsketch.gram.form import KernelLike, rounded_rows, values_type
from nbsketch.gram.lazy import Product, as_tiled

# Memory of the columns if no limit is set.
MEMORY = 1.5e9
# Shares of the columns that may be stored; the largest that fits is used.
_SHARES = 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1
# Memory of a block of rows; its float64 values take twice as much. Larger blocks get
# new pages from the system each time, and take twice the time.
_BLOCK_BYTES = 8 << 20
# Rows and columns of a block that is symmetrized at a time.
_SQUARE = 512
# Approximate time on one thread of one value in both products.
_SECONDS_PER_VALUE = 3e-10


def normal_of(blocks: Iterable[NDArray], V: NDArray, weights: NDArray) -> NDArray:
    """Return Z^T W Z V for V of shape (s, d), given blocks of the rows of Z."""
    V = np.ascontiguousarray(V.T, dtype=np.float64)
    out = np.zeros((jit.PARTS, *V.shape))
    start = 0
    for Z in blocks:
        stop = start + len(Z)
        seconds = _SECONDS_PER_VALUE * Z.size * len(V) / jit.PARTS
        run_tiles(jit.add_normal, jit.PARTS, seconds, Z, V, weights[start:stop], out)
        start = stop
    return out.sum(axis=0).T


def times_of(blocks: Iterable[NDArray], V: NDArray) -> NDArray:
    """Return Z V for V of shape (s, d), given blocks of the rows of Z."""
    parts = []
    columns = np.ascontiguousarray(V.T)
    for Z in blocks:
        parts.append(np.empty((len(Z), len(columns))))
        if len(columns) == 1:
            jit.row_products(Z, columns[0], parts[-1][:, 0])
        else:
            jit.products_of_few(Z, columns, parts[-1])
    return np.concatenate(parts)


def adjoint_of(blocks: Iterable[NDArray], U: NDArray, size: int) -> NDArray:
    """Return Z^T U for U of shape (n, d), given blocks of the rows of Z."""
    out = np.zeros((U.shape[1], size))
    start = 0
    for Z in blocks:
        part = np.ascontiguousarray(U[start : start + len(Z)])
        if len(out) == 1:
            jit.add_all(Z, part[:, 0], out[0])
        else:
            jit.add_few_combinations(Z, part, out)
        start += len(Z)
    return out.T


class SketchedOperator(ABC):
    """The columns Z = K S^T of a sketch S as an operator."""

    shape: tuple[int, int]
    dtype: np.dtype
    _sketch: Any
    _is_chosen: bool  # the dtype
    _make: Callable[..., SketchedOperator]

    @property
    def active(self) -> NDArray:
        """Indices of the s' rows with a nonzero column of S."""
        return self._sketch.columns

    def unit(self) -> NDArray:
        """Return S 1 divided by its norm, of shape (s,); zeros if it is zero."""
        total = np.asarray(self._sketch @ np.ones(self.shape[0]))
        return total / (float(np.linalg.norm(total)) or 1.0)

    def squared_norm(self) -> float:
        """Return an upper bound of the largest eigenvalue of S S^T."""
        return self._sketch.squared_norm()

    @abstractmethod
    def core(self) -> NDArray:
        """Return S K S^T of shape (s, s) in float64."""

    @abstractmethod
    def normal(self, V: NDArray, weights: NDArray) -> NDArray:
        """Return Z^T W Z V for V of shape (s, d) and weights W of the rows."""

    @abstractmethod
    def times(self, V: NDArray) -> NDArray:
        """Return Z V for V of shape (s, d)."""

    @abstractmethod
    def adjoint(self, U: NDArray) -> NDArray:
        """Return Z^T U for U of shape (n, d)."""

    @abstractmethod
    def exact(self, rows: NDArray, V: NDArray) -> NDArray:
        """Return Z[rows] V without rounding of the kernel values."""

    @abstractmethod
    def take(self, rows: NDArray) -> ColumnBlocks:
        """Return the rows of an index, in ascending order."""

    def rounded(self) -> SketchedOperator:
        """Return them with values in float32, unless a dtype was chosen."""
        return self if self._is_chosen else self._make(dtype=np.float32)


class ColumnBlocks:
    """Rows of Z = K S^T in blocks, stored or evaluated in each pass, and sums of them.

    Parameters
    ----------
    product : Product
        The map x -> S k_x, in the dtype of the values.
    X : ndarray or sparse matrix of shape (n, q)
        Rows.
    dtype : dtype
        Dtype of the values.
    n_kept : int
        Number of first rows whose values are stored.
    """

    def __init__(self, product: Product, X: Any, dtype: Any, n_kept: int = 0) -> None:
        self._product = product
        self._X = X
        self.dtype = np.dtype(dtype)
        self.shape = X.shape[0], product.shape[0]
        self.n_passes = 0
        self._n_kept = n_kept
        self._kept: list[NDArray] = []

    def normal(self, V: NDArray, weights: NDArray) -> NDArray:
        """Return Z^T W Z V for V of shape (s, d) and weights W of the rows."""
        return normal_of(self.blocks(), V, weights)

    def adjoint(self, U: NDArray) -> NDArray:
        """Return Z^T U for U of shape (n, d)."""
        return adjoint_of(self.blocks(), U, self.shape[1])

    def times(self, V: NDArray) -> NDArray:
        """Return Z V for V of shape (s, d), in float64."""
        return times_of(self.blocks(), V)

    def take(self, rows: NDArray) -> ColumnBlocks:
        """Return the rows of an index, evaluated in each pass."""
        return ColumnBlocks(self._product, self._X[rows], self.dtype)

    def blocks(self) -> Iterator[NDArray]:
        """Yield the rows of Z in order. A block is valid until the next one."""
        self.n_passes += 1
        yield from self._kept
        n_kept = sum(map(len, self._kept))
        buffer = None
        for start, stop in self._cuts():
            if start < n_kept:
                continue
            if stop <= self._n_kept:
                self._kept.append(self._values(start, stop))
                yield self._kept[-1]
            else:  # in a buffer that is allocated once
                buffer = self._values(start, stop, buffer)
                yield buffer

    def _values(self, start: int, stop: int, out: NDArray | None = None) -> NDArray:
        """Return rows of Z, in the memory of `out` if it is passed."""
        product = self._product
        X = self._X[start:stop]
        shape = stop - start, self.shape[1]
        if product.dtype != self.dtype:
            return self._transposed(product(X, product.dtype))
        out = np.empty(shape, self.dtype) if out is None else out[: stop - start]
        return product.fill_rows(X, out)

    def _transposed(self, values: NDArray) -> NDArray:
        return np.ascontiguousarray(values.T, dtype=self.dtype)

    def _cuts(self) -> Iterator[tuple[int, int]]:
        """Yield the starts and stops of blocks of rows."""
        step = as_tiled(self._product.weights).step
        return _cuts(self.shape[0], self.dtype.itemsize * self.shape[1], step)


def _cuts(n: int, n_bytes: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield the starts and stops of blocks of n rows with this size in bytes."""
    height = max(48, _BLOCK_BYTES // n_bytes)
    height = max(1, height // step) * step
    for start in range(0, n, height):
        yield start, min(n, start + height)


class SketchedColumns(ColumnBlocks, SketchedOperator):
    r"""The matrix :math:`Z = K S^\top` of shape (n, s) and its normal equations.

    ``normal(V, weights)`` is :math:`Z^\top W Z V` in one pass over Z. The values are
    stored, or as many tenths of them as fit into a memory limit; each pass re-evaluates
    the others, block by block. Sums are float64.

    Parameters
    ----------
    kernel : Kernel
        A kernel with all its parameters set.
    X : ndarray or sparse matrix of shape (n, q)
        Rows.
    sketch : Sketch of shape (s, n)
        S; only its active columns are evaluated.
    dtype : {float32, float64} or None, default=None
        Dtype of the values. None: float64, and float32 in solvers if their tolerance
        allows it. Rows at large distances, in bandwidths, have values in float64.
    memory : float or None, default=None
        Maximum bytes of the values. None: `nbsketch.get_memory_limit`, and at most
        1.5e9 if no limit is set.

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
    >>> Z.normal(np.ones((5, 1)), np.ones(100)).shape
    (5, 1)
    """

    def __init__(
        self,
        kernel: KernelLike,
        X: Any,
        sketch: Any,
        *,
        dtype: DTypeLike | None = None,
        memory: float | None = None,
    ) -> None:
        X = check_rows("X", X)
        n = X.shape[0]
        self._make = partial(SketchedColumns, kernel, X, sketch, memory=memory)
        self._is_chosen = dtype is not None
        dtype = dtype or np.float64
        kernel.check_domain("X", X)
        form = kernel.compiled_form(X.shape[1])
        self._given = X
        dtype = values_type(form, X, dtype)
        X = rounded_rows(form, X, dtype)
        landmarks = kernel.take(X, sketch.columns)
        # Single precision takes 0.4 to 0.6 of the time, but S K S^T needs double: if it
        # contains most of the kernel values, they are computed once, for both.
        single = 2 * len(sketch.columns) <= n
        values = np.dtype(dtype if single else np.float64)
        product = Product(kernel, landmarks, sketch.weights, values)
        share = kept_share(n, sketch.shape[0], dtype, memory)
        super().__init__(product, X, dtype, int(share * n))
        self._sketch = sketch
        self._core = None
        self._exact = Product(
            kernel, kernel.take(self._given, sketch.columns), sketch.weights
        )
        if not single and self._n_kept == n:
            self._core = self._keep_with_core()

    def core(self) -> NDArray:
        """Return S K S^T of shape (s, s), evaluated in float64."""
        if self._core is not None:
            return self._core
        return core_of(self._product, self._X, self.active)

    def exact(self, rows: NDArray, V: NDArray) -> NDArray:
        """Return Z[rows] V, with rows and values in float64 for any `dtype`."""
        return self._exact(self._given[rows]).T @ V

    def rounded(self) -> SketchedOperator:
        """Return them with values in float32, unless a dtype was chosen.

        Values that are stored already move to them.
        """
        if self._is_chosen or self._core is None:
            return super().rounded()
        rounded = copy(self)
        rounded._is_chosen = True
        rounded.dtype = np.dtype(np.float32)
        kept = self._kept
        rounded._kept = [kept.pop(0).astype(np.float32) for _ in range(len(kept))]
        return rounded

    def _keep_with_core(self) -> NDArray:
        """Store all values, and return S K S^T computed from them."""
        core = np.zeros(2 * (self.shape[1],))
        weights = as_tiled(self._sketch.weights)
        for start, stop in self._cuts():
            values = self._product(self._X[start:stop])
            self._kept.append(self._transposed(values))
            low, high = np.searchsorted(self.active, [start, stop])
            rows = self.active[low:high] - start
            weights.add_block(int(low), values.T[rows], core)
        return _symmetric(core)


def kept_share(
    n: int, size: int, dtype: DTypeLike = np.float32, memory: float | None = None
) -> float:
    """Return the share of K S^T of shape (n, size) that is stored between passes."""
    n_bytes = np.dtype(dtype).itemsize * n * size
    for share in _SHARES:
        part = share * n_bytes
        if fits(part, unasked=MEMORY) if memory is None else part <= memory:
            return share
    return 0.0


def core_of(product: Product, X: Any, active: NDArray) -> NDArray:
    """Return S K S^T of shape (s, s) in float64; the landmarks are X[active]."""
    weights = as_tiled(product.weights)
    size = product.shape[0]
    exact = Product(product.kernel, product.landmarks, product.weights)
    core = np.zeros((size, size))
    for start, stop in _cuts(len(active), 8 * size, weights.step):
        rows = X[active[start:stop]].astype(np.float64)
        weights.add_block(start, exact(rows).T, core)
    return _symmetric(core)


def _symmetric(core: NDArray) -> NDArray:
    """Average a square matrix and its transpose in place."""
    cuts = range(0, len(core), _SQUARE)
    for i in cuts:
        for j in cuts:
            if j <= i:
                upper = core[j : j + _SQUARE, i : i + _SQUARE]
                lower = core[i : i + _SQUARE, j : j + _SQUARE]
                mean = (upper + lower.T) / 2
                upper[:] = mean
                lower[:] = mean.T
    return core
