"""The lazy Gram matrix: products with k(X, L), tile by tile, without k(X, L)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nbsketch._jit.gram import (
    ABSOLUTE,
    EXPONENTIAL,
    GROUP,
    MATERN_12,
    MATERN_32,
    MATERN_52,
    POWER,
    PRODUCT,
    SQUARED,
    fold_parallel,
    fold_serial,
    lanes,
)
from nbsketch._jit.threads import run_tiles
from nbsketch._linalg import one_thread
from nbsketch._validation import check_matrix

if TYPE_CHECKING:
    from nbsketch.kernels import Kernel

__all__ = [
    "ABSOLUTE",
    "EXPONENTIAL",
    "MATERN_12",
    "MATERN_32",
    "MATERN_52",
    "POWER",
    "PRODUCT",
    "SQUARED",
    "CompiledForm",
    "Gram",
    "evaluate",
    "fold",
]

# Memory of a tile of kernel values, where tiles are made at all.
TILE_BYTES = 2 << 20
# Memory of the working set of one thread in the fused kernel: within its L2 cache.
_CACHE_BYTES = 384 << 10
# Share of nonzeros among the weights above which a matrix product beats the fused sum.
_DENSE_SHARE = 0.5
# Distances are expanded into inner products from this many features on, and only while
# the scaled landmarks stay so near to their centre that no digit that matters is lost.
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
        ABSOLUTE differences, or the PRODUCT.
    profile : int
        What becomes of the sum t. EXPONENTIAL: 2^-t. MATERN_12, MATERN_32, MATERN_52:
        e^-u times 1, 1 + u, 1 + u + u^2 / 3 for u = sqrt(t) log 2. POWER:
        (t + offset)^degree.
    scale : ndarray of shape (q,)
        Factor of each feature.
    offset, degree
        Those of POWER.
    """

    metric: int
    profile: int
    scale: NDArray[np.float64]
    offset: float = 0.0
    degree: int = 1


class Gram:
    """The matrix k(X, L), never stored: it can only be multiplied.

    Parameters
    ----------
    kernel : Kernel
        A kernel with all its parameters set.
    X : array_like of shape (n, q)
        Rows of the matrix. float32 stays float32, everything else becomes float64,
        which is also the type of the products.
    landmarks : array_like of shape (m, q), optional
        L, its columns, as ``kernel.take`` gives them: the indices of m training rows
        for a precomputed kernel. By default X itself.

    Notes
    -----
    ``Gram(kernel, X) @ S.T`` evaluates only the s' active columns of the sketch S and
    folds each tile of them at once into the (n, s) result. Beyond that, the sketch and
    copies of the s' landmarks it uses a few tiles of 2 MiB, whatever n is.

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
        self.X = check_matrix("X", X)
        self.landmarks = (
            kernel.take(self.X)
            if landmarks is None
            else kernel.check_landmarks(landmarks, self.X.shape[1])
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(n, m)."""
        return self.X.shape[0], len(self.landmarks)

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


def fold(kernel: Kernel, X: NDArray, landmarks: Any, weights: Any) -> NDArray:
    """Return W k(L, X), of shape (s, n), for the (s, m) weights W, dense or sparse."""
    out = np.empty((weights.shape[0], X.shape[0]), dtype=X.dtype)
    form = kernel.compiled_form(X.shape[1])
    sparse = sp.issparse(weights)
    share = weights.nnz / max(1, np.prod(weights.shape)) if sparse else 1.0
    if form is not None and share <= _DENSE_SHARE:
        columns = sp.csc_array(weights)
        entries = (columns.indptr, columns.indices, columns.data)
        _fold_fused(form, X, landmarks, entries, out)
    else:
        _fold_by_tiles(kernel, X, landmarks, weights, out)
    return out


def evaluate(form: CompiledForm, X: NDArray, Y: NDArray) -> NDArray:
    """Return k(X, Y), of shape (n, m), by compiled code."""
    out = np.empty((X.shape[0], Y.shape[0]), dtype=X.dtype)
    n = X.shape[0]
    _fold_fused(form, Y, X, (np.arange(n + 1), np.arange(n), np.ones(n)), out)
    return out


def _fold_fused(
    form: CompiledForm,
    X: NDArray,
    landmarks: NDArray,
    weights: tuple[NDArray, NDArray, NDArray],
    out: NDArray,
) -> None:
    """Fill `out` by the fused kernel; `weights` are the arrays of W in CSC form."""
    n, q = X.shape
    kernel, packed = _compiled_arguments(form, landmarks, X.dtype)
    types: tuple[Any, ...] = (np.int64, np.int64, X.dtype)
    columns = tuple(
        a.astype(t, copy=False) for a, t in zip(weights, types, strict=True)
    )
    width = _tile_width(q, X.itemsize)
    seconds = width * len(landmarks) * (_SECONDS_PER_VALUE + q * _SECONDS_PER_FEATURE)
    args = (X, kernel, packed, columns, out, width)
    run_tiles(fold_serial, fold_parallel, -(-n // width), seconds, *args)


def _compiled_arguments(
    form: CompiledForm, landmarks: NDArray, dtype: np.dtype
) -> tuple[tuple, tuple]:
    """Return the kernel and the landmarks as the compiled code takes them."""
    scale, rows = form.scale.astype(dtype), landmarks.astype(dtype, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        total = rows.sum(axis=0, dtype=np.float64)
        centre = (total / max(1, len(rows))).astype(dtype)
        shift = np.where(np.isfinite(centre), centre, 0)
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
        exact = (width <= np.abs(shift) / 2) & (form.metric != PRODUCT)
        shift = np.where(exact, shift, 0)
        spread = (rows - shift) * scale
    metric = PRODUCT if expanded else form.metric
    highest = -np.finfo(dtype).minexp
    numbers = np.array([1, np.log(2), form.offset, highest], dtype=dtype)
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
    return block * int(np.clip(fitting // block, 1, 10))


def _fold_by_tiles(
    kernel: Kernel, X: NDArray, landmarks: Any, weights: Any, out: NDArray
) -> None:
    """Fill `out` from tiles of kernel values: any kernel, any weights."""
    if sp.issparse(weights):
        weights = sp.csc_array(weights)
    side = max(64, int(np.sqrt(TILE_BYTES / X.itemsize)))
    with one_thread():  # the products are many and small
        for start in range(0, X.shape[0], side):
            rows = slice(start, start + side)
            out[:, rows] = 0
            for first in range(0, len(landmarks), side):
                some = slice(first, first + side)
                tile = np.asarray(kernel(X[rows], landmarks[some]), dtype=X.dtype)
                out[:, rows] += weights[:, some].astype(X.dtype, copy=False) @ tile.T
