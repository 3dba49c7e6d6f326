"""The square Gram matrix k(X, X) as a symmetric operator."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from nbsketch._jit import symmetric as jit
from nbsketch._jit.gram import BLOCK, GROUP, VECTOR, lanes
from nbsketch._jit.threads import run_tiles
from nbsketch._machine.blas import one_thread
from nbsketch._machine.memory import fits
from nbsketch._report.validation import check_choice, check_rows
from nbsketch.gram.dense import pack_landmarks
from nbsketch.gram.form import KernelLike, rounded_rows, take_rows, values_type
from nbsketch.gram.lazy import fold, rounded

# Memory for kernel values if no limit is set: all pairs of 17,000 rows.
MEMORY = 6e8
# Tiles of rows per block: its landmarks and sums fit into the L1 cache. Vectors of 32
# bytes use three times as many: a product takes 0.85 of the time with eight.
_BLOCK_TILES = 1536 // (VECTOR * BLOCK)
# Rows per block for kernels that are not compiled, or for sparse rows.
_BLOCK_ROWS = 1024
# Approximate time of one pair of rows on one thread: fixed, per feature and column.
_SECONDS_PER_PAIR = 3e-10
_SECONDS_PER_FEATURE = 3e-11
_SECONDS_PER_COLUMN = 1.2e-10


class SymmetricGram:
    r"""The matrix :math:`K = k(X, X)` as an operator: ``K @ V`` in float64.

    Only one triangle is evaluated: each kernel value is used in two products. The
    values are stored if they fit into a memory limit; otherwise each product
    re-evaluates them, in memory that does not grow with n.

    Parameters
    ----------
    kernel : Kernel
        A kernel with all its parameters set.
    X : ndarray or sparse matrix of shape (n, q)
        Rows.
    dtype : {float32, float64}, default=float32
        Dtype of the kernel values. Products are summed in float64. Rows at large
        distances, in bandwidths, have values in float64.
    memory : float or None, default=None
        Maximum bytes of kernel values: they are stored if ``n**2 / 2 * itemsize <=
        memory``. None: half of `nbsketch.get_memory_limit`, because operators of some
        of the rows are stored besides, and at most 6e8 if no limit is set.

    Attributes
    ----------
    shape : tuple of int
        (n, n).
    n_products : int
        Number of products so far, each a pass over all pairs of rows.

    Notes
    -----
    Compiled kernels of dense rows run in parallel, and the result does not depend on
    the number of threads. Sparse rows, user-defined and precomputed kernels are
    evaluated block by block through calls of the kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel
    >>> from nbsketch.gram import SymmetricGram
    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> K = SymmetricGram(GaussianKernel(1.0), X, dtype=np.float64)
    >>> (K @ np.array([1.0, 0.0, 0.0])).round(4).tolist()
    [1.0, 0.6065, 0.0111]
    """

    def __init__(
        self,
        kernel: KernelLike,
        X: Any,
        *,
        dtype: DTypeLike = np.float32,
        memory: float | None = None,
    ) -> None:
        self.kernel = kernel
        self.memory = memory
        check_choice("dtype", np.dtype(dtype), (np.dtype("f4"), np.dtype("f8")))
        X = check_rows("X", X)
        kernel.check_domain("X", X)
        self._form = form = kernel.compiled_form(X.shape[1])
        self.dtype = values_type(form, X, dtype)
        self._given = X
        if form is not None:  # else rows may be those of a precomputed matrix
            X = rounded_rows(form, X, self.dtype)
        self.X = X if sp.issparse(X) else np.ascontiguousarray(X)
        self.shape = X.shape[0], X.shape[0]
        self.n_products = 0
        n_bytes = X.shape[0] ** 2 / 2 * self.dtype.itemsize
        kept = (
            fits(n_bytes, copies=2, unasked=MEMORY)
            if memory is None
            else n_bytes <= memory
        )
        dense = form is not None and not sp.issparse(X)
        self._pairs = (
            _TilePairs(form, self.X, kept)
            if dense
            else _BlockPairs(self.kernel, self.X, self.dtype, kept)
        )

    @cached_property
    def _double(self) -> Any:
        """The rows in float64, but not those of a precomputed matrix.

        Compiled code for float32 would cost a second in a first fit.
        """
        return self.X if self._form is None else self.X.astype(np.float64, copy=False)

    def __matmul__(self, V: NDArray) -> NDArray:
        """Return K V, of shape (n,) or (n, d), in float64."""
        V = np.asarray(V, dtype=np.float64)
        if V.ndim not in (1, 2) or len(V) != self.shape[0]:
            raise ValueError(
                f"`V` must have shape ({self.shape[0]},) or ({self.shape[0]}, d), got "
                f"{V.shape}"
            )
        self.n_products += 1
        out = self._pairs.multiply(np.atleast_2d(V.T))
        return out[0] if V.ndim == 1 else out.T

    def rows(self, index: NDArray) -> NDArray:
        """Return the rows k(X[index], X), of shape (len(index), n)."""
        if self._form is not None:
            double = self.kernel(self._double[index], self._double)
            return rounded(self._form, double, self.dtype)
        landmarks = self.kernel.take(self.X, index)
        return np.asarray(self.kernel(self.X, landmarks), dtype=self.dtype).T

    def combine(self, index: NDArray, v: NDArray) -> NDArray:
        """Return K[:, index] @ v for few columns and v (m,) or (m, d), in float64."""
        return self._fold(self._double, self.kernel.take(self._double, index), v)

    def exact(self, index: NDArray, v: NDArray) -> NDArray:
        """Return (K v)[index], with rows and values in float64 for any `dtype`.

        v has shape (n,) or (n, d).
        """
        return self._fold(self._given[index], self.kernel.take(self._given), v)

    def _fold(self, rows: Any, landmarks: Any, v: NDArray) -> NDArray:
        columns = np.ascontiguousarray(np.atleast_2d(v.T))
        out = fold(self.kernel, rows, landmarks, columns, np.float64)
        return out[0] if v.ndim == 1 else out.T

    def block(self, index: NDArray) -> NDArray:
        """Return K[index][:, index] in float64."""
        rows = take_rows(self.kernel, self.X, index)
        values = self.kernel(rows.astype(np.float64, copy=False))
        # A callable may return its own array.
        return np.asarray(values).astype(np.float64, copy=self._form is None)

    def take(self, index: NDArray) -> SymmetricGram:
        """Return the operator restricted to some rows."""
        rows = take_rows(self.kernel, self.X, index)
        return SymmetricGram(self.kernel, rows, dtype=self.dtype, memory=self.memory)

    def diag(self) -> NDArray:
        """Return the diagonal k(x, x), of shape (n,)."""
        return np.asarray(self.kernel.diag(self.X), dtype=np.float64)


class _TilePairs:
    """Products of compiled kernels of dense rows, by tiles of register blocks."""

    def __init__(self, form: Any, X: NDArray, kept: bool) -> None:
        self._n, q = X.shape
        width = lanes(X.itemsize)
        tiles = -(-self._n // width)
        kernel, (packed, norms) = pack_landmarks(form, X, X.dtype)
        self._kernel = kernel[:5]
        self._packed = np.zeros((tiles * width // GROUP, q, GROUP), X.dtype)
        self._packed[: len(packed)] = packed
        self._norms = np.zeros(tiles * width, X.dtype)
        self._norms[: self._n] = norms
        count = max(1, tiles // _BLOCK_TILES) // 2 * 2 + 1
        self._blocks = np.arange(count + 1) * tiles // count * width
        blocks = np.split(self._packed, self._blocks[1:-1] // GROUP)
        self._rows = np.concatenate([k.transpose(1, 0, 2).ravel() for k in blocks])
        self._places, total = _places(self._blocks)
        self._kept = kept
        self._mode = jit.STORE if kept else jit.MAKE
        self._store = np.empty(total if kept else 0, X.dtype)

    def multiply(self, V: NDArray) -> NDArray:
        """Return V K for V (d, n)."""
        padded = np.zeros((len(V), len(self._norms)))
        padded[:, : self._n] = V
        out = np.zeros(padded.shape)
        n_pairs = self._places.size
        run_tiles(
            jit.multiply, n_pairs, self._seconds(len(V)) / n_pairs,
            *self._kernel, self._rows, self._packed, self._norms,
            padded, out, self._store, self._mode, self._blocks, self._places,
            together=self._places.shape[1],
        )  # fmt: skip
        self._mode = jit.READ if self._kept else jit.MAKE
        return out[:, : self._n]

    def _seconds(self, columns: int) -> float:
        value = _SECONDS_PER_PAIR + self._packed.shape[1] * _SECONDS_PER_FEATURE
        value *= self._mode != jit.READ
        return self._n**2 / 2 * (value + columns * _SECONDS_PER_COLUMN)


def _places(blocks: NDArray) -> tuple[NDArray, int]:
    """Return the start of the values of each pair of blocks, and their number."""
    count = len(blocks) - 1
    sizes = np.diff(blocks)
    r, t = np.mgrid[:count, : (count + 1) // 2]
    values = sizes[(r + t) % count] * sizes[(r - t) % count]
    ends = np.cumsum(values).reshape(values.shape)
    return ends - values, int(ends[-1, -1])


class _BlockPairs:
    """Products of any kernel, in blocks of rows evaluated by the kernel."""

    def __init__(self, kernel: KernelLike, X: Any, dtype: np.dtype, kept: bool) -> None:
        self._kernel = kernel
        self._X = X
        self._dtype = dtype
        self._stored: dict[tuple[int, int], NDArray] | None = {} if kept else None

    def multiply(self, V: NDArray) -> NDArray:
        """Return V K for V (d, n)."""
        n = V.shape[1]
        out = np.zeros(V.shape)
        with one_thread():  # of BLAS: many small products
            for i in range(0, n, _BLOCK_ROWS):
                for j in range(i, n, _BLOCK_ROWS):
                    self._add(V, out, i, j)
        return out

    def _add(self, V: NDArray, out: NDArray, i: int, j: int) -> None:
        rows = slice(i, i + _BLOCK_ROWS)
        columns = slice(j, j + _BLOCK_ROWS)
        values = self._values(i, j).astype(np.float64, copy=False)
        out[:, columns] += V[:, rows] @ values
        if i != j:
            out[:, rows] += V[:, columns] @ values.T

    def _values(self, i: int, j: int) -> NDArray:
        if self._stored is not None and (i, j) in self._stored:
            return self._stored[i, j]
        n = self._X.shape[0]
        X = self._X
        index = np.arange(j, min(n, j + _BLOCK_ROWS))
        values = self._kernel(X[i : i + _BLOCK_ROWS], self._kernel.take(X, index))
        values = np.asarray(values, dtype=self._dtype)
        if self._stored is not None:
            self._stored[i, j] = values
        return values
