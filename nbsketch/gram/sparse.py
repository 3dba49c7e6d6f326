"""Kernel values of sparse rows, in blocks of landmarks and tiles of rows."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._jit.gram import finish
from nbsketch._jit.sparse import (
    DISTANCE,
    INNER,
    SIMILARITY,
    TILE_ROWS,
    fill,
    fill_norms,
)
from nbsketch._jit.threads import run_tiles
from nbsketch._machine.blas import one_thread
from nbsketch._machine.memory import slices
from nbsketch.gram.form import PROFILES, CompiledForm

# Metrics that are functions of an inner product and two norms.
_FROM_PRODUCT = {"product": INNER, "squared": DISTANCE, "tanimoto": SIMILARITY}
# Landmarks per block: their sums fit into the L1 cache of one thread.
_BLOCK = 2048
# Memory of a tile of rows by one block of landmarks.
_TILE_BYTES = 2 << 20
# A feature present in this share of a block is stored densely: as fast as a list.
_WHOLE_SHARE = 0.1
# A squared distance below this share of the norms is computed from differences.
_DOUBTFUL = 1e-3
# Approximate times on one thread of a sum, of a list step, and of a kernel value.
_SECONDS_PER_SUM = 3e-10
_SECONDS_PER_STEP = 1e-9
_SECONDS_PER_VALUE = 1e-9


class _Landmarks(NamedTuple):
    """A block of landmarks in the form of the compiled code."""

    what: int
    landmarks: tuple[NDArray, ...]
    lists: tuple[NDArray, ...]
    norms: NDArray
    scale: NDArray

    def sums(self, rows: tuple[NDArray, ...]) -> Iterator[tuple[slice, NDArray]]:
        """Yield (rows, sums with the landmarks), all rows in order, in one buffer."""
        n = rows[0].size - 1
        m = self.norms.size
        height = TILE_ROWS * max(1, _TILE_BYTES // (TILE_ROWS * m * 8))
        buffer = np.empty((min(n, height), m))
        steps = rows[2].size / n * self.landmarks[2].size / self.scale.size
        seconds = TILE_ROWS * (m * _SECONDS_PER_SUM + steps * _SECONDS_PER_STEP)
        for start in range(0, n, height):
            out = buffer[: n - start]
            args = self.what, rows, self.landmarks, self.lists, self.norms, self.scale
            run_tiles(fill, _tiles(out), seconds, *args, _DOUBTFUL, out, start)
            yield slice(start, start + len(out)), out


def evaluate_sparse(form: CompiledForm, X: Any, Y: Any, dtype: Any) -> NDArray:
    """Return k(X, Y), of shape (n, m), where X or Y or both are sparse."""
    out = np.empty((X.shape[0], Y.shape[0]), dtype=dtype)
    rows = _arrays(sp.csr_array(X))
    for place, block in _blocks(form, Y):
        for part, tile in block.sums(rows):
            _finish(form, tile, None, out, 0)
            out[part, place] = tile
    return out


def fold_sparse(
    form: CompiledForm, X: Any, landmarks: Any, weights: Any, out: NDArray
) -> None:
    """Fill `out` with W k(L, X), where X or L or both are sparse."""
    out[:] = 0
    rows = _arrays(sp.csr_array(X))
    dense = not sp.issparse(weights)
    columns = weights if dense else sp.csc_array(weights)
    with one_thread():  # of BLAS: the products are many and small
        for place, block in _blocks(form, landmarks):
            W = columns[:, place].astype(np.float64, copy=False)
            entries = None if dense else _arrays(sp.csr_array(W))
            for part, tile in block.sums(rows):
                _finish(form, tile, entries, out, part.start)
                if dense:
                    out[:, part] += W @ tile.T


def _blocks(form: CompiledForm, landmarks: Any) -> Iterator[tuple[slice, _Landmarks]]:
    """Yield (landmarks, block) for all landmarks in order."""
    landmarks = sp.csr_array(landmarks)
    for place in slices(landmarks.shape[0], _BLOCK):
        yield place, _block(form, landmarks[place].astype(np.float64, copy=False))


def _block(form: CompiledForm, landmarks: sp.csr_array) -> _Landmarks:
    if form.metric not in _FROM_PRODUCT:
        raise TypeError(
            "sparse rows need a metric of inner products ('squared', 'product' or "
            f"'tanimoto'), got {form.metric!r}: pass dense rows"
        )
    arrays = _arrays(landmarks)
    norms = np.empty(landmarks.shape[0])
    fill_norms(arrays, form.scale, norms, 0)
    what = _FROM_PRODUCT[form.metric]
    return _Landmarks(what, arrays, _lists(landmarks, form.scale), norms, form.scale)


def _lists(landmarks: sp.csr_array, scale: NDArray) -> tuple[NDArray, ...]:
    """Return the landmarks by feature: all in lists, frequent features also densely.

    Values are multiplied by the square of their scale, so that rows need no scaling.
    """
    m, q = landmarks.shape
    with np.errstate(over="ignore"):
        data = landmarks.data * scale[landmarks.indices] ** 2
    entries = data, landmarks.indices, landmarks.indptr
    by_feature = sp.csc_array(sp.csr_array(entries, shape=(m, q)))
    frequent = np.flatnonzero(np.diff(by_feature.indptr) > _WHOLE_SHARE * m)
    places = np.full(q, -1, dtype=np.int32)
    places[frequent] = np.arange(frequent.size)
    whole = np.ascontiguousarray(by_feature[:, frequent].T.toarray())
    return *_arrays(by_feature), places, whole


def _finish(
    form: CompiledForm,
    tile: NDArray,
    weights: tuple[NDArray, ...] | None,
    out: NDArray,
    start: int,
) -> None:
    """Convert sums to kernel values in place, and fold them if there are weights."""
    if weights is None:
        weights = _arrays(sp.csr_array((0, tile.shape[1])))
    kernel = PROFILES[form.profile], form.degree, float(form.offset)
    seconds = TILE_ROWS * tile.shape[1] * _SECONDS_PER_VALUE
    run_tiles(finish, _tiles(tile), seconds, tile, kernel, weights, out, start)


def _tiles(rows: NDArray) -> int:
    return -(-len(rows) // TILE_ROWS)


def _arrays(matrix: Any) -> tuple[NDArray, NDArray, NDArray]:
    """Return pointers, indices and data of a CSR or CSC matrix, in fixed dtypes."""
    pointers = matrix.indptr.astype(np.int64, copy=False)
    return pointers, matrix.indices.astype(np.int32, copy=False), matrix.data
