"""Kernel values of dense rows, by compiled code that folds them into a product."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._jit.gram import GROUP, PRODUCT, fold, lanes
from nbsketch._jit.threads import run_tiles
from nbsketch.gram.form import METRICS, PROFILES, CompiledForm

# Memory of the working set of one thread: fits into its L2 cache.
_CACHE_BYTES = 384 << 10
# Maximum rows of a tile: wider tiles are not faster.
_WIDEST = 240
# Steps of the diagonal of a triangle.
_STEPS = 8
# Distances are expanded into inner products from this number of features on, if the
# squared norms of the scaled, centered landmarks are below this, so that no digits are
# lost.
_EXPAND_FEATURES = 32
_EXPAND_NORM = {8: 1e3, 4: 30.0}
# Approximate time of one kernel value on one thread: fixed, and per feature.
_SECONDS_PER_VALUE = 8e-10
_SECONDS_PER_FEATURE = 4e-11

Entries = tuple[NDArray, NDArray, NDArray]


class PackedLandmarks(NamedTuple):
    """A kernel and m landmarks in the layout of the compiled code."""

    kernel: tuple[Any, ...]
    rows: tuple[NDArray, NDArray]  # groups of scaled landmarks, and their squared norms


def pack_landmarks(
    form: CompiledForm, landmarks: NDArray, dtype: Any = np.float64
) -> PackedLandmarks:
    """Scale and pack landmarks for kernel values of a dtype."""
    scale = form.scale.astype(dtype)
    rows = landmarks.astype(dtype, copy=False)
    is_gaussian = (form.metric, form.profile) == ("squared", "exponential")
    # Distances may be computed from inner products and norms.
    expanded = is_gaussian and len(form.scale) >= _EXPAND_FEATURES
    with np.errstate(over="ignore", invalid="ignore"):
        shift = _center(rows)
        if expanded:
            spread, norms = _scaled(rows, shift, scale)
            expanded = bool(norms.max(initial=0) <= _EXPAND_NORM[norms.itemsize])
        if not expanded:
            shift = np.where(_is_exact_shift(form, rows, shift), shift, 0)
            spread, norms = _scaled(rows, shift, scale)
    metric = PRODUCT if expanded else METRICS[form.metric]
    profile = PROFILES[form.profile]
    kernel = metric, profile, form.degree, expanded, float(form.offset), scale, shift
    return PackedLandmarks(kernel, (_pack(spread), norms))


def _center(rows: NDArray) -> NDArray:
    """Return the mean of the rows, 0 for features where it overflows."""
    total = rows.sum(axis=0, dtype=np.float64)
    center = (total / max(1, len(rows))).astype(rows.dtype)
    return np.where(np.isfinite(center), center, 0)


def _scaled(rows: NDArray, shift: NDArray, scale: NDArray) -> tuple[NDArray, NDArray]:
    """Return the shifted and scaled rows, and their squared norms."""
    spread = rows - shift
    spread *= scale
    return spread, np.einsum("ij,ij->i", spread, spread)


def _is_exact_shift(form: CompiledForm, rows: NDArray, shift: NDArray) -> NDArray:
    """Return the features whose shift preserves all distances and saves digits.

    If landmarks differ by less than their size, the difference is exact, and scaling it
    loses fewer digits than scaling large numbers.
    """
    if form.metric not in ("squared", "absolute") or not len(rows):
        return np.zeros(len(shift), dtype=bool)
    width = np.maximum(rows.max(axis=0) - shift, shift - rows.min(axis=0))
    return width <= np.abs(shift) / 2


def _pack(rows: NDArray) -> NDArray:
    """Return rows in groups, feature by feature; the last group is padded."""
    full, remainder = divmod(len(rows), GROUP)
    packed = np.zeros((full + bool(remainder), rows.shape[1], GROUP), dtype=rows.dtype)
    groups = rows[: full * GROUP].reshape(full, GROUP, rows.shape[1])
    packed[:full] = groups.transpose(0, 2, 1)
    packed[full:, :, :remainder] = rows[full * GROUP :].T
    return packed


def entries_of(weights: Any) -> Entries:
    """Return the CSC arrays of a dense or sparse matrix, in fixed types."""
    if not sp.issparse(weights):  # zeros are entries too
        s, m = weights.shape
        rows = np.tile(np.arange(s), m)
        values = np.asarray(weights, dtype=np.float64).ravel(order="F")
        return s * np.arange(m + 1), rows, values
    columns = sp.csc_array(weights, dtype=np.float64)
    pointers = columns.indptr.astype(np.int64, copy=False)
    return pointers, columns.indices.astype(np.int64, copy=False), columns.data


def fold_dense(
    packed: PackedLandmarks,
    X: NDArray,
    entries: Entries,
    out: NDArray,
    triangle: bool = False,
) -> None:
    """Fill `out` (s, n) with W k(L, X) for the entries of W, or its upper triangle.

    The rows of a tile fit into the cache and hardly exceed n. They fill complete
    register blocks.
    """
    n, q = X.shape
    count = (entries[0].size - 1) / (2 if triangle else 1)
    itemsize = packed.rows[0].itemsize
    block = lanes(itemsize)
    fitting = _CACHE_BYTES // (itemsize * (q + 2 * GROUP))
    widest = max(1, min(_WIDEST // block, -(-n // block)))
    width = block * int(np.clip(fitting // block, 1, widest))
    if triangle:
        width = min(width, block * max(1, -(-n // (block * _STEPS))))
    seconds = width * count * (_SECONDS_PER_VALUE + q * _SECONDS_PER_FEATURE)
    run_tiles(
        fold, -(-n // width), seconds,
        X, *packed.kernel, *packed.rows, *entries, out, width, triangle,
    )  # fmt: skip


def fill_values(
    packed: PackedLandmarks, X: NDArray, out: NDArray, weight: float = 1.0
) -> NDArray:
    """Fill `out` (m, n) with weight * k(L, X), and return it."""
    entries = _single_entries(len(out), weight, packed.rows[0].dtype)
    fold_dense(packed, X, entries, out)
    return out


def upper_triangle(form: CompiledForm, X: NDArray) -> NDArray:
    """Return the upper triangle of k(X, X) (n, n); the lower one is undefined."""
    n = len(X)
    out = np.empty((n, n))
    fold_dense(pack_landmarks(form, X), X, _single_entries(n), out, triangle=True)
    return out


def _single_entries(m: int, weight: float = 1.0, dtype: Any = np.float64) -> Entries:
    """Return the entries of a multiple of the identity matrix."""
    return np.arange(m + 1), np.arange(m), np.full(m, weight, dtype=dtype)
