"""The lazy Gram matrix: products with k(X, L), tile by tile, without k(X, L)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nbsketch._blas import one_thread
from nbsketch._jit.gram import (
    ABSOLUTE,
    COMPLEMENT,
    EXPONENTIAL,
    GROUP,
    MATERN_12,
    MATERN_32,
    MATERN_52,
    MINIMUM,
    POWER,
    PRODUCT,
    SQUARED,
    TANIMOTO,
    fold_parallel,
    fold_serial,
    lanes,
)
from nbsketch._jit.threads import run_blocks, run_tiles
from nbsketch._sparse import evaluate_sparse, fold_sparse
from nbsketch._validation import check_rows

if TYPE_CHECKING:
    from nbsketch.kernels import Kernel

__all__ = [
    "ABSOLUTE",
    "COMPLEMENT",
    "EXPONENTIAL",
    "MATERN_12",
    "MATERN_32",
    "MATERN_52",
    "MINIMUM",
    "POWER",
    "PRODUCT",
    "SQUARED",
    "TANIMOTO",
    "CompiledForm",
    "Gram",
    "evaluate",
    "fold",
]

# Memory of a tile of kernel values, where tiles are made at all, and its rows of X.
TILE_BYTES = 4 << 20
_TILE_ROWS = 480
# Memory of the working set of one thread in the fused kernel: within its L2 cache.
_CACHE_BYTES = 384 << 10
# Bytes of one feature of a tile, at most: wider ones gain nothing.
_WIDEST = 1920
# Share of nonzeros among the weights above which a matrix product beats the fused sum.
_DENSE_SHARE = 0.5
# Distances are expanded into inner products from this many features on, and only while
# the scaled landmarks stay so near to their center that no digit that matters is lost.
_EXPAND_FEATURES = 32
_EXPAND_NORM = {8: 1e3, 4: 30.0}
# Rough time of one kernel value on one thread: fixed part, and part per feature.
_SECONDS_PER_VALUE = 8e-10
_SECONDS_PER_FEATURE = 4e-11


class CompiledForm(NamedTuple):
    """What the compiled code needs to know of a kernel.

    Attributes
    ----------
    metric : int
        What is summed over the scaled features of two rows: SQUARED differences,
        ABSOLUTE differences, or the PRODUCT. TANIMOTO: the similarity that comes from
        the sum of products. MINIMUM: the smaller of two features, multiplied over all.
    profile : int
        What becomes of the sum t. EXPONENTIAL: 2^-t. MATERN_12, MATERN_32, MATERN_52:
        e^-u times 1, 1 + u, 1 + u + u^2 / 3 for u = sqrt(t) log 2. POWER:
        (t + offset)^degree. COMPLEMENT: 2^-(offset (1 - t)).
    scale : ndarray of shape (q,)
        Factor of each feature.
    offset, degree
        Those of POWER and COMPLEMENT.

    Notes
    -----
    Rows may be sparse for the metrics SQUARED, PRODUCT and TANIMOTO.
    """

    metric: int
    profile: int
    scale: NDArray[np.float64]
    offset: float = 0.0
    degree: int = 1

    def numbers(self, dtype: np.dtype) -> NDArray:
        """Return 1, log 2, the offset and the highest exponent of a type."""
        highest = -np.finfo(dtype).minexp
        return np.array([1, np.log(2), self.offset, highest], dtype=dtype)


class Gram:
    """The matrix k(X, L), never stored: it can only be multiplied.

    Parameters
    ----------
    kernel : Kernel
        A kernel with all its parameters set.
    X : array_like or sparse matrix of shape (n, q)
        Rows of the matrix. float32 stays float32, everything else becomes float64,
        which is also the type of the products.
    landmarks : array_like or sparse matrix of shape (m, q), optional
        L, its columns, as ``kernel.take`` gives them: the indices of m training rows
        for a precomputed kernel. By default X itself.

    Notes
    -----
    ``Gram(kernel, X) @ S.T`` evaluates only the s' active columns of the sketch S and
    folds each tile of them at once into the (n, s) result. Beyond that, the sketch and
    copies of the s' landmarks it uses a few tiles of 4 MiB, whatever n is.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel, PSparsifiedSketch
    >>> from nbsketch.gram import Gram
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> K = Gram(GaussianKernel(bandwidth=2.0), X)
    >>> S = PSparsifiedSketch(size=10).draw(200, rng=0)
    >>> KST = K @ S.T
    >>> KST.shape, np.allclose(KST, K.to_array() @ S.T)
    ((200, 10), True)
    """

    def __init__(self, kernel: Kernel, X: ArrayLike, landmarks: Any = None) -> None:
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
        B = other if sketch is not None or sp.issparse(other) else np.asarray(other)
        if len(B.shape) not in (1, 2) or B.shape[0] != self.shape[1]:
            raise ValueError(
                f"`B` in K @ B must have {self.shape[1]} rows, got shape {B.shape}"
            )
        if len(B.shape) == 1:
            return (self @ B.reshape(-1, 1))[:, 0]
        if sketch is None:
            return fold(self.kernel, self.X, self.landmarks, B.T).T
        everything = sketch.columns.size == self.shape[1]  # columns are sorted
        active = self.landmarks if everything else self.landmarks[sketch.columns]
        return fold(self.kernel, self.X, active, sketch.weights).T

    def to_array(self) -> NDArray:
        """Return the whole (n, m) matrix."""
        return self.kernel(self.X, self.landmarks)


class TiledWeights(Protocol):
    """Weights W of shape (s, m) that multiply a tile of rows in a way of their own.

    A tile starts at a multiple of `step`, and only the last one may have other than a
    multiple of `step` rows.
    """

    shape: tuple[int, int]
    step: int

    def add_block(self, first: int, tile: NDArray, out: NDArray) -> None:
        """Add W[:, first : first + len(tile)] @ tile to `out`, in its type."""


def fold(kernel: Kernel, X: Any, landmarks: Any, weights: Any) -> NDArray:
    """Return W k(L, X), of shape (s, n), for (s, m) weights W.

    W is a dense or sparse matrix, or one that knows how to multiply tiles.
    """
    out = np.empty((weights.shape[0], X.shape[0]), dtype=X.dtype)
    form = kernel.compiled_form(X.shape[1])
    sparse, tiled = sp.issparse(weights), hasattr(weights, "add_block")
    share = weights.nnz / max(1, np.prod(weights.shape)) if sparse else 1.0
    if form is not None and not tiled and (sp.issparse(X) or sp.issparse(landmarks)):
        fold_sparse(form, X, landmarks, weights, out)
    elif form is not None and share <= _DENSE_SHARE:
        columns = sp.csc_array(weights)
        entries = (columns.indptr, columns.indices, columns.data)
        _fold_fused(form, X, landmarks, entries, out)
    else:
        by_tiles = weights if tiled else _MatrixWeights(weights)
        _fold_by_tiles(kernel, X, landmarks, by_tiles, out)
    return out


def evaluate(form: CompiledForm, X: Any, Y: Any) -> NDArray:
    """Return k(X, Y), of shape (n, m), by compiled code."""
    if sp.issparse(X) or sp.issparse(Y):
        return evaluate_sparse(form, X, Y)
    out = np.empty((X.shape[0], Y.shape[0]), dtype=X.dtype)
    return _fill_tile(_compiled_arguments(form, X, X.dtype), Y, out)


def _fold_fused(
    form: CompiledForm,
    X: NDArray,
    landmarks: NDArray,
    weights: tuple[NDArray, NDArray, NDArray],
    out: NDArray,
) -> None:
    """Fill `out` by the fused kernel; `weights` are the arrays of W in CSC form."""
    _run_fused(X, _compiled_arguments(form, landmarks, X.dtype), weights, out)


def _run_fused(
    X: NDArray,
    arguments: tuple[tuple, tuple],
    weights: tuple[NDArray, NDArray, NDArray],
    out: NDArray,
) -> None:
    (n, q), m = X.shape, weights[0].size - 1
    types: tuple[Any, ...] = (np.int64, np.int64, X.dtype)
    columns = tuple(
        a.astype(t, copy=False) for a, t in zip(weights, types, strict=True)
    )
    width = _tile_width(q, X.itemsize)
    seconds = width * m * (_SECONDS_PER_VALUE + q * _SECONDS_PER_FEATURE)
    args = (X, *arguments, columns, out, width)
    run_tiles(fold_serial, fold_parallel, -(-n // width), seconds, *args)


def _compiled_arguments(
    form: CompiledForm, landmarks: NDArray, dtype: np.dtype
) -> tuple[tuple, tuple]:
    """Return the kernel and the landmarks as the compiled code takes them."""
    scale, rows = form.scale.astype(dtype), landmarks.astype(dtype, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        total = rows.sum(axis=0, dtype=np.float64)
        center = (total / max(1, len(rows))).astype(dtype)
        shift = np.where(np.isfinite(center), center, 0)
        spread = (rows - shift) * scale
        norms = np.einsum("ij,ij->i", spread, spread)
    expanded = bool(
        (form.metric, form.profile) == (SQUARED, EXPONENTIAL)
        and len(scale) >= _EXPAND_FEATURES
        and norms.max(initial=0) <= _EXPAND_NORM[dtype.itemsize]
    )
    if not expanded:
        # A shift leaves distances as they are. Where landmarks differ by less than they
        # measure it is exact, and saves the digits that scaling large numbers costs.
        width = np.abs(rows - shift).max(axis=0, initial=0)
        exact = (width <= np.abs(shift) / 2) & (form.metric in (SQUARED, ABSOLUTE))
        shift = np.where(exact, shift, 0)
        spread = (rows - shift) * scale
        norms = np.einsum("ij,ij->i", spread, spread)
    metric = PRODUCT if expanded else form.metric
    numbers = form.numbers(dtype)
    kernel = (metric, form.profile, form.degree, expanded, numbers, scale, shift)
    return kernel, (_pack(spread), norms)


def _pack(rows: NDArray) -> NDArray:
    """Return rows in groups, each group feature by feature; the last one is padded."""
    full, rest = divmod(len(rows), GROUP)
    packed = np.zeros((full + bool(rest), rows.shape[1], GROUP), dtype=rows.dtype)
    groups = rows[: full * GROUP].reshape(full, GROUP, rows.shape[1])
    packed[:full] = groups.transpose(0, 2, 1)
    packed[full:, :, :rest] = rows[full * GROUP :].T
    return packed


def _tile_width(n_features: int, itemsize: int) -> int:
    block = lanes(itemsize)
    fitting = _CACHE_BYTES // (itemsize * (n_features + 2 * GROUP))
    return block * int(np.clip(fitting // block, 1, _WIDEST // (block * itemsize)))


class _MatrixWeights:
    """A dense or sparse matrix as weights of tiles."""

    step = 1

    def __init__(self, matrix: Any) -> None:
        self._matrix = sp.csc_array(matrix) if sp.issparse(matrix) else matrix
        self.shape: tuple[int, int] = matrix.shape

    def add_block(self, first: int, tile: NDArray, out: NDArray) -> None:
        some = self._matrix[:, first : first + len(tile)]
        out += some.astype(tile.dtype, copy=False) @ tile


def _fold_by_tiles(
    kernel: Kernel, X: Any, landmarks: Any, weights: TiledWeights, out: NDArray
) -> None:
    """Fill `out` from tiles of kernel values: any kernel, any weights."""
    n, m = X.shape[0], landmarks.shape[0]
    values = max(1, TILE_BYTES // X.dtype.itemsize)
    height = max(1, min(n, _TILE_ROWS, values // min(weights.step, m or 1)))
    width = weights.step * max(1, values // height // weights.step)
    blocks = [landmarks[first : first + width] for first in range(0, m, width)]
    tiles = _tiles_of(kernel, blocks, X, height < _TILE_ROWS // 2)

    def work(start: int) -> None:
        rows = X[start : start + height]
        total = np.zeros((out.shape[0], rows.shape[0]), dtype=out.dtype)
        # One for all blocks: new memory would cost as much as the values in it.
        buffer = np.empty((min(width, m), rows.shape[0]), dtype=out.dtype)
        for i, tile_of in enumerate(tiles):
            weights.add_block(i * width, tile_of(rows, buffer), total)
        out[:, start : start + height] = total

    with one_thread():  # of BLAS: there are many small products, side by side
        if kernel.compiled_form(X.shape[1]) is None:  # it may not bear several threads
            for start in range(0, n, height):
                work(start)
        else:
            run_blocks(work, range(0, n, height))


def _tiles_of(
    kernel: Kernel, blocks: list[Any], X: Any, narrow: bool
) -> list[Callable[[Any, NDArray], NDArray]]:
    """Return, for each block of landmarks, what makes k(landmarks, rows) of rows.

    It may use the buffer that it is given. Vector lanes are rows, or landmarks where
    tiles are `narrow`: there are few rows in them.
    """
    form, dtype = kernel.compiled_form(X.shape[1]), X.dtype

    def by_call(block: Any) -> Callable[[Any, NDArray], NDArray]:
        return lambda rows, buffer: np.asarray(kernel(rows, block), dtype=dtype).T

    def sparse(block: Any) -> Callable[[Any, NDArray], NDArray]:
        return lambda rows, buffer: evaluate_sparse(form, block, rows)

    def across(block: NDArray) -> Callable[[NDArray, NDArray], NDArray]:
        def tile(rows: NDArray, buffer: NDArray) -> NDArray:
            out = buffer[: len(block)].reshape(len(rows), len(block))
            return _fill_tile(_compiled_arguments(form, rows, dtype), block, out).T

        return tile

    def dense(block: NDArray) -> Callable[[NDArray, NDArray], NDArray]:
        arguments = _compiled_arguments(form, block, dtype)  # once for all rows
        return lambda rows, buffer: _fill_tile(arguments, rows, buffer[: len(block)])

    if form is None:
        return [by_call(block) for block in blocks]
    blocks = [block.astype(dtype, copy=False) for block in blocks]
    if sp.issparse(X) or any(map(sp.issparse, blocks)):
        return [sparse(block) for block in blocks]
    return [across(block) if narrow else dense(block) for block in blocks]


def _fill_tile(arguments: tuple[tuple, tuple], rows: NDArray, out: NDArray) -> NDArray:
    """Fill `out` (m, n) with k(landmarks, rows), landmarks prepared, and return it."""
    m = len(out)
    _run_fused(rows, arguments, (np.arange(m + 1), np.arange(m), np.ones(m)), out)
    return out
