"""Products with k(X, L) and k(L, X) that do not store these matrices."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nbsketch._jit.threads import run_blocks
from nbsketch._machine.blas import one_thread
from nbsketch._machine.memory import slices
from nbsketch._report.validation import as_csr, check_rows
from nbsketch.gram.dense import (
    Entries,
    PackedLandmarks,
    entries_of,
    fill_values,
    fold_dense,
    pack_landmarks,
)
from nbsketch.gram.form import CompiledForm, KernelLike
from nbsketch.gram.sparse import evaluate_sparse, fold_sparse

# Memory of a tile of kernel values, and its rows of X.
TILE_BYTES = 4 << 20
_TILE_ROWS = 480
# Rows read at a time if indexing copies or transforms them.
_LAZY_ROWS = 1 << 13

# Function that evaluates k(landmarks, rows); it may use the buffer passed to it.
_Tile = Callable[[Any, NDArray], NDArray]
# Share of nonzeros of the weights above which a matrix product is faster than the fused
# sum, unless the weights have this few rows.
_DENSE_SHARE = 0.5
_FEW_ROWS = 12


class TiledWeights(Protocol):
    """Weights W of shape (s, m) with their own product with a tile of rows.

    A tile starts at a multiple of `step`, and only the last one may have a number of
    rows that is not a multiple of `step`.
    """

    shape: tuple[int, int]
    step: int

    def add_block(self, first: int, tile: NDArray, out: NDArray) -> None:
        """Add W[:, first : first + len(tile)] @ tile to `out`, in its dtype."""


class MatrixWeights:
    """A dense or sparse matrix as tiled weights."""

    step = 1

    def __init__(self, matrix: Any) -> None:
        self._matrix = sp.csc_array(matrix) if sp.issparse(matrix) else matrix
        self.shape = matrix.shape

    def add_block(self, first: int, tile: NDArray, out: NDArray) -> None:
        """Add the product with a tile: see `TiledWeights.add_block`."""
        part = self._matrix[:, first : first + len(tile)]
        part = part.astype(tile.dtype, copy=False)
        if not sp.issparse(part):
            out += part @ tile
            return
        part = sp.csr_array(part)
        rows = np.flatnonzero(np.diff(part.indptr))  # only these change
        out[rows] += part[rows] @ np.ascontiguousarray(tile)


def as_tiled(weights: Any) -> TiledWeights:
    """Return a dense or sparse matrix, or custom weights, as tiled weights."""
    return weights if hasattr(weights, "add_block") else MatrixWeights(weights)


def fold_by_tiles(
    kernel: KernelLike, X: Any, landmarks: Any, weights: TiledWeights, out: NDArray
) -> None:
    """Fill `out` (s, n) with W k(L, X)."""
    n = X.shape[0]
    m = landmarks.shape[0]
    values = max(1, TILE_BYTES // 8)
    height = max(1, min(n, _TILE_ROWS, values // min(weights.step, m or 1)))
    width = weights.step * max(1, values // height // weights.step)
    blocks = [landmarks[part] for part in slices(m, width)]
    narrow = height < _TILE_ROWS // 2
    form = kernel.compiled_form(X.shape[1])
    tiles = [_tile_of(kernel, form, block, X, narrow) for block in blocks]

    def work(start: int) -> None:
        rows = X[start : start + height]
        total = np.zeros((out.shape[0], rows.shape[0]))
        # Shared by all blocks: allocation costs as much as the values.
        buffer = np.empty((min(width, m), rows.shape[0]))
        for i, tile_of in enumerate(tiles):
            weights.add_block(i * width, tile_of(rows, buffer), total)
        out[:, start : start + height] = total

    with one_thread():  # of BLAS: many small products run in parallel
        if form is None:  # a call may not be thread-safe
            for start in range(0, n, height):
                work(start)
        else:
            run_blocks(work, range(0, n, height))


def _tile_of(
    kernel: KernelLike, form: CompiledForm | None, block: Any, X: Any, narrow: bool
) -> _Tile:
    """Return the function of rows that computes a tile of a block of landmarks.

    Vector lanes are rows, or landmarks if tiles are `narrow`, with few rows.
    """
    if form is None:
        return lambda rows, buffer: np.asarray(kernel(rows, block), dtype=np.float64).T
    if sp.issparse(X) or sp.issparse(block):
        return lambda rows, buffer: evaluate_sparse(form, block, rows, np.float64)
    if not narrow:
        packed = pack_landmarks(form, block)  # once for all rows
        return lambda rows, buffer: fill_values(packed, rows, buffer[: len(block)])

    def tile(rows: NDArray, buffer: NDArray) -> NDArray:
        out = buffer[: len(block)].reshape(len(rows), len(block))
        return fill_values(pack_landmarks(form, rows), block, out).T

    return tile


class Product:
    """The map X -> W k(L, X), with landmarks and weights prepared once for many X.

    Kernel values and sums are in double precision for any dtype of the rows, unless
    `dtype` requests single precision from compiled code.

    Parameters
    ----------
    kernel : KernelLike
        The kernel.
    landmarks : ndarray or csr_array of shape (m, q)
        L, in the form returned by `kernel.take`.
    weights : ndarray, sparse matrix or TiledWeights of shape (s, m)
        W.
    dtype : {float64, float32}, default=float64
        Dtype of values and sums of dense rows in compiled code.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel
    >>> from nbsketch.gram import Product
    >>> landmarks = np.array([[0.0], [1.0]])
    >>> f = Product(GaussianKernel(1.0), landmarks, np.array([[1.0, -1.0]]))
    >>> f(np.array([[0.0], [0.5]])).round(4).tolist()
    [[0.3935, 0.0]]
    """

    def __init__(
        self, kernel: KernelLike, landmarks: Any, weights: Any, dtype: Any = np.float64
    ) -> None:
        self.kernel = kernel
        self.landmarks = landmarks
        self.weights = weights
        self.dtype = np.dtype(dtype)
        self.shape = weights.shape

    def __call__(self, X: Any, dtype: Any = np.float64) -> NDArray:
        """Return W k(L, X), of shape (s, n), rounded to a dtype."""
        weights = self.weights
        out = np.empty((weights.shape[0], X.shape[0]), dtype=dtype)
        form = self.kernel.compiled_form(X.shape[1])
        sparse = sp.issparse(X) or sp.issparse(self.landmarks)
        if form is not None and not (sparse or isinstance(X, np.ndarray)):
            for part in slices(X.shape[0], _LAZY_ROWS):
                out[:, part] = self(X[part], dtype)
        elif form is not None and sparse and not hasattr(weights, "add_block"):
            fold_sparse(form, X, self.landmarks, weights, out)
        elif form is not None and self._is_fused:
            packed, entries = self._packed
            fold_dense(packed, X, entries, out)
        else:
            fold_by_tiles(self.kernel, X, self.landmarks, as_tiled(weights), out)
        return out

    def fill_rows(self, X: Any, out: NDArray) -> NDArray:
        """Fill `out` (n, s), in the dtype of this product, with k(X, L) W^T."""
        chosen = None if sp.issparse(X) else self._chosen
        if chosen is None:
            out[:] = self(X, self.dtype).T
            return out
        landmarks, factors = chosen
        # Vector lanes are landmarks: the values of a row of X are contiguous.
        form: Any = self._form
        fill_values(pack_landmarks(form, X, self.dtype), landmarks, out, factors[0])
        if np.any(factors != factors[0]):
            out *= factors / factors[0]
        return out

    @property
    def is_compiled(self) -> bool:
        """Whether kernel values are computed by compiled code, which is thread-safe."""
        return self._form is not None

    @cached_property
    def _form(self) -> CompiledForm | None:
        shape = self.landmarks.shape
        return self.kernel.compiled_form(shape[1]) if len(shape) == 2 else None

    @cached_property
    def _is_fused(self) -> bool:
        if hasattr(self.weights, "add_block"):
            return False
        if not sp.issparse(self.weights):
            return self.weights.shape[0] <= _FEW_ROWS
        return self.weights.nnz <= _DENSE_SHARE * np.prod(self.weights.shape)

    @cached_property
    def _chosen(self) -> tuple[NDArray, NDArray] | None:
        """Return the landmark of each row of W and its weight, if rows have one entry.

        No weight is zero.
        """
        W = self.weights
        dense = self._form is not None and not sp.issparse(self.landmarks)
        if not (dense and sp.issparse(W) and W.nnz == W.shape[0]):
            return None
        rows = sp.csr_array(W)
        factors = rows.data.astype(self.dtype)
        if np.any(np.diff(rows.indptr) != 1) or not np.all(factors):
            return None
        return np.ascontiguousarray(self.landmarks[rows.indices]), factors

    @cached_property
    def _packed(self) -> tuple[PackedLandmarks, Entries]:
        form: Any = self._form
        pointers, rows, values = entries_of(self.weights)
        entries = pointers, rows, values.astype(self.dtype, copy=False)
        return pack_landmarks(form, self.landmarks, self.dtype), entries


class Gram:
    """The matrix k(X, L) as an operator, without storing it.

    Parameters
    ----------
    kernel : Kernel
        A kernel with all its parameters set.
    X : array_like or sparse matrix of shape (n, q)
        Rows of the matrix. float32 is kept, other dtypes become float64; products have
        the same dtype. All arithmetic is in double precision.
    landmarks : array_like or sparse matrix of shape (m, q), optional
        Columns L, in the form returned by ``kernel.take``: the indices of m training
        samples for a precomputed kernel. Default: X itself.

    Notes
    -----
    ``Gram(kernel, X) @ S.T`` evaluates only the s' nonzero columns of the sketch S and
    folds each tile into the (n, s) result. In addition to the result, the sketch and
    copies of the s' landmarks, memory is a few tiles of 4 MiB for any n.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel, PSparsifiedSketch
    >>> from nbsketch.gram import Gram
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> K = Gram(GaussianKernel(bandwidth=2.0), X)
    >>> S = PSparsifiedSketch(size=10).draw(200, rng=0)
    >>> KST = K @ S.T
    >>> KST.shape, np.allclose(KST, K.kernel(X) @ S.T)
    ((200, 10), True)
    """

    def __init__(self, kernel: KernelLike, X: ArrayLike, landmarks: Any = None) -> None:
        self.kernel = kernel
        self.X = check_rows("X", X)
        kernel.check_domain("X", self.X)
        self.landmarks = (
            kernel.take(self.X)
            if landmarks is None
            else kernel.check_landmarks(landmarks, self.X.shape[1])
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(n, m)."""
        return self.X.shape[0], self.landmarks.shape[0]

    def __matmul__(self, other: Any) -> NDArray:
        """Return k(X, L) @ B for the transpose of a sketch, a matrix or a vector B."""
        sketch = getattr(other, "sketch", None)
        B = other if sketch is not None else np.asarray(other)
        if sp.issparse(other):
            B = as_csr(other, "B")
        if len(B.shape) not in (1, 2) or B.shape[0] != self.shape[1]:
            raise ValueError(
                f"`B` in K @ B must have {self.shape[1]} rows, got shape {B.shape}"
            )
        if len(B.shape) == 1:
            return (self @ B.reshape(-1, 1))[:, 0]
        if sketch is None:
            return fold(self.kernel, self.X, self.landmarks, B.T, self.X.dtype).T
        everything = sketch.columns.size == self.shape[1]  # columns are sorted
        active = self.landmarks if everything else self.landmarks[sketch.columns]
        return fold(self.kernel, self.X, active, sketch.weights, self.X.dtype).T


def fold(
    kernel: KernelLike, X: Any, landmarks: Any, weights: Any, dtype: Any = np.float64
) -> NDArray:
    """Return W k(L, X), of shape (s, n), for (s, m) weights W: see `Product`."""
    return Product(kernel, landmarks, weights)(X, dtype)


def evaluate(form: CompiledForm, X: Any, Y: Any, dtype: Any = np.float64) -> NDArray:
    """Return k(X, Y), of shape (n, m), by compiled code, rounded to a dtype."""
    if sp.issparse(X) or sp.issparse(Y):
        return rounded(form, evaluate_sparse(form, X, Y, dtype), dtype)
    out = np.empty((X.shape[0], Y.shape[0]), dtype)
    return rounded(form, fill_values(pack_landmarks(form, X), Y, out), dtype)


def rounded(form: CompiledForm, values: NDArray, dtype: Any) -> NDArray:
    """Return kernel values in a dtype.

    Those of an exponential are at least the smallest normal number of the dtype.
    """
    values = values.astype(dtype, copy=False)
    if values.dtype == np.float64 or form.profile == "power":
        return values
    return np.maximum(values, np.finfo(dtype).tiny, out=values)
